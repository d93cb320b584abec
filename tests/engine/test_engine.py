"""The engine: taking up, handing over, evicting; the API is the fake one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models.functions import Now

from sessions import store
from sessions.bus import Inbox
from sessions.bus.memory import MemoryBus
from sessions.log.memory import MemoryLog
from sessions.models import Engine as EngineRow
from sessions.states import StatusKind
from sessions.store.retention import evict
from sessions.supervisor import Lease
from tests.engine.world import FakeWorld, open_fake_world

PROGRAM = "print(1)\n"


async def test_an_engine_that_ends_hands_its_sessions_over(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.start()
        before = await world.row(session_id)
        assert before.engine_id is not None
    row = await world.row(session_id)
    assert (row.engine_id, row.status) == (None, StatusKind.RUNNING)
    assert "pods" in world.left_of(session_id)
    assert await store.aread(lambda: list(EngineRow.objects.all())) == []
    # Another one that shares the database takes it up without waiting for a lease.
    async with world.runner(is_sole_engine=False):
        await world.until_running(session_id)
        assert (await world.row(session_id)).fence == before.fence + 1


class FailingBus(MemoryBus):
    """A bus that breaks when a session's inbox is closed."""

    @asynccontextmanager
    async def open_inbox(self, session_id: str, app: str) -> AsyncIterator[Inbox]:
        async with super().open_inbox(session_id, app) as inbox:
            try:
                yield inbox
            finally:
                raise ValueError("a defect")


async def test_a_defect_while_an_engine_ends_is_no_end_of_its_sessions(world: FakeWorld) -> None:
    world.bus = FailingBus()
    async with world.runner():
        session_id = await world.start()
    row = await world.row(session_id)
    assert (row.engine_id, row.status) == (None, StatusKind.RUNNING)
    assert "pods" in world.left_of(session_id)


@pytest.mark.parametrize("is_sole_engine", [True, False])
async def test_a_lease_found_at_boot_is_taken_only_by_a_sole_engine(
    world: FakeWorld, is_sole_engine: bool
) -> None:
    async with world.runner():
        session_id = await world.start()

    def kill() -> None:
        EngineRow.objects.create(id="killed", expires_at=Now() + timedelta(seconds=2))

    await store.awrite(kill)
    await world.change(session_id, engine="killed")
    async with world.runner(is_sole_engine=is_sole_engine):
        await world.until_running(session_id)
        left = await store.aread(
            lambda: EngineRow.objects.filter(id="killed", expires_at__gt=Now()).exists()
        )
        # The other one has waited until the lease was up.
        assert left is is_sole_engine


async def test_an_engine_whose_row_is_gone_begins_anew(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.start()
        fence = (await world.row(session_id)).fence
        await store.awrite(lambda: EngineRow.objects.all().delete())
        await world.stop(session_id)
        assert await world.last_status(session_id) == {"kind": "stopped"}
        assert (await world.row(session_id)).fence == fence + 1


class NotingLog(MemoryLog):
    """A log that tells what was dropped."""

    def __init__(self) -> None:
        super().__init__(max_ring_bytes=1_000_000)
        self.dropped: asyncio.Queue[str] = asyncio.Queue()

    async def drop(self, session_id: str) -> None:
        await super().drop(session_id)
        self.dropped.put_nowait(session_id)


async def test_the_log_of_a_session_that_another_process_evicted_goes_too(
    tmp_path: Path, transactional_db: None
) -> None:
    # It is looked for every second; the other session's time is not up by then.
    async with open_fake_world(tmp_path, RUNNER_EXIT_TTL_MS="4000") as world:
        world.log = log = NotingLog()
        async with world.runner():
            session_ids = [await world.start() for _ in range(2)]
            for session_id in session_ids:
                await world.stop(session_id)
                await world.events(session_id)
            await store.awrite(evict, session_ids[1:])
            async with asyncio.timeout(10):
                assert await log.dropped.get() == session_ids[1]


async def test_an_ended_session_is_evicted_when_its_time_is_up(
    tmp_path: Path, transactional_db: None
) -> None:
    async with open_fake_world(tmp_path, RUNNER_EXIT_TTL_MS="1000") as world, world.runner():
        session_id = await world.start()
        await world.stop(session_id)
        await world.events(session_id)
        async with asyncio.timeout(10), world.runtime.log.read_output(session_id, "app", 0):
            while (await world.row(session_id)).evicted_at is None:
                await store.live_ids()
        assert not await world.runtime.log.has_output(session_id, "app")


async def test_sessions_are_stopped_on_exit_where_that_is_wanted(
    tmp_path: Path, transactional_db: None
) -> None:
    async with open_fake_world(tmp_path, RUNNER_STOP_SESSIONS_ON_EXIT="true") as world:
        async with world.runner():
            session_ids = [await world.start() for _ in range(3)]
        for session_id in session_ids:
            assert (await world.row(session_id)).status == StatusKind.STOPPED
            assert world.left_of(session_id) == []


async def test_a_row_that_cannot_be_read_fails_alone(world: FakeWorld) -> None:
    async with world.idle_runner():
        broken = await world.create(PROGRAM)
    await world.change(broken, spec={"apps": []})
    async with world.runner():
        status = await world.last_status(broken)
        assert status["kind"] == "failed"
        await world.start()


async def test_an_engine_says_whether_it_works(world: FakeWorld) -> None:
    async with world.runner():
        assert world.engine is not None
        assert not world.engine.is_working
        await world.start()
        assert world.engine.is_working
    assert not world.engine.is_working


async def test_a_lease_is_held_from_a_renewal_until_shortly_before_its_end() -> None:
    now = 100.0
    lease = Lease(15, clock=lambda: now)
    assert not lease.is_held
    lease.renewed(lease.now())
    now = 112.9
    assert lease.is_held
    now = 113.0
    assert not lease.is_held
    lease.renewed(now)
    lease.lost()
    assert not lease.is_held
