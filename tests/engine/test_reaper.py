"""The reaper on an API that pages, refuses, hangs and expires; the API is the fake one."""

import asyncio
import logging
from collections.abc import Callable

import pytest
from aiohttp import web

from sessions.pods.run import object_name
from sessions.reconciler import DELETIONS_AT_ONCE, REAP_SECONDS, Reconciler
from sessions.supervisor import Lease
from telorunner import aio
from telorunner.kube.objects import session_labels
from tests import fakes
from tests.engine.world import FakeWorld, held_lease
from tests.fakes import cut, hang, refuse
from tests.unit.pods import terminated

PROGRAM = "print(1)\n"
LONG_AGO = "2026-01-01T00:00:00Z"


def put_orphans(world: FakeWorld, count: int, *resources: str) -> None:
    """Put objects of sessions that no database has ever known."""
    for number in range(count):
        session_id = f"orphan{number:06}"
        labels = session_labels(fakes.MANAGED_BY, session_id)
        for resource in resources:
            world.api.put(
                object_name(session_id),
                resource,
                labels=labels,
                metadata={"creationTimestamp": LONG_AGO},
            )


async def reap(world: FakeWorld, lease: Lease | None = None) -> None:
    async with asyncio.timeout(60):
        await world.runtime.pods.wait_listed()
        await Reconciler(world.runtime, lease or held_lease()).reap()


def left(world: FakeWorld) -> int:
    return len(world.api.objects["pods"]) + len(world.api.objects["configmaps"])


async def test_more_than_two_pages_are_listed_and_deleted(
    world: FakeWorld, times: Callable[[int, int], int]
) -> None:
    count = times(1_200, 600)
    world.api.page_objects = times(500, 250)
    put_orphans(world, count, "pods", "configmaps")
    async with world.idle_runner():
        await reap(world)
        # What a pod that is there mounts, or may mount, goes after it.
        async with asyncio.timeout(60):
            await world.api.wait_until(lambda: not world.api.objects["pods"])
        await reap(world)
        assert left(world) == 0
        pages = [seen for seen in world.api.requests if seen.verb == "list"]
        assert all(seen.query["limit"] == "500" for seen in pages)
        assert sum("continue" in seen.query for seen in pages) >= 4


async def test_a_list_that_expires_between_two_pages_begins_anew(world: FakeWorld) -> None:
    async def behave(request: web.Request) -> web.StreamResponse:
        return await world.api.behave(request)

    put_orphans(world, 5, "configmaps")
    world.api.page_objects = 2
    async with world.idle_runner():
        await world.runtime.pods.wait_listed()
        world.api.script("list", behave, refuse(410, "Expired"))
        await reap(world)
        assert left(world) == 0


@pytest.mark.parametrize("answer", [refuse(410, "Expired"), refuse(403, "Forbidden"), cut])
async def test_config_maps_that_cannot_be_listed_keep_no_pod(
    world: FakeWorld, answer: fakes.Handler
) -> None:
    put_orphans(world, 3, "pods", "configmaps")
    async with world.idle_runner():
        await world.runtime.pods.wait_listed()
        world.api.script("list", *[answer] * 10)
        await reap(world)
        assert not world.api.objects["pods"]
        assert len(world.api.objects["configmaps"]) == 3


async def test_a_deletion_that_fails_stops_no_other_and_is_tried_again(world: FakeWorld) -> None:
    count = 3 * DELETIONS_AT_ONCE
    put_orphans(world, count, "pods")
    async with world.idle_runner():
        await world.runtime.pods.wait_listed()
        refusals = [refuse(403, "Forbidden"), refuse(500), refuse(429)]
        world.api.script("delete", hang, *refusals)
        reaping = aio.start(reap(world), name="reap")
        async with asyncio.timeout(10):
            await world.api.wait_until(lambda: left(world) == len(refusals) + 1)
        await aio.stop(reaping)
        await reap(world)
        assert left(world) == 0


async def test_the_engine_reaps_again_and_again(
    world: FakeWorld, times: Callable[[int, int], int]
) -> None:
    if not times(1, 0):
        pytest.skip("takes the 30 s between two looks; runs with --full-counts")
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.until_pod(session_id)
        await world.stop(session_id)
        await world.until_nothing_is_left(session_id)
        # The answer to a call that made it was lost, and it comes when all is over.
        world.api.put(object_name(session_id), labels=session_labels(fakes.MANAGED_BY, session_id))
        async with asyncio.timeout(REAP_SECONDS + 10):
            await world.api.wait_until(lambda: left(world) == 0)


async def test_a_pod_that_comes_after_its_session_has_ended_goes(world: FakeWorld) -> None:
    world.api.script("create", *[cut] * 100)
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.api.wait_for("create", 2)
        await world.stop(session_id)
        assert await world.last_status(session_id) == {"kind": "stopped"}
        labels = session_labels(fakes.MANAGED_BY, session_id)
        world.api.put(object_name(session_id), labels=labels)
        name = object_name(session_id)
        with world.runtime.pods.subscribe(name) as subscription:
            while subscription.object is None:
                await subscription.changed()
        await reap(world)
        assert left(world) == 0


async def test_an_engine_without_its_lease_deletes_nothing(world: FakeWorld) -> None:
    lease = held_lease()

    async def lose(request: web.Request) -> web.StreamResponse:
        lease.lost()
        return await world.api.behave(request)

    put_orphans(world, 3 * DELETIONS_AT_ONCE, "pods")
    async with world.idle_runner():
        await reap(world, Lease(15))
        assert world.api.count("delete") == 0
        world.api.script("delete", lose)
        await reap(world, lease)
        # Those that were under way at that moment, and not one more.
        assert 0 < world.api.count("delete") <= 2 * DELETIONS_AT_ONCE


async def test_nothing_is_deleted_by_what_an_outage_left_in_mind(world: FakeWorld) -> None:
    put_orphans(world, 1, "pods")
    world.api.script("list", *[refuse(503)] * 3)
    async with world.runner():
        await world.api.wait_for("delete")
        verbs = [seen.verb for seen in world.api.requests if seen.resource == "pods"]
        assert verbs[:4] == ["list"] * 4


async def test_objects_of_sessions_that_the_database_never_had_are_a_warning(
    world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sessions.reconciler")
    async with world.runner():
        session_id = await world.start()
        world.set_status(session_id, "Succeeded", terminated(0, "Completed"))
        await world.until_nothing_is_left(session_id)
    labels = session_labels(fakes.MANAGED_BY, session_id)
    world.api.put(object_name(session_id), labels=labels)
    async with world.idle_runner():
        await reap(world)
        assert left(world) == 0
        assert caplog.text == ""
    put_orphans(world, 2, "pods")
    async with world.idle_runner():
        await reap(world)
        assert left(world) == 0
        assert "2 sessions that were never in this database" in caplog.text
        assert "RUNNER_MANAGED_BY" in caplog.text
