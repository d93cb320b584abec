"""The debug relay under a flood: what it takes is bounded, and the loop goes on turning."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from sessions.debug_relay.messages import MessageParser
from sessions.debug_relay.pace import BURST_COST, COST_PER_SECOND
from sessions.debug_relay.stream import READ_BYTES
from tests.debug_servers import HEAD, DebugServer, event, flood, message, open_debug_server
from tests.engine.relayed import relaying

pytestmark = pytest.mark.looptime

WATCHED_SECONDS = 1.0


@pytest.fixture
async def server() -> AsyncIterator[DebugServer]:
    async with open_debug_server() as server:
        yield server


FLOODS = {
    "frames": message(event("x")) * 1000,
    "large frames": message(event("x", text="x" * 60_000)),
    "lines": b"\n" * 100_000,
    "comments": b":\r" * 50_000,
    "a line without an end": b"x" * 100_000,
    "a message without an end": b"data:\n" * 20_000,
    "brackets": b"data: " + b'["' * 30_000 + b"\n\n",
}


@pytest.mark.parametrize("data", FLOODS.values(), ids=FLOODS)
async def test_a_flood_costs_no_more_than_its_rate(server: DebugServer, data: bytes) -> None:
    """Unbounded, it would deliver hundreds of times as much and hold the loop for long."""
    sent = 0

    async def count(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(HEAD)
        while True:
            writer.write(data)
            await writer.drain()
            sent += len(data)

    server.script(count)
    async with relaying(server) as relayed:
        await server.until_requests(1)
        # Virtual time goes on only while the relay waits: with one that does not, this never ends.
        await asyncio.sleep(WATCHED_SECONDS)
    # The budget of a burst and of that time, and what the sockets' buffers take.
    assert sent < BURST_COST + WATCHED_SECONDS * COST_PER_SECOND + 8 * 2**20
    assert len(relayed.frames) < 14_000


@pytest.mark.parametrize("data", FLOODS.values(), ids=FLOODS)
def test_one_read_of_a_flood_is_parsed_in_some_milliseconds(data: bytes) -> None:
    parser, read = MessageParser(), (data * 10)[:READ_BYTES]
    began = time.process_time()
    for _ in range(10):
        list(parser.feed(read))
    assert (time.process_time() - began) / 10 < 0.05


async def test_chunks_of_one_byte_hold_nobody_up(server: DebugServer) -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    server.script(flood(b"1\r\n\n\r\n" * 20_000, head))
    async with relaying(server):
        await server.until_requests(1)
        # Virtual time goes on only while the relay waits: with one that does not, this never ends.
        await asyncio.sleep(WATCHED_SECONDS)


async def test_every_connection_is_closed(server: DebugServer) -> None:
    """A server that sends for ever keeps its connection open otherwise."""
    server.script(*[flood(b":\n" * 1000)] * 5)
    for count in range(5):
        async with relaying(server):
            await server.until_requests(count + 1)
        await server.until(lambda: not server.open)
