"""Stops at any moment of a start, pods that are not what a session left, starts without an answer.

The API is the fake one.
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from sessions.pods.run import object_name
from sessions.reconciler import Reconciler
from sessions.supervisor import start
from sessions.supervisor.ownership import Lease, Owner
from sessions.supervisor.session import open_session
from telorunner import aio
from telorunner.kube.objects import session_labels
from tests import fakes
from tests.builders import make_owned_session, make_runtime, make_spec
from tests.engine.world import FakeWorld, held_lease, make_settings, open_fake_world
from tests.fakes import cut, hang, refuse
from tests.unit.pods import running, terminated

PROGRAM = "print(1)\n"
# The contract's bound of a stop, and what a busy machine takes for the rest.
STOP_SECONDS = 15 + 5
DELETED = {"deletionTimestamp": "2026-01-01T00:00:02Z", "deletionGracePeriodSeconds": 2}


class SlowApi:
    """Answers to creations that come late, fail, or never come though the object is there."""

    def __init__(self, world: FakeWorld, dice: random.Random) -> None:
        self._world = world
        self._dice = dice

    async def create(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(self._dice.uniform(0, 0.05))
        fate = self._dice.choice(["answered", "answered", "lost", "late", "refused"])
        if fate == "refused":
            return await refuse(503)(request)
        answer = await self._world.api.behave(request)
        if fate == "lost":
            return await cut(request)
        if fate == "late":
            await asyncio.sleep(self._dice.uniform(0, 0.3))
        return answer


async def test_a_stop_at_any_moment_of_a_start_leaves_nothing(
    tmp_path: Path, transactional_db: None, times: Callable[[int, int], int]
) -> None:
    count, dice = times(100, 20), random.Random(7)
    async with open_fake_world(tmp_path, RUNNER_MAX_SESSIONS="200") as world, world.runner():
        slow = SlowApi(world, dice)
        world.api.script("create", *[slow.create] * 20 * count)

        async def one() -> None:
            session_id = await world.create(PROGRAM)
            await asyncio.sleep(dice.choice([0, dice.uniform(0, 0.1), dice.uniform(0, 0.5)]))
            await world.stop(session_id)
            assert await world.last_status(session_id) == {"kind": "stopped"}

        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(one())
        async with asyncio.timeout(30):
            await world.api.wait_until(
                lambda: not world.api.objects["pods"] and not world.api.objects["configmaps"]
            )


@pytest.mark.looptime
async def test_a_call_without_an_answer_does_not_hold_a_stop_up(
    tmp_path: Path, looptime: float
) -> None:
    async def never(*arguments: Any, **more: Any) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    cluster = SimpleNamespace(namespace="sessions", managed_by="me", request=never)
    config = make_settings(tmp_path, RUNNER_REPLAY_BUFFER_BYTES="1000000")
    runtime = make_runtime(config, cluster=cluster)
    row = make_owned_session(spec=make_spec(session_id="abcdefghijkl"), fence=2)
    session = await open_session(Owner(runtime, "engine", Lease(15)), row)
    starting = aio.start(start.ensure_pod(session, 180), name="start")
    await asyncio.sleep(100)
    session.ask_stop()
    with pytest.raises(start.StopAsked):
        await starting
    assert looptime == 100 + start.ANSWER_SECONDS


async def test_a_stop_is_bounded_whatever_hangs(
    world: FakeWorld, times: Callable[[int, int], int]
) -> None:
    if not times(1, 0):
        pytest.skip("takes the 15 s that a stop may last; runs with --full-counts")
    async with world.runner():
        starting, working = await world.create(PROGRAM), await world.start()
        await world.until_pod(starting)
        hanging = [hang] * 20
        world.api.script("create", *hanging)
        created = world.api.count("create")
        stuck = await world.create(PROGRAM)
        await world.api.wait_for("create", created + 1)
        world.api.script("delete", *hanging)
        world.api.script("get", *hanging)
        async with asyncio.timeout(STOP_SECONDS):
            for session_id in (starting, working, stuck):
                await world.stop(session_id)
            for session_id in (starting, working, stuck):
                assert await world.last_status(session_id) == {"kind": "stopped"}
        # Once the API is back, all of it goes without anybody asking again.
        world.api._scripts.clear()
        for session_id in (starting, working, stuck):
            await world.until_nothing_is_left(session_id)


async def reap_until_nothing_is_left(world: FakeWorld, session_id: str) -> None:
    name = object_name(session_id)
    with world.runtime.pods.subscribe(name) as subscription:
        while subscription.object is None and name in world.api.objects["pods"]:
            await subscription.changed()
    await Reconciler(world.runtime, held_lease()).reap()
    assert world.left_of(session_id) == []


async def test_another_pod_with_the_sessions_labels_is_not_gone_on_with(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.start()
    name = object_name(session_id)
    world.api.remove(name)
    labels = session_labels(fakes.MANAGED_BY, session_id)
    world.api.put(name, labels=labels, status={"phase": "Running"})
    async with world.runner():
        status = await world.last_status(session_id)
        assert status["kind"] == "failed"
        assert status["message"].startswith("pod disappeared")
        assert world.api.count("attach") <= 1
        await reap_until_nothing_is_left(world, session_id)


@pytest.mark.parametrize(
    ("phase", "metadata", "message"),
    [
        ("Failed", {}, "Evicted: the node was low on memory; start the session again"),
        ("Failed", DELETED, "Evicted: the node was low on memory; start the session again"),
        ("Succeeded", DELETED, "the pod was deleted; start the session again"),
    ],
)
async def test_an_own_pod_that_is_over_ends_the_session_and_is_not_run_again(
    world: FakeWorld, phase: str, metadata: dict[str, Any], message: str
) -> None:
    # The call that made it had no answer, and then the engine was killed.
    async with world.idle_runner():
        session_id = await world.create(PROGRAM)
    await world.change(session_id, fence=1)
    words = {"reason": "Evicted", "message": "the node was low on memory"}
    world.api.put(
        object_name(session_id),
        labels=session_labels(fakes.MANAGED_BY, session_id),
        metadata=metadata,
        spec={"nodeName": "node-1"},
        status={"phase": phase, **(words if phase == "Failed" else {})},
    )
    async with world.runner():
        status = await world.last_status(session_id)
        assert status["kind"] == "failed"
        assert status["message"].startswith(message)
        await world.until_nothing_is_left(session_id)
        assert world.api.count("create") == 0


async def test_an_own_pod_that_is_being_deleted_ends_the_session_once_it_is_gone(
    world: FakeWorld,
) -> None:
    async with world.idle_runner():
        session_id = await world.create(PROGRAM)
    await world.change(session_id, fence=1)
    name = object_name(session_id)
    world.api.put(
        name,
        labels=session_labels(fakes.MANAGED_BY, session_id),
        metadata=DELETED,
        spec={"nodeName": "node-1"},
        status={"phase": "Running", "containerStatuses": [running()]},
    )
    async with world.runner():
        await world.until_running(session_id)
        world.api.remove(name)
        message = "pod disappeared: the pod was deleted; start the session again"
        assert await world.last_status(session_id) == {"kind": "failed", "message": message}
        await world.until_nothing_is_left(session_id)
        assert world.api.count("create") == 0


async def test_a_config_map_without_an_owner_gets_one_from_the_next_engine(
    world: FakeWorld,
) -> None:
    world.api.script("patch", refuse(500))
    async with world.runner():
        session_id = await world.start()
        await world.api.wait_for("patch")
    config_map = world.api.objects["configmaps"][object_name(session_id)]
    assert "ownerReferences" not in config_map["metadata"]
    for patches in (2, 2):
        async with world.runner():
            await world.until_running(session_id)
            await world.api.wait_for("patch", 2)
            assert world.api.count("patch") == patches
    config_map = world.api.objects["configmaps"][object_name(session_id)]
    (owner,) = config_map["metadata"]["ownerReferences"]
    assert owner["uid"] == (await world.row(session_id)).pod_uid


async def test_a_config_map_that_has_no_owner_goes_with_its_session(world: FakeWorld) -> None:
    world.api.script("patch", refuse(403, "Forbidden"))
    async with world.runner():
        session_id = await world.start()
        await world.api.wait_for("patch")
        world.set_status(session_id, "Succeeded", terminated(0, "Completed"))
        await world.until_nothing_is_left(session_id)


async def test_a_foreign_config_map_of_a_running_session_stays_as_it_is(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.start()
        await world.api.wait_for("patch")
    name = object_name(session_id)
    world.api.remove(name, "configmaps")
    foreign = world.api.put(name, "configmaps", labels={"app": "theirs"})
    async with world.runner():
        await world.until_running(session_id)
        await world.stop(session_id)
        assert await world.last_status(session_id) == {"kind": "stopped"}
    assert world.api.objects["configmaps"] == {name: foreign}


async def test_a_config_map_that_is_gone_before_the_pod_runs_is_made_again(
    world: FakeWorld,
) -> None:
    """As that of an earlier pod, which its garbage collector comes to only now."""

    async def remove_and_patch(request: web.Request) -> web.StreamResponse:
        seen = world.api.requests[-1]
        world.api.remove(seen.name, "configmaps")
        return await world.api._patch(request, seen)

    world.api.script("patch", remove_and_patch)
    async with world.runner():
        session_id = await world.create(PROGRAM)
        name = object_name(session_id)
        pod = await world.until_pod(session_id)
        await world.api.wait_for("create", 3)
        await world.api.wait_until(lambda: name in world.api.objects["configmaps"])
        made_again = world.api.objects["configmaps"][name]
        (owner,) = made_again["metadata"]["ownerReferences"]
        assert owner["uid"] == pod["metadata"]["uid"]
        first, _, again = (seen.body for seen in world.api.requests if seen.verb == "create")
        assert first["binaryData"] == again["binaryData"]


async def test_a_config_map_that_vanishes_while_it_is_looked_at_is_made(world: FakeWorld) -> None:
    world.api.script("create", refuse(409, "AlreadyExists"))
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.until_pod(session_id)
        assert object_name(session_id) in world.api.objects["configmaps"]
