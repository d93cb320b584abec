"""A running container: its output to the log and to whoever is attached, and input to it.

Output is read on the loop and goes to the log and to every attachment. An attachment that is not
read fills up to a bound and then the container's output pauses, as with containerd; the main
process's end lifts the bound, so that what is left can always be read to its end. No task is
started here: callbacks of the loop live from the start to the end of the process.
"""

import asyncio
import fcntl
import os
import struct
import termios
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from telorunner.localcluster.node.logs import LogFile
from telorunner.localcluster.node.process import Process

READ_BYTES = 32 * 1024
ATTACHMENT_BYTES = 1024 * 1024
# How long output may go on after every process that could be found has been killed: longer only
# where one hides and holds the terminal open.
DRAIN_SECONDS = 2.0
SWEEP_SECONDS = 0.02
MAX_WINDOW_SIZE = 65535


class ContainerUnavailable(Exception):
    """A container cannot be attached to or its log not be read: the API's answer."""

    def __init__(self, status_code: int, message: str) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.message = message


@dataclass(frozen=True)
class Exit:
    """How a container ended; times in seconds since 1970."""

    exit_code: int
    reason: str
    started_at: float
    finished_at: float


class Container:
    """The processes of one container, from the moment that they run.

    `killed_because` overrides the reason that is reported for the end (OOMKilled).
    """

    def __init__(
        self, process: Process, log: LogFile, *, tty: bool, stdin: bool, stdin_once: bool
    ) -> None:
        self.tty = tty
        self.has_stdin = stdin
        self.session = process.pid
        self.started_at = time.time()
        self.killed_because = ""
        self.exit: Exit | None = None
        self._stdin_once = stdin_once
        self._process = process
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._attachments: set[Attachment] = set()
        self._is_paused = False
        self._exited: tuple[int, float] | None = None
        self._ended = asyncio.Event()
        self._stdin_lock = asyncio.Lock()
        self._writable = asyncio.Event()
        self._drain_timer: asyncio.TimerHandle | None = None
        self._loop.add_reader(process.exit_fd, self._collect)
        self._resume()

    @property
    def is_running(self) -> bool:
        """Whether the main process has not ended yet."""
        return self._exited is None

    async def wait(self) -> Exit:
        """Wait until the main process has ended and all output has been read, and say how."""
        await self._ended.wait()
        if self.exit is None:
            raise RuntimeError("a container ended without an exit")
        return self.exit

    def terminate(self) -> None:
        """Ask the main process to end."""
        if self.is_running:
            self._process.terminate()

    def kill(self, reason: str = "") -> None:
        """Kill every process of the container; `reason` is reported instead of Error."""
        if self.is_running:
            self.killed_because = reason
            self._process.kill_all()

    def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size; the kernel tells the foreground processes by SIGWINCH."""
        if not self.tty or not self._process.outputs:
            return
        size = (min(max(value, 0), MAX_WINDOW_SIZE) for value in (rows, columns))
        packed = struct.pack("HHHH", *size, 0, 0)
        with suppress(OSError):
            fcntl.ioctl(next(iter(self._process.outputs.values())), termios.TIOCSWINSZ, packed)

    @asynccontextmanager
    async def attach(self) -> "AsyncIterator[Attachment]":
        """Open an attachment: it is given the output from now on, and passes input on."""
        attachment = Attachment(self)
        if not self._ended.is_set():
            self._attachments.add(attachment)
        else:
            attachment.end()
        try:
            yield attachment
        finally:
            self._attachments.discard(attachment)
            self.make_room()

    async def write_stdin(self, data: bytes) -> None:
        """Write to the container, waiting while it does not read; see `Attachment`."""
        async with self._stdin_lock:
            view = memoryview(data)
            while view and (fd := self._process.stdin) is not None:
                try:
                    view = view[os.write(fd, view) :]
                except BlockingIOError:
                    await self._wait_writable(fd)
                except OSError:
                    return  # Nobody reads any more.

    async def close_stdin(self) -> None:
        """End the input, where the container's `stdinOnce` says that its first reader ends it."""
        async with self._stdin_lock:
            self._end_input()

    def make_room(self) -> None:
        """Go on reading output when no attachment is full any more."""
        if self._is_paused and not any(one.is_full for one in self._attachments):
            self._resume()

    async def _wait_writable(self, fd: int) -> None:
        self._writable.clear()
        self._loop.add_writer(fd, self._writable.set)
        try:
            await self._writable.wait()
        finally:
            if self._process.stdin == fd:
                self._loop.remove_writer(fd)

    def _end_input(self) -> None:
        if self._stdin_once and not self.tty:
            self._forget_stdin()

    def _forget_stdin(self) -> None:
        """Take no more input and wake who waits to write some."""
        if self._process.stdin is not None:
            self._loop.remove_writer(self._process.stdin)
            self._process.close_stdin()
        self._writable.set()

    def _resume(self) -> None:
        self._is_paused = False
        for stream, fd in self._process.outputs.items():
            self._loop.add_reader(fd, self._read, stream, fd)

    def _read(self, stream: int, fd: int) -> None:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # EIO: the last process has closed the terminal.
        if not data:
            self._end_output(stream, fd)
            return
        self._log.write(stream, data)
        for attachment in self._attachments:
            attachment.offer(stream, data)
        if self.is_running and any(one.is_full for one in self._attachments):
            self._is_paused = True
            for output in self._process.outputs.values():
                self._loop.remove_reader(output)

    def _end_output(self, stream: int, fd: int) -> None:
        self._loop.remove_reader(fd)
        if self.tty and self.is_running:
            # Nothing has the terminal open just now. Closing our end would hang up on a process
            # that may open it again.
            return
        if self._process.stdin == fd:
            self._forget_stdin()
        del self._process.outputs[stream]
        os.close(fd)
        self._finish_when_gone()

    def _collect(self) -> None:
        """The main process has ended: kill what it left and read the output to its end."""
        self._loop.remove_reader(self._process.exit_fd)
        # Before the main process is reaped: until then its number cannot be another's.
        self._process.kill_all()
        self._exited = (self._process.collect(), time.time())
        self._drain_timer = self._loop.call_later(DRAIN_SECONDS, self._finish)
        self._resume()
        self._finish_when_gone()

    def _finish_when_gone(self) -> None:
        """End the container once its output has ended and none of its processes is left."""
        if self.is_running or self._process.outputs or self._ended.is_set():
            return
        if self._process.kill_all():
            self._finish()
        else:
            self._loop.call_later(SWEEP_SECONDS, self._finish_when_gone)

    def _finish(self) -> None:
        if self._exited is None or self._ended.is_set():
            return
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        for fd in self._process.outputs.values():
            self._loop.remove_reader(fd)
        self._forget_stdin()
        self._process.close()
        self._log.close()
        code, finished_at = self._exited
        reason = self.killed_because or ("Error" if code else "Completed")
        self.exit = Exit(code, reason, self.started_at, finished_at)
        self._ended.set()
        for attachment in self._attachments:
            attachment.end()


