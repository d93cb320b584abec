"""A process of the bench that obeys: one JSON command a line in, one JSON answer a line out.

What is measured and what reads from it are processes of their own, so that neither pays for the
other. The owner ends a child by closing its input.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figures import BrokenMeasurement

ROOT = Path(__file__).resolve().parent.parent
END_SECONDS = 20.0


class Child:
    """One process, asked by `ask()` or, where others work meanwhile, `tell()` and `answer()`."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._module = module
        self._process = subprocess.Popen(  # noqa: S603 - this project's own program
            [sys.executable, "-m", module],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, command: str, **arguments: Any) -> Any:
        """Give a command and return its answer."""
        self.tell(command, **arguments)
        return self.answer()

    def tell(self, command: str, **arguments: Any) -> None:
        """Give a command; its answer must be fetched before the next one."""
        assert self._process.stdin is not None  # noqa: S101 - it was asked for
        self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Return the answer to the last command.

        Raises:
            BrokenMeasurement: The process has ended, or could not do it.
        """
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        line = self._process.stdout.readline()
        if not line:
            raise BrokenMeasurement(f"{self._module} ended with {self._process.wait()}")
        answer = json.loads(line)
        if "failure" in answer:
            raise BrokenMeasurement(f"{self._module}: {answer['failure']}")
        return answer["result"]

    def resident_bytes(self) -> int:
        """Return how much memory the process holds."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None  # noqa: S101 - it was asked for
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@contextmanager
def started(module: str, **environment: str) -> Iterator[Child]:
    """Run a child for the length of the context."""
    child = Child(module, environment)
    try:
        yield child
    finally:
        child.close()
