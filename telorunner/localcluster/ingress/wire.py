"""One HTTP/1.1 connection of the ingress, towards a client or an application, as events.

h11 reads and writes the protocol, so that what is passed on is what was sent: targets and header
values byte for byte, bodies in the pieces in which they come. Nothing is read ahead of what is
taken, and a write waits until the other side takes it. It starts no task.

Source: https://h11.readthedocs.io/
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import h11

CHUNK_BYTES = 65_536
# On, and for no time at all. Source: socket(7), SO_LINGER
_RESET = struct.pack("ii", 1, 0)
# Of a request or an answer, with its first line.
MAX_HEAD_BYTES = 65_536


@dataclass(frozen=True)
class Limits:
    """How long the ingress waits, in seconds, and for how many.

    `idle_seconds` is between two requests, `head_seconds` for a whole head once it has begun,
    `body_seconds` for the next piece of a request's body and for a client to take a piece of an
    answer, `answer_seconds` for the head of an application's answer. `stream_seconds` is how long
    an answer that has begun, or an upgraded connection, may be silent.
    """

    connections: int = 256
    idle_seconds: float = 75.0
    head_seconds: float = 15.0
    body_seconds: float = 60.0
    connect_seconds: float = 5.0
    answer_seconds: float = 300.0
    stream_seconds: float = 3600.0
    linger_seconds: float = 2.0


class Lost(Exception):
    """The other side of a wire is gone."""

    def __init__(self, wire: "Wire") -> None:
        super().__init__("the connection is lost")
        self.wire = wire


class Malformed(Exception):
    """The other side of a wire does not speak HTTP; `status` is what a client is told."""

    def __init__(self, wire: "Wire", status: int) -> None:
        super().__init__("what came is no HTTP")
        self.wire = wire
        self.status = status


class Wire:
    """A connection and its protocol; whoever makes one closes it."""

    def __init__(self, role: type[h11.SERVER] | type[h11.CLIENT], streams: "Streams") -> None:
        self.reader, self.writer = streams
        self.protocol = h11.Connection(role, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def next_event(self) -> h11.Event | None:
        """Return the next event, None where the other side has nothing more to say for now.

        Cancelling loses nothing.

        Raises:
            Lost: The connection broke.
            Malformed: What came is no HTTP, or ended too early.
        """
        while True:
            with self._translated():
                event = self.protocol.next_event()
            if isinstance(event, h11.Event):
                return event
            if event is h11.PAUSED:
                return None
            await self.receive()

    async def receive(self) -> bool:
        """Wait for more from the other side and keep it; False: there will be no more.

        Raises:
            Lost: The connection broke.
        """
        with self._translated():
            data = await self.reader.read(CHUNK_BYTES)
            self.protocol.receive_data(data)
        return bool(data)

    async def send(self, event: h11.Event) -> None:
        """Send an event and wait until there is room for another.

        Raises:
            Lost: The connection broke.
        """
        with self._translated():
            data = self.protocol.send(event)
            if data:
                self.writer.write(data)
                await self.writer.drain()

    def abort(self) -> None:
        """End the connection at once; what was not sent yet is dropped."""
        self.writer.transport.abort()

    def reset(self) -> None:
        """End the connection so that the other side cannot take it for an end in order."""
        if not self.writer.transport.is_closing():
            sock = self.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.abort()

    async def close(self, seconds: float) -> None:
        """End the connection in order; what its other side has not taken by then is dropped."""
        self.writer.close()
        try:
            async with asyncio.timeout(seconds):
                await self.writer.wait_closed()
        except (TimeoutError, OSError):
            self.abort()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except h11.RemoteProtocolError as exc:
            raise Malformed(self, exc.error_status_hint) from exc
        except h11.LocalProtocolError as exc:
            raise Malformed(self, 502) from exc
        except (OSError, ssl.SSLError) as exc:
            raise Lost(self) from exc


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
