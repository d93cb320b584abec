"""WebSocket through the local ingress: as if both sides were connected to each other."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager

import h11
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close
from websockets.http11 import Request, Response

from telorunner.localcluster.ingress.tunnel import run_tunnel
from telorunner.localcluster.ingress.wire import Limits, Wire
from tests.cluster.ingress_harness import (
    HOST,
    App,
    Bench,
    Talk,
    ask_for,
    open_app,
    open_bench,
    say,
)

BIG_BYTES = 5_000_000
SWITCHED = b"HTTP/1.1 101 Fine\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
Handler = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def open_chat(
    handler: Handler, limits: Limits | None = None
) -> AsyncIterator[tuple[Bench, Server]]:
    """Have an ingress that leads a.test to a WebSocket server."""
    async with (
        open_bench(limits) as bench,
        serve(handler, HOST, 0, max_size=None, subprotocols=None) as server,
    ):
        bench.lead("a.test", next(iter(server.sockets)).getsockname()[1])
        yield bench, server


def dial(bench: Bench, path: str = "/") -> connect:
    """Return a client of a.test that connects to the ingress."""
    host, port = bench.http
    return connect(f"ws://a.test{path}", host=host, port=port, max_size=None, proxy=None)


async def echo(socket: ServerConnection) -> None:
    async for message in socket:
        await socket.send(message)


async def test_messages_of_any_size_pass_both_ways() -> None:
    async with open_chat(echo) as (bench, _), dial(bench, "/chat?room=1") as client:
        for message in ("", "hello", b"\x00\xff", "ä" * BIG_BYTES, bytes(BIG_BYTES)):
            async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
                tasks.create_task(client.send(message))
                assert await client.recv() == message


async def test_many_messages_keep_their_order() -> None:
    async with open_chat(echo) as (bench, _), dial(bench) as client:

        async def talk() -> None:
            for number in range(2_000):
                await client.send(str(number))

        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            tasks.create_task(talk())
            found = [await client.recv() for _ in range(2_000)]
    assert found == [str(number) for number in range(2_000)]


async def test_pings_reach_the_other_side_and_are_answered_by_it() -> None:
    async with open_chat(echo) as (bench, server), dial(bench) as client:
        async with asyncio.timeout(10):
            await (await client.ping(b"from the client"))
            (there,) = server.connections
            await (await there.ping(b"from the application"))


async def test_the_close_code_of_the_application_reaches_the_client() -> None:
    async def refuse(socket: ServerConnection) -> None:
        await socket.close(4001, "not you")

    async with open_chat(refuse) as (bench, _), dial(bench) as client:
        with pytest.raises(ConnectionClosed) as caught:
            await client.recv()
    assert caught.value.rcvd == Close(4001, "not you")


async def test_the_close_code_of_the_client_reaches_the_application() -> None:
    codes: asyncio.Queue[tuple[int | None, str | None]] = asyncio.Queue()

    async def wait(socket: ServerConnection) -> None:
        await socket.wait_closed()
        codes.put_nowait((socket.close_code, socket.close_reason))

    async with open_chat(wait) as (bench, _):
        async with dial(bench) as client:
            await client.close(4002, "enough")
        async with asyncio.timeout(10):
            assert await codes.get() == (4002, "enough")


@pytest.mark.parametrize("who", ["client", "application"])
async def test_a_side_that_breaks_off_is_seen_to_break_off(who: str) -> None:
    codes: asyncio.Queue[int | None] = asyncio.Queue()

    async def behave(socket: ServerConnection) -> None:
        if who == "application":
            socket.transport.abort()
        await socket.wait_closed()
        codes.put_nowait(socket.close_code)

    async with open_chat(behave) as (bench, _), dial(bench) as client:
        if who == "client":
            client.transport.abort()
        async with asyncio.timeout(10):
            await client.wait_closed()
            # Nobody said farewell.
            assert (client.close_code, await codes.get()) == (1006, 1006)


async def test_an_application_may_refuse_to_upgrade() -> None:
    def refuse(socket: ServerConnection, request: Request) -> Response:
        return socket.respond(403, "not here\n")

    async with (
        open_bench() as bench,
        serve(echo, HOST, 0, process_request=refuse) as server,
    ):
        bench.lead("a.test", next(iter(server.sockets)).getsockname()[1])
        with pytest.raises(InvalidStatus) as caught:
            async with dial(bench):
                pass
    assert (caught.value.response.status_code, caught.value.response.body) == (403, b"not here\n")


async def test_a_handshake_says_what_the_client_and_the_application_said() -> None:
    async def behave(app: App, talk: Talk) -> None:
        await talk.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: two\r\n\r\nfirst"
        )
        await talk.send(await talk.reader.readexactly(4))
        talk.writer.close()

    async with open_bench() as bench, open_app(behave) as app, bench.talk() as talk:
        bench.lead("a.test", app.port)
        fields = ("Upgrade: websocket", "Connection: keep-alive, Upgrade", "Sec-WebSocket-Key: x")
        # What a client says too early is not lost.
        await talk.send(ask_for("/", *fields, "Sec-WebSocket-Protocol: one, two") + b"ea")
        head = await talk.read_head()
        assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n")
        assert b"Sec-WebSocket-Protocol: two\r\nConnection: Upgrade\r\nUpgrade: websocket" in head
        await talk.send(b"rl")
        assert await talk.read_end() == b"firstearl"
    asked = app.heads[0].decode()
    assert "Sec-WebSocket-Key: x\r\nSec-WebSocket-Protocol: one, two\r\n" in asked
    assert asked.endswith("Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")


async def test_an_upgrade_that_nobody_asked_for_is_not_believed() -> None:
    async def behave(app: App, talk: Talk) -> None:
        await talk.send(SWITCHED)

    async with open_bench() as bench, open_app(behave) as app:
        bench.lead("a.test", app.port)
        assert (await bench.ask(ask_for())).status == 502


async def test_after_an_upgrade_was_refused_the_connection_takes_requests() -> None:
    async def behave(app: App, talk: Talk) -> None:
        await talk.send(say("200 OK", body=b"plain"))

    async with open_bench() as bench, open_app(behave) as app, bench.talk() as talk:
        bench.lead("a.test", app.port)
        for fields in (("Upgrade: websocket", "Connection: Upgrade"), ()):
            await talk.send(ask_for("/", *fields))
            assert (await talk.read_answer()).body == b"plain"


async def test_a_socket_that_is_silent_for_too_long_ends() -> None:
    async with (
        open_chat(echo, Limits(stream_seconds=0.3)) as (bench, _),
        dial(bench) as client,
        asyncio.timeout(10),
    ):
        await client.wait_closed()
        assert client.close_code == 1006


@pytest.mark.looptime
async def test_what_comes_at_the_very_moment_when_patience_ends_is_no_failure() -> None:
    loop = asyncio.get_running_loop()
    with ExitStack() as far_ends:
        sides = []
        for _ in range(2):
            near, far = socket.socketpair()
            far_ends.enter_context(far)
            sides.append(Wire(h11.CLIENT, await asyncio.open_connection(sock=near)))
        loop.call_later(5, sides[1].reader.feed_data, b"late")
        await run_tunnel(*sides, idle_seconds=5, linger_seconds=1)
        assert loop.time() == 5


async def test_what_one_side_does_not_read_is_not_taken_from_the_other() -> None:
    is_stuck = asyncio.Event()
    sent = 0

    async def flood(app: App, talk: Talk) -> None:
        nonlocal sent
        await talk.send(SWITCHED)
        piece = bytes(1_000_000)
        while not is_stuck.is_set():
            try:
                async with asyncio.timeout(1):
                    await talk.send(piece)
            except TimeoutError:
                is_stuck.set()
            sent += len(piece)

    async with open_bench() as bench, open_app(flood) as app, bench.talk() as talk:
        bench.lead("a.test", app.port)
        await talk.send(ask_for("/", "Upgrade: websocket", "Connection: Upgrade"))
        await talk.read_head()
        async with asyncio.timeout(30):
            await is_stuck.wait()
    assert sent < 32_000_000
