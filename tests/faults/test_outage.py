"""The Kubernetes API is away for two minutes: nothing is lost, and all is right after one list."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from telorunner import aio
from telorunner.kube.objects import delete_if_exists, get
from tests.clients import TERMINAL_KINDS, Client, Terminal
from tests.faulty import Faulty, pod_name

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
both = pytest.mark.parametrize(
    "behind", ["local", pytest.param("real", marks=pytest.mark.e2e)], indirect=True, scope="session"
)

# Counts for ever, and answers what is typed.
COUNTS = """
import os, sys, threading, time
def count():
    number = 0
    while True:
        os.write(1, b"tick %d\\n" % number)
        number += 1
        time.sleep(0.05)
threading.Thread(target=count, daemon=True).start()
for line in sys.stdin:
    os.write(1, b"heard " + line.encode())
"""
ENDS_SOON = "import time\nprint('begun', flush=True)\ninput()\ntime.sleep(1)\nraise SystemExit(7)\n"
STAYS = "print('begun', flush=True)\ninput()\n"


@asynccontextmanager
async def running(
    client: Client, program: str, wanted: bytes
) -> AsyncIterator[tuple[str, Terminal]]:
    """Start a session and wait for its first output."""
    session = await client.create(program)
    async with client.terminal(session) as terminal:
        await terminal.until(wanted)
        await client.until_running(session)
        yield session, terminal


@asynccontextmanager
async def watching(terminal: Terminal, wanted: bytes) -> AsyncIterator[asyncio.Task[None]]:
    """Read on, however long that takes, until the output holds something; the task ends then.

    A socket that nobody reads answers no ping either.
    """

    async def read() -> None:
        while wanted not in terminal.output:
            await terminal.receive()

    reading = aio.start(read(), name="viewer")
    try:
        yield reading
    finally:
        await aio.stop(reading)


async def statuses(client: Client, session: str) -> list[dict[str, Any]]:
    """Return all statuses of a session that has ended, as its stream tells them."""
    return [one["status"] for _, one in await client.events(session) if "status" in one]


async def until_ended(faulty: Faulty, session: str) -> None:
    """Wait, past the proxy, until a pod has ended."""
    async with faulty.open_admin() as admin:
        while True:
            pod = await get(admin, "pods", pod_name(session))
            if pod["status"]["phase"] in ("Failed", "Succeeded"):
                return
            await asyncio.sleep(0.1)


async def remove_at_once(faulty: Faulty, session: str) -> None:
    async with faulty.open_admin() as admin:
        await delete_if_exists(admin, "pods", pod_name(session), grace_seconds=0)


def assert_counted(output: bytes) -> None:
    """Tell whether the numbers are all there, in their order and each once."""
    numbers = [int(one) for one in re.findall(rb"tick (\d+)\r\n", output)]
    assert numbers == list(range(len(numbers)))


@both
async def test_an_api_that_is_away_costs_no_session_anything(
    faulty: Faulty, client: Client, times: Callable[[int, int], int]
) -> None:
    proxy = faulty.proxy
    async with (
        running(client, COUNTS, b"tick 3") as (lasting, terminal),
        running(client, ENDS_SOON, b"begun") as (ending, other),
        running(client, STAYS, b"begun") as (removed, _),
        watching(terminal, b"heard again") as viewer,
    ):
        await other.socket.send(b"go\r")
        await other.until(b"go")
        proxy.refuse_connections()
        asked_at = time.monotonic()
        config = {"image": client.image, "pullPolicy": "missing"}
        probed = await client.http.post("/v1/probe", json={"config": config})
        assert probed.json()["status"] == "unavailable"
        assert time.monotonic() - asked_at < 3
        late = await client.create("print('late')\n")
        await until_ended(faulty, ending)
        await remove_at_once(faulty, removed)
        await asyncio.sleep(times(120, 1))
        if times(1, 0):
            assert (await faulty.readiness())["cluster"] == "stale"
        for session, kind in ((lasting, "running"), (late, "starting")):
            document = (await client.http.get(f"/v1/sessions/{session}")).json()
            assert document["status"]["kind"] == kind
        proxy.forget()
        proxy.work()
        assert (await statuses(client, late))[-1] == {"kind": "exited", "code": 0}
        assert await client.replay(late) == b"late\r\n"
        await terminal.socket.send(b"again\r")
        await viewer
        assert_counted(bytes(terminal.output))
        assert set((await faulty.readiness()).values()) == {"ok"}
    # One list said it all; the reaper may have looked at what it had missed meanwhile.
    assert proxy.count("list", "pods") == 1
    assert proxy.count("watch", "pods") == 1
    assert proxy.count() < 60
    for session, words in ((ending, "(exit code 7)"), (removed, "pod disappeared")):
        told = await statuses(client, session)
        assert [one["kind"] for one in told if one["kind"] in TERMINAL_KINDS] == ["failed"]
        assert words in told[-1]["message"]
    assert (await client.http.delete(f"/v1/sessions/{lasting}")).status_code == 204
    assert (await statuses(client, lasting))[-1] == {"kind": "stopped"}
    await faulty.until_nothing_is_left()


async def test_a_stop_while_the_api_is_away_is_told_in_time_and_done_later(
    faulty: Faulty, client: Client, times: Callable[[int, int], int]
) -> None:
    if not times(1, 0):
        pytest.skip("a stop is patient for 15 s, the reaper for 30 s; runs with --full-counts")
    async with running(client, STAYS, b"begun") as (session, _):
        faulty.proxy.refuse_connections()
        asked_at = time.monotonic()
        assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
        assert (await statuses(client, session))[-1] == {"kind": "stopped"}
        assert time.monotonic() - asked_at < 20
        faulty.proxy.work()
        await faulty.until_nothing_is_left()


@both
async def test_an_api_that_takes_connections_and_is_silent_is_noticed_within_90_seconds(
    faulty: Faulty, client: Client, times: Callable[[int, int], int]
) -> None:
    """What is open says nothing more and is not closed: a machine or a path that is gone."""
    if not times(1, 0):
        pytest.skip("it takes a minute to notice; runs with --full-counts")
    async with running(client, COUNTS, b"tick 3") as (lasting, terminal):
        faulty.proxy.accept_silently()
        began_at = time.monotonic()
        late = await client.create("print('late')\n")
        # Not written for many seconds yet, and to be had by a new attach only.
        wanted = b"tick %d\r" % (terminal.output.count(b"tick") + 400)
        async with watching(terminal, wanted) as viewer:
            await asyncio.sleep(20)
            faulty.proxy.forget()
            # What was open stays silent: only the product itself can find out.
            faulty.proxy.work()
            assert (await statuses(client, late))[-1] == {"kind": "exited", "code": 0}
            assert time.monotonic() - began_at < 60 + 10
            await viewer
            assert time.monotonic() - began_at < 90 + 10
        assert_counted(bytes(terminal.output))
        assert faulty.proxy.count("list", "pods") == 1
    assert (await client.http.delete(f"/v1/sessions/{lasting}")).status_code == 204
    await faulty.until_nothing_is_left()
