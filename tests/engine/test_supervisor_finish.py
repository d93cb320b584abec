"""How sessions end, and what is left of them; the API is the fake one."""

import asyncio

from django.db.models import F

from sessions.log import Starts, Writer
from sessions.log.memory import MemoryLog
from sessions.pods.run import object_name
from sessions.states import StatusKind
from tests.engine.world import FakeWorld, database_away, is_status
from tests.fakes import refuse
from tests.unit.pods import condition, terminated

PROGRAM = "print(1)\n"


async def test_a_pod_that_vanishes_fails_its_session_and_leaves_nothing(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.start()
        world.api.remove(object_name(session_id))
        assert await world.last_status(session_id) == {
            "kind": "failed",
            "message": "pod disappeared",
        }
        await world.until_nothing_is_left(session_id)
        row = await world.row(session_id)
        assert (row.status, row.engine_id, bytes(row.env_sealed)) == ("failed", None, b"")


async def test_what_disrupted_a_pod_is_told(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.start()
        cause = condition("DisruptionTarget", reason="PreemptionByScheduler", message="preempting")
        world.set_status(session_id, "Failed", terminated(143), conditions=[cause])
        assert await world.last_status(session_id) == {
            "kind": "failed",
            "message": 'container "session" failed: Error (exit code 143): the pod was disrupted: '
            "PreemptionByScheduler: preempting; start the session again",
        }


async def test_deletions_that_fail_are_tried_again(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.start()
        world.api.script("delete", refuse(500), refuse(500))
        await world.stop(session_id)
        assert await world.last_status(session_id) == {"kind": "stopped"}
        assert world.left_of(session_id) == []


async def test_a_stop_deletes_the_pod_with_its_grace_and_only_this_pod(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.start()
        await world.stop(session_id)
        await world.events(session_id)
        (options,) = [
            seen.body
            for seen in world.api.requests
            if (seen.verb, seen.resource) == ("delete", "pods")
        ][:1]
        assert options["gracePeriodSeconds"] == 2
        assert options["preconditions"] == {"uid": (await world.row(session_id)).pod_uid}


async def test_asked_to_stop_is_stopped_whatever_the_pod_did(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.start()
        # The wish is in the row before the pod's end is seen, and the wake-up is lost.
        await world.change(session_id, stop_requested_at=F("created_at"))
        world.set_status(session_id, "Failed", terminated(1))
        assert await world.last_status(session_id) == {"kind": "stopped"}


async def test_a_stop_whose_wake_up_is_lost_is_seen_all_the_same(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.start()
        await world.change(session_id, stop_requested_at=F("created_at"))
        assert await world.last_status(session_id) == {"kind": "stopped"}


async def test_a_last_status_waits_for_a_database_that_is_away(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.start()
        with database_away():
            world.set_status(session_id, "Succeeded", terminated(0, "Completed"))
            await asyncio.sleep(1)
            # Nothing is told that the row does not say, and the pod stays for whoever is next.
            assert "pods" in world.left_of(session_id)
        assert await world.last_status(session_id) == {"kind": "exited", "code": 0}
        assert (await world.row(session_id)).status == StatusKind.EXITED
        await world.until_nothing_is_left(session_id)


async def test_a_session_that_another_engine_has_is_let_go(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.start()
        await world.change(session_id, fence=F("fence") + 1, engine=None, status="starting")
        # This engine is the next one too: the old supervisor must not have written anything.
        world.set_status(session_id, "Succeeded", terminated(0, "Completed"))
        events = [event for _, event in await world.events(session_id)]
        kinds = [event["status"]["kind"] for event in events if event["type"] == "status"]
        assert kinds.count("exited") == 1
        assert (await world.row(session_id)).fence == 3


async def test_an_attach_that_never_ends_does_not_hold_the_end_up(world: FakeWorld) -> None:
    world.api._scripts["attach"].clear()
    async with world.runner():
        session_id = await world.start()
        await world.api.wait_until(lambda: world.api.open_attaches == 1)
        async with asyncio.timeout(5):
            world.set_status(session_id, "Succeeded", terminated(0, "Completed"))
            assert (await world.last_status(session_id))["kind"] == "exited"
            await world.api.wait_until(lambda: world.api.open_attaches == 0)


class FailingLog(MemoryLog):
    """A log that takes the first event and then breaks."""

    async def open(self, session_id: str, *, fence: int, starts: Starts) -> Writer:
        writer = await super().open(session_id, fence=fence, starts=starts)
        publish, published = writer.publish_event, 0

        async def publish_event(encoded: bytes) -> int:
            nonlocal published
            published += 1
            if published == 2:
                raise ValueError("a defect")
            return await publish(encoded)

        writer.publish_event = publish_event  # type: ignore[method-assign] # this one's own
        return writer


async def test_a_defect_ends_the_session_in_words_and_harms_no_other(world: FakeWorld) -> None:
    world.log = FailingLog(1_000_000)
    async with world.runner():
        session_id = await world.create(PROGRAM)
        status = await world.last_status(session_id)
        assert status["kind"] == "failed"
        assert "unexpected problem" in status["message"]
        await world.until_nothing_is_left(session_id)


async def test_a_child_that_was_killed_for_memory_is_remarked(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.start()
        world.set_status(session_id, "Succeeded", terminated(0, "OOMKilled"))
        event = await world.until_event(session_id, lambda event: "killed" in str(event))
        assert event["message"].startswith("A process of the session was killed: the memory limit")
        await world.until_event(session_id, is_status("exited"))
