"""The terminal of a container whose server behaves, or does not."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import WSMsgType, web

from telorunner import aio
from telorunner.errors import ClusterError, ClusterUnavailable, Forbidden, NotReady, ObjectNotFound
from telorunner.kube.attach import AttachStream, open_attach
from telorunner.kube.client import Cluster
from tests.fakes import FakeApi, Handler, cut, hang, open_fake_cluster, refuse, say

SUCCESS = b'\x03{"metadata":{},"status":"Success"}'


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[tuple[FakeApi, Cluster]]:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.put("a")
        yield api, cluster


def frames(api: FakeApi, *sent: bytes | str, end: int | str = 1000) -> Handler:
    """Return an attach that sends these and ends by a close code, `cut` or not at all."""

    async def handler(request: web.Request) -> web.StreamResponse:
        async with api.accept(request) as socket:
            for frame in sent:
                if isinstance(frame, str):
                    await socket.send_str(frame)
                else:
                    await socket.send_bytes(frame)
            if end == "cut" and request.transport is not None:
                request.transport.close()
            elif isinstance(end, int):
                await socket.close(code=end)
            async for _ in socket:
                pass
        return socket

    return handler


async def read_all(stream: AttachStream) -> list[tuple[int, bytes]]:
    found = []
    while (output := await stream.read()) is not None:
        found.append(output)
    return found


async def test_a_terminal_is_typed_into_and_read_from(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    async with open_attach(cluster, "a", "session", tty=True) as stream:
        assert stream.is_proof
        await stream.resize(120, 40)
        data = bytes(range(256)) + "€".encode()
        await stream.write(data)
        assert await stream.read() == (1, data)
        assert not stream.is_complete
    await api.wait_until(lambda: not api.open_attaches)
    assert api.sizes == [(120, 40)]
    attach = api.requests[-1].query
    assert attach == {"container": "session", "stdin": "true", "stdout": "true", "tty": "true"}


async def test_streams_have_a_channel_for_errors(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    api.script("attach", frames(api, b"\x01out", b"\x02err", SUCCESS))
    async with open_attach(cluster, "a", "session", tty=False) as stream:
        assert await read_all(stream) == [(1, b"out"), (2, b"err")]
    assert api.requests[-1].query["stderr"] == "true"
    assert "tty" not in api.requests[-1].query


async def test_frames_that_say_nothing_are_skipped(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    silent = (b"\x01", b"", "text", b"\x02", b"\x07news", b"\xff\x01")
    api.script("attach", frames(api, *silent, b"\x01hi", "text", SUCCESS))
    async with open_attach(cluster, "a", "session", tty=True) as stream:
        assert await read_all(stream) == [(1, b"hi")]
        assert await stream.read() is None


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("sent", "end", "is_complete"),
    [
        ([SUCCESS], 1000, True),
        ([SUCCESS], "cut", True),
        ([SUCCESS], "open", True),
        ([], 1000, True),
        ([], 1006, False),
        ([], 1011, False),
        ([], "cut", False),
        ([b'\x03{"status":"Failure","message":"no such container"}'], 1000, False),
        ([b'\x03{"status":"Failure"}'], 1000, False),
        ([b"\x03garbage \xff"], 1000, False),
        ([b"\x03garbage"], "open", False),
        ([b"\x01" + b"x" * (17 * 2**20)], "open", False),
    ],
)
async def test_an_orderly_end_is_told_from_a_broken_one(
    fake: tuple[FakeApi, Cluster],
    sent: list[bytes],
    end: int | str,
    is_complete: bool,
    looptime: float,
) -> None:
    api, cluster = fake
    api.script("attach", frames(api, b"\x01last", *sent, end=end))
    async with open_attach(cluster, "a", "session", tty=True) as stream:
        assert await read_all(stream) == [(1, b"last")]
        assert stream.is_complete is is_complete
        assert looptime <= 5


async def test_output_that_comes_after_the_status_of_the_end_is_not_lost(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    api.script("attach", frames(api, SUCCESS, b"\x01late"))
    async with open_attach(cluster, "a", "session", tty=True) as stream:
        assert await read_all(stream) == [(1, b"late")]
        assert stream.is_complete


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (refuse(400, "BadRequest"), NotReady),
        (refuse(404, "NotFound"), NotReady),
        (refuse(500, "InternalError"), NotReady),
        (say("container not found", 500), NotReady),
        (refuse(502), ClusterUnavailable),
        (refuse(429), ClusterUnavailable),
        (say("<html>"), ClusterUnavailable),
        (cut, ClusterUnavailable),
        (hang, ClusterUnavailable),
        (refuse(403, "Forbidden"), Forbidden),
    ],
)
async def test_each_refusal_of_the_handshake_has_its_error(
    fake: tuple[FakeApi, Cluster], answer: Handler, expected: type[ClusterError]
) -> None:
    api, cluster = fake
    api.script("attach", answer, answer)
    with pytest.raises(expected):
        async with open_attach(cluster, "a", "session", tty=True):
            pass


async def test_a_pod_that_is_gone_is_not_one_that_does_not_run_yet(
    fake: tuple[FakeApi, Cluster],
) -> None:
    _, cluster = fake
    with pytest.raises(ObjectNotFound):
        async with open_attach(cluster, "gone", "session", tty=True):
            pass


async def test_a_server_that_speaks_only_v5_proves_nothing_before_output(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake

    async def v5_only(request: web.Request) -> web.StreamResponse:
        if request.headers["Sec-WebSocket-Protocol"] != "v5.channel.k8s.io":
            return web.Response(status=403)
        async with api.accept(request, protocols=("v5.channel.k8s.io",)) as socket:
            await socket.send_bytes(b"\x01")
            await socket.receive()
            await socket.send_bytes(b"\x01hi")
            await socket.close()
        return socket

    api.script("attach", v5_only, v5_only)
    async with open_attach(cluster, "a", "session", tty=True) as stream:
        assert not stream.is_proof
        await stream.resize(80, 24)
        assert await stream.read() == (1, b"hi")
        assert stream.is_proof


def without_pongs(api: FakeApi, wait: Callable[[], "asyncio.Future[None]"]) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        async with api.accept(request, autoping=False) as socket:
            await wait()
        return socket

    return handler


@pytest.mark.looptime
async def test_a_dead_connection_is_noticed_within_ninety_seconds(
    fake: tuple[FakeApi, Cluster], looptime: float
) -> None:
    api, cluster = fake
    api.script("attach", without_pongs(api, lambda: asyncio.get_running_loop().create_future()))
    async with open_attach(cluster, "a", "session", tty=True) as stream:
        await stream.resize(80, 24)
        assert await stream.read() is None
        assert not stream.is_complete
        assert 30 < looptime <= 90


@pytest.mark.looptime
async def test_a_quiet_terminal_stays_attached(
    fake: tuple[FakeApi, Cluster], looptime: float
) -> None:
    _, cluster = fake
    async with open_attach(cluster, "a", "session", tty=True) as stream:
        await stream.write(b"x")
        assert await stream.read() == (1, b"x")
        reading = aio.start(stream.read(), name="reading")
        await asyncio.sleep(3600)
        assert not reading.done()
        await stream.write(b"y")
        assert await reading == (1, b"y")


@pytest.mark.looptime
async def test_a_container_that_does_not_read_its_input_stays_attached(
    fake: tuple[FakeApi, Cluster],
) -> None:
    """The server cannot read our pings then, since they stand behind the input."""
    api, cluster = fake
    goes_on = asyncio.Event()

    async def stalled(request: web.Request) -> web.StreamResponse:
        async with api.accept(request) as socket:
            api.take_input((await socket.receive()).data)
            await goes_on.wait()
            async for message in socket:
                if message.type is WSMsgType.BINARY:
                    api.take_input(message.data)
        return socket

    api.script("attach", stalled)
    data = os.urandom(20 * 2**20)
    async with open_attach(cluster, "a", "session", tty=True) as stream:
        writing = aio.start(stream.write(data), name="writing")
        reading = aio.start(stream.read(), name="reading")
        await asyncio.sleep(300)
        assert not writing.done(), "what is not read must be felt by the writer"
        assert not reading.done()
        goes_on.set()
        await writing
        await api.wait_until(lambda: len(api.typed) == len(data))
        assert api.typed == data
        await aio.stop(reading)


@pytest.mark.looptime
async def test_input_is_confirmed_once_the_server_has_read_it(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    goes_on = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        async with api.accept(request) as socket:
            for _ in range(2):
                api.take_input((await socket.receive()).data)
            await socket.send_bytes(b"\x01not yet")
            await goes_on.wait()
            async for message in socket:
                api.take_input(message.data)
                await socket.send_bytes(b"\x01" + message.data[1:])
        return socket

    api.script("attach", slow)
    async with open_attach(cluster, "a", "session", tty=True) as stream:
        assert stream.is_input_confirmed
        await stream.resize(80, 24)
        assert stream.is_input_confirmed
        await stream.write(b"one")
        assert await stream.read() == (1, b"not yet")
        assert not stream.is_input_confirmed
        goes_on.set()
        await stream.write(b"two")
        assert await stream.read() == (1, b"two")
        await stream.write(b"three")
        # Answers come in order: the one to the last ping but one is read before this.
        assert await stream.read() == (1, b"three")
        assert not stream.is_input_confirmed
        reading = aio.start(stream.read(), name="reading")
        await asyncio.sleep(1)
        assert stream.is_input_confirmed
        assert stream.is_open
        await aio.stop(reading)
    assert not stream.is_open


@pytest.mark.looptime
@pytest.mark.parametrize(("typed", "at_most"), [(b"y", 90), (bytes(32_768), 660)])
async def test_a_dead_connection_is_noticed_soon_where_only_a_few_keys_were_typed(
    fake: tuple[FakeApi, Cluster], typed: bytes, at_most: float, looptime: float
) -> None:
    api, cluster = fake
    api.script("attach", without_pongs(api, lambda: asyncio.get_running_loop().create_future()))
    async with open_attach(cluster, "a", "session", tty=True) as stream:
        await stream.write(typed)
        assert await stream.read() is None
        assert not stream.is_input_confirmed
        # The container may just not read a large paste for now.
        assert 30 < looptime <= at_most


async def test_writing_to_a_terminal_that_has_ended_is_an_error(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    api.script("attach", frames(api, SUCCESS))
    async with open_attach(cluster, "a", "session", tty=True) as stream:
        assert await read_all(stream) == []
        with pytest.raises(ClusterUnavailable):
            await stream.write(b"x")
        with pytest.raises(ClusterUnavailable):
            await stream.resize(80, 24)


@pytest.mark.looptime
async def test_a_writer_that_waits_is_woken_when_the_terminal_is_let_go(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    api.script("attach", without_pongs(api, lambda: asyncio.get_running_loop().create_future()))
    async with open_attach(cluster, "a", "session", tty=True) as stream:
        writing = aio.start(stream.write(bytes(64 * 2**20)), name="writing")
        await asyncio.sleep(0.05)
        assert not writing.done()
    with pytest.raises(ClusterUnavailable):
        await writing


async def test_fifty_rounds_leave_no_descriptor_behind(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake

    async def round_trip(number: int) -> None:
        api.put(f"pod-{number}")
        async with open_attach(cluster, f"pod-{number}", "session", tty=True) as stream:
            await stream.write(b"x")
            await stream.read()
        await api.wait_until(lambda: not api.open_attaches)
        api.remove(f"pod-{number}")

    await round_trip(0)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(50):
        await round_trip(number)
    assert len(os.listdir("/proc/self/fd")) <= before + 2


@pytest.mark.looptime
async def test_a_server_that_never_closes_is_let_go_all_the_same(
    fake: tuple[FakeApi, Cluster], looptime: float
) -> None:
    api, cluster = fake
    api.script("attach", without_pongs(api, lambda: asyncio.get_running_loop().create_future()))
    async with open_attach(cluster, "a", "session", tty=True):
        pass
    assert looptime <= 5
