"""Sessions whose pods fetch their bundle, from the row to the pod; the API is the fake one."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web
from django.utils import timezone

from sessions import store
from sessions.models import Bundle
from tests.engine.world import FakeWorld, Object, is_status, open_fake_world
from tests.fakes import cut, refuse
from tests.unit.pods import running, terminated

PROGRAM = "print(1)\n"
SELF_URL = "http://runner.example:8062"


@pytest.fixture
async def world(tmp_path: Path, transactional_db: None) -> AsyncIterator[FakeWorld]:
    """A world whose runner lets every bundle be fetched."""
    async with open_fake_world(
        tmp_path, RUNNER_BUNDLE_DELIVERY="fetch", RUNNER_SELF_URL=SELF_URL
    ) as world:
        yield world


def url_of(pod: Object) -> str:
    (init,) = pod["spec"]["initContainers"]
    (variable,) = init["env"]
    assert variable["name"] == "BUNDLE_URL"
    return str(variable["value"])


async def spend(session_id: str) -> None:
    """Let the pod fetch its bundle."""
    assert await store.claim_fetch(session_id, "claim")
    await store.complete_fetch(session_id, "claim")


async def test_the_pod_gets_the_url_and_no_config_map_is_made(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.create(PROGRAM)
        pod = await world.until_pod(session_id)
        token = await store.load_token(session_id)
        assert url_of(pod) == f"{SELF_URL}/internal/bundles/{session_id}?token={token}"
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)
        world.set_status(session_id, "Succeeded", terminated(0, "Completed"))
        events = [event for _, event in await world.events(session_id)]
        assert events[-1]["status"]["kind"] == "exited"
        assert token not in str(events)
        await world.until_nothing_is_left(session_id)
    assert not [seen for seen in world.api.requests if seen.resource == "configmaps" and seen.name]
    bundle = await store.aread(lambda: Bundle.objects.get(session=session_id))
    assert (bytes(bundle.archive), bytes(bundle.token_sealed)) == (b"", b"")


async def test_every_attempt_uses_the_same_token(world: FakeWorld) -> None:
    world.api.script("create", refuse(503), refuse(500), cut)
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.until_pod(session_id)
    urls = {url_of(seen.body) for seen in world.api.requests if seen.verb == "create"}
    assert len(urls) == 1


async def test_a_pod_without_an_answer_that_has_fetched_since_is_taken(world: FakeWorld) -> None:
    async def create_and_cut(request: web.Request) -> web.StreamResponse:
        seen = world.api.requests[-1]
        await world.api._create(request, seen)
        await spend(seen.body["metadata"]["name"].removeprefix("telo-run-"))
        return await cut(request)

    world.api.script("create", create_and_cut)
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.until_pod(session_id)
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)
        assert world.api.count("create") == 1


async def test_the_row_decides_for_the_next_engine_too(world: FakeWorld) -> None:
    async with world.idle_runner():
        session_id = await world.create(PROGRAM)
    world.config = world.config.model_copy(update={"bundle_delivery": "inline"})
    async with world.runner():
        assert url_of(await world.until_pod(session_id)).startswith(SELF_URL)


async def test_the_pod_waits_until_the_runner_knows_where_it_listens(world: FakeWorld) -> None:
    world.config = world.config.model_copy(update={"self_url": ""})
    async with world.runner() as runtime:
        session_id = await world.create(PROGRAM)
        await world.until_event(session_id, is_status("starting"))
        assert world.api.count("create") == 0
        runtime.self_url.listening_at("http://127.0.0.1:4711")
        assert url_of(await world.until_pod(session_id)).startswith("http://127.0.0.1:4711/")


async def test_a_bundle_that_was_dropped_before_the_start_fails_in_words(
    world: FakeWorld,
) -> None:
    async with world.idle_runner():
        session_id = await world.create(PROGRAM)
    late = timezone.now() - timedelta(minutes=6)
    await world.change(session_id, created_at=late)
    assert await store.drop_unfetched(timezone.now()) == [session_id]
    async with world.runner():
        assert await world.last_status(session_id) == {
            "kind": "failed",
            "message": "the session's bundle is gone: it was fetched already, or not within "
            "5 minutes",
        }
    assert world.api.count("create") == 0


async def test_the_engine_drops_what_nobody_fetches(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.start()
    await world.change(session_id, created_at=timezone.now() - timedelta(minutes=6))
    async with world.runner():
        await world.until_running(session_id)
        async with asyncio.timeout(10):
            while await store.aread(lambda: Bundle.objects.exclude(archive=b"").exists()):  # noqa: ASYNC110 - a row has no event
                await asyncio.sleep(0.05)


async def test_a_fetch_that_fails_is_told_as_the_init_containers(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.until_pod(session_id)
        init = terminated(1, "Error", message="the bundle could not be fetched", name="body-fetch")
        world.set_status(session_id, "Failed", initContainerStatuses=[init])
        assert await world.last_status(session_id) == {
            "kind": "failed",
            "message": 'init container "body-fetch" failed: Error (exit code 1): the bundle could'
            " not be fetched",
        }
        await world.until_nothing_is_left(session_id)
