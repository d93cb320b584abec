"""Runs that end by themselves: nothing of their output is lost or told twice."""

import asyncio
import random
import time
from asyncio.subprocess import PIPE

import pytest

from tests.clients import Client
from tests.cluster.programs import HELLO, LINGERS, MEGABYTE
from tests.clusters import ClusterUnderTest

pytestmark = pytest.mark.cluster

RUNS = 20
# Two cores: more at once would only measure the machine.
AT_ONCE = 4
FIRST_EVENT_SECONDS = 1.0


async def in_turns(client: Client, programs: list[str], check: "Check") -> None:
    """Run programs, a few at once, and check each by its session's id."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(program: str) -> None:
        async with turns:
            await check(client, await client.create(program))

    async with asyncio.TaskGroup() as group:
        for program in programs:
            group.create_task(one(program))


class Check:
    """What is asserted of a session; called with the client and the session's id."""

    async def __call__(self, client: Client, session: str) -> None:
        raise NotImplementedError


class SaidHello(Check):
    def __init__(self, status: dict[str, object]) -> None:
        self.status = status

    async def __call__(self, client: Client, session: str) -> None:
        events = await client.events(session)
        assert [number for number, _ in events] == list(range(1, len(events) + 1))
        assert events[0][1]["status"] == {"kind": "starting"}
        assert events[-1][1]["status"] == self.status
        # What came before the terminal status is all there is.
        assert await client.replay(session) == b"first line\r\nsecond line\r\n"


class SaidItAll(Check):
    async def __call__(self, client: Client, session: str) -> None:
        async with client.terminal(session) as terminal, asyncio.TaskGroup() as group:
            closing = group.create_task(terminal.drain())
            status = await client.status(session)
            at_status = await client.replay(session)
        assert closing.result() == 1000
        assert status == {"kind": "exited", "code": 0}
        expected = b"".join(b"%062d\r\n" % number for number in range(16384))
        expected += b"the last line\r\n"
        assert at_status == expected
        assert terminal.output == expected


async def test_twenty_runs_that_exit_at_once_are_told_whole_and_once(
    client: Client, cluster: ClusterUnderTest
) -> None:
    check = SaidHello({"kind": "exited", "code": 0})
    await in_turns(client, [HELLO.format(code=0)] * RUNS, check)
    await cluster.until_nothing_is_left()


async def test_a_run_that_fails_at_once_says_so_and_keeps_its_output(client: Client) -> None:
    session = await client.create(HELLO.format(code=3))
    status = await client.status(session)
    assert status["kind"] == "failed"
    assert status["message"] == 'container "session" failed: Error (exit code 3)'
    assert await client.replay(session) == b"first line\r\nsecond line\r\n"


async def test_a_megabyte_and_a_last_line_arrive_before_the_end(
    client: Client, cluster: ClusterUnderTest
) -> None:
    await in_turns(client, [MEGABYTE + LINGERS[cluster.kind]] * RUNS, SaidItAll())
    await cluster.until_nothing_is_left()


@pytest.mark.parametrize("options", [[], ["--compressed"]], ids=["plain", "compressed"])
async def test_curl_shows_each_event_when_it_happens(client: Client, options: list[str]) -> None:
    session = await client.create("import time\ntime.sleep(600)\n")
    began_at = time.monotonic()
    curl = await asyncio.create_subprocess_exec(
        "curl", "-sN", *options, f"{client.url}/v1/sessions/{session}/events", stdout=PIPE
    )
    assert curl.stdout is not None
    async with asyncio.timeout(60):
        await curl.stdout.readuntil(b'"starting"}}\n\n')
        # The stream is open: what is shown has not waited for what comes.
        assert time.monotonic() - began_at < FIRST_EVENT_SECONDS
        await curl.stdout.readuntil(b'"kind":"running"}}\n\n')
        await client.http.delete(f"/v1/sessions/{session}")
        assert (await curl.stdout.read()).endswith(b'"status":{"kind":"stopped"}}\n\n')
        assert await curl.wait() == 0


class StoppedSomewhere(Check):
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    async def __call__(self, client: Client, session: str) -> None:
        await asyncio.sleep(self.chance.uniform(0, 2.0))
        assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
        assert await client.status(session) == {"kind": "stopped"}


async def test_a_stop_at_any_moment_of_the_start_leaves_nothing(
    client: Client, cluster: ClusterUnderTest
) -> None:
    check = StoppedSomewhere(random.Random(20))
    await in_turns(client, ["import time\ntime.sleep(600)\n"] * RUNS, check)
    # Told `stopped` means gone: nothing is waited for here.
    assert await cluster.objects("pods") == []
    await cluster.until_nothing_is_left()
