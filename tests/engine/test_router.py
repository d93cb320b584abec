"""A router at work: what is told of public hosts, in virtual time, with status and real probes."""

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import Any

import pytest

from routing.layer import Decision, RoutingSettings
from routing.router import inactive_router, open_router
from routing.routes import Layer, RoutedPort
from telorunner import aio
from telorunner.conf.routing import ProbeAddress
from telorunner.kube.client import Cluster
from telorunner.kube.objects import SESSION_ID_LABEL
from tests.engine.gateways import (
    BASE_DOMAIN,
    HOST,
    PATH,
    SECRET,
    SESSION_ID,
    Handler,
    make_routes,
    open_gateway,
    prove,
    respond,
    say,
)
from tests.engine.routers import (
    ACCEPTED,
    GATEWAY,
    INGRESS,
    LIVE,
    NAME,
    PENDING,
    PROGRAMMED,
    UNPROGRAMMED,
    Told,
    following,
    parent,
    report,
    routing,
)
from tests.fakes import FakeApi, refuse

pytestmark = pytest.mark.looptime

NO_ROUTE = "gateway: The gateway has no such route (HTTP 404)."


async def test_hosts_are_those_of_the_tcp_ports(fake: tuple[FakeApi, Cluster]) -> None:
    _, cluster = fake
    async with routing(cluster) as router:
        assert (router.layer, router.why, router.is_active) == (Layer.INGRESS, "why", True)
        assert router.hosts(SESSION_ID, [8080, 9090]) == {
            8080: HOST,
            9090: f"9090-{SESSION_ID}.{BASE_DOMAIN}",
        }


