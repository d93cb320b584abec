"""From a row to a pod, whatever the API answers; the API is the fake one."""

import asyncio
import logging

import pytest
from aiohttp import web

from sessions.pods.run import object_name
from tests.engine.world import FakeWorld, is_status
from tests.fakes import cut, refuse
from tests.unit.pods import running, terminated

PROGRAM = "print(1)\n"


async def test_event_one_is_starting_and_the_objects_are_made_in_order(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.create(PROGRAM)
        pod = await world.until_pod(session_id)
        made = [seen.resource for seen in world.api.requests if seen.verb == "create"]
        assert made == ["configmaps", "pods"]
        await world.api.wait_for("patch")
        owner = world.api.objects["configmaps"][object_name(session_id)]["metadata"]
        assert owner["ownerReferences"] == [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": object_name(session_id),
                "uid": pod["metadata"]["uid"],
            }
        ]
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)
        world.set_status(session_id, "Succeeded", terminated(0, "Completed"))
        kinds = [
            event["status"]["kind"]
            for _, event in await world.events(session_id)
            if event["type"] == "status"
        ]
        assert kinds == ["starting", "running", "exited"]
        await world.until_nothing_is_left(session_id)


async def test_declared_ports_are_endpoints_of_running(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.create(PROGRAM, ports=[8080])
        await world.until_pod(session_id)
        world.set_status(session_id, "Running", running())
        event = await world.until_event(session_id, is_status("running"))
        assert event["status"] == {
            "kind": "running",
            "endpoints": [{"host": "", "port": 8080, "protocol": "tcp"}],
        }


async def test_an_api_that_is_away_is_waited_for(world: FakeWorld) -> None:
    world.api.script("create", cut, refuse(503), refuse(429), refuse(401))
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.until_pod(session_id)
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)


async def test_each_attempt_in_an_outage_is_one_line_of_the_log(
    world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.api.script("create", cut, refuse(503), refuse(429, "TooManyRequests", "be patient"))
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.until_pod(session_id)
    told = [record for record in caplog.records if "Trying again" in record.getMessage()]
    assert len(told) == 3
    assert "HTTP 429: be patient" in told[-1].getMessage()
    assert not any(record.exc_info for record in told)


async def test_a_pod_made_by_a_call_without_an_answer_is_taken(world: FakeWorld) -> None:
    async def create_and_cut(request: web.Request) -> web.StreamResponse:
        seen = world.api.requests[-1]
        await world.api._create(request, seen)
        return await cut(request)

    world.api.script("create", create_and_cut, create_and_cut)
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.api.wait_for("create", 4)
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)
        assert len(world.api.objects["pods"]) == 1


async def test_a_foreign_pod_of_the_same_name_fails_the_session_and_stays(
    world: FakeWorld,
) -> None:
    async with world.idle_runner():
        session_id = await world.create(PROGRAM)
    foreign = world.api.put(object_name(session_id), labels={"app": "theirs"})
    async with world.runner():
        status = await world.last_status(session_id)
        assert status["kind"] == "failed"
        assert "not this session's" in status["message"]
        await world.api.wait_until(lambda: not world.api.objects["configmaps"])
    assert world.api.objects["pods"] == {object_name(session_id): foreign}
    assert world.api.count("patch") == 0


async def test_a_foreign_config_map_fails_the_session_and_stays(world: FakeWorld) -> None:
    async with world.idle_runner():
        session_id = await world.create(PROGRAM)
    foreign = world.api.put(object_name(session_id), "configmaps", labels={"app": "theirs"})
    async with world.runner():
        status = await world.last_status(session_id)
        assert "ConfigMap" in status["message"]
    assert world.api.objects["configmaps"] == {object_name(session_id): foreign}
    assert world.api.objects["pods"] == {}


