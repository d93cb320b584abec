"""Attach over WebSocket and logs over HTTPS, with a container in the test's own hands."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import orjson
import pytest

from tests.cluster.localcluster_harness import (
    NAMESPACE,
    WAIT_SECONDS,
    Api,
    FakeContainer,
    make_pod,
    open_api,
)

POD = f"/api/v1/namespaces/{NAMESPACE}/pods/one"
ALL = {"stdin": "true", "stdout": "true", "stderr": "true"}
V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
CLOSED = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
SUCCESS = b'\x03{"metadata":{},"status":"Success"}'


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with open_api(tmp_path) as api:
        await api.make_namespace()
        await api.run_pod(make_pod())
        yield api


@pytest.fixture
def container(api: Api) -> FakeContainer:
    return api.node.containers.setdefault("one", FakeContainer())


@asynccontextmanager
async def attach(
    api: Api, protocol: str = V4, **query: str
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    url = f"{POD}/attach"
    protocols = (protocol,) if protocol else ()
    async with api.session.ws_connect(
        url, params=query or ALL, protocols=protocols, max_msg_size=0
    ) as socket:
        assert socket.protocol == (protocol or None)
        first = b"\x01" if "stdout" in (query or ALL) else b"\x02"
        assert await receive(socket) == first
        yield socket


async def receive(socket: aiohttp.ClientWebSocketResponse) -> bytes:
    async with asyncio.timeout(WAIT_SECONDS):
        return await socket.receive_bytes()


async def receive_close(socket: aiohttp.ClientWebSocketResponse) -> int | None:
    async with asyncio.timeout(WAIT_SECONDS):
        message = await socket.receive()
    assert message.type is aiohttp.WSMsgType.CLOSE
    return socket.close_code


async def refusal(api: Api, path: str, protocol: str = V4, **query: str) -> tuple[int, str]:
    """Return what answers a handshake that is refused."""
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": protocol,
    }
    async with api.session.get(f"{path}/attach", params=query or ALL, headers=headers) as answer:
        text = await answer.text()
    return answer.status, orjson.loads(text)["message"] if text.startswith("{") else text


@pytest.mark.parametrize("protocol", [V4, V5])
async def test_bytes_go_both_ways(api: Api, container: FakeContainer, protocol: str) -> None:
    async with attach(api, protocol) as socket:
        await socket.send_bytes(b"\x00typed")
        await container.until(lambda: container.received == b"typed")
        container.say(b"to stdout")
        container.say(b"to stderr", stream=2)
        assert await receive(socket) == b"\x01to stdout"
        assert await receive(socket) == b"\x02to stderr"


@pytest.mark.parametrize("protocol", [V4, V5])
async def test_the_end_comes_after_all_output_whatever_the_exit_code(
    api: Api, container: FakeContainer, protocol: str
) -> None:
    async with attach(api, protocol) as socket:
        await container.until(lambda: container.attachments)
        for number in range(100):
            container.say(b"%d" % number)
        container.end()
        assert [await receive(socket) for _ in range(100)] == [b"\x01%d" % n for n in range(100)]
        assert await receive(socket) == SUCCESS
        assert await receive_close(socket) == 1000
    assert not container.attachments


async def test_a_resize_reaches_the_terminal(api: Api, container: FakeContainer) -> None:
    container.tty = True
    query = {"stdin": "true", "stdout": "true", "tty": "true"}
    async with attach(api, V4, **query) as socket:
        await socket.send_bytes(b'\x04{"Width":0,"Height":0}')
        await socket.send_bytes(b'\x04{"Width":100,"Height":30}')
        await container.until(lambda: container.sizes)
    assert container.sizes == [(100, 30)]


async def test_only_the_streams_that_were_asked_for_are_relayed(
    api: Api, container: FakeContainer
) -> None:
    async with attach(api, V4, stderr="true") as socket:
        await socket.send_bytes(b"\x00typed")
        await container.until(lambda: container.attachments)
        container.say(b"to stdout")
        container.say(b"to stderr", stream=2)
        assert await receive(socket) == b"\x02to stderr"
    assert not container.received


async def test_several_clients_see_the_same_output(api: Api, container: FakeContainer) -> None:
    async with attach(api) as one, attach(api) as two:
        await container.until(lambda: len(container.attachments) == 2)
        container.say(b"hello")
        assert await receive(one) == await receive(two) == b"\x01hello"


async def test_empty_and_unknown_frames_are_ignored(api: Api, container: FakeContainer) -> None:
    async with attach(api) as socket:
        for frame in (b"", b"\x00", b"\x07what", b"\xff\x00"[:1]):
            await socket.send_bytes(frame)
        await socket.send_str("\x00as text")
        await container.until(lambda: container.received == b"as text")


async def test_input_waits_while_the_application_does_not_read(
    api: Api, container: FakeContainer
) -> None:
    container.reads.clear()
    block, count = b"\x00" + b"x" * 65536, 400
    async with attach(api) as socket:

        async def send() -> None:
            for _ in range(count):
                await socket.send_bytes(block)

        async with asyncio.TaskGroup() as group:
            sending = group.create_task(send())
            # 26 MB do not fit into the buffers on the way, so the sender must be held.
            done, _ = await asyncio.wait({sending}, timeout=0.5)
            assert not done
            container.reads.set()
        await container.until(lambda: len(container.received) == count * 65536)


async def test_a_message_that_is_too_large_closes_the_socket(
    api: Api, container: FakeContainer
) -> None:
    async with attach(api) as socket:
        await socket.send_bytes(b"\x00" + b"x" * (1024 * 1024 - 1))
        await socket.send_bytes(b"\x00" + b"y" * 1024 * 1024)
        assert await receive_close(socket) == 1009
    await container.until(lambda: not container.attachments)
    assert container.received == b"x" * (1024 * 1024 - 1)


async def test_a_message_that_cannot_be_read_at_all_ends_the_connection(
    api: Api, container: FakeContainer
) -> None:
    async with attach(api) as socket:
        with suppress(ConnectionError):
            await socket.send_bytes(b"\x00" + b"x" * 17 * 1024 * 1024)
        async with asyncio.timeout(WAIT_SECONDS):
            assert (await socket.receive()).type in CLOSED
    await container.until(lambda: not container.attachments)
    assert not container.received


async def test_a_client_that_goes_leaves_the_container_alone(
    api: Api, container: FakeContainer
) -> None:
    async with attach(api):
        await container.until(lambda: container.attachments)
    await container.until(lambda: not container.attachments)
    assert not container.is_stdin_closed


async def test_closing_stdin_under_v5_ends_the_stay(api: Api, container: FakeContainer) -> None:
    async with attach(api, V5) as socket:
        await socket.send_bytes(b"\xff\x00")
        assert await receive(socket) == SUCCESS
        assert await receive_close(socket) == 1000
    assert not container.is_stdin_closed


async def test_stdin_once_is_closed_and_output_goes_on(api: Api) -> None:
    container = api.node.containers["two"] = FakeContainer()
    once = {"name": "session", "image": "busybox:1", "stdin": True, "stdinOnce": True}
    await api.run_pod(make_pod("two", containers=[once]))
    url = f"/api/v1/namespaces/{NAMESPACE}/pods/two/attach"
    async with api.session.ws_connect(url, params=ALL, protocols=(V5,)) as socket:
        assert await receive(socket) == b"\x01"
        await socket.send_bytes(b"\xff\x00")
        await container.until(lambda: container.is_stdin_closed)
        container.say(b"last words")
        assert await receive(socket) == b"\x01last words"
    await container.until(lambda: not container.attachments)


async def test_under_v4_the_handshake_waits_for_the_container(api: Api) -> None:
    assert await refusal(api, POD) == (500, "container session not found in pod one_apps")


async def test_under_v5_the_failure_comes_on_the_error_channel(api: Api) -> None:
    async with attach(api, V5) as socket:
        frame = await receive(socket)
        assert frame[:1] == b"\x03"
        status = orjson.loads(frame[1:])
        assert (status["status"], status["code"]) == ("Failure", 500)
        assert "container session not found in pod one_apps" in status["message"]
        assert await receive_close(socket) == 1000


async def test_what_cannot_be_attached_to_is_refused(api: Api, container: FakeContainer) -> None:
    missing = f"/api/v1/namespaces/{NAMESPACE}/pods/nope"
    assert await refusal(api, missing) == (404, 'pods "nope" not found')
    query = {**ALL, "container": "zz"}
    assert await refusal(api, POD, **query) == (400, "container zz is not valid for pod one")
    status, _ = await refusal(api, POD, stdin="false")
    assert status == 400
    assert (await refusal(api, POD, "unknown.protocol"))[0] == 403
    container.tty = True
    assert (await refusal(api, POD))[0] == 500
    plain = await api.call("POST", f"{POD}/attach", query=ALL, expect=400)
    assert plain["message"] == "Upgrade request required"


async def test_a_pod_without_a_node_has_no_host_to_attach_to(api: Api) -> None:
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    await api.call("POST", pods, make_pod("two", schedulerName="none"))
    refused = await refusal(api, f"{pods}/two")
    assert refused == (400, "pod two does not have a host assigned")
    async with api.session.get(f"{pods}/two/log") as answer:
        assert (answer.status, await answer.read()) == (204, b"")


async def test_streams_end_when_the_cluster_stops(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await api.make_namespace()
        await api.run_pod(make_pod())
        api.node.containers["one"] = FakeContainer()
        socket = await api.session.ws_connect(f"{POD}/attach", params=ALL, protocols=(V4,))
        assert await receive(socket) == b"\x01"
        began = time.perf_counter()
    assert time.perf_counter() - began < 2
    await socket.close()


async def test_a_log_is_passed_on_as_it_was_asked_for(api: Api) -> None:
    api.node.log = [b"one\n", b"two\n"]
    query = {
        "tailLines": "5",
        "sinceSeconds": "60",
        "limitBytes": "100",
        "timestamps": "true",
        "container": "session",
    }
    async with api.session.get(f"{POD}/log", params=query) as answer:
        assert answer.headers["Content-Type"] == "text/plain"
        assert await answer.read() == b"one\ntwo\n"
    asked = api.node.log_requests[0]
    assert (asked.namespace, asked.pod, asked.container) == (NAMESPACE, "one", "session")
    assert (asked.tail_lines, asked.since_seconds, asked.limit_bytes) == (5, 60, 100)
    assert (asked.timestamps, asked.follow, asked.previous) == (True, False, False)


async def test_a_followed_log_comes_as_it_grows(api: Api) -> None:
    api.node.log = [b"so far\n"]
    async with api.session.get(f"{POD}/log", params={"follow": "true"}) as answer:
        assert await answer.content.readline() == b"so far\n"


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ({"tailLines": "x"}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (
            {"tailLines": "-1"},
            422,
            'PodLogOptions "one" is invalid: tailLines: Invalid value: -1: must be greater than'
            " or equal to 0",
        ),
        (
            {"sinceSeconds": "1", "sinceTime": "2026-01-01T00:00:00Z"},
            422,
            'PodLogOptions "one" is invalid: []: Forbidden: at most one of `sinceTime` or'
            " `sinceSeconds` may be specified",
        ),
        ({"container": "zz"}, 400, "container zz is not valid for pod one"),
        ({"previous": "true"}, 400, "previous terminated container not found"),
    ],
)
async def test_a_log_that_cannot_be_had_is_refused(
    api: Api, query: dict[str, str], status: int, message: str
) -> None:
    refused = await api.get(f"{POD}/log", query, expect=status)
    assert refused["message"] == message


async def test_one_of_several_containers_must_be_named(api: Api) -> None:
    containers = [{"name": name, "image": "busybox:1"} for name in ("a", "b")]
    await api.run_pod(make_pod("two", containers=containers))
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/two/log"
    refused = await api.call("GET", path, expect=400)
    assert refused["message"] == (
        "a container name must be specified for pod two, choose one of: [a b]"
    )
