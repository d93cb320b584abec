"""Admission: caps that hold exactly under many at once, on whichever database."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from sessions import admission, store
from sessions.admission import Admitted, RequestedLimits, clamp_limits
from sessions.models import Bundle, Limits, Session
from sessions.runtime import Runtime
from sessions.spec import exited
from telorunner.errors import CapacityExceeded
from tests.builders import LIMITS, make_new_session
from tests.owners import admit, own

pytestmark = pytest.mark.usefixtures("transactional_db")

PARALLEL = 50
CAP = 20


def try_to_admit() -> Admitted | None:
    from django.db import connections

    try:
        return store.write(admission.admit, make_new_session(), max_sessions=CAP)
    except CapacityExceeded:
        return None
    finally:
        connections.close_all()


def test_the_cap_is_exact_under_parallel_threads() -> None:
    with ThreadPoolExecutor(PARALLEL // 2) as pool:
        results = list(pool.map(lambda _: try_to_admit(), range(PARALLEL)))
    assert sum(result is not None for result in results) == CAP
    assert Session.retained.count() == CAP
    assert Bundle.objects.count() == CAP
    assert Limits.objects.count() == 1


async def test_the_cap_is_exact_under_parallel_coroutines() -> None:
    async def attempt() -> bool:
        try:
            await admit(max_sessions=CAP)
        except CapacityExceeded:
            return False
        return True

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(attempt()) for _ in range(PARALLEL)]
    assert sum(task.result() for task in tasks) == CAP


async def test_each_eviction_makes_room_for_one(running: Runtime) -> None:
    ended = [await admit() for _ in range(3)]
    for session_id in ended:
        await (await own(session_id)).become(exited(0))
    admitted = [
        await store.awrite(admission.admit, make_new_session(), max_sessions=3) for _ in range(3)
    ]
    assert [result.evicted_ids for result in admitted] == [(old,) for old in ended]
    with pytest.raises(CapacityExceeded):
        await admit(max_sessions=3)


async def test_a_lowered_cap_is_reached_by_evicting_more(running: Runtime) -> None:
    ended = [await admit() for _ in range(4)]
    for session_id in ended:
        await (await own(session_id)).become(exited(0))
    admitted = await store.awrite(admission.admit, make_new_session(), max_sessions=2)
    assert admitted.evicted_ids == tuple(ended[:3])


async def test_nothing_is_evicted_for_a_session_that_is_refused(running: Runtime) -> None:
    ended = await admit()
    await (await own(ended)).become(exited(0))
    await admit()
    await admit()
    with pytest.raises(CapacityExceeded):
        await admit(max_sessions=2)
    assert await Session.retained.filter(id=ended).aexists()


async def test_an_evicted_session_keeps_its_row_but_not_its_files(running: Runtime) -> None:
    ended = await admit(env_sealed=b"sealed")
    await (await own(ended)).become(exited(0))
    await admit(max_sessions=1)
    row = await Session.objects.aget(id=ended)
    assert row.evicted_at is not None
    assert not await Bundle.objects.filter(session=ended).aexists()


async def test_an_id_of_the_history_is_not_given_again(running: Runtime) -> None:
    taken = await admit()
    fresh = "b" * 12
    ids = iter([taken, fresh])
    admitted = await store.awrite(
        admission.admit, make_new_session(), max_sessions=10, new_id=lambda: next(ids)
    )
    assert admitted.session_id == fresh


def test_ids_have_the_contracts_form() -> None:
    ids = {admission.random_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(store.is_session_id(session_id) for session_id in ids)


def test_a_request_can_only_go_down() -> None:
    assert clamp_limits(RequestedLimits(), LIMITS) == LIMITS
    assert clamp_limits(RequestedLimits(10**9, 2**60, 2**60, 10**12), LIMITS) == LIMITS
    equal = RequestedLimits(
        LIMITS.cpu_millis, LIMITS.memory_bytes, LIMITS.ephemeral_storage_bytes, LIMITS.ttl_seconds
    )
    assert clamp_limits(equal, LIMITS) == LIMITS
    assert clamp_limits(RequestedLimits(cpu_millis=1, ttl_seconds=1), LIMITS).ttl_seconds == 1
