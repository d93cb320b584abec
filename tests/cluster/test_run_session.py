"""Whole runs on the local cluster, engine and cluster in this process."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from sessions.states import IoMode, StatusKind
from tests.cluster.programs import HELLO, MEGABYTE
from tests.engine.world import LocalWorld, is_status, open_local_world

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True)]

# Slow nodes are tried by the tests of the whole platform too.
RUNS, SLOW_RUNS = 20, 6
# Two cores: more at once would only measure the machine.
AT_ONCE = 4

LONG = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("up", flush=True)
for line in sys.stdin:
    print("heard", line.strip(), flush=True)
"""


@pytest.fixture(params=[False, True], ids=["quick", "with a kubelet's delays"], name="world")
async def world_at_either_speed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[LocalWorld]:
    async with open_local_world(tmp_path, delays=request.param) as world:
        world.runs = SLOW_RUNS if request.param else RUNS
        yield world


async def in_turns(work: Iterable[Callable[[], Awaitable[None]]]) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(action: Callable[[], Awaitable[None]]) -> None:
        async with turns:
            await action()

    async with asyncio.TaskGroup() as group:
        for action in work:
            group.create_task(one(action))


async def test_a_program_that_ends_at_once_is_told_whole_and_once(world: LocalWorld) -> None:
    async def say_hello() -> None:
        session_id = await world.create(HELLO.format(code=0))
        events = await world.events(session_id)
        assert [number for number, _ in events] == list(range(1, len(events) + 1))
        assert events[0][1]["status"] == {"kind": "starting"}
        assert events[-1][1]["status"] == {"kind": "exited", "code": 0}
        # What came before the terminal status is all there is.
        assert await world.output(session_id) == b"first line\r\nsecond line\r\n"
        await world.until_nothing_is_left(session_id)

    async with world.runner():
        await in_turns([say_hello] * world.runs)


async def test_the_last_line_of_a_megabyte_comes_before_the_end(world: LocalWorld) -> None:
    async def print_it_all() -> None:
        session_id = await world.create(MEGABYTE)
        assert await world.last_status(session_id) == {"kind": "exited", "code": 0}
        output = await world.output(session_id)
        assert output.endswith(b"the last line\r\n")
        assert output.count(b"\r\n") == 16385

    async with world.runner():
        await in_turns([print_it_all] * 3)


async def test_a_stop_at_any_moment_of_the_start_leaves_nothing(world: LocalWorld) -> None:
    async def stop_early(delay_seconds: float) -> None:
        session_id = await world.create(LONG)
        await asyncio.sleep(delay_seconds)
        await world.stop(session_id)
        assert await world.last_status(session_id) == {"kind": "stopped"}
        assert world.left_of(session_id) == []

    delays = random.Random(7)
    async with world.runner():
        await in_turns([partial(stop_early, delays.uniform(0, 1.5)) for _ in range(world.runs)])
        assert world.objects("pods") == {}
        assert [name for name in world.objects("configmaps") if name.startswith("telo")] == []


@pytest.mark.parametrize("io", list(IoMode))
async def test_a_program_that_fails_says_how(world: LocalWorld, io: IoMode) -> None:
    async with world.runner():
        session_id = await world.create(HELLO.format(code=3), io=io)
        assert await world.last_status(session_id) == {
            "kind": "failed",
            "message": 'container "session" failed: Error (exit code 3)',
        }
        line_end = b"\r\n" if io is IoMode.TTY else b"\n"
        assert await world.output(session_id) == line_end.join([b"first line", b"second line", b""])


async def test_live_sessions_go_on_under_the_next_engine(world: LocalWorld) -> None:
    async with world.runner():
        session_ids = [await world.create(LONG) for _ in range(3)]
        for session_id in session_ids:
            await world.until_running(session_id)
            await world.until_output(session_id, b"up")
    pods = world.objects("pods")
    assert len(pods) == 3
    async with world.runner() as running:
        for session_id in session_ids:
            event = await world.until_event(session_id, is_status("running"))
            assert event["status"] == {"kind": "running"}
            # What the application wrote before is there again.
            await world.until_output(session_id, b"up")
            await running.bus.push_input(session_id, "app", b"you\r")
            await world.until_output(session_id, b"heard you")
        assert {name: pod["metadata"]["uid"] for name, pod in world.objects("pods").items()} == {
            name: pod["metadata"]["uid"] for name, pod in pods.items()
        }
        for session_id in session_ids:
            await world.stop(session_id)
        for session_id in session_ids:
            events = await world.events(session_id)
            # Numbers go on above all that were used before.
            assert events[0][0] > 1000
            assert events[-1][1]["status"] == {"kind": "stopped"}
            assert (await world.row(session_id)).status == StatusKind.STOPPED
            assert world.left_of(session_id) == []


async def test_a_session_ends_at_its_time_limit(world: LocalWorld) -> None:
    async with world.runner():
        session_id = await world.create(LONG, ttl_seconds=1)
        status = await world.last_status(session_id)
        assert status["kind"] == "failed"
        assert "the session reached its time limit of 1 s (DeadlineExceeded)" in status["message"]
        await world.until_nothing_is_left(session_id)


async def test_an_image_that_nobody_has_fails_after_its_grace(tmp_path: Path) -> None:
    async with (
        open_local_world(
            tmp_path, RUNNER_IMAGE="example.test/nothing:1", RUNNER_IMAGE_PULL_GRACE_SECONDS="1"
        ) as world,
        world.runner(),
    ):
        session_id = await world.create(LONG)
        status = await world.last_status(session_id)
        assert status["message"].startswith('container "session" cannot start: ')
        assert "example.test/nothing:1" in status["message"]
        await world.until_nothing_is_left(session_id)


ODD_NAMES = ["-rf.py", "$(id).py", "a;b.py", "a b.py", "it's.py", 'say "hi".py', "new\nline.py"]


async def test_odd_names_and_values_reach_the_application_as_they_are(tmp_path: Path) -> None:
    program = "import os, sys\nprint(repr(sys.argv[0].split('/')[-1]), repr(os.environ['ODD']))\n"
    odd = "$(HOME) $$HOME $(nobody) `id` \\ \"'"

    async with open_local_world(tmp_path) as world, world.runner():

        async def run(entry: str) -> None:
            session_id = await world.create(program, entry=entry, env={"ODD": odd})
            assert await world.last_status(session_id) == {"kind": "exited", "code": 0}
            assert await world.output(session_id) == f"{entry!r} {odd!r}\r\n".encode()

        await in_turns([partial(run, entry) for entry in ODD_NAMES])
