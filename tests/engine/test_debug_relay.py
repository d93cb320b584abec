"""The debug relay against a debug server that misbehaves: reconnects, and everything odd."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from sessions import events, sse
from sessions.debug_relay.messages import MAX_MESSAGE_BYTES
from sessions.debug_relay.relay import MAX_DEPTH, SILENCE_SECONDS
from tests.debug_servers import HEAD, DebugServer, event, message, open_debug_server, say
from tests.engine.relayed import relaying

pytestmark = pytest.mark.looptime


@pytest.fixture
async def server() -> AsyncIterator[DebugServer]:
    async with open_debug_server() as server:
        yield server


def numbered(first: int, last: int) -> list[dict[str, Any]]:
    return [event("step", number=number) for number in range(first, last + 1)]


async def test_the_ring_and_what_follows_come_in_order(server: DebugServer) -> None:
    server.emit(event("Kernel.Initialized"), event("Kernel.Starting", payload={"telo": "1.0.0"}))
    async with relaying(server) as relayed:
        await server.until_subscribed()
        server.emit(event("Kernel.Started"))
        assert await relayed.until(3) == [
            {"kind": "event", "event": "Kernel.Initialized"},
            {"kind": "event", "event": "Kernel.Starting", "payload": {"telo": "1.0.0"}},
            {"kind": "event", "event": "Kernel.Started"},
        ]
    request = server.requests[0].decode()
    assert request.startswith("GET /events HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{server.port}\r\n" in request
    assert "Accept-Encoding: identity\r\n" in request


async def test_frames_come_once_over_any_number_of_reconnects(server: DebugServer) -> None:
    async with relaying(server) as relayed:
        for turn in range(3):
            await server.until_requests(turn + 1)
            await server.until_subscribed()
            server.emit(*numbered(turn * 10, turn * 10 + 9))
            await relayed.until(turn * 10 + 10)
            server.cut()
            # The ring moves on while nobody listens.
            await server.until(lambda: not server.open)
        server.emit(*numbered(30, 39))
        assert await relayed.until(40) == numbered(0, 39)


async def test_a_replay_that_breaks_off_in_mid_ring_is_gone_on_with(server: DebugServer) -> None:
    server.emit(*numbered(1, 10))
    half = HEAD + b"".join(list(server.ring)[:6]) + list(server.ring)[6][:9]
    server.script(server.behave, say(half), say(half))
    async with relaying(server) as relayed:
        await relayed.until(10)
        server.cut()
        await server.until_requests(4)
        await server.until_subscribed()
        server.emit(*numbered(11, 12))
        assert await relayed.until(12) == numbered(1, 12)


async def test_a_ring_that_has_rolled_over_is_new_from_its_start(server: DebugServer) -> None:
    server.emit(*numbered(1, 3))
    async with relaying(server) as relayed:
        await relayed.until(3)
        server.cut()
        await server.until(lambda: not server.open)
        server.emit(*numbered(4, 5104))
        frames = await relayed.until(5003)
        assert frames == numbered(1, 3) + numbered(105, 5104)


async def test_another_kernel_on_the_same_port_is_relayed_whole(server: DebugServer) -> None:
    server.emit(*numbered(1, 3))
    async with relaying(server) as relayed:
        await relayed.until(3)
        server.restart()
        await server.until(lambda: not server.open)
        server.emit(*numbered(11, 12))
        assert await relayed.until(5) == numbered(1, 3) + numbered(11, 12)


async def test_another_kernel_with_the_same_frames_is_relayed_once_it_falls_silent(
    server: DebugServer,
) -> None:
    server.emit(*numbered(1, 5))
    async with relaying(server) as relayed:
        await relayed.until(5)
        server.restart()
        await server.until(lambda: not server.open)
        server.emit(*numbered(1, 2))
        assert await relayed.until(7) == numbered(1, 5) + numbered(1, 2)


async def test_the_replay_of_a_full_ring_passes_at_once(
    server: DebugServer, looptime: float
) -> None:
    server.emit(*(event("step", number=number, padding="x" * 400) for number in range(5000)))
    async with relaying(server) as relayed:
        await relayed.until(5000)
    # At the rate of a flood it would take eight seconds.
    assert looptime < 0.1


async def test_only_event_frames_are_relayed(server: DebugServer) -> None:
    garbage = [
        {"kind": "log", "event": "x"},
        {"kind": "record"},
        {"kind": ["event"]},
        {"kind": "metric", "event": "x"},
        {},
        [],
        ["event"],
        "event",
        1,
        None,
    ]
    server.emit(*garbage, event("good"), {"event": "without a kind"})
    async with relaying(server) as relayed:
        assert await relayed.until(2) == [event("good"), {"event": "without a kind"}]


ODD_VALUES = [
    b"NaN",
    b"-Infinity",
    b"1e999",
    b'"\\ud800"',
    b'"\xed\xa0\x80"',
    b'"\xff"',
    b"123456789012345678901234567890",
    b"-9223372036854775809",
    b'"\\u0000\\r\\n\\r\\ndata: {}\\u2028"',
    b'"\xe2\x80\xa8id: 9"',
    b"{",
    b"[" * 1000 + b"]" * 1000,
    b'{"a":' * 100 + b"1" + b"}" * 100,
]


async def test_odd_values_never_make_a_frame_that_cannot_be_sent(server: DebugServer) -> None:
    """Every frame that is relayed is one message of one event, whatever its text says."""
    body = b"".join(b'data: {"kind":"event","event":"odd","v":%s}\n\n' % v for v in ODD_VALUES)
    server.script(say(HEAD + body + message(event("last")), then_hang=True))
    async with relaying(server) as relayed:
        frames = await relayed.until(5)
        assert frames[-1] == event("last")
        for frame in frames:
            encoded = sse.encode(events.debug("app", frame))
            (parsed,) = sse.parse(encoded.decode())
            again = orjson.loads(parsed.data)
            assert again == {"type": "debug", "app": "app", "frame": frame}
            assert encoded.count(b"\n") == 3
            assert b"\r" not in encoded


async def test_frames_that_are_too_large_or_too_deep_are_left_out_and_said(
    server: DebugServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    deep: Any = "the secret"
    for _ in range(MAX_DEPTH):
        deep = [deep]
    server.emit(
        event("fits", text="x" * (MAX_MESSAGE_BYTES - 100)),
        event("large", text="the secret" + "x" * MAX_MESSAGE_BYTES),
        event("giant", text="x" * 3_000_000),
        event("deep", value=deep),
        event("many brackets", value=[[]] * 1000, text='\\"[[' * 1000),
        event("last"),
    )
    async with relaying(server) as relayed:
        assert await relayed.names(3) == ["fits", "many brackets", "last"]
        await relayed.until_loss()
    assert "left out" in caplog.text
    assert "the secret" not in caplog.text
    assert sum("left out" in line for line in caplog.messages) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\ncontent-type: text/event-stream\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\ncontent-type: text/event-stream\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 3,
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n"),
        HEAD.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: gzip, chunked\r\n\r\n"),
        HEAD.replace(b"\r\n\r\n", b"\r\nx: " + b"x" * 20_000 + b"\r\n\r\n"),
        HEAD.replace(b"\r\n\r\n", b"\r\nx: y" * 10_000 + b"\r\n\r\n"),
        HEAD.replace(b"HTTP/1.1", b"ICY"),
        b"\x00" * 100_000,
        b"",
    ],
    ids=lambda answer: str(answer[:40]),
)
async def test_what_is_no_event_stream_is_asked_again(server: DebugServer, answer: bytes) -> None:
    server.script(say(answer + message(event("wrong"))))
    server.emit(event("right"))
    async with relaying(server) as relayed:
        assert await relayed.names(1) == ["right"]
        assert len(server.requests) == 2


async def test_chunked_bodies_and_odd_line_ends_are_read(server: DebugServer) -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    body = b': hello\r\r\ndata: {"kind":"event",\rid: 7\r\ndata:"event":"one"}\n\r'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    server.script(say(head + chunks + b"0\r\n\r\n"))
    server.emit(event("one"), event("two"))
    async with relaying(server) as relayed:
        assert (await relayed.names(1))[0] == "one"
        await relayed.names(2)


async def test_nobody_there_is_asked_again_every_half_second(looptime: float) -> None:
    async with open_debug_server() as server:
        server.script(*[say(b"")] * 10)
        async with relaying(server):
            await server.until_requests(11)
            assert looptime == pytest.approx(5.0, abs=0.1)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\n"])
async def test_a_server_that_never_answers_is_asked_again(
    server: DebugServer, looptime: float, said: bytes
) -> None:
    server.script(say(said, then_hang=True))
    server.emit(event("right"))
    async with relaying(server) as relayed:
        assert await relayed.names(1) == ["right"]
        assert looptime == pytest.approx(5.5, abs=0.1)


async def test_a_half_open_connection_is_noticed(server: DebugServer, looptime: float) -> None:
    server.script(say(HEAD + message(event("one")), then_hang=True))
    server.emit(event("one"), event("two"))
    async with relaying(server) as relayed:
        assert await relayed.names(2) == ["one", "two"]
        assert looptime == pytest.approx(SILENCE_SECONDS + 0.5, abs=0.1)


async def test_heartbeats_keep_a_silent_connection(server: DebugServer) -> None:
    async def beat(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for _ in range(20):
            await asyncio.sleep(15)
            writer.write(b": heartbeat\n\n")
        writer.write(message(event("late")))
        await asyncio.sleep(1)

    server.script(beat)
    async with relaying(server) as relayed:
        assert await relayed.names(1) == ["late"]
        assert len(server.requests) == 1


async def test_proxies_of_the_environment_are_not_used(
    server: DebugServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.emit(event("direct"))
    async with relaying(server) as relayed:
        assert await relayed.names(1) == ["direct"]


async def test_a_stream_that_ends_is_drained_and_one_that_stays_open_holds_nobody_up(
    server: DebugServer, looptime: float
) -> None:
    async with relaying(server) as relayed:
        assert relayed.relay is not None
        server.emit(event("step", number=1))
        await relayed.until(1)
        server.emit(*numbered(2, 200))
        server.cut()
        await relayed.relay.drain()
        assert relayed.frames == numbered(1, 200)
        server.emit(event("step", number=201))
        await relayed.until(201)
        assert looptime == pytest.approx(0.5, abs=0.01)
        await relayed.relay.drain()
        assert looptime == pytest.approx(0.6, abs=0.01)