async def test_an_exhausted_quota_is_told_and_leaves_nothing(world: FakeWorld) -> None:
    async def exhaust(request: web.Request) -> web.StreamResponse:
        text = 'pods "x" is forbidden: exceeded quota: q, used: pods=41, limited: pods=41'
        return await refuse(403, "Forbidden", text)(request)

    async def create(request: web.Request) -> web.StreamResponse:
        return await world.api._create(request, world.api.requests[-1])

    world.api.script("create", create, exhaust)
    async with world.runner():
        session_id = await world.create(PROGRAM)
        assert await world.last_status(session_id) == {
            "kind": "failed",
            "message": "create: could not create the session pod: the session namespace's resource"
            " quota is exhausted (Forbidden, HTTP 403).",
        }
        await world.until_nothing_is_left(session_id)
        assert world.api.count("create") == 2


async def test_a_stop_while_the_api_is_away_ends_the_start_at_once(world: FakeWorld) -> None:
    world.api.script("create", *[refuse(503)] * 50)
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.api.wait_for("create", 3)
        await world.stop(session_id)
        assert await world.last_status(session_id) == {"kind": "stopped"}
        assert world.left_of(session_id) == []


async def test_a_stop_before_the_start_makes_nothing(world: FakeWorld) -> None:
    async with world.idle_runner():
        session_id = await world.create(PROGRAM)
        await world.stop(session_id)
    async with world.runner():
        events = [event for _, event in await world.events(session_id)]
        assert [event["status"]["kind"] for event in events] == ["starting", "stopped"]
        assert world.api.count("create") == 0


async def test_a_starting_row_without_a_pod_is_started_by_the_next_engine(
    world: FakeWorld,
) -> None:
    world.api.script("create", *[refuse(503)] * 50)
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.api.wait_for("create", 2)
    world.api._scripts.clear()
    async with world.runner():
        await world.until_pod(session_id)
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)


async def test_a_running_row_without_a_pod_fails_with_a_reason(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.until_pod(session_id)
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)
    world.api.remove(object_name(session_id))
    async with world.runner():
        assert await world.last_status(session_id) == {
            "kind": "failed",
            "message": "pod disappeared: it was deleted while no runner was watching",
        }


async def test_a_running_session_is_not_ended_by_an_api_that_refuses(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.until_pod(session_id)
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)
    world.api.script("get", refuse(403), refuse(503), cut)
    async with world.runner():
        await world.until_running(session_id)
        await world.api.wait_for("get", 4)
        await world.api.wait_until(lambda: world.api.open_attaches == 1)
        assert (await world.row(session_id)).status == "running"


async def test_an_env_sealed_with_a_lost_key_fails_a_start_in_words(world: FakeWorld) -> None:
    async with world.idle_runner():
        session_id = await world.create(PROGRAM, env={"A": "1"})
    await world.change(session_id, env_sealed=b"sealed with another key")
    async with world.runner():
        status = await world.last_status(session_id)
        assert "DJANGO_SECRET_KEY_FALLBACKS" in status["message"]
        await world.until_nothing_is_left(session_id)


async def test_image_trouble_without_hope_fails_at_once(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.create(PROGRAM)
        await world.until_pod(session_id)
        waiting = {"reason": "ErrImageNeverPull", "message": "not present"}
        world.set_status(session_id, "Pending", {"name": "session", "state": {"waiting": waiting}})
        assert await world.last_status(session_id) == {
            "kind": "failed",
            "message": 'container "session" cannot start: ErrImageNeverPull: not present; choose '
            "pullPolicy missing or always, or an image that the node has",
        }
        await world.until_nothing_is_left(session_id)


async def test_many_sessions_start_beside_one_whose_create_hangs(world: FakeWorld) -> None:
    hanging = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        await hanging.wait()
        return await refuse(503)(request)

    world.api.script("create", hang)
    async with world.runner():
        first = await world.create(PROGRAM)
        await world.api.wait_for("create")
        second = await world.create(PROGRAM)
        await world.until_pod(second)
        assert object_name(first) not in world.api.objects["pods"]
        hanging.set()
        await world.until_pod(first)
