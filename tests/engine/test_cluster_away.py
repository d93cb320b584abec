"""The API over an engine whose cluster hangs or refuses: answers come, failures are statuses."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from sessions.pods.run import object_name
from telorunner.asgi import build_application
from tests.builders import create_body
from tests.connections import open_events
from tests.engine.world import FakeWorld, open_fake_world
from tests.fakes import refuse

# It is a second where nothing else runs; what hangs here, hangs for ever.
ANSWER_SECONDS = 5.0
HANGING = 20


@pytest.fixture
async def world(tmp_path: Path, transactional_db: None, settings: Any) -> AsyncIterator[FakeWorld]:
    async with open_fake_world(tmp_path) as world:
        settings.RUNNER = world.config
        yield world


@pytest.fixture
async def client(world: FakeWorld) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=build_application(world.config))
    async with httpx.AsyncClient(transport=transport, base_url="http://runner") as client:
        yield client


async def ask(client: httpx.AsyncClient, method: str, path: str, **more: Any) -> httpx.Response:
    async with asyncio.timeout(ANSWER_SECONDS):
        return await client.request(method, path, **more)


def body(world: FakeWorld) -> dict[str, Any]:
    return create_body(config={"image": world.config.image, "pullPolicy": "missing"})


async def test_a_cluster_that_refuses_is_a_status_and_no_http_error(
    world: FakeWorld, client: httpx.AsyncClient
) -> None:
    world.api.script("create", *[refuse(403, "Forbidden", "system:serviceaccount:secret")] * 10)
    async with world.runner():
        created = await ask(client, "POST", "/v1/sessions", json=body(world))
        assert created.status_code == 201
        session_id = created.json()["sessionId"]
        events = await world.events(session_id)
        kinds = [event["status"]["kind"] for _, event in events if event["type"] == "status"]
        assert kinds == ["starting", "failed"]
        status = events[-1][1]["status"]
        assert status == (await ask(client, "GET", f"/v1/sessions/{session_id}")).json()["status"]
        assert "the runner is not permitted to do this (Forbidden, HTTP 403)" in status["message"]
        assert "serviceaccount" not in status["message"]


async def test_starts_that_hang_delay_nobody_else(
    world: FakeWorld, client: httpx.AsyncClient
) -> None:
    going = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        await going.wait()
        return await refuse(500)(request)

    app = build_application(world.config)
    async with world.runner():
        other = await world.start()
        world.api.script("create", *[hang] * HANGING)
        before = world.api.count("create")
        ids = []
        for _ in range(HANGING):
            created = await ask(client, "POST", "/v1/sessions", json=body(world))
            ids.append(created.json()["sessionId"])
        await world.api.wait_for("create", before + HANGING)
        assert (await ask(client, "GET", "/v1/health")).status_code == 200
        assert (await ask(client, "POST", "/v1/sessions", json={})).status_code == 400
        assert (await ask(client, "GET", f"/v1/sessions/{ids[0]}")).status_code == 200
        async with asyncio.timeout(ANSWER_SECONDS), open_events(app, other) as stream:
            await stream.read_until("running")
        for session_id in ids:
            stopped = await ask(client, "DELETE", f"/v1/sessions/{session_id}")
            assert stopped.status_code == 204
        going.set()
        for session_id in ids:
            assert await world.last_status(session_id) == {"kind": "stopped"}
            await world.until_nothing_is_left(session_id)
        assert object_name(other) in world.api.objects["pods"]
