"""What is noted behind the log's back: numbers ahead of their use, the pod, the last progress."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from django.db.models import F

from routing.router import RouteState
from sessions import store
from sessions.log import Starts
from sessions.models import Session
from sessions.states import Phase
from sessions.supervisor.ledger import EVENT_BLOCK, OUTPUT_BLOCK, Ledger, starts_after
from telorunner import aio
from telorunner.errors import StaleFence, Unavailable
from tests.engine.world import FakeWorld, database_away


@asynccontextmanager
async def writing(ledger: Ledger) -> AsyncIterator["asyncio.Task[None]"]:
    task = aio.start(ledger.run(), name="ledger")
    try:
        yield task
    finally:
        await aio.stop(task)


async def until_row(world: FakeWorld, session_id: str, test: Callable[[Session], bool]) -> Session:
    async with asyncio.timeout(20):
        while not test(row := await world.row(session_id)):
            pass
    return row


@pytest.fixture
async def session_id(world: FakeWorld) -> str:
    async with world.idle_runner():
        return await world.create("print(1)\n")


async def test_numbers_are_reserved_before_they_are_used(world: FakeWorld, session_id: str) -> None:
    ledger = Ledger(session_id, 0, starts=Starts(output={"app": 0}))
    async with writing(ledger):
        row = await until_row(world, session_id, lambda row: row.event_numbers > 0)
        assert (row.event_numbers, row.output_numbers) == (EVENT_BLOCK, OUTPUT_BLOCK)
        ledger.note_event(EVENT_BLOCK // 2)
        ledger.note_output(OUTPUT_BLOCK // 2)
        # Half a block is left: nothing has to be written yet.
        ledger.note_event(EVENT_BLOCK // 2 + 1)
        row = await until_row(world, session_id, lambda row: row.event_numbers > EVENT_BLOCK)
        assert row.event_numbers == EVENT_BLOCK // 2 + 1 + EVENT_BLOCK
        assert row.output_numbers == OUTPUT_BLOCK // 2 + OUTPUT_BLOCK


async def test_the_next_owner_begins_above_a_block_more_than_was_reserved() -> None:
    assert starts_after(1000, 100_000, ("app",)) == Starts(
        events=1000 + EVENT_BLOCK, output={"app": 100_000 + OUTPUT_BLOCK}
    )


async def try_in_vain(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a ledger try to write what it has while the database is away, and then end."""
    has_failed = asyncio.Event()
    reserve = store.reserve_numbers

    async def reserve_and_tell(*given: Any, **named: Any) -> bool:
        try:
            return await reserve(*given, **named)
        except Unavailable:
            has_failed.set()
            raise

    with database_away(), monkeypatch.context() as told:
        # What is reserved is written first.
        told.setattr(store, "reserve_numbers", reserve_and_tell)
        async with writing(ledger), asyncio.timeout(20):
            await has_failed.wait()


async def test_notes_wait_for_a_database_that_is_away(
    world: FakeWorld, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(session_id, 0, starts=Starts())
    ledger.note_pod("telo-run-x", "uid-1")
    ledger.note_progress(Phase.PROVISION, "Scheduling")
    await try_in_vain(ledger, monkeypatch)
    async with writing(ledger):
        row = await until_row(world, session_id, lambda row: row.progress_message != "")
    assert (row.pod_name, row.pod_uid) == ("telo-run-x", "uid-1")
    assert (row.progress_phase, row.progress_message) == ("provision", "Scheduling")
    assert row.event_numbers == EVENT_BLOCK


async def test_how_public_hosts_stand_is_noted_as_it_is_now(
    world: FakeWorld, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(session_id, 0, starts=Starts())
    route = {"host": "8080-x.apps.test", "port": 8080, "state": RouteState.PENDING, "reason": ""}
    endpoint = {"host": "8080-x.apps.test", "port": 8080, "protocol": "tcp"}
    ledger.note_endpoints((endpoint,))
    ledger.note_routes([route])
    await try_in_vain(ledger, monkeypatch)
    # A controller may say anything, also what PostgreSQL does not take.
    ledger.note_routes([{**route, "state": RouteState.UNPROGRAMMED, "reason": "a\0b"}])
    async with writing(ledger):
        row = await until_row(world, session_id, lambda row: row.routes != [])
    assert row.endpoints == [endpoint]
    assert row.routes == [
        {**route, "state": "unprogrammed", "reason": "a\N{REPLACEMENT CHARACTER}b"}
    ]


async def test_what_is_new_at_the_end_is_still_written(world: FakeWorld, session_id: str) -> None:
    ledger = Ledger(session_id, 0, starts=Starts())
    async with writing(ledger):
        await until_row(world, session_id, lambda row: row.event_numbers > 0)
        ledger.note_progress(Phase.PROVISION, "Scheduling")
    assert (await world.row(session_id)).progress_message == "Scheduling"


async def test_an_old_fence_writes_nothing(world: FakeWorld, session_id: str) -> None:
    await world.change(session_id, fence=F("fence") + 2)
    ledger = Ledger(session_id, 1, starts=Starts())
    ledger.note_progress(Phase.PROVISION, "Scheduling")
    with pytest.raises(StaleFence):
        await ledger.run()
    row = await world.row(session_id)
    assert (row.event_numbers, row.progress_message) == (0, "")
