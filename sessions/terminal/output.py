"""Output of one container on its way to the log.

Bytes of an attach can be held while its log is read, and then follow what the log has in front of
them. It remembers the end of what it published, to find it again in the log. No task is owned here.
"""

import asyncio
from collections import deque

from sessions.terminal import OutputSink, TerminalTarget
from sessions.terminal.backfill import join, missing

# What is held at most before the attach is no longer read, and so the application slowed down.
HELD_MAX_BYTES = 262_144
# What is remembered of the published output: long enough to be found in a log by more than chance.
TAIL_BYTES = 65_536

_TTY_STREAM = 0
_STDOUT = 1
_STDERR = 2


class TerminalOutput:
    """What was published and what is held back."""

    def __init__(self, target: TerminalTarget, writer: OutputSink) -> None:
        self._target = target
        self._writer = writer
        self._held: deque[tuple[int, bytes]] | None = None
        self._held_bytes = 0
        self._released = asyncio.Event()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._is_at_line_start = True
        # Bytes without CR since the container began; None once some of them are unknown.
        self._written: int | None = 0

    @property
    def has_published(self) -> bool:
        """Whether anything of the container's own was published."""
        return self._tail_bytes > 0

    async def deliver(self, channel: int, data: bytes) -> None:
        """Take what an attach brought: publish or hold it; wait while too much is held."""
        stream = _TTY_STREAM if self._target.is_tty else channel
        if self._held is None:
            await self._publish(stream, data)
            return
        self._held.append((stream, data))
        self._held_bytes += len(data)
        if self._held_bytes >= HELD_MAX_BYTES:
            await self._released.wait()

    def hold(self) -> None:
        """Hold what is delivered from now on, until `release()`."""
        self._held = deque()
        self._held_bytes = 0
        self._released.clear()

    async def release(self, log: bytes | None, *, log_limit_bytes: int, is_loss: bool) -> None:
        """Publish what the log has and the attach did not bring, then what is held.

        `log` None: it could not be read; readers get a gap if that means a loss.
        """
        held = b"".join(data for _, data in self._held or ())
        if log is None:
            if is_loss:
                await self.mark_gap()
        else:
            rest, has_gap = self._unpublished(log, log_limit_bytes)
            if has_gap:
                await self.mark_gap()
            is_behind = self._held_bytes >= HELD_MAX_BYTES
            front = join(rest, held, is_tty=self._target.is_tty, is_behind=is_behind)
            await self._publish(_TTY_STREAM if self._target.is_tty else _STDOUT, front)
        while self._held:
            await self._publish(*self._held.popleft())
        self._held = None
        self._released.set()

    async def mark_gap(self) -> None:
        """Say that output was lost here."""
        self._written = None
        await self._writer.mark_gap(self._target.app)

    async def say(self, sentence: str) -> None:
        """Put a line of the runner's own among the output."""
        start = "" if self._is_at_line_start else "\r\n"
        self._is_at_line_start = True
        line = f"{start}[telorunner] {sentence}\r\n".encode()
        stream = _TTY_STREAM if self._target.is_tty else _STDERR
        await self._writer.publish_output(self._target.app, stream, line)

    def _unpublished(self, log: bytes, log_limit_bytes: int) -> tuple[bytes, bool]:
        """Return what of the log is to be published, and whether something before it is lost."""
        if not self.has_published:
            return log, len(log) >= log_limit_bytes
        rest = missing(log, b"".join(self._tail), written=self._written)
        return (log, True) if rest is None else (rest, False)

    async def _publish(self, stream: int, data: bytes) -> None:
        if not data:
            return
        self._is_at_line_start = data.endswith(b"\n")
        self._tail.append(data[-TAIL_BYTES:])
        self._tail_bytes += len(self._tail[-1])
        while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft())
        if self._written is not None:
            self._written += len(data) - data.count(b"\r")
        await self._writer.publish_output(self._target.app, stream, data)