async def test_an_ingress_is_programmed_when_its_controller_says_so(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    ports = (RoutedPort(8080), RoutedPort(9090), RoutedPort(53, is_tcp=False))
    async with routing(cluster) as router, following(router, *ports) as told:
        await asyncio.sleep(5)
        assert told.said == [(0, 8080, PENDING, ""), (0, 9090, PENDING, "")]
        report(api, "ingresses", NAME, LIVE)
        await told.until(PROGRAMMED, 9090)
        assert sorted(told.said[2:]) == [(5, 8080, PROGRAMMED, ""), (5, 9090, PROGRAMMED, "")]
        # The same again is no news.
        report(api, "ingresses", NAME, LIVE)
        await asyncio.sleep(200)
        assert len(told.said) == 4


async def test_what_was_said_before_the_runner_came_back_counts(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    async with routing(cluster) as router:
        await router.publish(make_routes())
    report(api, "ingresses", NAME, LIVE)

    async with routing(cluster) as router:
        told = Told()
        reader = aio.start(told.read(router, make_routes()), name="reader")
        assert await told.until(PROGRAMMED) == (0, "")
        await aio.stop(reader)


async def test_a_controller_that_never_comes_is_not_known_to_be_one(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    async with routing(cluster, GATEWAY) as router, following(router) as told:
        at, reason = await told.until(UNPROGRAMMED)
        assert at == 60
        assert reason == (
            "No controller has reported on this route within 60 s; it may work or not. Check that "
            'the Gateway "edge/public" exists, that a controller serves it, and that a listener '
            "takes this host and routes from the session namespace."
        )
        await asyncio.sleep(600)
        assert len(told.said) == 2
        report(api, "httproutes", f"{NAME}-8080", ACCEPTED)
        assert await told.until(PROGRAMMED) == (660, "")


async def test_a_parent_that_rejects_is_told_with_its_reason(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    async with routing(cluster, GATEWAY) as router, following(router) as told:
        await asyncio.sleep(2)
        words = ("False", "NotAllowedByListeners", "No listener takes this namespace.")
        report(api, "httproutes", f"{NAME}-8080", parent(Accepted=words))
        assert await told.until(UNPROGRAMMED) == (
            2,
            "NotAllowedByListeners: No listener takes this namespace.",
        )
        report(api, "httproutes", f"{NAME}-8080", ACCEPTED)
        await told.until(PROGRAMMED)


@pytest.mark.parametrize(
    ("decision", "name", "taken", "kind"),
    [
        (INGRESS, NAME, LIVE, "Ingresses"),
        (GATEWAY, f"{NAME}-8080", ACCEPTED, "HTTPRoutes"),
    ],
    ids=["ingress", "gateway"],
)
async def test_a_status_that_may_not_be_read_is_a_permission_problem(
    fake: tuple[FakeApi, Cluster], decision: Decision, name: str, taken: dict[str, Any], kind: str
) -> None:
    api, cluster = fake
    forbidden = True

    async def sometimes(request: Any) -> Any:
        api.script("list", sometimes)
        # Whoever publishes a session lists what that has, and nothing else.
        is_of_all = SESSION_ID_LABEL not in request.query["labelSelector"]
        is_refused = forbidden and is_of_all
        return await (refuse(403, "Forbidden") if is_refused else api.behave)(request)

    api.script("list", sometimes)
    async with routing(cluster, decision) as router, following(router) as told:
        report(api, kind.lower(), name, taken)
        assert await told.until(UNPROGRAMMED) == (
            60,
            f"Could not read the status of {kind}: the runner is not permitted to do this "
            "(Forbidden, HTTP 403). The cluster operator must check the runner's RBAC, and that "
            "the session namespace (RUNNER_SESSION_NAMESPACE) exists.",
        )
        forbidden = False
        at, reason = await told.until(PROGRAMMED)
        assert at < 66
        assert reason == ""


async def test_one_failure_to_read_a_status_is_no_news(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    # Of Ingresses and of Services.
    api.script("list", *[refuse(500, "InternalError")] * 2)
    async with routing(cluster) as router, following(router) as told:
        report(api, "ingresses", NAME, LIVE)
        at, _ = await told.until(PROGRAMMED)
        assert at < 2
        assert told.states == [PENDING, PROGRAMMED]


async def test_a_claimed_route_whose_host_works_is_programmed_at_once(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    async with (
        open_gateway(say(respond(404))) as gateway,
        routing(cluster, INGRESS, gateway.port) as router,
        following(router) as told,
    ):
        # By now it is asked every ten seconds only.
        await asyncio.sleep(40.05)
        assert told.states == [PENDING]
        gateway.handler = prove()
        report(api, "ingresses", NAME, LIVE)
        at, _ = await told.until(PROGRAMMED)
        assert at <= 40.2
        asked = len(gateway.requests)
        await asyncio.sleep(600)
        assert 10 <= len(gateway.requests) - asked <= 20


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (say(respond(404)), NO_ROUTE),
        (
            say(respond(200, b"<html>another session's page</html>")),
            "gateway: Something else answers: the host leads to another place.",
        ),
        (prove(host=f"8080-zyxwvutsrqpo.{BASE_DOMAIN}"), NO_ROUTE),
        (
            say(respond(503)),
            "backend: The gateway does not reach what the route leads to (HTTP 503).",
        ),
    ],
    ids=["404", "other content", "another session", "no backend"],
)
async def test_a_claim_that_is_not_true_is_found_out(
    fake: tuple[FakeApi, Cluster], lie: Handler, reason: str
) -> None:
    api, cluster = fake
    async with (
        open_gateway(lie) as gateway,
        routing(cluster, INGRESS, gateway.port) as router,
        following(router) as told,
    ):
        await asyncio.sleep(3)
        report(api, "ingresses", NAME, LIVE)
        assert await told.until(UNPROGRAMMED) == (13, reason)
        assert told.states == [PENDING, UNPROGRAMMED]
        await asyncio.sleep(100)
        gateway.handler = prove()
        at, _ = await told.until(PROGRAMMED)
        assert at <= 124
        # What has worked is not given up for a moment's failure.
        await asyncio.sleep(100)
        gateway.handler = say(respond(503))
        asked = len(gateway.requests)
        while len(gateway.requests) == asked:  # noqa: ASYNC110 - a socket tells nobody
            await asyncio.sleep(0.1)
        gateway.handler = prove()
        await asyncio.sleep(100)
        assert told.states == [PENDING, UNPROGRAMMED, PROGRAMMED]


async def test_a_host_that_works_needs_no_status(fake: tuple[FakeApi, Cluster]) -> None:
    _, cluster = fake
    async with (
        open_gateway(prove()) as gateway,
        routing(cluster, GATEWAY, gateway.port) as router,
        following(router) as told,
    ):
        at, _ = await told.until(PROGRAMMED)
        assert at < 2
        await asyncio.sleep(600)
        assert told.states == [PENDING, PROGRAMMED]


async def test_a_host_that_nobody_claims_and_that_fails_is_told_with_both(
    fake: tuple[FakeApi, Cluster],
) -> None:
    _, cluster = fake
    async with (
        open_gateway(say(respond(404))) as gateway,
        routing(cluster, INGRESS, gateway.port) as router,
        following(router) as told,
    ):
        assert await told.until(UNPROGRAMMED) == (
            60,
            "No controller has reported on this route within 60 s; it may work or not. Check "
            'that an ingress controller serves the ingress class "nginx". Asked directly, the '
            f"host does not work: {NO_ROUTE}",
        )


async def test_where_the_runner_cannot_answer_the_status_alone_counts(
    fake: tuple[FakeApi, Cluster],
) -> None:
    """Without its own end of the way a probe must fail, which says nothing of the route."""
    api, cluster = fake

    async def deny(request: Any) -> Any:
        api.script("create", deny)
        is_slice = "endpointslices" in request.path
        return await (refuse(403, "Forbidden") if is_slice else api.behave)(request)

    api.script("create", deny)
    async with (
        open_gateway(say(respond(503))) as gateway,
        routing(cluster, INGRESS, gateway.port) as router,
        following(router) as told,
    ):
        report(api, "ingresses", NAME, LIVE)
        at, _ = await told.until(PROGRAMMED)
        assert at <= 11
        await asyncio.sleep(300)
        assert told.states == [PENDING, PROGRAMMED]
        assert gateway.requests == []


@pytest.mark.parametrize("decision", [INGRESS, GATEWAY], ids=["ingress", "gateway"])
async def test_two_hundred_sessions_share_one_watch_of_each_kind(
    fake: tuple[FakeApi, Cluster], decision: Decision
) -> None:
    api, cluster = fake
    before = asyncio.all_tasks()
    sessions = [f"session{number:05}" for number in range(200)]
    ports = (RoutedPort(8080), RoutedPort(9090))
    kind, taken = ("ingresses", LIVE) if decision is INGRESS else ("httproutes", ACCEPTED)
    async with routing(cluster, decision) as router:
        told = [Told() for _ in sessions]
        readers = []
        for one, session_id in zip(told, sessions, strict=True):
            routes = make_routes(*ports, session_id=session_id)
            await router.publish(routes)
            readers.append(aio.start(one.read(router, routes), name=session_id))
            for name in [name for name in api.objects[kind] if session_id in name]:
                report(api, kind, name, taken)
        for one in told:
            await one.until(PROGRAMMED, 8080)
            await one.until(PROGRAMMED, 9090)
        asked = Counter((seen.verb, seen.resource) for seen in api.requests)
        assert asked["watch", kind] == asked["watch", "services"] == asked["list", "services"] == 1
        # The informer's. A session's Ingress needs none; HTTPRoutes for ports that it has no more
        # are looked for whenever it is published.
        assert asked["list", kind] == 1 + (len(sessions) if decision is GATEWAY else 0)
        assert {resource for _, resource in asked} == {kind, "services"}
        await aio.stop(*readers)
        left = {task.get_name() for task in asyncio.all_tasks() - before}
        assert not [name for name in left if "session" in name or "8080" in name]
        watch = router._publishing.watch if router._publishing else None
        assert watch is not None
        assert watch.routes._subscriptions == watch.services._subscriptions == {}


async def test_a_reader_that_ends_early_leaves_nothing(fake: tuple[FakeApi, Cluster]) -> None:
    _, cluster = fake
    async with (
        open_gateway(prove()) as gateway,
        routing(cluster, INGRESS, gateway.port) as router,
    ):
        before = asyncio.all_tasks()
        async with aclosing(router.follow(make_routes())) as following:
            async for news in following:
                if news.state is PROGRAMMED:
                    break
        assert {task for task in asyncio.all_tasks() if "route-8080" in task.get_name()} == set()
        assert asyncio.current_task() in before


async def test_what_was_withdrawn_is_gone(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    async with routing(cluster) as router:
        await router.publish(make_routes())
        assert await router.session_ids() == {SESSION_ID}
        await router.withdraw(SESSION_ID)
        assert await router.session_ids() == set()
        assert not api.objects["ingresses"]
        assert not api.objects["services"]


async def test_reserved_paths_are_answered_while_hosts_are_probed(
    fake: tuple[FakeApi, Cluster],
) -> None:
    _, cluster = fake
    target = f"/.well-known/telo-route/{PATH.key(HOST)}/nonce"
    async with routing(cluster, INGRESS, 1) as router:
        answer = router.answer(HOST, target)
        assert answer is not None
        assert answer[0] == f"{PATH.key(HOST)}/nonce".encode()
        assert router.answer(f"9090-{SESSION_ID}.{BASE_DOMAIN}", target) is None
    async with routing(cluster, INGRESS) as router:
        assert router.answer(HOST, target) is None


@pytest.mark.parametrize("is_opened", [False, True])
async def test_a_router_without_a_layer_costs_nothing(
    fake: tuple[FakeApi, Cluster], is_opened: bool
) -> None:
    api, cluster = fake
    router = inactive_router("SESSION_ROUTING_MODE is none.")
    if is_opened:
        decision = Decision(Layer.NONE, "SESSION_ROUTING_MODE is none.")
        settings = RoutingSettings(is_probing=True, probe_address=ProbeAddress("http", "x", 1))
        opened = open_router(cluster, settings, decision, secret=SECRET, listen_port=None)
        async with opened as router:
            pass
    assert (router.layer, router.is_active) == (Layer.NONE, False)
    assert router.why == "SESSION_ROUTING_MODE is none."
    assert router.hosts(SESSION_ID, [8080]) == {}
    await router.publish(make_routes())
    await router.withdraw(SESSION_ID)
    assert await router.session_ids() == set()
    assert [news async for news in router.follow(make_routes())] == []
    assert router.answer(HOST, f"/.well-known/telo-route/{PATH.key(HOST)}/n") is None
    await router.run()
    assert api.requests == []
