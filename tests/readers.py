"""Raw clients of both streams that check what they get: every number once, or a gap, and contents.

They speak just enough HTTP and WebSocket, so that a test decides when bytes are taken and can break
the connection off at any point.
"""

import asyncio
import os
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

import orjson

from sessions import sse

Contents = Callable[[int], bytes]

# So little is taken ahead of what is asked for that a reader that pauses is felt by the server.
READ_AHEAD_BYTES = 16_384
MANY = 10**9

_CLOSE, _PING, _PONG = 8, 9, 10
_TEXT = 1
_GAP_TEXT = {"type": "gap", "reason": "buffer_evicted"}
_HANDSHAKE = (
    "GET {path}?lastSeq={after} HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\n"
    "connection: upgrade\r\nsec-websocket-version: 13\r\n"
    "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class Transcript:
    """A stream of numbered frames as it is when nothing is left out, to compare much at once."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self._sent = b"".join(frames)
        self._ends = list(accumulate(map(len, frames), initial=0))

    def count(self, after: int, received: bytes, most: int) -> tuple[int, int]:
        """Return how many of the next frames are what was received, whole, and their length."""
        if not 0 <= after < len(self._ends):
            return 0, 0
        start = self._ends[after]
        if not self._sent.startswith(received, start):
            return 0, 0
        newest = bisect_right(self._ends, start + len(received)) - 1
        newest = min(newest, after + most)
        return newest - after, self._ends[newest] - start


class Place:
    """What one reader has: the last number, and how many holes it was told of.

    `contents` says what a number's content is; None: it is kept in `taken` instead. `is_foreign`
    says that the number it began after was never given out: a gap and everything that is there
    must follow. With a `transcript`, what follows without a gap is compared in large pieces.
    """

    def __init__(
        self,
        after: int,
        contents: Contents | None,
        *,
        is_foreign: bool = False,
        transcript: Transcript | None = None,
    ) -> None:
        self.last = after
        self.taken: list[bytes] = []
        self.holes = 0
        self.seen = 0
        self._contents = contents
        self._transcript = transcript
        self._is_foreign = is_foreign
        self._has_gap = False

    def reconnect(self) -> None:
        """Begin anew after the last number: a gap that nothing followed is told again."""
        self._has_gap = False

    def take_gap(self) -> None:
        assert not self._has_gap, f"two gaps after {self.last}"
        self._has_gap = True

    def take_run(self, received: bytes, most: int) -> int:
        """Take frames that are the very next ones; return their length, 0 if it is not so."""
        if self._transcript is None or self._has_gap or self._is_foreign:
            return 0
        count, length = self._transcript.count(self.last, received, most)
        self.seen += count
        self.last += count
        return length

    def take(self, number: int, content: bytes) -> None:
        if self._is_foreign:
            assert self._has_gap, f"no gap before {number} after a foreign {self.last}"
        elif self._has_gap:
            assert number > self.last + 1, f"a gap where nothing is missing, before {number}"
        else:
            assert number == self.last + 1, f"{number} follows {self.last} without a gap"
        if self._contents is None:
            self.taken.append(content)
        else:
            assert content == self._contents(number), f"number {number} is another's content"
        self.holes += self._has_gap
        self.seen += 1
        self.last = number
        self._has_gap = self._is_foreign = False


class _Connection:
    """A TCP connection that takes nothing ahead of what is asked for."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def cut(self) -> None:
        """Break the connection off, whatever is on its way."""
        self.writer.transport.abort()

    async def hang_up(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


class EventReader(_Connection):
    """A client of an event stream."""

    def __init__(
        self, place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        super().__init__(reader, writer)
        self.place = place
        self._rest = b""

    async def read(self, most: int = MANY) -> bool:
        """Take the next frames in, at least one; return False at the end of a whole stream."""
        while not self._take(most):
            size = int(await self.reader.readline(), 16)
            chunk = await self.reader.readexactly(size + 2)
            assert chunk.endswith(b"\r\n")
            if not size:
                assert not self._rest, "the stream ended inside a frame"
                return False
            self._rest += chunk[:-2]
        return True

    def _take(self, most: int) -> bool:
        """Take what has come: as much at once as is what was expected, else one frame."""
        length = self.place.take_run(self._rest, most)
        if not length:
            length = self._rest.find(b"\n\n") + 2
            if length < 2:
                return False
            self._take_frame(self._rest[:length])
        self._rest = self._rest[length:]
        return True

    def _take_frame(self, frame: bytes) -> None:
        if frame == sse.GAP:
            self.place.take_gap()
        elif frame != sse.HEARTBEAT:
            line, _, encoded = frame.partition(b"\n")
            assert line.startswith(b"id: "), line
            self.place.take(int(line[4:]), encoded)


class OutputReader(_Connection):
    """A client of a terminal socket; the content of a number is its stream byte and payload."""

    def __init__(
        self, place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        super().__init__(reader, writer)
        self.place = place
        self.close_code = 0
        self._has_begun = False

    async def read(self, _most: int = MANY) -> bool:
        """Take the next message in; return False once the server has closed."""
        kind, payload = await self._message()
        if kind == _PING:
            self._send(_PONG, payload)
        elif kind == _CLOSE:
            self.close_code = struct.unpack(">H", payload[:2])[0]
            self._send(_CLOSE, payload[:2])
            return False
        elif kind == _TEXT:
            self._take_text(orjson.loads(payload))
        else:
            self.place.take(struct.unpack(">I", payload[:4])[0], payload[4:])
        return True

    def _take_text(self, text: dict[str, Any]) -> None:
        if self._has_begun:
            assert text == _GAP_TEXT
            self.place.take_gap()
        else:
            assert (text["type"], text["seq"]) == ("seq", self.place.last)
            self._has_begun = True

    async def _message(self) -> tuple[int, bytes]:
        first, length = await self.reader.readexactly(2)
        assert first & 0x80, "the server sent a fragment"
        assert length < 0x80, "the server sent a masked frame"
        if length > 125:
            form = ">H" if length == 126 else ">Q"
            (length,) = struct.unpack(form, await self.reader.readexactly(struct.calcsize(form)))
        return first & 0x0F, await self.reader.readexactly(length)

    def _send(self, kind: int, payload: bytes) -> None:
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
        self.writer.write(bytes((0x80 | kind, 0x80 | len(payload))) + mask + masked)


async def open_event_reader(
    port: int, session_id: str, place: Place, *, ahead_bytes: int = READ_AHEAD_BYTES
) -> EventReader:
    """Open an event stream after the place's number."""
    stream = EventReader(place, *await _dial(port, ahead_bytes))
    place.reconnect()
    stream.writer.write(
        f"GET /v1/sessions/{session_id}/events HTTP/1.1\r\nhost: x\r\n"
        f"last-event-id: {place.last}\r\n\r\n".encode()
    )
    head = await stream.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    return stream


async def open_output_reader(
    port: int, session_id: str, place: Place, *, ahead_bytes: int = READ_AHEAD_BYTES
) -> OutputReader:
    """Open a terminal socket after the place's number."""
    socket = OutputReader(place, *await _dial(port, ahead_bytes))
    place.reconnect()
    path = f"/v1/sessions/{session_id}/io"
    socket.writer.write(_HANDSHAKE.format(path=path, after=place.last).encode())
    head = await socket.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), head
    return socket


async def _dial(port: int, ahead_bytes: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, limit=ahead_bytes)
