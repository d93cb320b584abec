"""WebSockets as clients see them: close codes, limits, and what a failing application means."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from telorunner.server import Server
from tests.api.reactor import Opener, hang_up, read_to_end, running_reactor, serve, until

__all__ = ["running_reactor", "serve"]

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def opened(server: Server) -> connect:
    return connect(f"ws://127.0.0.1:{server.port}/", compression=None, proxy=None, max_size=None)


async def closed(socket: ClientConnection) -> tuple[int, str]:
    """Wait for the end; return code and reason."""
    with suppress(ConnectionClosed):
        async with asyncio.timeout(10):
            async for _ in socket:
                pass
    assert socket.close_code is not None
    return socket.close_code, socket.close_reason or ""


async def echo(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})


@pytest.mark.parametrize("code", [1000, 1001, 1008, 1011, 1012, 1013, 3000, 4403, 4404, 4410])
async def test_every_close_code_reaches_the_client(serve: Opener, code: int) -> None:
    async def closing(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": code, "reason": "because"})

    async with serve(closing) as server, opened(server) as socket:
        assert await closed(socket) == (code, "because")


async def test_a_socket_closed_before_it_was_accepted_is_accepted_first(serve: Opener) -> None:
    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.close", "code": 4404})

    async with serve(refusing) as server, opened(server) as socket:
        assert (await closed(socket))[0] == 4404


async def test_a_long_reason_is_cut_between_characters(serve: Opener) -> None:
    async def closing(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.close", "code": 4404, "reason": "é" * 100})

    async with serve(closing) as server, opened(server) as socket:
        assert await closed(socket) == (4404, "é" * 61)


async def test_a_socket_may_stay_open_as_long_as_its_session(serve: Opener) -> None:
    # Daphne's own default cuts every socket after a day.
    async with serve(echo) as server, opened(server):
        assert server.websocket_timeout == -1


async def test_a_client_has_time_to_read_what_came_before_the_close(serve: Opener) -> None:
    # The default of one second broke busy readers off in the middle of a replay: 1006, not 1000.
    async with serve(echo) as server, opened(server):
        (protocol,) = server.connections
        assert protocol.closeHandshakeTimeout == 10


async def test_texts_and_bytes_pass_both_ways(serve: Opener) -> None:
    async with serve(echo) as server, opened(server) as socket:
        # A frame's head has its length in one, three or nine bytes.
        sizes = (1, 125, 126, 65_535, 65_536, 1_000_000)
        for message in ("text é", b"\x00\xff", *(b"x" * size for size in sizes)):
            await socket.send(message)
            assert await socket.recv() == message


@pytest.mark.parametrize("is_accepted", [True, False])
async def test_an_application_that_fails_closes_1011(serve: Opener, is_accepted: bool) -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if is_accepted:
            await send({"type": "websocket.accept"})
        raise RuntimeError("secret")

    async with serve(failing) as server, opened(server) as socket:
        assert await closed(socket) == (1011, "")


async def test_an_application_that_just_ends_closes_1011(serve: Opener) -> None:
    async def ending(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})

    async with serve(ending) as server, opened(server) as socket:
        assert (await closed(socket))[0] == 1011


async def test_what_is_sent_after_the_client_has_broken_off_goes_nowhere(serve: Opener) -> None:
    sent = 0

    async def flooding(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await receive()
        await send({"type": "websocket.accept"})
        # The race: the server knows that the socket closes before the application can.
        while (await receive())["type"] == "websocket.receive":
            for _ in range(50):
                await send({"type": "websocket.send", "bytes": b"x"})
                await asyncio.sleep(0)
                sent += 1

    async with serve(flooding) as server, opened(server) as socket:
        # A whole message, then a frame that no client may send: reserved bits are set.
        socket.transport.write(b"\x82\x81\0\0\0\0x" + b"\xf2\x81\0\0\0\0x")
        assert (await closed(socket))[0] == 1002
        await until(lambda: not server.connections)
    assert sent == 50


async def test_a_message_over_the_limit_closes_1009(serve: Opener) -> None:
    async with serve(echo) as server, opened(server) as socket:
        await socket.send(b"x" * 2_097_152)
        assert (await closed(socket))[0] == 1009


async def test_fragments_without_an_end_close_1009(serve: Opener) -> None:
    async def fragments() -> Any:
        for _ in range(1000):
            yield b"x" * 2000

    async with serve(echo) as server, opened(server) as socket:
        with suppress(ConnectionClosed):
            await socket.send(fragments())
        assert (await closed(socket))[0] == 1009


async def test_text_that_is_not_utf_8_closes_1007(serve: Opener) -> None:
    async with serve(echo) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HANDSHAKE + b"\r\n")
        await reader.readuntil(b"\r\n\r\n")
        # FIN and text; masked with zeros, two bytes.
        writer.write(b"\x81\x82\0\0\0\0\xff\xff")
        frame = await reader.readexactly(4)
        await hang_up(writer)
    assert (frame[0], int.from_bytes(frame[2:])) == (0x88, 1007)


@pytest.mark.parametrize(
    ("header", "status"), [(b"x-odd: \xff", b"101"), (b"sec-websocket-protocol: \xff", b"500")]
)
async def test_an_odd_header_breaks_nothing(serve: Opener, header: bytes, status: bytes) -> None:
    async with serve(echo) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HANDSHAKE + header + b"\r\n\r\n")
        answer = await reader.readuntil(b"\r\n\r\n")
        await hang_up(writer)
        await until(lambda: not server.connections and not server.transports)
    assert answer.startswith(b"HTTP/1.1 " + status)


async def test_a_client_that_vanishes_ends_its_application(serve: Opener) -> None:
    codes: list[int] = []

    async def watching(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        codes.append((await receive())["code"])

    async with serve(watching) as server:
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(HANDSHAKE + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            await hang_up(writer)
        await until(lambda: not server.connections and not server.transports)
    assert codes == [1006] * 20


async def test_a_client_that_answers_no_ping_is_dropped_unless_it_is_held_back(
    serve: Opener,
) -> None:
    async def lazy(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await asyncio.Event().wait()

    async with serve(lazy) as server:
        server.ping_interval = 0.1
        server.ws_factory.setProtocolOptions(autoPingTimeout=1)
        silent_reader, silent = await asyncio.open_connection("127.0.0.1", server.port)
        held_reader, held = await asyncio.open_connection("127.0.0.1", server.port)
        for reader, writer in ((silent_reader, silent), (held_reader, held)):
            writer.write(HANDSHAKE + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
        # Five binary frames of 60,000 bytes: more than the server takes unread.
        held.write((b"\x82\xfe\xea\x60\0\0\0\0" + b"x" * 60_000) * 5)
        await read_to_end(silent_reader)
        await until(lambda: len(server.transports) == 1)
        await hang_up(silent)
        await hang_up(held)
