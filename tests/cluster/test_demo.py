"""`examples/demo.py` as a user ends it: whatever the moment, nothing is left running."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import ROOT, START_SECONDS

TRIES = 3
INTERRUPTED = 128 + signal.SIGINT

# What a visit under the public host looks like, and that it works as told.
VISIT = re.compile(
    r"""
    ^running\ at\ https://(?P<host>8080-[a-z2-7]{12}\.apps\.localhost)\n
    (?:.*\n)*?route\ (?P=host)\ is\ pending\n
    (?:.*\n)*?route\ (?P=host)\ is\ programmed\n
    (?:.*\n)*?\$\ curl\ --resolve\ (?P=host):(?P<port>\d+):127\.0\.0\.1
    \ 'http://(?P=host):(?P=port)/api/hello\?name=Ada'\n
    (?:\ \ \|.*\n|A\ request\ came\ in\.\n)*{"message":\ "Hello,\ Ada"}\n
    """,
    re.MULTILINE | re.VERBOSE,
)


@pytest.fixture(autouse=True)
def heard_interrupts() -> Iterator[None]:
    """Let the demo hear SIGINT: what a shell runs in the background ignores it from birth."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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


def _interrupt_demo(folder: Path, moments: list[str]) -> tuple[int, list[str], str]:
    """Run the demo, interrupted at lines that hold these words.

    Returns its exit code, the words that did not come, and its output.
    """
    demo = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output, left = "", list(moments)
    with demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            output += line
            if left and left[0] in line:
                demo.send_signal(signal.SIGINT)
                left = left[1:]
        code = demo.wait(START_SECONDS)
    return code, left, output


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
    for _ in range(TRIES):
        code, late, output = _interrupt_demo(tmp_path, moments)
        if (code, expected) != (0, INTERRUPTED):
            break
        # The demo had nothing left to do but its stop when the busy test read that it was running.
    assert (code, late) == (expected, []), output
    assert "Traceback" not in output
    if code == 0:
        assert VISIT.search(output), output
        # Nor was the host believed without having been asked.
        assert "not probed" not in output
    assert left_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
