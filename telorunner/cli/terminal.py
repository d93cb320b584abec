"""The user's own terminal: raw mode and its end, window size, input, output, notices.

It works as well with pipes and files in any of the three places.
"""

import asyncio
import os
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

READ_BYTES = 65536
# A pipe that polls as writable takes this much without blocking (PIPE_BUF on Linux).
WRITE_BYTES = 4096


class LocalTerminal:
    """Where the application's input comes from and its output goes to."""

    def __init__(self, stdin: int = 0, stdout: int = 1, stderr: int = 2) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._stderr = stderr
        self._is_raw = False
        self.is_interactive = _is_foreground_terminal(stdin)

    @contextmanager
    def raw(self) -> Iterator[None]:
        """Hand every key to the application, and give the terminal back whatever happens."""
        if not self.is_interactive:
            yield
            return
        before = termios.tcgetattr(self._stdin)
        try:
            tty.setraw(self._stdin, termios.TCSANOW)
            self._is_raw = True
            yield
        finally:
            self._is_raw = False
            termios.tcsetattr(self._stdin, termios.TCSADRAIN, before)

    def size(self) -> tuple[int, int] | None:
        """Return columns and rows; None where there is no terminal."""
        for descriptor in (self._stdin, self._stdout, self._stderr):
            try:
                size = os.get_terminal_size(descriptor)
            except OSError:
                continue
            if size.columns and size.lines:
                return size.columns, size.lines
        return None

    async def read(self) -> bytes:
        """Wait for input and return it; nothing at the end of the input."""
        loop = asyncio.get_running_loop()
        if os.isatty(self._stdin) and not self.is_interactive:
            # A background job that reads from the terminal would be stopped.
            return b""
        while True:
            try:
                await _readiness(loop.add_reader, loop.remove_reader, self._stdin)
                return os.read(self._stdin, READ_BYTES)
            except BlockingIOError:
                # Somebody else read what was there.
                continue
            except OSError:
                # Closed, or a terminal that hung up.
                return b""

    async def write(self, data: bytes, *, is_error: bool = False) -> None:
        """Write the application's bytes as they are, at the reader's speed.

        Raises:
            OSError: nobody reads any more.
        """
        loop = asyncio.get_running_loop()
        descriptor = self._stderr if is_error else self._stdout
        view = memoryview(data)
        while view:
            await _readiness(loop.add_writer, loop.remove_writer, descriptor)
            with suppress(BlockingIOError):
                view = view[os.write(descriptor, view[:WRITE_BYTES]) :]

    def notice(self, text: str) -> None:
        """Write a line of the client's own to stderr, control characters made harmless."""
        line = "".join(each if each.isprintable() else "\ufffd" for each in text)
        end = "\r\n" if self._is_raw and os.isatty(self._stderr) else "\n"
        # Where stderr is closed, nobody is there to be told.
        with suppress(OSError):
            os.write(self._stderr, (line + end).encode("utf-8", "replace"))


def _is_foreground_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor) and os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False


async def _readiness(
    add: Callable[..., None], remove: Callable[[int], bool], descriptor: int
) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        add(descriptor, _set_ready, ready)
    except PermissionError:
        # Plain files cannot be polled: they are always ready.
        return
    try:
        await ready
    finally:
        remove(descriptor)


def _set_ready(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
