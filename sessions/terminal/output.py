"""Output of one container on its way to the log.

Bytes of an attach can be held while its log is read, and then follow what the log has in front of
them. It remembers the end of what it published, to find it again in the log. No task is owned here.

Two channels have one log, which cannot say which of them wrote a line: what comes from the log only
is published as standard output.
"""

import asyncio
from collections import deque

from sessions.terminal import OutputSink, TerminalTarget
from sessions.terminal.backfill import Front, Published, join, missing, without_cr
from sessions.terminal.interleaved import join_channels, join_channels_behind
from sessions.terminal.mark import MarkFilter
from telorunner.kube.logs import ContainerLog

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
        self._mark = MarkFilter(target.start_mark if target.is_tty else b"")
        self._held: deque[tuple[int, bytes]] | None = None
        self._held_bytes = 0
        # How much of that was held when the log was asked for last.
        self._settled_frames = 0
        # What an adopted container had begun to write and not ended when the attach came is in
        # no log and in no attach.
        self._may_lack_line = target.is_adopted
        self._is_releasing = False
        self._released = asyncio.Event()
        self._has_begun = asyncio.Event()
        if not self._mark.awaits or target.is_adopted:
            self._has_begun.set()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        # After a gap, what is published does not go on where the tail ends.
        self._is_tail_over = False
        self._is_at_line_start = True
        # Bytes without CR since the container began, the mark with them; None once some of them
        # are unknown.
        self._written: int | None = 0

    @property
    def has_published(self) -> bool:
        """Whether anything of the container's own was published."""
        return self._tail_bytes > 0

    @property
    def is_holding(self) -> bool:
        """Whether what is delivered waits for `release()`."""
        return self._held is not None

    async def wait_begun(self) -> None:
        """Wait until the start mark has come, or is known not to come first.

        What is typed earlier would be echoed before the mark.
        """
        await self._has_begun.wait()

    async def deliver(self, channel: int, data: bytes) -> None:
        """Take what an attach brought: publish or hold it; wait while too much is held.

        Nothing is held any longer once it begins with the start mark, as nothing was before it.
        """
        stream = _TTY_STREAM if self._target.is_tty else channel
        if self._held is None:
            await self._publish(stream, data)
            return
        self._held.append((stream, data))
        self._held_bytes += len(data)
        if self._begins_with_mark():
            await self._let_go()
        elif self._held_bytes >= HELD_MAX_BYTES:
            await self._released.wait()

    def hold(self) -> None:
        """Hold what is delivered from now on, until `release()`."""
        self._held = deque()
        self._held_bytes = self._settled_frames = 0
        self._released.clear()

    def settle(self) -> None:
        """Note that the log is asked for now: it has what is held already."""
        self._settled_frames = len(self._held or ())

    async def release(
        self,
        log: ContainerLog | None,
        *,
        is_last: bool,
        is_loss: bool,
        is_whole: bool = False,
        is_trusted: bool = False,
    ) -> bool:
        """Publish what the log has and the attach did not bring, then what is held.

        `log` None: it could not be read; readers get a gap if that means a loss. `is_whole`: the
        container had ended when it was read. `is_trusted`: what was published is taken for whole
        unless the log surely has more. Returns False, and goes on holding, if a later look at the
        log would tell more surely; with `is_last` a gap stands where something may be lost.
        """
        if self._held is None or self._is_releasing:
            return True
        rest, front = Front(b"", is_sure=not is_loss), Front(b"")
        if log is not None:
            rest = missing(log, self._published())
            if is_trusted and not rest.is_sure:
                rest = Front(b"", is_sure=not self._is_short_of(log, rest))
            front = self._join(rest)
            # Once all that is held was there when the log was asked for, it tells no more later.
            is_full = self._held_bytes >= HELD_MAX_BYTES and self._settled_frames > 0
            if not (front.is_sure or is_last or is_full):
                return False
        self._is_releasing = True
        if not rest.is_sure:
            await self.mark_gap()
        if log is not None and log.skipped_bytes and not self.has_published:
            self._written = log.skipped_bytes
            self._mark.give_up()
        await self._publish(_TTY_STREAM if self._target.is_tty else _STDOUT, front.data)
        may_lack_line = self._may_lack_line and log is not None and not is_whole
        if may_lack_line or not front.is_sure:
            await self.mark_gap()
        self._may_lack_line = False
        await self._let_go()
        self._is_releasing = False
        return True

    async def mark_gap(self) -> None:
        """Say that output was lost here."""
        self._written = None
        self._is_tail_over = True
        await self._writer.mark_gap(self._target.app)

    async def say(self, sentence: str) -> None:
        """Put a line of the runner's own among the output."""
        start = "" if self._is_at_line_start else "\r\n"
        self._is_at_line_start = True
        line = f"{start}[telorunner] {sentence}\r\n".encode()
        stream = _TTY_STREAM if self._target.is_tty else _STDERR
        await self._writer.publish_output(self._target.app, stream, line)

    async def end(self) -> None:
        """Publish what was kept back as it might have become the start mark."""
        await self._write(_TTY_STREAM, self._mark.give_up())

    def _begins_with_mark(self) -> bool:
        mark = self._mark.awaits
        if self._is_releasing or not mark or self.has_published or self._held is None:
            return False
        first = b""
        for _, data in self._held:
            first += data
            if len(first) >= len(mark):
                break
        return first.startswith(mark)

    def _published(self) -> Published:
        return Published(b"".join(self._tail), self._written, is_mixed=not self._target.is_tty)

    def _is_short_of(self, log: ContainerLog, rest: Front) -> bool:
        """Tell whether less is published than the log tells of, as far as that is known."""
        if log.is_part:
            # The lines of two streams need not stand in the log's order; one's must be found there.
            return self._target.is_tty and bool(rest.data)
        told = log.skipped_bytes + len(without_cr(log.data))
        return self._written is not None and self._written < told

    def _join(self, rest: Front) -> Front:
        held = list(self._held or ())
        settled = held[: self._settled_frames]
        is_behind = self._held_bytes >= HELD_MAX_BYTES
        out, err = _of(held, _STDOUT), _of(held, _STDERR)
        if out and err:
            join_both = join_channels_behind if is_behind else join_channels
            return join_both(
                rest.data,
                out,
                err,
                settled_out=len(_of(settled, _STDOUT)),
                settled_err=len(_of(settled, _STDERR)),
            )
        return join(
            rest,
            b"".join(data for _, data in held),
            is_tty=self._target.is_tty,
            settled=sum(len(data) for _, data in settled),
            is_behind=is_behind,
        )

    async def _let_go(self) -> None:
        while self._held:
            await self._publish(*self._held.popleft())
        self._held = None
        self._released.set()
        self._has_begun.set()

    async def _publish(self, stream: int, data: bytes) -> None:
        if not data:
            return
        if self._is_tail_over:
            self._tail.clear()
            self._tail_bytes, self._is_tail_over = 0, False
        self._tail.append(data[-TAIL_BYTES:])
        self._tail_bytes += len(self._tail[-1])
        while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft())
        if self._written is not None:
            self._written += len(data) - data.count(b"\r")
        await self._write(stream, self._mark.pass_through(data))

    async def _write(self, stream: int, data: bytes) -> None:
        if data:
            self._is_at_line_start = data.endswith(b"\n")
            await self._writer.publish_output(self._target.app, stream, data)


def _of(frames: list[tuple[int, bytes]], stream: int) -> bytes:
    return b"".join(data for channel, data in frames if channel == stream)
