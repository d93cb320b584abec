"""`examples/demo.py` as a user ends it: whatever the moment, nothing is left running."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving import ROOT, START_SECONDS

INTERRUPTED = 128 + signal.SIGINT


def left_of(folder: Path) -> list[str]:
    """Return the processes that were started with a data folder in this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        if b"RUNNER_DATA_DIR=" + os.fsencode(folder) in environment:
            found.append(process.name)
    return found


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        # The second one comes in the middle of the stop.
        (["running", "Stopping with"], INTERRUPTED),
        (["Stopping with"], 0),
    ],
)
def test_a_demo_that_is_interrupted_leaves_nothing_behind(
    tmp_path: Path, moments: list[str], expected: int
) -> None:
    demo = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output = ""
    with demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            output += line
            if moments and moments[0] in line:
                demo.send_signal(signal.SIGINT)
                moments = moments[1:]
        code = demo.wait(START_SECONDS)
    assert (code, moments) == (expected, []), output
    assert "Traceback" not in output
    assert left_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
