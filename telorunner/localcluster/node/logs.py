"""A container's log in the format of the container runtime interface: writing and reading.

One line of the file is `<time> <stream> <F|P> <text>`; P marks a part that no line end followed.
One carriage return before a line end is dropped and an unfinished line is held back until it ends
or the container does, both as containerd does it. At 10 MiB the file is rotated, and as with a
kubelet readers then see the new file only.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BufferedReader, FileIO
from pathlib import Path

logger = logging.getLogger(__name__)

# Source: containerd's max_container_log_line_size, the kubelet's containerLogMaxSize.
LINE_BYTES = 16 * 1024
ROTATE_BYTES = 10 * 1024 * 1024
READ_BYTES = 64 * 1024
STREAM_NAMES = {1: b"stdout", 2: b"stderr"}
_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True)
class LogRequest:
    """What to read of which container's log, in the words of the API's query parameters."""

    namespace: str
    pod: str
    container: str | None = None
    follow: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None
    since_time: str | None = None
    limit_bytes: int | None = None
    timestamps: bool = False
    previous: bool = False


def format_time(nanoseconds: int) -> bytes:
    """Return a moment, in nanoseconds since 1970, as RFC 3339 with nine decimals."""
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{rest:09d}Z", time.gmtime(seconds)).encode()


def format_lines(stream: int, text: bytes, nanoseconds: int, *, is_last: bool) -> bytes:
    """Return whole lines of output as lines of the log; `is_last` ends an unfinished one with P."""
    prefix = format_time(nanoseconds) + b" " + STREAM_NAMES[stream]
    lines = text.split(b"\n")
    rest = lines.pop()
    out: list[bytes] = []
    for line in lines:
        line = line.removesuffix(b"\r")
        while len(line) > LINE_BYTES:
            out += (prefix, b" P ", line[:LINE_BYTES], b"\n")
            line = line[LINE_BYTES:]
        out += (prefix, b" F ", line, b"\n")
    if is_last and rest:
        out += (prefix, b" P ", rest, b"\n")
    return b"".join(out)


class LogFile:
    """The log that one container writes.

    Writing never fails and never waits: what a full disk does not take is lost, and said so once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_ended = False
        self.rotations = 0
        self._file: FileIO | None = None
        self._size = 0
        self._unfinished = dict.fromkeys(STREAM_NAMES, b"")
        self._changed = asyncio.Event()
        self._has_failed = False

    def write(self, stream: int, data: bytes) -> None:
        """Add output; what follows the last line end is held back."""
        head, line_end, tail = data.rpartition(b"\n")
        waiting = self._unfinished[stream]
        if line_end:
            self._append(
                format_lines(stream, waiting + head + b"\n", time.time_ns(), is_last=False)
            )
            waiting, tail = b"", tail
        waiting += tail
        while len(waiting) > LINE_BYTES:
            self._append(format_lines(stream, waiting[:LINE_BYTES], time.time_ns(), is_last=True))
            waiting = waiting[LINE_BYTES:]
        self._unfinished[stream] = waiting

    def close(self) -> None:
        """Write what was held back and end the log for those who follow it."""
        for stream, rest in self._unfinished.items():
            if rest:
                self._append(format_lines(stream, rest, time.time_ns(), is_last=True))
        if self._file is not None:
            self._file.close()
            self._file = None
        self.is_ended = True
        self._wake()

    async def wait_changed(self) -> None:
        """Wait for the next write, rotation or end."""
        await self._changed.wait()

    def open(self) -> BufferedReader | None:
        """Open the current file for reading; None where nothing was written yet."""
        with suppress(FileNotFoundError):
            return self.path.open("rb")
        return None

    def _append(self, data: bytes) -> None:
        try:
            if self._file is not None and self._size + len(data) > ROTATE_BYTES:
                self._file.close()
                self._file = None
                # One old file only: nobody reads it, it is there for a person who looks.
                os.replace(self.path, self.path.with_name(f"{self.path.name}.1"))
                self._size = 0
                self.rotations += 1
            if self._file is None:
                self._file = FileIO(self.path, "a")
            self._file.write(data)
            self._size += len(data)
        except OSError:
            if not self._has_failed:
                logger.warning(
                    "Log %s cannot be written: output is lost.", self.path, exc_info=True
                )
            self._has_failed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@dataclass(frozen=True)
