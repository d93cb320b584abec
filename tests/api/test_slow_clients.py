"""Clients that take their time, or want nothing: each costs the server a bounded while."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from telorunner import connection
from telorunner.server import Server
from tests.api.reactor import (
    WAIT_SECONDS,
    Opener,
    dialled,
    exchange,
    hang_up,
    on_server,
    read_to_end,
    running_reactor,
    serve,
    until,
)
from tests.api.test_server_http import GET, application, parse

__all__ = ["running_reactor", "serve"]

# Short, and far apart from each other and from the pace of the dribbling.
SHORT = 0.4
LONG = 30.0
PACE_SECONDS = 0.05
SOCKETS = 300
IDLERS = 1000
# More than both kernels hold of a connection.
LARGE_BYTES = 20_000_000
HANDSHAKE = (
    b"GET /x HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


async def dribble(server: Server, head: bytes, endless: bytes) -> bytes:
    """Send the head at once and then a byte a pace for ever; return the answer."""
    async with dialled(server) as (reader, writer):
        writer.write(head)

        async def feed() -> None:
            while True:
                for byte in endless:
                    writer.write(bytes([byte]))
                    await asyncio.sleep(PACE_SECONDS)

        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(feed())
            received = await read_to_end(reader)
            feeding.cancel()
    return received


def assert_late(answer: bytes) -> None:
    status, headers, body = parse(answer)
    assert (status, body["error"]) == (400, "invalid_request")
    assert "in time" in body["message"]
    assert headers["connection"] == "close"


@pytest.mark.parametrize(
    "head", [b"", b"GET", b"GET / HTTP/1.1\r\nhost: x\r\na: ", b"GET / HTTP/1.1\r\nhost: x\r\n"]
)
async def test_a_header_that_dribbles_in_is_given_up(serve: Opener, head: bytes) -> None:
    limits = {"header_seconds": SHORT, "body_seconds": LONG, "idle_seconds": LONG}
    async with serve(application, **limits) as server:
        assert_late(await dribble(server, head, b"a"))
        await until(lambda: not server.connections and not server.transports)


@pytest.mark.parametrize("framing", [b"content-length: 9999", b"transfer-encoding: chunked"])
async def test_a_body_that_dribbles_in_is_given_up(serve: Opener, framing: bytes) -> None:
    limits = {"header_seconds": LONG, "body_seconds": SHORT, "idle_seconds": LONG}
    head = b"POST / HTTP/1.1\r\nhost: x\r\n%s\r\n\r\n" % framing
    async with serve(application, **limits) as server:
        assert_late(await dribble(server, head, b"1\r\nx\r\n"))
        await until(lambda: not server.connections and not server.transports)


async def test_a_body_that_comes_fast_enough_may_take_its_time(
    serve: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A pace that earns each byte twice the time it takes.
    monkeypatch.setattr(connection, "MIN_BODY_BYTES_PER_SECOND", int(0.5 / PACE_SECONDS))
    length = int(4 * SHORT / PACE_SECONDS)
    head = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % length
    async with (
        serve(application, body_seconds=SHORT) as server,
        dialled(server) as (reader, writer),
    ):
        writer.write(head)
        for _ in range(length):
            writer.write(b"x")
            await asyncio.sleep(PACE_SECONDS)
        assert parse(await read_to_end(reader))[2]["length"] == length


async def test_an_idle_connection_is_closed_without_a_word(serve: Opener) -> None:
    async with serve(application, idle_seconds=SHORT) as server:
        assert await exchange(server, b"") == b""
        keep_alive = GET.replace(b"connection: close\r\n", b"")
        answer = await exchange(server, keep_alive)
        assert parse(answer)[0] == 200


async def test_a_second_request_has_a_deadline_of_its_own(serve: Opener) -> None:
    limits = {"header_seconds": SHORT, "idle_seconds": LONG}
    keep_alive = GET.replace(b"connection: close\r\n", b"")
    async with serve(application, **limits) as server:
        received = await exchange(server, keep_alive + b"GET /late")
    first, second = received.split(b"HTTP/1.1 400", 1)
    assert first.startswith(b"HTTP/1.1 200")
    assert_late(b"HTTP/1.1 400" + second)


async def test_an_answer_that_takes_long_is_waited_for(serve: Opener) -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(3 * SHORT)
        await application(scope, receive, send)

    limits = {"header_seconds": SHORT, "body_seconds": SHORT, "idle_seconds": SHORT}
    async with serve(slow, **limits) as server:
        assert parse(await exchange(server, GET))[0] == 200


async def test_a_close_waits_for_no_client_that_reads_nothing(serve: Opener) -> None:
    async def large(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(LARGE_BYTES)})

    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    deaf.setblocking(False)
    async with serve(large, stall_seconds=SHORT) as server:
        await asyncio.get_running_loop().sock_connect(deaf, ("127.0.0.1", server.port))
        await asyncio.get_running_loop().sock_sendall(deaf, GET)
        await until(lambda: bool(server.transports))
        await until(lambda: not server.connections and not server.transports)
        deaf.close()


async def test_tls_on_a_plain_port_is_refused_or_closed(serve: Opener) -> None:
    hello = bytes.fromhex("16030100c8010000c40303") + bytes(range(11, 200))
    async with serve(application, header_seconds=SHORT) as server:
        answer = await exchange(server, hello)
        assert parse(answer)[0] == 400
        assert parse(await exchange(server, GET))[0] == 200


async def test_a_port_scan_leaves_nothing(serve: Opener) -> None:
    async with serve(application) as server:
        for number in range(SOCKETS):
            with socket.create_connection(("127.0.0.1", server.port)) as scanner:
                if number % 2:
                    # Leave with a reset.
                    scanner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                if number % 3 == 0:
                    scanner.sendall(b"GET / HT")
        await until(lambda: not server.connections and not server.transports)


@asynccontextmanager
async def idlers(server: Server, count: int) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for _ in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            stack.push_async_callback(hang_up, writer)
        yield


async def test_a_thousand_idle_connections_keep_nobody_out(serve: Opener) -> None:
    async with serve(application) as server:
        async with idlers(server, IDLERS):
            await until(lambda: len(server.transports) == IDLERS)
            assert parse(await exchange(server, GET))[0] == 200
        await until(lambda: not server.transports)


async def test_a_socket_whose_application_never_accepts_is_closed(serve: Opener) -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "websocket.disconnect":
            pass

    async def hurry(server: Server) -> None:
        server.ws_factory.setProtocolOptions(openHandshakeTimeout=SHORT)
        server.websocket_handshake_timeout = SHORT

    async with serve(silent) as server:
        await on_server(hurry(server))
        await exchange(server, HANDSHAKE)
        await until(lambda: not server.connections and not server.transports)


async def test_frames_in_one_piece_with_the_handshake_are_not_lost(serve: Opener) -> None:
    async def echo(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "bytes": (await receive())["bytes"]})
        await send({"type": "websocket.close", "code": 1000})

    frame = b"\x82\x85\x00\x00\x00\x00early"
    async with serve(echo) as server, dialled(server) as (reader, writer):
        writer.write(HANDSHAKE + frame)
        async with asyncio.timeout(WAIT_SECONDS):
            await reader.readuntil(b"\x82\x05early")
