"""Flow control: a client that does not read holds its sender back, an application its client."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure
from websockets.asyncio.client import ClientConnection, connect

from telorunner.flow import INBOX_PAUSE_BYTES, MESSAGE_OVERHEAD_BYTES, Inbox
from telorunner.server import Server
from telorunner.transport import MAX_UNASKED_BYTES
from tests.api.reactor import Opener, hang_up, on_server, read_to_end, running_reactor, serve, until

__all__ = ["running_reactor", "serve"]

PIECE_BYTES = 65_536
PIECES = 320
TOTAL_BYTES = PIECE_BYTES * PIECES
READERS = 10
# What the kernels of both ends and the server hold of one connection, at most.
HELD_BYTES = 6_000_000
SETTLE_SECONDS = 10.0
# Sending a piece takes milliseconds; one that takes so long is being held back.
HELD_SECONDS = 1.0

PIECE = bytes(range(256)) * (PIECE_BYTES // 256)


class Source:
    """Applications that send 20 MB as fast as they may, counting what they could send."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.ended = 0

    async def stream(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await self._pour(lambda piece: {"type": "http.response.body", "body": piece}, send)
        await send({"type": "http.response.body", "body": b""})

    async def socket(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await self._pour(lambda piece: {"type": "websocket.send", "bytes": piece}, send)
        await send({"type": "websocket.close", "code": 1000})

    async def _pour(self, message: Any, send: Any) -> None:
        place = len(self.sent)
        self.sent.append(0)
        try:
            for _ in range(PIECES):
                await send({**message(PIECE), "more_body": True})
                self.sent[place] += PIECE_BYTES
        finally:
            self.ended += 1


async def until_settled(source: Source) -> None:
    """Wait until no sender gets on."""
    before: list[int] = []
    async with asyncio.timeout(SETTLE_SECONDS):
        while source.sent != before or len(source.sent) < READERS:
            before = list(source.sent)
            await asyncio.sleep(0.2)


@asynccontextmanager
async def stalled_streams(server: Server) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open plain HTTP streams whose clients read nothing until asked."""
    pairs = [
        await asyncio.open_connection("127.0.0.1", server.port, limit=2**14) for _ in range(READERS)
    ]
    for _, writer in pairs:
        writer.write(b"GET / HTTP/1.0\r\nhost: x\r\n\r\n")
    try:
        yield [reader for reader, _ in pairs]
    finally:
        for _, writer in pairs:
            await hang_up(writer)


async def test_stalled_streams_hold_their_senders_and_lose_nothing(serve: Opener) -> None:
    source = Source()
    async with serve(source.stream) as server, stalled_streams(server) as readers:
        await until_settled(source)
        assert all(0 < sent < HELD_BYTES for sent in source.sent), source.sent
        # The server itself holds no more than a buffer and a piece of each.
        assert max(protocol.unsent_bytes() for protocol in server.connections) < 4 * PIECE_BYTES
        answers = [await reader.read() for reader in readers]
    for answer in answers:
        assert answer.partition(b"\r\n\r\n")[2] == PIECE * PIECES


async def test_stalled_sockets_hold_their_senders_and_lose_nothing(serve: Opener) -> None:
    source = Source()
    async with serve(source.socket) as server:
        sockets: list[ClientConnection] = [
            await connect(
                f"ws://127.0.0.1:{server.port}/", compression=None, proxy=None, max_queue=1
            )
            for _ in range(READERS)
        ]
        await until_settled(source)
        assert all(0 < sent < HELD_BYTES for sent in source.sent), source.sent
        for one in sockets:
            frames = [frame async for frame in one]
            assert b"".join(frames) == PIECE * PIECES
            assert one.close_code == 1000


@pytest.mark.parametrize("kind", ["stream", "socket"])
async def test_a_client_that_reads_nothing_is_dropped_in_time(serve: Opener, kind: str) -> None:
    source = Source()
    request = b"GET / HTTP/1.0\r\nhost: x\r\n\r\n"
    if kind == "socket":
        request = (
            b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
    async with serve(getattr(source, kind), stall_seconds=0.3) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**14)
        writer.write(request)
        await until(lambda: source.ended == 1)
        assert len(await read_to_end(reader)) < TOTAL_BYTES
        await hang_up(writer)


async def test_a_connection_that_is_lost_takes_nothing_more(serve: Opener) -> None:
    """The race: a time limit, or whoever sends, closes what the client has just broken off."""
    source = Source()
    async with serve(source.stream) as server, stalled_streams(server):
        await until_settled(source)
        (transport, *_) = server.transports

        async def lose() -> tuple[int, int]:
            unsent = transport.unsent_bytes
            transport.connectionLost(Failure(ConnectionLost()))
            # So much is on its way that the kernel would be asked how much of it is left.
            transport._unasked_bytes = MAX_UNASKED_BYTES
            transport.write(PIECE)
            transport.loseWriteConnection()
            transport.loseConnection()
            transport.abortConnection()
            return unsent, transport.unsent_bytes

        unsent, left = await on_server(lose())
        assert unsent > 0
        assert (left, transport.lost_bytes) == (0, unsent)


async def test_a_client_that_reads_slowly_is_not_dropped(serve: Opener) -> None:
    whole = PIECE * 16

    async def one_big_piece(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": whole, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    slow = socket.socket()
    # Small, so that it is the server that holds what the client has not read.
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    slow.setblocking(False)
    async with serve(one_big_piece, stall_seconds=0.3) as server:
        await asyncio.get_running_loop().sock_connect(slow, ("127.0.0.1", server.port))
        reader, writer = await asyncio.open_connection(sock=slow, limit=8192)
        writer.write(b"GET / HTTP/1.0\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        received = bytearray()
        started_at = time.monotonic()
        # About a second for what may wait 0.3 seconds without any progress.
        while data := await reader.read(32_768):
            received += data
            await asyncio.sleep(0.03)
        await hang_up(writer)
    assert received == whole
    assert time.monotonic() - started_at > 3 * 0.3


async def test_an_application_that_takes_nothing_holds_its_client_back(serve: Opener) -> None:
    go_on = asyncio.Event()
    taken = bytearray()

    async def lazy(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await go_on.wait()
        while (message := await receive())["type"] == "websocket.receive":
            taken.extend(message["bytes"])

    async def let_go() -> None:
        go_on.set()

    async with serve(lazy) as server:
        typist = await connect(
            f"ws://127.0.0.1:{server.port}/", compression=None, proxy=None, write_limit=2**16
        )
        sent = 0
        with suppress(TimeoutError):
            while sent < HELD_BYTES:
                async with asyncio.timeout(HELD_SECONDS):
                    await typist.send(PIECE)
                sent += PIECE_BYTES
        # The frame whose sending was cut off above is in the client's buffer.
        assert sent < HELD_BYTES
        await on_server(let_go())
        await typist.close()
        assert bytes(taken) == PIECE * (len(taken) // PIECE_BYTES)
        assert len(taken) in {sent, sent + PIECE_BYTES}


class Reading:
    """Notes what an inbox asks of its connection."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def pause_reading(self) -> None:
        self.asked.append("pause")

    def resume_reading(self) -> None:
        self.asked.append("resume")


async def test_a_flood_of_empty_messages_is_bounded_too() -> None:
    reading = Reading()
    inbox = Inbox(reading)
    count = INBOX_PAUSE_BYTES // MESSAGE_OVERHEAD_BYTES
    for _ in range(count):
        inbox.put_nowait({"type": "websocket.receive", "bytes": b""})
    assert reading.asked == []
    inbox.put_nowait({"type": "websocket.receive", "text": ""})
    assert reading.asked == ["pause"]
    for _ in range(count):
        await inbox.get()
    assert reading.asked == ["pause", "resume"]