class _Line:
    nanoseconds: bytes
    is_partial: bool
    text: bytes


def parse_line(line: bytes) -> _Line | None:
    """Return the parts of a line of the log, None where it is none."""
    moment, _, rest = line.partition(b" ")
    _, _, rest = rest.partition(b" ")
    tag, space, text = rest.partition(b" ")
    return _Line(moment, tag == b"P", text) if space else None


def read_since(request: LogRequest, now_ns: int) -> bytes:
    """Return the first moment that a request asks for, in the log's own form; b"" means all.

    The form has a fixed width, so that moments compare as bytes.
    """
    if request.since_seconds is not None:
        return format_time(now_ns - request.since_seconds * _NANOSECONDS)
    if request.since_time:
        moment = datetime.fromisoformat(request.since_time.replace("Z", "+00:00")).astimezone(UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()
    return b""


def find_tail(file: BufferedReader, lines: int) -> int:
    """Return the position where the last `lines` lines of a file begin."""
    end = position = file.seek(0, os.SEEK_END)
    if lines <= 0:
        return end
    missing = lines + 1  # The end of the line before them.
    while position > 0:
        step = min(READ_BYTES, position)
        position -= step
        file.seek(position)
        block = file.read(step)
        cut = len(block)
        while missing and (cut := block.rfind(b"\n", 0, cut)) >= 0:
            missing -= 1
        if not missing:
            return position + cut + 1
    return 0


async def read_log(log: LogFile, request: LogRequest) -> AsyncIterator[bytes]:
    """Yield what a request asks for of a log, in pieces; with `follow` until the container ends."""
    left = request.limit_bytes
    async for piece in _read_pieces(log, request):
        if left is None:
            yield piece
            continue
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return


async def _read_pieces(log: LogFile, request: LogRequest) -> AsyncIterator[bytes]:
    render = _Renderer(read_since(request, time.time_ns()), timestamps=request.timestamps)
    tail = request.tail_lines
    while True:
        rotations = log.rotations
        file = log.open()
        if file is not None:
            with file:
                if tail is not None:
                    file.seek(find_tail(file, tail))
                async for piece in _read_file(log, file, rotations, follow=request.follow):
                    if text := render(piece):
                        yield text
        tail = None
        if not request.follow or (log.is_ended and rotations == log.rotations):
            return
        if file is None:
            await log.wait_changed()


async def _read_file(
    log: LogFile, file: BufferedReader, rotations: int, *, follow: bool
) -> AsyncIterator[list[bytes]]:
    """Yield the whole lines of one file of the log, until its end or, following, its rotation."""
    rest = b""
    while True:
        # Looked at before the read: what is written between the two is then read in the next round.
        is_over = not follow or log.is_ended or rotations != log.rotations
        data = file.read(READ_BYTES)
        if data:
            *lines, rest = (rest + data).split(b"\n")
            yield lines
            await asyncio.sleep(0)
        elif is_over:
            return
        else:
            await log.wait_changed()


class _Renderer:
    """Turns lines of the log into what the API sends, keeping track of unfinished lines."""

    def __init__(self, since: bytes, *, timestamps: bool) -> None:
        self._since = since
        self._timestamps = timestamps
        self._is_line_start = True

    def __call__(self, lines: list[bytes]) -> bytes:
        out: list[bytes] = []
        for raw in lines:
            line = parse_line(raw)
            if line is None or line.nanoseconds < self._since:
                continue
            if self._timestamps and self._is_line_start:
                out += (line.nanoseconds, b" ")
            out.append(line.text)
            if not line.is_partial:
                out.append(b"\n")
            self._is_line_start = not line.is_partial
        return b"".join(out)


def last_lines(log: LogFile, *, lines: int, limit_bytes: int) -> str:
    """Return the end of a log as text, for the message of a container that failed.

    Source: terminationMessagePolicy FallbackToLogsOnError, at most 80 lines and 2048 bytes.
    """
    file = log.open()
    if file is None:
        return ""
    with file:
        file.seek(find_tail(file, lines))
        text = _Renderer(b"", timestamps=False)(file.read().split(b"\n"))
    return text[-limit_bytes:].decode("utf-8", "replace")
