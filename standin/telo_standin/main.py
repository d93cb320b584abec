"""The command line: ``telo run`` and ``telo check``, signals and exit codes.

Exit codes: the application's (0), 1 for an application that cannot be loaded or fails and for a
command that is not known, 128 + signal after SIGINT or SIGTERM.
"""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NamedTuple, NoReturn

from telo_standin.errors import Interrupted, ManifestError, StandinError

BANNER = "[stand-in telo kernel: a test double, not the Telo kernel]\n"
USAGE = "usage: telo run [--inspect HOST:PORT] [--no-open] ENTRY [ARGUMENTS], telo check ENTRY"
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Options(NamedTuple):
    """What the command line asks for; ``inspect`` is where the debug server listens."""

    command: str
    entry: str
    inspect: tuple[str, int] | None = None


def main(arguments: Sequence[str]) -> NoReturn:
    """Run one command and end the process with its exit code."""
    for number in _STOP_SIGNALS:
        signal.signal(number, _interrupt)
    try:
        code = _main(arguments)
    except Interrupted as exc:
        code = 128 + exc.signal_number
    except BrokenPipeError:
        # Whoever read the output is gone; Python would complain once more while it exits.
        code = 128 + signal.SIGPIPE
    # Serving threads may be anywhere: nothing is to be tidied up after them.
    os._exit(code)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    # Once is enough: the way down is short and bounded.
    for other in _STOP_SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise Interrupted(number)


def _main(arguments: Sequence[str]) -> int:
    sys.stdout.write(BANNER)
    sys.stdout.flush()
    try:
        options = parse_arguments(arguments)
        return _check(options) if options.command == "check" else _run(options)
    except StandinError as exc:
        return _fail(str(exc))
    except RecursionError:
        return _fail("the manifest is nested too deeply")


def parse_arguments(arguments: Sequence[str]) -> Options:
    """Return what a command line asks for.

    Everything after the entry belongs to the application.

    Raises:
        ManifestError: it names what is not known.
    """
    if not arguments or arguments[0] not in ("run", "check"):
        unknown = f"the stand-in kernel does not know command {arguments[0]}; " if arguments else ""
        raise ManifestError(unknown + USAGE)
    inspect = None
    rest = list(arguments[1:])
    while rest and rest[0].startswith("-") and rest[0] != "--":
        option, equals, value = rest.pop(0).partition("=")
        if option == "--no-open" and not equals:
            continue
        if option != "--inspect" or arguments[0] != "run":
            raise ManifestError(f"the stand-in kernel does not know option {option}")
        inspect = _address(value if equals else rest.pop(0) if rest else "")
    if rest and rest[0] == "--":
        del rest[0]
    if not rest:
        raise ManifestError(f"no entry is given; {USAGE}")
    return Options(arguments[0], rest[0], inspect)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) <= 65535):
        raise ManifestError("--inspect takes HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _check(options: Options) -> int:
    from telo_standin import manifest, references

    application = manifest.load(options.entry)
    references.check(application)
    sys.stdout.write(f"{application.name}: no issues found\n")
    sys.stdout.flush()
    return 0


def _run(options: Options) -> int:
    # The servers' modules take longer to import than a short run takes: only who needs them does.
    from telo_standin import lifecycle, manifest, references, settings

    application = manifest.load(options.entry)
    references.check(application)
    scope = settings.read_settings(application, os.environ)
    return lifecycle.run(application, scope, options.inspect)


def _fail(message: str) -> int:
    # To stdout, in order with what the application wrote before.
    sys.stdout.flush()
    sys.stdout.buffer.write(f"error: {message}\n".encode("utf-8", "replace"))
    sys.stdout.buffer.flush()
    return 1
