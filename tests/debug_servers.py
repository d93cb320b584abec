"""A small debug server on port 0 that tests can make misbehave.

It takes raw connections, so that it can answer with anything: by default it replays its ring to
each subscriber and sends what follows, as a kernel does.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.tcp import open_server

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
RING = 5000

Handler = Callable[[asyncio.StreamWriter], Awaitable[None]]


def message(frame: Any) -> bytes:
    return b"data: %s\n\n" % json.dumps(frame).encode()


def event(name: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "event", "event": name, **fields}


@dataclass
class DebugServer:
    """A kernel's debug server; `script()` replaces its next answers, one each."""

    port: int = 0
    ring: deque[bytes] = field(default_factory=lambda: deque(maxlen=RING))
    requests: list[bytes] = field(default_factory=list)
    open: int = 0
    _scripts: deque[Handler] = field(default_factory=deque)
    _subscribers: dict[asyncio.StreamWriter, asyncio.Event] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def script(self, *handlers: Handler) -> None:
        self._scripts.extend(handlers)

    def emit(self, *frames: Any) -> None:
        """Put frames into the ring and send them to every subscriber."""
        for frame in frames:
            data = message(frame)
            self.ring.append(data)
            for writer in self._subscribers:
                writer.write(data)

    def cut(self) -> None:
        """Break every subscriber's connection."""
        for ended in self._subscribers.values():
            ended.set()

    def restart(self) -> None:
        """Begin anew, as another kernel on the same port."""
        self.cut()
        self.ring.clear()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that a connection brings about."""
        while not condition():
            await self._changed.wait()

    async def until_requests(self, count: int) -> None:
        await self.until(lambda: len(self.requests) >= count)

    async def until_subscribed(self) -> None:
        await self.until(lambda: bool(self._subscribers))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                self._tell()
                if self._scripts:
                    await self._scripts.popleft()(writer)
                else:
                    await self.behave(writer)
        finally:
            self.open -= 1
            self._subscribers.pop(writer, None)
            writer.close()
            self._tell()

    async def behave(self, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"".join(self.ring))
        ended = self._subscribers[writer] = asyncio.Event()
        self._tell()
        await ended.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def say(data: bytes, *, then_hang: bool = False) -> Handler:
    """Return a handler that answers with raw bytes, and closes or falls silent."""

    async def handler(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if then_hang:
            await asyncio.Event().wait()

    return handler


def flood(data: bytes, head: bytes = HEAD) -> Handler:
    """Return a handler that sends the same bytes as fast as they are taken."""

    async def handler(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(data)
            await writer.drain()

    return handler


@asynccontextmanager
async def open_debug_server(
    address: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[DebugServer]:
    debug_server = DebugServer()
    async with open_server(debug_server.serve, address, port) as debug_server.port:
        yield debug_server
