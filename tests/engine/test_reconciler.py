"""What nobody claims is deleted, what somebody claims is not; the API is the fake one."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sessions.pods.run import object_name
from sessions.reconciler import Reconciler
from telorunner.kube.objects import session_labels
from tests import fakes
from tests.engine.world import FakeWorld, held_lease, is_status, open_fake_world
from tests.fakes import Handler, refuse, say
from tests.unit.pods import running, terminated

PROGRAM = "print(1)\n"


def ago(minutes: int) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def put(world: FakeWorld, resource: str, session_id: str, **more: Any) -> str:
    name = object_name(session_id)
    labels = session_labels(fakes.MANAGED_BY, session_id)
    world.api.put(name, resource, labels=labels, **more)
    return name


async def reap(world: FakeWorld) -> None:
    async with asyncio.timeout(20):
        await world.runtime.pods.wait_listed()
    await Reconciler(world.runtime, held_lease()).reap()


async def test_pods_that_no_live_session_claims_are_deleted(world: FakeWorld) -> None:
    put(world, "pods", "orphanaaaaaa")
    world.api.put("nobodys", labels={"app.kubernetes.io/managed-by": fakes.MANAGED_BY})
    theirs = world.api.put("theirs", labels={"app.kubernetes.io/managed-by": "helm"})
    async with world.idle_runner():
        session_id = await world.create(PROGRAM)
        claimed = put(world, "pods", session_id)
        await reap(world)
        assert set(world.api.objects["pods"]) == {claimed, "theirs"}
        assert world.api.objects["pods"]["theirs"] == theirs


async def test_config_maps_go_when_old_unmounted_and_unclaimed(world: FakeWorld) -> None:
    async with world.idle_runner():
        session_id = await world.create(PROGRAM)
        claimed = put(world, "configmaps", session_id, metadata={"creationTimestamp": ago(5)})
        old = put(world, "configmaps", "oldaaaaaaaaa", metadata={"creationTimestamp": ago(5)})
        young = put(world, "configmaps", "youngaaaaaaa", metadata={"creationTimestamp": ago(0)})
        mounted = put(world, "configmaps", "mountedaaaaa", metadata={"creationTimestamp": ago(5)})
        pod = put(
            world,
            "pods",
            session_id,
            spec={"volumes": [{"name": "bundle", "configMap": {"name": mounted}}]},
        )
        await reap(world)
        assert set(world.api.objects["configmaps"]) == {claimed, young, mounted}
        assert old not in world.api.objects["configmaps"]
        assert set(world.api.objects["pods"]) == {pod}


@pytest.mark.parametrize("answer", [None, refuse(500), say("<html>", 404)])
async def test_a_false_list_of_pods_unmounts_no_config_map(
    world: FakeWorld, answer: Handler | None
) -> None:
    old = put(world, "configmaps", "oldaaaaaaaaa", metadata={"creationTimestamp": ago(5)})
    mounts = {"volumes": [{"name": "bundle", "configMap": {"name": old}}]}
    world.api.script("list", say('{"metadata":{"resourceVersion":"100"},"items":[]}'))
    async with world.idle_runner():
        await world.runtime.pods.wait_listed()
        put(world, "pods", "oldaaaaaaaaa", spec=mounts, quietly=True)
        if answer is not None:
            world.api.script("get", answer)
        await reap(world)
        assert set(world.api.objects["configmaps"]) == {old}
        world.api.remove(old, quietly=True)
        await reap(world)
        assert not world.api.objects["configmaps"]


async def test_an_unclaimed_pod_that_stays_in_deletion_is_forced_out(world: FakeWorld) -> None:
    deleted = {"deletionTimestamp": ago(5), "deletionGracePeriodSeconds": 2}
    put(world, "pods", "stuckaaaaaaa", metadata=deleted)
    put(world, "pods", "leavingaaaaa", metadata={**deleted, "deletionTimestamp": ago(0)})
    async with world.idle_runner():
        await reap(world)
    (seen,) = [seen for seen in world.api.requests if seen.verb == "delete"]
    assert (seen.name, seen.body["gracePeriodSeconds"]) == (object_name("stuckaaaaaaa"), 0)


async def test_a_reaper_at_work_takes_nothing_from_sessions_that_start(
    tmp_path: Path, transactional_db: None, times: Callable[[int, int], int]
) -> None:
    count = times(100, 20)
    async with open_fake_world(tmp_path, RUNNER_MAX_SESSIONS="100") as world, world.runner():
        async with asyncio.TaskGroup() as group:
            reaping = group.create_task(reap_all_the_time(world))
            session_ids = [await world.create(PROGRAM) for _ in range(count)]
            for session_id in session_ids:
                await world.until_pod(session_id)
                world.set_status(session_id, "Running", running())
                await world.until_event(session_id, is_status("running"))
            reaping.cancel()
        assert len(world.api.objects["pods"]) == count
        assert world.api.count("delete") == 0


async def reap_all_the_time(world: FakeWorld) -> None:
    while True:
        await reap(world)


async def test_the_engine_reaps_once_the_pods_are_listed(world: FakeWorld) -> None:
    put(world, "pods", "orphanaaaaaa")
    async with world.runner():
        await world.api.wait_until(lambda: not world.api.objects["pods"])
    verbs = [seen.verb for seen in world.api.requests]
    assert verbs.index("list") < verbs.index("delete")


async def test_a_log_that_begins_anew_ends_with_the_rows_status(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.until_pod(session_id)
        world.set_status(session_id, "Failed", terminated(3))
        events = await world.events(session_id)
    async with world.runner():
        ((number, event),) = await world.events(session_id)
        assert event == events[-1][1]
        assert number > 1000
        # A reader that had seen the end before learns that numbers are missing.
        async with world.runtime.log.read_events(session_id, events[-1][0]) as reader:
            assert (await reader.next()).has_gap
