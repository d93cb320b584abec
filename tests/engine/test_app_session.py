"""Sessions of catalog apps, from the row to the pod and to the end; the API is the fake one."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from catalog.models import App
from sessions import store
from sessions.actions import create_app
from sessions.models import Session
from sessions.pods.run import object_name
from sessions.spec import Port
from tests.engine.world import FakeWorld, Object
from tests.fakes import cut, refuse
from tests.offered import APP_IMAGE, APP_NAME, offer_app
from tests.unit.pods import running, terminated, waiting


async def create(world: FakeWorld, *ports: int, **wanted: Any) -> str:
    """Offer an app and register a session of it."""
    await offer_app(env={"TOKEN": "operators"})
    asked = create_app.WantedApp(ports=tuple(Port(port) for port in ports), **wanted)
    created = await asyncio.to_thread(create_app.create_app, APP_NAME, asked, world.config)
    return created.session_id


def asked_about_config_maps(world: FakeWorld) -> list[str]:
    """Return what was done to single ConfigMaps; the reaper lists them all."""
    seen = [one for one in world.api.requests if one.resource == "configmaps"]
    return [one.verb for one in seen if one.name or one.verb == "create"]


async def test_only_a_pod_is_made_and_it_goes_when_the_app_has_ended(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await create(world, 8080, env={"TOKEN": "clients", "A": "1"})
        pod = await world.until_pod(session_id)
        (container,) = pod["spec"]["containers"]
        assert container["image"] == APP_IMAGE
        assert "command" not in container
        assert {entry["name"]: entry["value"] for entry in container["env"]} == {
            "A": "1",
            "TOKEN": "operators",
            "CLICOLOR_FORCE": "1",
        }
        assert "volumes" not in pod["spec"]
        assert pod["metadata"]["labels"]["telo.run/app"] == APP_NAME
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)
        world.set_status(session_id, "Succeeded", terminated(3, "Completed"))
        told = [event for _, event in await world.events(session_id)]
        assert [event["status"]["kind"] for event in told if event["type"] == "status"] == [
            "starting",
            "running",
            "exited",
        ]
        assert "Delivering application" not in str(told)
        assert told[-1]["status"] == {"kind": "exited", "code": 3}
        await world.until_nothing_is_left(session_id)
    assert asked_about_config_maps(world) == []
    assert (await world.row(session_id)).env_sealed == b""


async def test_a_stop_deletes_the_pod_and_nothing_else(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await create(world)
        await world.until_pod(session_id)
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)
        await world.stop(session_id)
        assert await world.last_status(session_id) == {"kind": "stopped"}
        await world.until_nothing_is_left(session_id)
    assert asked_about_config_maps(world) == []


async def test_the_next_engine_adopts_the_pod(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await create(world)
        await world.until_pod(session_id)
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)
    made = world.api.count("create")
    async with world.runner():
        await world.until_running(session_id)
        world.set_status(session_id, "Succeeded", terminated(0, "Completed"))
        assert await world.last_status(session_id) == {"kind": "exited", "code": 0}
        await world.until_nothing_is_left(session_id)
    assert world.api.count("create") == made == 1
    assert asked_about_config_maps(world) == []


async def test_a_start_that_was_interrupted_is_made_by_the_next_engine(world: FakeWorld) -> None:
    async with world.idle_runner():
        session_id = await create(world, env={"A": "1"})
    # What became of the app meanwhile is no matter of the session's.
    await store.awrite(lambda: App.objects.get(name=APP_NAME).delete())
    async with world.runner():
        pod = await world.until_pod(session_id)
        (container,) = pod["spec"]["containers"]
        assert container["image"] == APP_IMAGE
        assert {"name": "TOKEN", "value": "operators"} in container["env"]
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)
    row = await store.aread(lambda: Session.objects.get(id=session_id))
    assert (row.catalog_app_id, row.app_name) == (None, APP_NAME)


async def test_an_api_that_is_away_is_waited_for(world: FakeWorld) -> None:
    async def create_and_cut(request: web.Request) -> web.StreamResponse:
        await world.api._create(request, world.api.requests[-1])
        return await cut(request)

    world.api.script("create", cut, refuse(503), create_and_cut)
    async with world.runner():
        session_id = await create(world)
        await world.until_pod(session_id)
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)


async def test_a_foreign_pod_of_the_name_is_left_alone(world: FakeWorld) -> None:
    async with world.idle_runner():
        session_id = await create(world)
    world.api.put(object_name(session_id), labels={"somebody": "else"})
    async with world.runner():
        status = await world.last_status(session_id)
    assert status["kind"] == "failed"
    assert "is not this session's; it was left alone" in status["message"]
    assert object_name(session_id) in world.api.objects["pods"]


async def test_an_image_that_runs_as_root_fails_at_once_with_what_to_do(
    world: FakeWorld,
) -> None:
    async with world.runner():
        session_id = await create(world)
        await world.until_pod(session_id)
        message = "container has runAsNonRoot and image will run as root"
        world.set_status(session_id, "Pending", waiting("CreateContainerConfigError", message))
        assert await world.last_status(session_id) == {
            "kind": "failed",
            "message": 'container "session" cannot start: CreateContainerConfigError: container '
            "has runAsNonRoot and image will run as root; the cluster operator must give the app "
            "an image that names a user by number, other than 0 (root), or set its allow_root",
        }
        await world.until_nothing_is_left(session_id)


@pytest.mark.parametrize("refusal", ["exceeded quota: sessions", "violates PodSecurity"])
async def test_a_pod_that_is_not_admitted_fails_in_words(world: FakeWorld, refusal: str) -> None:
    message = f'pods "telo-run-x" is forbidden: {refusal}'
    world.api.script("create", refuse(403, "Forbidden", message))
    async with world.runner():
        session_id = await create(world)
        status: Object = await world.last_status(session_id)
    assert status["kind"] == "failed"
    assert status["message"].startswith("create: could not create the session pod: ")
    assert ("quota" in status["message"]) is ("quota" in refusal)
