"""Ends of sessions on a cluster that does not do what it is asked; the API is the fake one."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sessions.pods.run import object_name
from sessions.reconciler import Reconciler
from tests.engine.world import FakeWorld, held_lease, open_fake_world
from tests.fakes import cut, refuse, status_answer
from tests.unit.pods import running

PROGRAM = "print(1)\n"


async def test_a_start_that_is_given_up_leaves_nothing_even_if_a_deletion_fails(
    tmp_path: Path, transactional_db: None
) -> None:
    # The image would be pulled later, and the pod would stay.
    waiting = {"reason": "ImagePullBackOff", "message": "back-off"}
    async with (
        open_fake_world(tmp_path, RUNNER_IMAGE_PULL_GRACE_SECONDS="0") as world,
        world.runner(),
    ):
        session_id = await world.create(PROGRAM)
        await world.until_pod(session_id)
        world.api.script("delete", refuse(500), cut)
        world.set_status(session_id, "Pending", {"name": "session", "state": {"waiting": waiting}})
        assert (await world.last_status(session_id))["kind"] == "failed"
        await world.until_nothing_is_left(session_id)
        deleted = [seen.resource for seen in world.api.requests if seen.verb == "delete"]
        assert deleted == ["pods", "pods", "pods", "configmaps"]


async def test_what_is_deleted_already_is_a_success(world: FakeWorld) -> None:
    async def vanish(request: web.Request) -> web.StreamResponse:
        # Somebody else was faster, by the blink of an eye.
        seen = world.api.requests[-1]
        world.api.remove(seen.name, seen.resource)
        return status_answer(404, "NotFound")

    async with world.runner():
        session_id = await world.start()
        world.api.script("delete", vanish, vanish)
        await world.stop(session_id)
        await world.stop(session_id)
        assert await world.last_status(session_id) == {"kind": "stopped"}
        assert world.left_of(session_id) == []
        assert world.api.count("delete") == 2


async def test_a_stop_on_a_lost_node_ends_and_the_pod_is_forced_out_later(
    world: FakeWorld, times: Callable[[int, int], int]
) -> None:
    if not times(1, 0):
        pytest.skip("takes the 15 s that a stop may last; runs with --full-counts")

    async with world.runner():
        session_id = await world.start()
        world.api.script("delete", *[LostNode(world).delete] * 50)
        async with asyncio.timeout(25):
            await world.stop(session_id)
            assert await world.last_status(session_id) == {"kind": "stopped"}
        # Others go on meanwhile.
        other = await world.start()
        await is_forced_out(world, session_id)
        assert set(world.api.objects["pods"]) == {object_name(other)}


async def test_a_lost_node_fails_the_session_and_its_pod_is_forced_out_later(
    world: FakeWorld,
) -> None:
    async with world.runner():
        session_id = await world.start()
        world.api.script("delete", *[LostNode(world).delete] * 50)
        world.set_status(session_id, "Unknown", running())
        status = await world.last_status(session_id)
        assert status["kind"] == "failed"
        assert status["message"].startswith("the node that ran the session is lost")
        pods, name = world.api.objects["pods"], object_name(session_id)
        async with asyncio.timeout(20):
            await world.api.wait_until(lambda: "deletionTimestamp" in pods[name]["metadata"])
            await world.api.wait_until(lambda: not world.api.objects["configmaps"])
        # The slot is free though the pod is still there.
        other = await world.start()
        await is_forced_out(world, session_id)
        assert set(world.api.objects["pods"]) == {object_name(other)}


class LostNode:
    """A node that would end pods and is gone: a pod that is deleted stays, but for force."""

    def __init__(self, world: FakeWorld) -> None:
        self._world = world

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """Only mark the pod."""
        api = self._world.api
        seen = api.requests[-1]
        if seen.resource != "pods" or seen.body["gracePeriodSeconds"] == 0:
            return await api.behave(request)
        pod = api.objects["pods"][seen.name]
        return web.json_response(change(self._world, pod, deletionTimestamp=ago(0)))


async def is_forced_out(world: FakeWorld, session_id: str) -> None:
    """Let the pod's deletion have been long ago, and the reaper look."""
    name = object_name(session_id)
    with world.runtime.pods.subscribe(name) as subscription:
        change(world, world.api.objects["pods"][name], deletionTimestamp=ago(5))
        while (subscription.object or {})["metadata"].get("deletionTimestamp", "9") > ago(4):
            await subscription.changed()
    await Reconciler(world.runtime, held_lease()).reap()


def ago(minutes: int) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def change(world: FakeWorld, pod: dict[str, Any], **more: str) -> dict[str, Any]:
    """Change a pod's metadata and return the pod."""
    known = pod["metadata"]
    taken = {"labels", "name", "uid", "resourceVersion"}
    metadata = {key: value for key, value in known.items() if key not in taken} | more
    rest = {key: value for key, value in pod.items() if key != "metadata"}
    return world.api.put(known["name"], labels=known["labels"], metadata=metadata, **rest)
