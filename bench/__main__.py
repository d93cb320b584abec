"""`make bench`: measure, print the table, and write it to RESULTS.md.

It fails where a measurement is broken; a target that is missed is told in the table only.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable

from bench import create, machine, memory, pods, report, routes, starts, streams, watches
from bench.figures import BrokenMeasurement, Figure
from bench.scale import TINY, WHOLE, Scale

MEASUREMENTS: dict[str, Callable[[Scale], list[Figure]]] = {
    "create": create.measure,
    "watches": watches.measure,
    "streams": streams.measure,
    "memory": memory.measure,
    "pods": pods.measure_local,
    "starts": starts.measure_local,
    "routes": routes.measure_local,
    "pods-real": pods.measure_real,
    "starts-real": starts.measure_real,
    "routes-real": routes.measure_real,
}


def main() -> int:
    """Run what was asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("measurements", nargs="*", help=f"of {', '.join(MEASUREMENTS)}; none: all")
    parser.add_argument("--tiny", action="store_true", help="only see whether the bench works")
    options = parser.parse_args()
    # What was started, in a cluster too, is taken down on the way out.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    if unknown := set(options.measurements) - MEASUREMENTS.keys():
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    described = machine.describe()
    figures: list[Figure] = []
    broken = False
    for name in options.measurements or MEASUREMENTS:
        began_at = time.monotonic()
        _say(f"{name} ...")
        try:
            figures += MEASUREMENTS[name](TINY if options.tiny else WHOLE)
        except BrokenMeasurement as exc:
            broken = True
            _say(f"{name}: broken: {exc}")
        _say(f"{name}: {time.monotonic() - began_at:.0f} s")
    sys.stdout.write("\n".join([*described, "", report.table(figures), ""]))
    if not (broken or options.tiny or options.measurements):
        report.write(figures, described)
        _say(f"written to {report.RESULTS}")
    return 1 if broken else 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
