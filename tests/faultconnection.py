"""One client's connection to a fault proxy: reads requests, passes them on, carries faults out.

HTTP/1.1, one request at a time, each over a connection of its own to the API server. Heads are
passed on as they came but for the token; bodies and everything after a 101 byte for byte.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from telorunner import aio
from tests.faultrules import Answer, Asked, Cut, Delay, Fault, Hold, Lines, Rule, Silent, Slow

CHUNK_BYTES = 65_536
# Nothing that a fault leaves hanging may outlive its test by more than this.
HANG_SECONDS = 300.0

_LOST = (OSError, EOFError, asyncio.IncompleteReadError, ssl.SSLError)


class Broken(Exception):
    """The connection is to end now, in the way that a fault wants."""


@dataclass(frozen=True)
class Upstream:
    """Where the API server is, and the token that it wants (empty: the client's own)."""

    host: str
    port: int
    context: ssl.SSLContext | None
    token: str = field(default="", repr=False)


@dataclass
class Head:
    """The first line and the header lines of a message."""

    start: str
    headers: list[tuple[str, str]]

    def get(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    def encode(self) -> bytes:
        lines = [self.start, *(f"{key}: {value}" for key, value in self.headers)]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


@dataclass(eq=False)
class Exchange:
    """One request under way; a test may silence or cut it from outside."""

    asked: Asked
    head: Head
    body: bytes
    transport: asyncio.WriteTransport
    silenced: asyncio.Event = field(default_factory=asyncio.Event)
    has_begun: bool = False


async def read_head(reader: asyncio.StreamReader) -> Head:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    start, *lines = text.rstrip("\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return Head(start, [(name, value.strip()) for name, _, value in pairs])


class Connection:
    """Serves one client until it leaves or a fault ends the connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream: Upstream,
        take: Callable[[Exchange], Rule | None],
        done: Callable[[Exchange], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._upstream = upstream
        self._take = take
        self._done = done

    async def run(self) -> None:
        try:
            while await self._serve_one():
                pass
        except (Broken, *_LOST):
            self._writer.transport.abort()
        finally:
            self._writer.close()

    async def _serve_one(self) -> bool:
        head = await read_head(self._reader)
        body = await self._reader.readexactly(int(head.get("content-length") or 0))
        method, target, _ = head.start.split(" ")
        protocol = head.get("sec-websocket-protocol")
        asked = Asked.read(method, target, head.get("authorization"), protocol)
        exchange = Exchange(asked, head, body, self._writer.transport)
        rule = self._take(exchange)
        try:
            if head.get("upgrade"):
                return await self._carry_out(exchange, rule)
            return await self._while_client_stays(self._carry_out(exchange, rule))
        finally:
            self._done(exchange)

    async def _while_client_stays(self, work: Awaitable[bool]) -> bool:
        """Do the work, but no longer than the client is there."""

        async def finish() -> bool:
            return await work

        working = aio.start(finish(), name="exchange")
        leaving = aio.start(self._reader.read(1), name="client")
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise Broken
            return working.result()
        finally:
            await aio.stop(leaving)
            if not working.done():
                await aio.stop(working)

    async def _carry_out(self, exchange: Exchange, rule: Rule | None) -> bool:
        fault: Fault | None = rule.fault if rule else None
        if isinstance(fault, Silent):
            await self._hang(exchange)
        if isinstance(fault, Lines):
            return await self._send_lines(exchange, fault)
        if isinstance(fault, Answer):
            return await self._answer(exchange, fault)
        if isinstance(fault, Delay):
            await asyncio.sleep(fault.seconds)
        if isinstance(fault, Hold) and rule is not None:
            await rule.lifted.wait()
        return await self._forward(exchange, fault)

    async def _hang(self, exchange: Exchange) -> None:
        """Keep the connection open and say nothing until the client leaves."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HANG_SECONDS):
                if not exchange.head.get("upgrade"):
                    # `_while_client_stays` reads, and ends this.
                    await asyncio.Event().wait()
                while await self._reader.read(CHUNK_BYTES):
                    pass
        raise Broken

    async def _send_lines(self, exchange: Exchange, fault: Lines) -> bool:
        head = Head("HTTP/1.1 200 OK", [("Content-Type", "application/json")])
        head.headers.append(("Transfer-Encoding", "chunked"))
        self._writer.write(head.encode())
        if fault.data:
            self._writer.write(b"%x\r\n%s\r\n" % (len(fault.data), fault.data))
        if fault.then == "end":
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        if fault.then == "silent":
            await self._hang(exchange)
        if fault.then == "cut":
            raise Broken
        return True

    async def _answer(self, exchange: Exchange, fault: Answer) -> bool:
        if fault.is_afterwards:
            await self._swallow(exchange)
        head = Head(f"HTTP/1.1 {fault.status} Fault", list(fault.headers))
        head.headers.append(("Content-Type", fault.content_type))
        head.headers.append(("Content-Length", str(len(fault.body))))
        self._writer.write(head.encode() + fault.body[: fault.after_bytes])
        await self._writer.drain()
        if fault.after_bytes is not None:
            raise Broken
        return True

    async def _swallow(self, exchange: Exchange) -> None:
        """Have the API server do it, and keep the client from learning so."""
        reader, writer = await self._ask(exchange)
        try:
            head = await read_head(reader)

            async def drop(_: bytes) -> None:
                pass

            await _relay_body(reader, head, drop)
        finally:
            writer.transport.abort()

    async def _ask(self, exchange: Exchange) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        upstream = self._upstream
        reader, writer = await asyncio.open_connection(
            upstream.host, upstream.port, ssl=upstream.context
        )
        head = Head(exchange.head.start, [])
        for name, value in exchange.head.headers:
            is_token = name.lower() == "authorization" and bool(upstream.token)
            head.headers.append((name, f"Bearer {upstream.token}" if is_token else value))
        writer.write(head.encode() + exchange.body)
        await writer.drain()
        return reader, writer

    async def _forward(self, exchange: Exchange, fault: Fault | None) -> bool:
        reader, writer = await self._ask(exchange)
        try:
            head = await read_head(reader)
            if isinstance(fault, Cut) and fault.is_before_head:
                raise Broken
            self._writer.write(head.encode())
            await self._writer.drain()
            exchange.has_begun = True
            if " 101 " in head.start:
                await self._tunnel(exchange, reader, writer)
                raise Broken

            async def pass_on(data: bytes) -> None:
                await self._pass_on(exchange, fault, data)

            await _relay_body(reader, head, pass_on)
            return head.get("connection").lower() != "close"
        finally:
            writer.transport.abort()

    async def _pass_on(self, exchange: Exchange, fault: Fault | None, data: bytes) -> None:
        if exchange.silenced.is_set():
            await self._hang(exchange)
        if isinstance(fault, Cut):
            self._writer.write(data[: len(data) // 2])
            await self._writer.drain()
            raise Broken
        if isinstance(fault, Slow):
            for start in range(0, len(data), fault.piece_bytes):
                self._writer.write(data[start : start + fault.piece_bytes])
                await self._writer.drain()
                await asyncio.sleep(fault.pause_seconds)
            return
        self._writer.write(data)
        await self._writer.drain()

    async def _tunnel(
        self, exchange: Exchange, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry bytes both ways until either side ends; silence stops both, and tells neither."""

        async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with suppress(*_LOST):
                while data := await source.read(CHUNK_BYTES):
                    if exchange.silenced.is_set():
                        # What arrives is taken and lost, as by a machine that is gone.
                        continue
                    sink.write(data)
                    await sink.drain()
                if sink.can_write_eof():
                    sink.write_eof()

        out = aio.start(carry(reader, self._writer), name="out")
        into = aio.start(carry(self._reader, writer), name="in")
        try:
            await asyncio.wait({out, into}, return_when=asyncio.FIRST_COMPLETED)
            if exchange.silenced.is_set():
                await into
            # A close frame has just been written: the other side may still have bytes under way.
            self._writer.close()
            with suppress(*_LOST, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._writer.wait_closed()
        finally:
            await aio.stop(out, into)


async def _relay_body(
    reader: asyncio.StreamReader, head: Head, pass_on: Callable[[bytes], Awaitable[None]]
) -> None:
    """Hand the body on as it comes, framing included, to its end."""
    if head.get("transfer-encoding").lower() == "chunked":
        await _relay_chunks(reader, pass_on)
    elif length := head.get("content-length"):
        left = int(length)
        while left:
            data = await reader.read(min(left, CHUNK_BYTES))
            if not data:
                raise Broken
            left -= len(data)
            await pass_on(data)
    elif " 204 " not in head.start:
        while data := await reader.read(CHUNK_BYTES):
            await pass_on(data)
        raise Broken


async def _relay_chunks(
    reader: asyncio.StreamReader, pass_on: Callable[[bytes], Awaitable[None]]
) -> None:
    while True:
        size_line = await reader.readuntil(b"\r\n")
        size = int(size_line.split(b";")[0], 16)
        data = await reader.readexactly(size + 2)
        await pass_on(size_line + data)
        if size == 0:
            return
