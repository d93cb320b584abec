"""The engine's side of the database: leases, fences, transitions, retention."""

import asyncio
import threading
from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from sessions import store
from sessions.models import Bundle, Engine, Session
from sessions.runtime import Runtime
from sessions.spec import STOPPED, Status, exited, failed
from sessions.states import Phase, StatusKind
from telorunner.errors import NotFound, StaleFence, Unavailable
from tests.owners import Owner, admit, own

pytestmark = pytest.mark.usefixtures("transactional_db")

RUNNING = Status(StatusKind.RUNNING)


async def expire(engine_id: str) -> None:
    past = timezone.now() - timedelta(seconds=1)
    await store.awrite(Engine.objects.filter(id=engine_id).update, expires_at=past)


async def row(session_id: str) -> Session:
    return await store.aread(Session.objects.get, id=session_id)


class TestOwnership:
    async def test_free_sessions_are_claimed_oldest_first(self) -> None:
        now = timezone.now()
        late = await admit(created_at=now)
        early = await admit(created_at=now - timedelta(hours=1))
        engine_id = await store.register_engine()
        assert await store.claim(engine_id, limit=1) == [early]
        assert await store.claim(engine_id, limit=10) == [late]
        assert await store.claim(engine_id, limit=10) == []

    async def test_a_living_engine_keeps_its_sessions(self) -> None:
        await admit()
        first, second = await store.register_engine(), await store.register_engine()
        assert await store.claim(first, limit=10)
        assert await store.claim(second, limit=10) == []

    async def test_an_expired_engine_loses_them_under_a_higher_fence(self) -> None:
        session_id = await admit()
        first, second = await store.register_engine(), await store.register_engine()
        await store.claim(first, limit=10)
        await expire(first)
        assert await store.claim(second, limit=10) == [session_id]
        assert await store.load(first, session_id) is None
        loaded = await store.load(second, session_id)
        assert loaded is not None
        assert loaded.fence == 2

    async def test_the_only_engine_need_not_wait_for_leases(self) -> None:
        session_id = await admit()
        first, second = await store.register_engine(), await store.register_engine()
        await store.claim(first, limit=10)
        assert await store.claim(second, limit=10, is_sole_engine=True) == [session_id]
        assert await store.claim(second, limit=10, is_sole_engine=True) == []

    async def test_engines_that_claim_at_once_share_without_overlap(self) -> None:
        ids = {await admit() for _ in range(20)}
        engines = [await store.register_engine() for _ in range(4)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(store.claim(engine, limit=5)) for engine in engines]
        claimed = [session_id for task in tasks for session_id in task.result()]
        assert len(claimed) == len(set(claimed))
        assert set(claimed) <= ids

    async def test_a_renewed_lease_does_not_expire(self) -> None:
        await admit()
        first, second = await store.register_engine(), await store.register_engine()
        await store.claim(first, limit=10)
        await expire(first)
        await store.renew_engine(first)
        assert await store.claim(second, limit=10) == []

    async def test_an_engine_without_a_row_cannot_go_on(self) -> None:
        engine_id = await store.register_engine()
        await store.retire_engine(engine_id)
        with pytest.raises(StaleFence):
            await store.renew_engine(engine_id)
        with pytest.raises(StaleFence):
            await store.claim(engine_id, limit=1)

    async def test_a_retired_engine_hands_over_at_once(self) -> None:
        session_id = await admit()
        first, second = await store.register_engine(), await store.register_engine()
        await store.claim(first, limit=10)
        await store.retire_engine(first)
        assert await store.claim(second, limit=10) == [session_id]

    async def test_a_released_session_can_be_taken_up(self) -> None:
        session_id = await admit()
        first, second = await store.register_engine(), await store.register_engine()
        await store.claim(first, limit=10)
        assert await store.release(session_id, 1)
        assert await store.claim(second, limit=10) == [session_id]
        assert not await store.release(session_id, 1)

    async def test_ended_sessions_are_not_claimed(self, running: Runtime) -> None:
        session_id = await admit()
        await (await own(session_id)).become(exited(0))
        assert await store.claim(await store.register_engine(), limit=10) == []


