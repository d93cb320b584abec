"""The server's stop: streams end cleanly, sockets are told, nothing hangs on a client."""

import asyncio
import time
from typing import Any

import pytest
from websockets.asyncio.client import connect

from telorunner.errors import ConfigError
from telorunner.server import Address, Limits, open_server
from tests.api.reactor import Opener, hang_up, on_server, read_to_end, running_reactor, serve, until

__all__ = ["running_reactor", "serve"]

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class Application:
    """Streams and sockets that end when told to, or, if stubborn, never."""

    def __init__(self, *, is_stubborn: bool) -> None:
        self.stopping = asyncio.Event()
        self.is_stubborn = is_stubborn
        self.open = 0
        self.cancelled = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begin", "more_body": True})
        else:
            await receive()
            await send({"type": "websocket.accept"})
        self.open += 1
        try:
            await (asyncio.Event().wait() if self.is_stubborn else self.stopping.wait())
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if scope["type"] == "http":
            await send({"type": "http.response.body", "body": b"end"})
        else:
            await send({"type": "websocket.close", "code": 1012})

    async def stop(self) -> None:
        self.stopping.set()


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_streams_end_cleanly_and_sockets_close_1012(serve: Opener, is_stubborn: bool) -> None:
    application = Application(is_stubborn=is_stubborn)
    async with serve(application, stop_grace_seconds=0.2) as server:
        pairs = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
        for _, writer in pairs:
            writer.write(GET)
        address = f"ws://127.0.0.1:{server.port}/"
        sockets = [await connect(address, compression=None, proxy=None) for _ in range(20)]
        await until(lambda: application.open == 40)
        await on_server(application.stop())
    for reader, writer in pairs:
        # The last chunk is there: the client knows that the stream is whole.
        assert (await read_to_end(reader)).endswith(b"0\r\n\r\n")
        await hang_up(writer)
    for socket in sockets:
        await socket.wait_closed()
        assert socket.close_code == 1012
    assert application.cancelled == (40 if is_stubborn else 0)
    assert server.connections == {}


async def test_idle_and_half_sent_requests_do_not_hold_the_stop(serve: Opener) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    half = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc"
    async with serve(application) as server:
        pairs = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(4)]
        for (_, writer), sent in zip(pairs, (b"", GET, half, half[:20]), strict=True):
            writer.write(sent)
        await pairs[1][0].readuntil(b"\r\n\r\n")
        await until(lambda: len(server.transports) == 4)
        started_at = time.monotonic()
    assert time.monotonic() - started_at < 3
    for reader, writer in pairs:
        await read_to_end(reader)
        await hang_up(writer)


async def test_a_client_that_reads_nothing_does_not_hold_the_stop(serve: Opener) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})

    async with serve(application, stop_grace_seconds=0.1) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**14)
        writer.write(GET)
        await until(lambda: any(one.unsent_bytes() for one in server.connections))
        started_at = time.monotonic()
    assert time.monotonic() - started_at < 4
    await read_to_end(reader)
    await hang_up(writer)


async def test_a_hurry_cuts_the_waiting_short(serve: Opener) -> None:
    application = Application(is_stubborn=True)
    async with serve(application, stop_grace_seconds=60.0) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(GET)
        await until(lambda: application.open == 1)

        async def hurry() -> None:
            asyncio.get_running_loop().call_later(0.1, server.hurry.set)

        await on_server(hurry())
        started_at = time.monotonic()
    assert time.monotonic() - started_at < 5
    await read_to_end(reader)
    await hang_up(writer)


async def test_no_connection_is_taken_once_the_stop_has_begun(serve: Opener) -> None:
    application = Application(is_stubborn=False)
    async with serve(application) as server:
        port = server.port
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_an_address_that_is_taken_is_named(serve: Opener) -> None:
    async def second(port: int) -> None:
        limits = Limits(body_bytes=1000)
        address = Address("127.0.0.1", port)
        async with open_server(Application(is_stubborn=False), address, limits):
            pass

    async with serve(Application(is_stubborn=False)) as server:
        refusal = rf"^RUNNER_HOST, PORT: .*127\.0\.0\.1, port {server.port}: "
        with pytest.raises(ConfigError, match=refusal):
            await on_server(second(server.port))
