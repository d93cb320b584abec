"""What becomes of a session's public hosts when it ends, or is published no more."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from routing.router import inactive_router
from sessions.spec import Port
from sessions.states import StatusKind
from sessions.supervisor.routing import withdraw
from telorunner.kube.client import Cluster
from tests import fakes
from tests.engine.routers import LIVE, NAME, report
from tests.engine.routingbench import (
    DELETED,
    LABELS,
    Bench,
    is_route,
    networking,
    of_routes,
    put_pod,
    route,
)
from tests.engine.test_routing_offered import serving
from tests.fakes import FakeApi, refuse
from tests.unit.pods import pod, running, terminated

pytestmark = pytest.mark.looptime

GOING = {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 30}


def stop(bench: Bench) -> None:
    bench.session.ask_stop()


def end(bench: Bench) -> None:
    bench.subscription.take(pod("Succeeded", terminated(0, "Completed")))


def lose(bench: Bench) -> None:
    bench.subscription.take(None)


def take_away(bench: Bench) -> None:
    bench.subscription.take(pod("Running", running(), metadata=GOING))


def take_away_unseen(bench: Bench) -> None:
    put_pod(bench.api, **GOING)


def lose_unseen(bench: Bench) -> None:
    bench.api.remove(NAME)


def replace_unseen(bench: Bench) -> None:
    put_pod(bench.api, uid="another")


def end_unseen(bench: Bench) -> None:
    put_pod(bench.api, "Succeeded")


@pytest.mark.parametrize(
    "begin_to_end",
    [stop, end, lose, take_away, take_away_unseen, lose_unseen, replace_unseen, end_unseen],
)
async def test_routes_that_go_with_their_session_are_no_news(
    fake: tuple[FakeApi, Cluster], tmp_path: Path, begin_to_end: Callable[[Bench], None]
) -> None:
    """The garbage collector deletes them, often before the watch of pods shows anything."""
    api, _ = fake
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await bench.until_live()
        before = of_routes(await bench.events())
        begin_to_end(bench)
        api.remove(NAME, "services")
        api.remove(NAME, "ingresses")
        await asyncio.sleep(300)
        assert of_routes(await bench.events()) == before
        assert bench.names() == {}


async def test_a_route_that_is_gone_is_told_where_nobody_knows_of_the_pod(
    fake: tuple[FakeApi, Cluster], tmp_path: Path, looptime: float
) -> None:
    api, _ = fake
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await bench.until_live()
        began = asyncio.get_running_loop().time()
        # NB: the informer asks nothing here; the pod is asked for, and that hangs.
        api.script("get", fakes.hang)
        api.remove(NAME, "ingresses")
        await bench.until(lambda one: one == route("unprogrammed", DELETED))
        assert asyncio.get_running_loop().time() - began < 5


@pytest.mark.parametrize("resource", ["services", "ingresses"])
async def test_a_stop_in_the_middle_of_publishing_leaves_nothing(
    fake: tuple[FakeApi, Cluster], tmp_path: Path, resource: str
) -> None:
    """What is made without an answer is there all the same."""
    api, _ = fake

    async def unanswered(request: Any) -> Any:
        await api.behave(request)
        return await fakes.hang(request)

    api.script("create", *[api.behave] * (resource == "ingresses"), unanswered)
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await api.wait_until(lambda: NAME in api.objects[resource])
        bench.session.ask_stop()
        await bench.network.end_routes()
        assert await withdraw(bench.session) is True
        await asyncio.sleep(120)
        assert bench.names() == {}
        assert of_routes(await bench.events()) == [route("pending")]


async def test_a_stop_while_a_publish_waits_for_its_next_attempt_is_the_last_of_it(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    api, _ = fake
    api.script("create", refuse(403, "Forbidden"))
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await bench.until(is_route("unprogrammed"))
        bench.session.ask_stop()
        before = of_routes(await bench.events())
        await asyncio.sleep(120)
        assert (bench.names(), api.count("create")) == ({}, 1)
        assert of_routes(await bench.events()) == before


async def test_a_publish_that_fails_because_the_session_ends_is_no_news(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    api, _ = fake

    async def terminating(request: Any) -> Any:
        lose_unseen(bench)
        message = "unable to create new content because it is being terminated"
        return await refuse(403, "Forbidden", message)(request)

    api.script("create", terminating)
    async with networking(fake, tmp_path, Port(8080), status=StatusKind.STARTING) as bench:
        bench.session.has_run.set()
        await asyncio.sleep(120)
        assert of_routes(await bench.events()) == [route("pending")]
        assert bench.names() == {}


async def test_nothing_is_told_after_the_drain_and_everything_is_withdrawn(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await bench.api.wait_until(lambda: NAME in bench.api.objects["ingresses"])
        await bench.network.drain()
        before = await bench.events()
        report(bench.api, "ingresses", NAME, LIVE)
        await asyncio.sleep(120)
        assert await bench.events() == before
        assert await withdraw(bench.session) is True
        assert bench.names() == {}


async def test_a_publish_without_end_does_not_hold_the_session_up(
    fake: tuple[FakeApi, Cluster], tmp_path: Path, looptime: float
) -> None:
    api, _ = fake
    api.script("create", fakes.hang)
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await api.wait_for("create")
        await bench.network.drain()
        assert looptime < 1


ADOPTED = {"fence": 2, "is_published": True}
WITHDRAWN = {
    "type": "progress",
    "phase": "boot",
    "message": "This session has no public hosts any more. SESSION_ROUTING_MODE is none.",
}


def put_left(api: FakeApi) -> None:
    """Let the API have what another configuration has published, and something of others."""
    for kind, name in (("services", NAME), ("ingresses", NAME), ("httproutes", f"{NAME}-8080")):
        api.put(name, kind, labels=LABELS)
        api.put("theirs", kind, labels={**LABELS, "telo.run/session-id": "theirsaaaaaa"})


THEIRS = {kind: ["theirs"] for kind in ("services", "ingresses", "httproutes")}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_runner_that_publishes_no_more_takes_away_what_there_is_of_a_session(
    fake: tuple[FakeApi, Cluster], tmp_path: Path, version: str
) -> None:
    api, _ = fake
    put_left(api)
    api.script("get", *[serving(**{version: ("httproutes",)})] * 2)
    asked = []

    async def note(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return await api.behave(request)

    api.script("list", note)
    none = inactive_router("SESSION_ROUTING_MODE is none.")
    async with networking(fake, tmp_path, Port(8080), router=none, **ADOPTED) as bench:
        events = await bench.until(lambda one: one == WITHDRAWN)
        assert bench.names() == THEIRS
        # Nothing is told of hosts that are nobody's any more.
        assert of_routes(events) == [WITHDRAWN]
        assert events[0]["status"]["endpoints"] == [{"host": "", "port": 8080, "protocol": "tcp"}]
    assert asked == [f"/apis/gateway.networking.k8s.io/{version}/namespaces/sessions/httproutes"]


async def test_a_cluster_without_the_gateway_api_has_nothing_of_it_to_take_away(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    api, _ = fake
    put_left(api)
    api.script("get", serving())
    none = inactive_router("SESSION_ROUTING_MODE is none.")
    async with networking(fake, tmp_path, Port(8080), router=none, **ADOPTED) as bench:
        await bench.until(lambda one: one == WITHDRAWN)
        assert bench.names() == {**THEIRS, "httproutes": [f"{NAME}-8080", "theirs"]}


async def test_a_cluster_that_does_not_say_what_it_serves_is_asked_again(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    """Such as a proxy in front of it: a page of its own is no absence."""
    api, _ = fake
    put_left(api)
    page = fakes.say("404 page not found", 404, "text/plain")
    api.script("get", page, refuse(503), *[serving(v1=("httproutes",))] * 2)
    none = inactive_router("SESSION_ROUTING_MODE is none.")
    async with networking(fake, tmp_path, Port(8080), router=none, **ADOPTED) as bench:
        await bench.until(lambda one: one == WITHDRAWN)
        assert bench.names() == THEIRS


async def test_what_may_not_be_taken_away_is_said_and_stays(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    api, _ = fake
    put_left(api)
    api.script("get", *[serving(v1=("httproutes",))] * 4)
    # One of the cluster's restarts first; then only Ingresses are refused.
    api.script("list", refuse(503), refuse(503), refuse(503), api.behave, refuse(403, "Forbidden"))
    none = inactive_router("SESSION_ROUTING_MODE is none.")
    async with networking(fake, tmp_path, Port(8080), router=none, **ADOPTED) as bench:
        await asyncio.sleep(300)
        told = [one["message"] for one in of_routes(await bench.events())]
        away = "withdraw: could not take the session's public hosts away: "
        assert told[0] == (
            f"{away}the Kubernetes API rejected the request (ServiceUnavailable, HTTP 503)."
        )
        assert told[1].startswith(f"{away}the runner is not permitted to do this")
        assert len(told) == 2
        assert bench.names() == {**THEIRS, "ingresses": [NAME, "theirs"]}


@pytest.mark.parametrize("row", [{"fence": 2}, {"fence": 1, "is_published": False}])
async def test_a_session_that_was_never_published_is_not_looked_for(
    fake: tuple[FakeApi, Cluster], tmp_path: Path, row: dict[str, Any]
) -> None:
    none = inactive_router("SESSION_ROUTING_MODE is none.")
    async with networking(fake, tmp_path, Port(8080), router=none, **row) as bench:
        await asyncio.sleep(60)
        assert not of_routes(await bench.events())
        assert bench.api.requests == []
