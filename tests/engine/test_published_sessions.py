"""Sessions with public hosts from end to end of the engine's side; the API is the fake one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sessions.pods.run import object_name
from sessions.reconciler import Reconciler
from telorunner.conf.routing import ProbeAddress
from telorunner.kube.objects import session_labels
from tests import fakes
from tests.engine.routers import ACCEPTED, GATEWAY, INGRESS, LIVE, report
from tests.engine.routingbench import DELETED
from tests.engine.world import (
    PORT,
    WAIT_SECONDS,
    FakeWorld,
    Object,
    held_lease,
    is_status,
    open_fake_world,
)
from tests.fakes import refuse
from tests.unit.pods import running, terminated

PROGRAM = "print(1)\n"
# Services last: of what goes together, the loss of the route is what is told.
KINDS = ("ingresses", "httproutes", "services")


@pytest.fixture
async def world(tmp_path: Path, transactional_db: None) -> AsyncIterator[FakeWorld]:
    """A world whose runner publishes sessions by Ingress."""
    variables = {
        "SESSION_ROUTING_BASE_DOMAIN": "apps.test",
        "SESSION_GATEWAY_NAME": "public",
        "SESSION_GATEWAY_NAMESPACE": "edge",
    }
    async with open_fake_world(tmp_path, **variables) as world:
        world.decision = INGRESS
        yield world


async def start(world: FakeWorld, *ports: int) -> str:
    """Run a session with these ports; return its id."""
    session_id = await world.create(PROGRAM, ports=ports)
    await world.until_pod(session_id)
    world.set_status(session_id, "Running", running())
    await world.until_running(session_id)
    return session_id


async def until(world: FakeWorld, kind: str, *names: str) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        await world.api.wait_until(lambda: set(world.api.objects[kind]) == set(names))


async def publish(world: FakeWorld) -> str:
    """Run a session with a port whose host is told to work; return its id."""
    session_id = await start(world, 8080)
    name = object_name(session_id)
    await until(world, "ingresses", name)
    report(world.api, "ingresses", name, LIVE)
    await until_route(world, session_id, "programmed")
    return session_id


def collect_garbage(world: FakeWorld, session_id: str) -> None:
    """Delete what belongs to the session's pod, as the garbage collector does."""
    for kind in KINDS:
        for name in [one for one in world.api.objects[kind] if session_id in one]:
            world.api.remove(name, kind)


async def route_states(world: FakeWorld, session_id: str) -> list[str]:
    """Return what was told of a session's hosts, once it has ended."""
    events = [event for _, event in await world.events(session_id)]
    return [one["state"] for one in events if one["type"] == "route"]


async def until_route(world: FakeWorld, session_id: str, state: str) -> Object:
    return await world.until_event(
        session_id, lambda one: one["type"] == "route" and one["state"] == state
    )


def published(world: FakeWorld) -> dict[str, list[str]]:
    return {kind: sorted(world.api.objects[kind]) for kind in KINDS if world.api.objects[kind]}


