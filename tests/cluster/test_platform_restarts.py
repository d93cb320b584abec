"""The runner goes down and comes up again; the sessions stay."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from urllib.parse import urlsplit

import httpx
import pytest

from tests.clients import Client
from tests.clusters import ClusterUnderTest
from tests.readers import Place, open_output_reader
from tests.serving import Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

Times = Callable[[int, int], int]

# A node of two cores has room for ten only if each asks for this little.
LITTLE = {"cpu": "100m"}
VIEWERS = 20
ECHO = """
import os, sys
os.write(1, b"ready\\n")
for line in sys.stdin:
    if line.strip() == "bye":
        raise SystemExit(0)
    os.write(1, b"heard " + line.encode())
"""

FLOOD = """
import time
print("x" * 30_000_000, flush=True)
time.sleep(600)
"""


@asynccontextmanager
async def opened(platform: Platform, cluster: ClusterUnderTest) -> AsyncIterator[Client]:
    client = Client(platform.url, cluster.image)
    yield client
    await client.close()


async def start_session(client: Client, name: int) -> tuple[str, int]:
    """Start a session, type a line into it, and return its id and last output number."""
    session = await client.create(ECHO, limits=LITTLE)
    async with client.terminal(session) as terminal:
        await terminal.until(b"ready")
        await terminal.socket.send(f"before {name}\r".encode())
        await terminal.until(f"heard before {name}".encode())
    await client.until_running(session)
    return session, terminal.numbers[-1]


async def start_sessions(client: Client, count: int) -> dict[str, int]:
    """Start sessions side by side; return the last output number of each."""
    async with asyncio.TaskGroup() as group:
        starts = [group.create_task(start_session(client, name)) for name in range(count)]
    return dict(start.result() for start in starts)


async def it_goes_on(client: Client, session: str, number: int, is_stopped: bool) -> None:
    """Type into a session again, end or stop it, and look at what its clients read."""
    document = (await client.http.get(f"/v1/sessions/{session}")).json()
    assert document["status"]["kind"] == "running"
    async with client.terminal(session, last_seq=number) as terminal:
        await terminal.socket.send(b"after\r")
        await terminal.until(b"heard after")
        if is_stopped:
            assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
        else:
            await terminal.socket.send(b"bye\r")
        assert await terminal.drain() == 1000
    # No number is ever seen twice, and the jump is told.
    assert min(terminal.numbers) > number
    assert {"type": "gap", "reason": "buffer_evicted"} in terminal.texts
    everything = await client.events(session)
    end = {"kind": "stopped"} if is_stopped else {"kind": "exited", "code": 0}
    assert everything[-1][1]["status"] == end
    # Numbers of before the restart, given out or not, are told from those of now.
    for after in (1, 3, 900):
        (gap, _), *events = await client.events(session, after=after)
        assert gap == 0
        assert events == [event for event in everything if event[0]]


async def they_go_on(client: Client, numbers: dict[str, int]) -> None:
    """Go on with every session, side by side."""
    async with asyncio.TaskGroup() as group:
        for turn, (session, number) in enumerate(numbers.items()):
            is_stopped = turn % 2 == 1
            group.create_task(it_goes_on(client, session, number, is_stopped))


async def restarted(
    platform: Platform, cluster: ClusterUnderTest, count: int, sent: signal.Signals
) -> None:
    platform.start()
    async with opened(platform, cluster) as client:
        numbers = await start_sessions(client, count)
        ended = await client.create('print("over")\n')
        assert await client.status(ended) == {"kind": "exited", "code": 0}
    code = platform.stop(sent)
    assert code == (0 if sent is signal.SIGTERM else -sent)
    platform.start()
    async with opened(platform, cluster) as client:
        await they_go_on(client, numbers)
        assert await client.status(ended) == {"kind": "exited", "code": 0}
        await cluster.until_nothing_is_left(platform.environment["RUNNER_MANAGED_BY"])
    assert platform.stop() == 0


async def test_sessions_go_on_after_a_clean_restart(
    platform: Platform, cluster: ClusterUnderTest, times: Times
) -> None:
    await restarted(platform, cluster, times(10, 5), signal.SIGTERM)


async def test_sessions_go_on_after_the_runner_was_killed(
    platform: Platform, cluster: ClusterUnderTest, times: Times
) -> None:
    await restarted(platform, cluster, times(10, 5), signal.SIGKILL)


async def follow_to_the_end(client: Client, session: str, is_open: asyncio.Event) -> None:
    """Follow a stream, say when it has told the status; a stream that is cut raises."""
    async for _, event in client.follow(session):
        if event.get("status", {}).get("kind") == "running":
            is_open.set()


async def readiness(url: str, codes: list[int]) -> None:
    """Ask for readiness until nobody answers any more."""
    async with httpx.AsyncClient(trust_env=False) as http:
        with suppress(httpx.TransportError):
            while True:
                codes.append((await http.get(f"{url}/readyz")).status_code)


async def test_a_stop_ends_streams_cleanly_and_closes_sockets_for_reconnect(
    platform: Platform, cluster: ClusterUnderTest
) -> None:
    platform.start()
    async with opened(platform, cluster) as client, AsyncExitStack() as stack:
        session, flood = await client.create(ECHO), await client.create(FLOOD)
        await client.until_running(session)
        # One that reads nothing, so that the stop lasts for as long as it is patient.
        port, place = urlsplit(platform.url).port or 0, Place(0, None)
        stalled = await open_output_reader(port, flood, place)
        await client.until_running(flood)
        terminals = [
            await stack.enter_async_context(client.terminal(session)) for _ in range(VIEWERS)
        ]
        codes: list[int] = []
        # A stream that was cut would raise here instead of ending.
        async with asyncio.TaskGroup() as group:
            open_streams = [asyncio.Event() for _ in range(VIEWERS)]
            for is_open in open_streams:
                group.create_task(follow_to_the_end(client, session, is_open))
            for terminal in terminals:
                await terminal.until(b"ready")
            closing = [group.create_task(terminal.drain()) for terminal in terminals]
            for is_open in open_streams:
                await is_open.wait()
            asking = group.create_task(readiness(platform.url, codes))
            code = await asyncio.to_thread(platform.stop)
            await asking
        stalled.cut()
    assert code == 0
    assert [one.result() for one in closing] == [1012] * VIEWERS
    # Not ready from the signal on, for as long as anybody is answered.
    assert codes[-1] == 503
    assert codes == sorted(codes)
    platform.start()
    async with opened(platform, cluster) as client:
        for one in (session, flood):
            assert (await client.http.delete(f"/v1/sessions/{one}")).status_code == 204
            # A number of the old process is told from those of the new one.
            events = await client.events(one, after=2)
            assert events[0][0] == 0
            assert events[-1][1]["status"] == {"kind": "stopped"}
    assert platform.stop() == 0
