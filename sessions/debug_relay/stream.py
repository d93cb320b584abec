"""One HTTP request whose answer is an event stream without an end; no tasks are owned here.

It is a client of its own because of who answers. A general one works through all that a packet
brings before anybody is asked: interim answers without an end, or chunks of one byte, make it hold
the loop for a third of a second at a time. This one follows no redirect, unpacks nothing, looks up
no name, knows no proxy, and takes as much at a time as it is asked to.

Source: https://www.rfc-editor.org/rfc/rfc9112 (sections 2, 4, 5 and 7.1)
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address

CONNECT_SECONDS = 2.0
RESPONSE_SECONDS = 5.0

# How much is read at a time: as thousands of empty lines it takes some milliseconds.
READ_BYTES = 4_096
MAX_HEAD_BYTES = 16_384
MAX_SIZE_LINE_BYTES = 256

_STATUS = re.compile(rb"HTTP/1\.[01] 200(?: .*)?")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})\s*(?:;.*)?")


class NoStream(Exception):
    """What listens there answers with something else than a plain event stream."""


class EventStream:
    """The body of an accepted answer.

    `chunks` counts the pieces that the sender has cut it into, where it says so.
    """

    def __init__(self, reader: asyncio.StreamReader, *, is_chunked: bool) -> None:
        self._reader = reader
        self._chunked = Dechunker() if is_chunked else None

    @property
    def chunks(self) -> int:
        """How many chunks have begun so far."""
        return self._chunked.chunks if self._chunked is not None else 0

    async def read(self) -> bytes | None:
        """Wait for more; return it (nothing, where it was framing alone), None at the end.

        Cancelling it loses nothing.

        Raises:
            NoStream: The framing is broken.
            OSError: The connection is.
        """
        if self._chunked is not None and self._chunked.is_ended:
            return None
        raw = await self._reader.read(READ_BYTES)
        if not raw:
            return None
        return raw if self._chunked is None else self._chunked.feed(raw)


class Dechunker:
    """Takes the chunked transfer coding off a body; trailers are not read."""

    def __init__(self) -> None:
        self.chunks = 0
        self.is_ended = False
        self._line = b""
        self._left_bytes = 0

    def feed(self, raw: bytes) -> bytes:
        """Return the payload in some bytes of the body.

        Raises:
            NoStream: These are no chunks.
        """
        payload = bytearray()
        position = 0
        while position < len(raw) and not self.is_ended:
            if self._left_bytes:
                part = raw[position : position + self._left_bytes]
                payload += part
                position += len(part)
                self._left_bytes -= len(part)
                continue
            end = raw.find(b"\n", position)
            self._line += raw[position : end if end >= 0 else len(raw)]
            if len(self._line) > MAX_SIZE_LINE_BYTES:
                raise NoStream
            if end < 0:
                break
            position = end + 1
            self._begin(self._line.strip())
            self._line = b""
        return bytes(payload)

    def _begin(self, line: bytes) -> None:
        # The line end behind a chunk makes an empty line here.
        if not line:
            return
        match = _SIZE.fullmatch(line)
        if match is None:
            raise NoStream
        self.chunks += 1
        self._left_bytes = int(match[1], 16)
        self.is_ended = not self._left_bytes


@asynccontextmanager
async def open_stream(address: str, port: int) -> AsyncIterator[EventStream]:
    """Ask `GET /events` of an IP address and give the stream that is answered.

    Raises:
        NoStream: Something else is answered.
        OSError, TimeoutError: Nothing listens there, or it does not answer.
    """
    async with asyncio.timeout(CONNECT_SECONDS):
        reader, writer = await asyncio.open_connection(address, port, limit=MAX_HEAD_BYTES)
    try:
        async with asyncio.timeout(RESPONSE_SECONDS):
            writer.write(_request(address, port))
            head = await _read_head(reader)
        yield EventStream(reader, is_chunked=_is_chunked(head))
    finally:
        writer.transport.abort()


def _request(address: str, port: int) -> bytes:
    host = f"[{address}]" if ip_address(address).version == 6 else address
    return (
        f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/event-stream\r\n"
        "Accept-Encoding: identity\r\nCache-Control: no-cache\r\nConnection: close\r\n\r\n"
    ).encode()


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as exc:
        raise NoStream from exc


def _is_chunked(head: bytes) -> bool:
    """Accept an answer by its head; return whether its body is chunked.

    Raises:
        NoStream: It is no event stream, or not one as it is.
    """
    status, *lines = head.split(b"\r\n")
    fields = {}
    for line in lines:
        name, _, value = line.partition(b":")
        fields[name.lower()] = value.strip().lower()
    content_type = fields.get(b"content-type", b"").partition(b";")[0].strip()
    coding = fields.get(b"transfer-encoding", b"identity")
    if (
        not _STATUS.fullmatch(status)
        or content_type != b"text/event-stream"
        or fields.get(b"content-encoding", b"identity") != b"identity"
        or coding not in (b"identity", b"chunked")
    ):
        raise NoStream
    return coding == b"chunked"