class TestTransitions:
    @pytest.fixture
    async def owner(self, running: Runtime) -> Owner:
        return await own(await admit(env_sealed=store.seal_env({"A": "1"})))

    async def test_a_run_is_recorded_to_its_end(self, owner: Owner) -> None:
        endpoint = {"host": "", "port": 1, "protocol": "tcp"}
        status = Status(StatusKind.RUNNING, endpoints=(endpoint,))
        write = (owner.engine_id, owner.session_id, owner.fence)
        assert await store.transition(*write, status)
        loaded = await store.load(owner.engine_id, owner.session_id)
        assert loaded is not None
        assert (loaded.status, loaded.endpoints) == (StatusKind.RUNNING, (endpoint,))
        assert await store.transition(*write, exited(7))
        ended = await row(owner.session_id)
        assert (ended.status, ended.exit_code, ended.engine_id) == ("exited", 7, None)
        assert ended.started_at is not None
        assert ended.ended_at is not None
        assert bytes(ended.env_sealed) == b""

    async def test_nothing_follows_an_end(self, owner: Owner) -> None:
        write = (owner.engine_id, owner.session_id, owner.fence)
        assert await store.transition(*write, failed("why\0not"))
        for status in (RUNNING, STOPPED, exited(0)):
            assert not await store.transition(*write, status)
        assert (await row(owner.session_id)).message == "why\N{REPLACEMENT CHARACTER}not"

    async def test_running_is_not_entered_twice(self, owner: Owner) -> None:
        write = (owner.engine_id, owner.session_id, owner.fence)
        assert await store.transition(*write, RUNNING)
        assert not await store.transition(*write, RUNNING)

    async def test_an_old_fence_writes_nothing(self, owner: Owner) -> None:
        await expire(owner.engine_id)
        successor = await store.register_engine()
        assert await store.claim(successor, limit=1) == [owner.session_id]
        session_id, stale = owner.session_id, owner.fence
        assert not await store.transition(owner.engine_id, session_id, stale, RUNNING)
        assert not await store.transition(successor, session_id, stale, RUNNING)
        assert not await store.record_pod(session_id, stale, "pod", "uid")
        assert not await store.record_progress(session_id, stale, Phase.BOOT, "hi")
        assert not await store.reserve_numbers(session_id, stale, events=9, output=9)
        unchanged = await row(session_id)
        assert (unchanged.status, unchanged.pod_name, unchanged.event_numbers) == (
            "starting",
            "",
            0,
        )

    async def test_what_the_owner_records_comes_back(self, owner: Owner) -> None:
        session_id, fence = owner.session_id, owner.fence
        assert await store.record_pod(session_id, fence, "telo-run-x", "uid-1")
        assert await store.record_progress(session_id, fence, Phase.PROVISION, "Scheduling")
        assert await store.reserve_numbers(session_id, fence, events=100, output=200)
        # Numbers never fall, whatever order writes arrive in.
        assert await store.reserve_numbers(session_id, fence, events=50, output=300)
        loaded = await store.load(owner.engine_id, session_id)
        assert loaded is not None
        assert (loaded.pod_name, loaded.pod_uid) == ("telo-run-x", "uid-1")
        assert loaded.progress == (Phase.PROVISION, "Scheduling")
        assert (loaded.event_numbers, loaded.output_numbers) == (100, 300)
        assert loaded.env == {"A": "1"}
        assert "'A'" not in repr(loaded)

    async def test_live_sessions_are_everybodys(self, owner: Owner) -> None:
        other = await admit()
        assert await store.live_ids() == {owner.session_id, other}
        await owner.become(exited(0))
        assert await store.live_ids() == {other}

    async def test_a_session_is_known_for_as_long_as_its_history(self, owner: Owner) -> None:
        await owner.become(exited(0))
        await store.evict_ended(timezone.now() + timedelta(seconds=1))
        # More than one statement may ask for.
        strangers = {f"stranger{number}" for number in range(1_200)}
        assert await store.known_ids({owner.session_id, *strangers}) == {owner.session_id}
        await store.purge_history(timezone.now() + timedelta(days=1))
        assert await store.known_ids({owner.session_id}) == set()