class Attachment:
    """One viewer's connection to a container."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._is_ended = False
        self._changed = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether the container's output has to wait for this reader."""
        return self._size >= ATTACHMENT_BYTES

    async def read(self) -> tuple[int, bytes] | None:
        """Return the next output: the stream (1 or 2) and at most 32 KiB; None at the end.

        Cancelling loses nothing.
        """
        while not self._pieces:
            if self._is_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        stream, data = self._take()
        self._container.make_room()
        return stream, data

    async def write_stdin(self, data: bytes) -> None:
        """Write input, waiting while the application does not read.

        Input for a container that has ended, or closed its standard input, is dropped. What
        several attachments write is not mixed within one call.
        """
        await self._container.write_stdin(data)

    async def close_stdin(self) -> None:
        """End the input where one attachment may: with `stdinOnce`, and never of a terminal."""
        await self._container.close_stdin()

    def offer(self, stream: int, data: bytes) -> None:
        """Add output for the reader."""
        self._pieces.append((stream, data))
        self._size += len(data)
        self._changed.set()

    def end(self) -> None:
        """No output follows."""
        self._is_ended = True
        self._changed.set()

    def _take(self) -> tuple[int, bytes]:
        """Join what a terminal gives in small pieces."""
        stream, data = self._pieces.popleft()
        joined, size = [data], len(data)
        while self._pieces:
            following, more = self._pieces[0]
            if following != stream or size + len(more) > READ_BYTES:
                break
            joined.append(more)
            size += len(more)
            self._pieces.popleft()
        self._size -= size
        return stream, b"".join(joined)
