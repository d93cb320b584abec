"""A router at work when a route is lost, and before the process listens; in virtual time."""

import asyncio
from contextlib import aclosing

import pytest
from aiohttp import web

from routing.layer import RoutingSettings
from routing.router import open_router
from telorunner import aio
from telorunner.conf.routing import ProbeAddress
from telorunner.kube.client import Cluster
from tests.engine.gateways import (
    BASE_DOMAIN,
    SECRET,
    make_routes,
)
from tests.engine.routers import (
    INGRESS,
    LIVE,
    NAME,
    PENDING,
    PROGRAMMED,
    UNPROGRAMMED,
    following,
    report,
    routing,
)
from tests.fakes import FakeApi, refuse

pytestmark = pytest.mark.looptime


async def test_a_route_that_somebody_deletes_is_told(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    async with routing(cluster) as router, following(router) as told:
        report(api, "ingresses", NAME, LIVE)
        await told.until(PROGRAMMED)
        api.remove(NAME, "ingresses")
        _, reason = await told.until(UNPROGRAMMED)
        assert reason == "The route has been deleted in the cluster."
        # It is made again, and nothing is known of the new one.
        await router.publish(make_routes())
        await told.until(PENDING)
        report(api, "ingresses", NAME, LIVE)
        await told.until(PROGRAMMED)


async def test_a_route_that_is_made_again_has_all_its_time_to_be_claimed(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    async with routing(cluster) as router, following(router) as told:
        await told.until(UNPROGRAMMED)
        api.remove(NAME, "ingresses")
        await asyncio.sleep(5)
        await router.publish(make_routes())
        since, _ = await told.until(PENDING)
        at, reason = await told.until(UNPROGRAMMED)
        assert at == pytest.approx(since + 60, abs=0.2)
        assert "No controller has reported" in reason


async def test_each_loss_of_a_route_is_told_apart(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    lost = []
    async with routing(cluster) as router:
        await router.publish(make_routes())
        async with aclosing(router.follow(make_routes())) as news:
            for _ in range(3):
                lost.append(api.objects["ingresses"][NAME]["metadata"]["uid"])
                # Whether or not anybody has looked since it was made.
                await asyncio.sleep(0 if len(lost) == 2 else 1)
                api.remove(NAME, "ingresses")
                while (told := await anext(news)).lost != lost[-1]:
                    assert (told.state, told.lost) == (PENDING, "")
                assert told.state is UNPROGRAMMED
                await router.publish(make_routes())
    assert len(set(lost)) == 3


@pytest.mark.parametrize("first", ["services", "ingresses"])
async def test_a_route_is_whole_again_when_all_of_it_is_there(
    fake: tuple[FakeApi, Cluster], first: str
) -> None:
    api, cluster = fake
    async with routing(cluster) as router, following(router) as told:
        report(api, "ingresses", NAME, LIVE)
        await told.until(PROGRAMMED)
        lost = {kind: api.objects[kind][NAME] for kind in ("ingresses", "services")}
        for kind in sorted(lost, key=lambda kind: kind != first):
            api.remove(NAME, kind)
            await asyncio.sleep(1)
        for kind in sorted(lost, key=lambda kind: kind == "ingresses"):
            assert told.states[-1] is UNPROGRAMMED
            found = lost[kind]
            api.put(NAME, kind, labels=found["metadata"]["labels"], spec=found["spec"])
            await asyncio.sleep(1)
        assert told.states[-1] is PENDING


async def test_services_that_may_not_be_watched_cost_no_host_its_state(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake

    async def answer(request: web.Request) -> web.StreamResponse:
        api.script("list", answer)
        is_refused = request.path.endswith("/services")
        return await (refuse(403, "Forbidden") if is_refused else api.behave)(request)

    api.script("list", answer)
    async with routing(cluster) as router, following(router) as told:
        report(api, "ingresses", NAME, LIVE)
        await told.until(PROGRAMMED)
        api.remove(NAME, "services")
        await asyncio.sleep(300)
        assert told.states == [PENDING, PROGRAMMED]


async def test_the_routes_are_watched_before_the_process_listens(
    fake: tuple[FakeApi, Cluster],
) -> None:
    """Adopted sessions are judged at once; the way of probes waits for a port to lead to."""
    api, cluster = fake
    listens = asyncio.Event()

    async def port() -> int:
        await listens.wait()
        return 8062

    settings = RoutingSettings(
        base_domain=BASE_DOMAIN,
        is_probing=True,
        probe_address=ProbeAddress("http", "127.0.0.1", 1),
    )
    async with open_router(cluster, settings, INGRESS, secret=SECRET, listen_port=port) as router:
        task = aio.start(router.run(), name="router")
        try:
            async with following(router) as told:
                api.remove(NAME, "ingresses")
                await told.until(UNPROGRAMMED)
            # Of Services and Ingresses there is a watch. The way of probes is not looked for.
            assert {seen.resource for seen in api.requests if seen.verb == "list"} == {
                "services",
                "ingresses",
            }
            assert set(api.objects["services"]) == {NAME}
            listens.set()
            await api.wait_until(lambda: bool(api.objects["endpointslices"]))
        finally:
            await aio.stop(task)
    assert not api.objects["endpointslices"]