class TestRetention:
    async def test_the_archive_goes_with_the_end_and_its_list_of_files_with_the_eviction(
        self, running: Runtime
    ) -> None:
        session_id = await admit(archive=b"archive")
        owner = await own(session_id)
        assert await store.load_bundle(session_id) == b"archive"
        await owner.become(exited(0))
        with pytest.raises(NotFound):
            await store.load_bundle(session_id)
        assert await store.evict_ended(timezone.now() - timedelta(hours=1)) == []
        assert await store.aread(Bundle.objects.exists)
        assert await store.evict_ended(timezone.now() + timedelta(seconds=1)) == [session_id]
        assert not await store.aread(Bundle.objects.exists)

    async def test_live_sessions_are_neither_evicted_nor_purged(self, running: Runtime) -> None:
        session_id = await admit()
        future = timezone.now() + timedelta(days=1)
        assert await store.evict_ended(future) == []
        assert await store.purge_history(future) == 0
        assert await store.live_ids() == {session_id}

    async def test_history_is_purged_by_age(self, running: Runtime) -> None:
        session_id = await admit()
        await (await own(session_id)).become(exited(0))
        future = timezone.now() + timedelta(seconds=1)
        assert await store.purge_history(future) == 0
        await store.evict_ended(future)
        assert await store.purge_history(timezone.now() - timedelta(days=1)) == 0
        assert await store.purge_history(future) == 1
        assert not await store.aread(Session.objects.exists)

    async def test_ended_sessions_tell_what_their_log_must_end_with(self, running: Runtime) -> None:
        session_id = await admit()
        owner = await own(session_id)
        await store.reserve_numbers(session_id, owner.fence, events=10, output=20)
        await owner.become(failed("because"))
        await admit()
        (left,) = await store.unlogged()
        assert (left.session_id, left.status, left.fence) == (
            session_id,
            failed("because"),
            owner.fence,
        )
        assert (left.apps, left.event_numbers, left.output_numbers) == (("app",), 10, 20)


def test_a_database_that_is_away_is_unavailable() -> None:
    def fail() -> None:
        raise OperationalError("server closed the connection")

    with pytest.raises(Unavailable):
        store.write(fail)
    with pytest.raises(Unavailable):
        store.read(fail)
    # The writer goes on with a new connection.
    assert store.write(Session.objects.count) == 0


@pytest.mark.skipif(connection.vendor != "sqlite", reason="elsewhere writers do not queue up")
def test_a_write_whose_turn_does_not_come_is_taken_back() -> None:
    held, done = threading.Event(), threading.Event()
    written: list[str] = []

    def hold() -> None:
        held.set()
        done.wait()

    # As when a backup has locked the file: what comes later queues up behind.
    holder = threading.Thread(target=store.write, args=(hold,))
    holder.start()
    held.wait()
    with pytest.raises(Unavailable):
        store.write(written.append, "late")
    done.set()
    holder.join()
    store.write(written.append, "next")
    assert written == ["next"]


async def test_a_session_is_failed_whatever_its_fence(running: Runtime) -> None:
    owner = await own(await admit())
    stranger = await store.register_engine()
    assert not await store.fail(stranger, owner.session_id, "no")
    assert await store.fail(owner.engine_id, owner.session_id, "it broke")
    assert not await store.fail(owner.engine_id, owner.session_id, "again")
    assert (await row(owner.session_id)).message == "it broke"


async def test_a_wish_to_stop_wins_over_every_other_end(running: Runtime) -> None:
    from sessions.actions import stop

    owner = await own(await admit())
    await store.aread(stop.stop, owner.session_id)
    write = (owner.engine_id, owner.session_id, owner.fence)
    assert not await store.transition(*write, exited(0))
    assert not await store.transition(*write, failed("why"))
    assert await store.transition(*write, STOPPED)