async def test_a_session_is_published_while_it_runs(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await start(world, 8080)
        name, host = object_name(session_id), f"8080-{session_id}.apps.test"
        await until(world, "ingresses", name)
        report(world.api, "ingresses", name, LIVE)
        told = await until_route(world, session_id, "programmed")
        assert (told["app"], told["host"], told["port"]) == ("app", host, 8080)
        endpoint = {"host": host, "port": 8080, "protocol": "tcp", "url": f"https://{host}"}
        assert (await world.row(session_id)).endpoints == [endpoint]
        world.set_status(session_id, "Succeeded", terminated(0, "Completed"))
        events = [event for _, event in await world.events(session_id)]
        kinds = [one["type"] for one in events if one["type"] in ("status", "route")]
        # `running` waited for no route, and nothing follows the end.
        assert kinds == ["status", "status", "route", "route", "status"]
        assert events[-1]["status"] == {"kind": "exited", "code": 0}
        await world.until_nothing_is_left(session_id)
        await until(world, "ingresses")
        await until(world, "services")
    # Staff may want to know it later.
    assert (await world.row(session_id)).routes == [
        {"host": host, "port": 8080, "state": "programmed", "reason": ""}
    ]


async def test_a_stop_withdraws_the_routes_however_often_that_fails(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await start(world, 8080)
        await until(world, "ingresses", object_name(session_id))
        world.api.script("delete", *[refuse(500)] * 4)
        await world.stop(session_id)
        assert await world.last_status(session_id) == {"kind": "stopped"}
        await until(world, "ingresses")
        await until(world, "services")


async def test_a_stop_tells_nothing_of_the_routes_that_go_with_the_pod(
    world: FakeWorld,
) -> None:
    async with world.runner():
        session_id = await publish(world)

        async def take_away(request: web.Request) -> web.StreamResponse:
            # Whatever order the watches show it in.
            collect_garbage(world, session_id)
            return await world.api.behave(request)

        world.api.script("delete", take_away)
        await world.stop(session_id)
        assert await world.last_status(session_id) == {"kind": "stopped"}
        assert await route_states(world, session_id) == ["pending", "programmed"]


async def test_an_end_tells_nothing_of_the_routes_that_go_with_the_pod(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await publish(world)
        world.set_status(session_id, "Failed", terminated(1))
        collect_garbage(world, session_id)
        assert (await world.last_status(session_id))["kind"] == "failed"
        assert await route_states(world, session_id) == ["pending", "programmed"]


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_pod_that_somebody_deletes_tells_nothing_of_its_routes(
    world: FakeWorld, is_seen: bool
) -> None:
    async with world.runner():
        session_id = await publish(world)
        name = object_name(session_id)
        gone = dict(world.api.objects["pods"][name])
        if is_seen:
            world.api.remove(name)
            collect_garbage(world, session_id)
        else:
            # The watch of pods is behind that of routes.
            world.api.remove(name, quietly=True)
            looks = world.api.count("get")
            collect_garbage(world, session_id)
            await world.api.wait_for("get", looks + 1)
            world.api.objects["pods"][name] = gone
            world.api.remove(name)
        assert (await world.last_status(session_id))["kind"] == "failed"
        assert await route_states(world, session_id) == ["pending", "programmed"]
        assert published(world) == {}


async def test_a_route_that_somebody_deletes_while_the_session_runs_comes_back(
    world: FakeWorld,
) -> None:
    async with world.runner():
        session_id = await publish(world)
        collect_garbage(world, session_id)
        assert (await until_route(world, session_id, "unprogrammed"))["reason"] == DELETED
        await until(world, "ingresses", object_name(session_id))
        await until(world, "services", object_name(session_id))
        report(world.api, "ingresses", object_name(session_id), LIVE)
        later = iter((False, True))
        await world.until_event(
            session_id,
            lambda one: one["type"] == "route" and one["state"] == "programmed" and next(later),
        )
        await world.stop(session_id)
        assert await route_states(world, session_id) == [
            "pending",
            "programmed",
            "unprogrammed",
            "pending",
            "programmed",
        ]


async def test_each_tcp_port_has_an_httproute_behind_a_gateway(world: FakeWorld) -> None:
    world.decision = GATEWAY
    async with world.runner():
        session_id = await start(world, 8080, 9090)
        names = [f"{object_name(session_id)}-{port}" for port in (8080, 9090)]
        await until(world, "httproutes", *names)
        report(world.api, "httproutes", names[1], ACCEPTED)
        assert (await until_route(world, session_id, "programmed"))["port"] == 9090
        await world.stop(session_id)
        await world.events(session_id)
        await until(world, "httproutes")


async def test_another_layer_publishes_anew_and_leaves_the_old_route_to_go_with_the_pod(
    world: FakeWorld,
) -> None:
    async with world.runner():
        session_id = await start(world, 8080)
        name = object_name(session_id)
        await until(world, "ingresses", name)
        metadata = world.api.objects["ingresses"][name]["metadata"]
    pod = world.api.objects["pods"][name]["metadata"]["uid"]
    assert [owner["uid"] for owner in metadata["ownerReferences"]] == [pod]
    world.decision = GATEWAY
    route = f"{name}-8080"
    async with world.runner():
        await until(world, "httproutes", route)
        report(world.api, "httproutes", route, ACCEPTED)
        await until_route(world, session_id, "programmed")
        both = {"ingresses": [name], "httproutes": [route], "services": [name]}
        assert published(world) == both
        await world.stop(session_id)
        assert await world.last_status(session_id) == {"kind": "stopped"}
        assert await route_states(world, session_id) == ["pending", "programmed"]
        await until(world, "httproutes")
        await until(world, "services")
        await world.until_nothing_is_left(session_id)
    assert published(world) == {"ingresses": [name]}
    collect_garbage(world, session_id)
    assert published(world) == {}


async def test_a_publish_that_is_refused_never_ends_a_session(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await world.create(PROGRAM, ports=[8080])
        await world.until_pod(session_id)
        world.api.script("create", *[refuse(403, "Forbidden")] * 3)
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)
        told = await until_route(world, session_id, "unprogrammed")
        assert "not permitted" in told["reason"]
        await world.until_event(session_id, lambda one: one.get("message") == told["reason"])
        assert (await world.row(session_id)).status == "running"
        await until(world, "ingresses", object_name(session_id))


async def test_the_next_runner_publishes_again_and_keeps_what_the_cluster_gave(
    world: FakeWorld,
) -> None:
    async with world.runner():
        session_id = await start(world, 8080)
        name = object_name(session_id)
        await until(world, "ingresses", name)
    service = world.api.objects["services"][name]
    service["spec"]["clusterIP"] = "10.96.0.7"
    before = dict(service["metadata"])
    # What it published has been withdrawn by somebody in between.
    world.api.remove(name, "ingresses")
    async with world.runner():
        await until(world, "ingresses", name)
        # Of what was told before, only that holds which is still so.
        assert (await until_route(world, session_id, "pending"))["port"] == 8080
        report(world.api, "ingresses", name, LIVE)
        await until_route(world, session_id, "programmed")
    service = world.api.objects["services"][name]
    assert (service["spec"]["clusterIP"], service["metadata"]["uid"]) == (
        "10.96.0.7",
        before["uid"],
    )


async def test_another_base_domain_moves_sessions_that_run(world: FakeWorld) -> None:
    async with world.runner():
        session_id = await start(world, 8080)
        name = object_name(session_id)
        await until(world, "ingresses", name)
    world.config = world.config.model_copy(update={"routing_base_domain": "moved.test"})
    host = f"8080-{session_id}.moved.test"
    async with world.runner():
        status = (await world.until_event(session_id, is_status("running")))["status"]
        assert status["endpoints"] == [
            {"host": host, "port": 8080, "protocol": "tcp", "url": f"https://{host}"}
        ]
        assert (await until_route(world, session_id, "pending"))["host"] == host
        async with asyncio.timeout(WAIT_SECONDS):
            await world.api.wait_until(
                lambda: world.api.objects["ingresses"][name]["spec"]["rules"][0]["host"] == host
            )
    assert (await world.row(session_id)).endpoints == status["endpoints"]


async def test_the_next_runner_tells_how_a_host_stands_and_not_how_it_stood(
    world: FakeWorld,
) -> None:
    async with world.runner():
        session_id = await start(world, 8080)
        name = object_name(session_id)
        await until(world, "ingresses", name)
        world.api.remove(name, "ingresses")
        await until_route(world, session_id, "unprogrammed")
        await until(world, "ingresses", name)
    (before,) = (await world.row(session_id)).routes
    assert before["state"] != "programmed"
    replaced = world.api.count("update")
    async with world.runner(is_listening=False):
        # Before the process listens, too.
        await until_route(world, session_id, "pending")
        await world.api.wait_for("update", replaced + 2)
        report(world.api, "ingresses", name, LIVE)
        await until_route(world, session_id, "programmed")
        await world.stop(session_id)
        assert await route_states(world, session_id) == ["pending", "programmed"]
    (after,) = (await world.row(session_id)).routes
    assert (after["state"], after["reason"]) == ("programmed", "")


async def test_a_runner_that_publishes_nothing_any_more_withdraws_what_there_is(
    world: FakeWorld,
) -> None:
    async with world.runner():
        session_id = await publish(world)
        assert (await world.row(session_id)).endpoints[0]["url"]
    world.decision = None
    async with world.runner():
        status = (await world.until_event(session_id, is_status("running")))["status"]
        assert status["endpoints"] == [{"host": "", "port": 8080, "protocol": "tcp"}]
        said = await world.until_event(session_id, lambda one: one["type"] == "progress")
        assert said["message"] == (
            "This session has no public hosts any more. Nothing is published."
        )
        assert published(world) == {}
    row = await world.row(session_id)
    assert (row.status, row.endpoints, row.routes) == ("running", status["endpoints"], [])
    # The next one has nothing to say of it, and another decision publishes it again.
    async with world.runner():
        await world.until_running(session_id)
    world.decision = GATEWAY
    async with world.runner():
        await until(world, "httproutes", f"{object_name(session_id)}-8080")
        status = (await world.until_event(session_id, is_status("running")))["status"]
        assert status["endpoints"][0]["host"] == f"8080-{session_id}.apps.test"


async def test_routes_that_no_live_session_claims_are_withdrawn(world: FakeWorld) -> None:
    labels = session_labels(fakes.MANAGED_BY, "orphanaaaaaa")
    for kind in ("services", "ingresses"):
        world.api.put(object_name("orphanaaaaaa"), kind, labels=labels)
        world.api.put("theirs", kind, labels={"app.kubernetes.io/managed-by": "helm"})
    # The runner's own, of no session.
    world.api.put("fake-runner-route-probe", "services")
    async with world.idle_runner():
        session_id = await world.create(PROGRAM, ports=[8080])
        labels = session_labels(fakes.MANAGED_BY, session_id)
        world.api.put(object_name(session_id), "services", labels=labels)
        await world.runtime.pods.wait_listed()
        await Reconciler(world.runtime, held_lease()).reap()
    assert published(world) == {
        "services": ["fake-runner-route-probe", object_name(session_id), "theirs"],
        "ingresses": ["theirs"],
    }


async def test_routes_that_cannot_be_listed_keep_no_pod(world: FakeWorld) -> None:
    world.api.put(
        object_name("orphanaaaaaa"), labels=session_labels(fakes.MANAGED_BY, "orphanaaaaaa")
    )
    async with world.idle_runner():
        await world.runtime.pods.wait_listed()

        async def behave(request: Any) -> Any:
            return await world.api.behave(request)

        # Of ConfigMaps, and then of Ingresses.
        world.api.script("list", behave, refuse(403, "Forbidden"))
        await Reconciler(world.runtime, held_lease()).reap()
    assert not world.api.objects["pods"]


async def test_a_runner_that_goes_takes_its_own_address_away_and_leaves_the_routes(
    world: FakeWorld,
) -> None:
    address = ProbeAddress("http", "127.0.0.1", 1)
    world.config = world.config.model_copy(update={"route_probe_address": address})
    async with world.runner():
        session_id = await start(world, 8080)
        await until(world, "ingresses", object_name(session_id))
        async with asyncio.timeout(WAIT_SECONDS):
            await world.api.wait_until(lambda: bool(world.api.objects["endpointslices"]))
        (own,) = world.api.objects["endpointslices"].values()
        assert [port["port"] for port in own["ports"]] == [PORT]
    assert not world.api.objects["endpointslices"]
    assert object_name(session_id) in world.api.objects["ingresses"]
