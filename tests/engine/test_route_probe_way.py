"""What becomes of the way of probes is no news of a host, of which visitors notice nothing."""

import asyncio

import pytest

from telorunner.kube.client import Cluster
from tests.engine.gateways import open_gateway, prove, respond, say
from tests.engine.routers import (
    ACCEPTED,
    GATEWAY,
    INGRESS,
    LIVE,
    NAME,
    PENDING,
    PROGRAMMED,
    following,
    parent,
    report,
    routing,
)
from tests.fakes import FakeApi

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("kind", ["endpointslices", "services"])
async def test_a_way_of_probes_that_somebody_takes_away_is_no_news_of_a_host(
    fake: tuple[FakeApi, Cluster], kind: str
) -> None:
    """It is back before its absence is believed."""
    api, cluster = fake
    works, fails = prove(), say(respond(503))

    async def lead(head: bytes, writer: asyncio.StreamWriter) -> None:
        services = [name for name in api.objects["services"] if name.endswith("-route-probe")]
        is_there = bool(services and api.objects["endpointslices"])
        await (works if is_there else fails)(head, writer)

    async with (
        open_gateway(lead) as gateway,
        routing(cluster, INGRESS, gateway.port) as router,
        following(router) as told,
    ):
        report(api, "ingresses", NAME, LIVE)
        await told.until(PROGRAMMED)
        for _ in range(20):
            await asyncio.sleep(67)
            (name,) = [one for one in api.objects[kind] if "-route-probe" in one]
            api.remove(name, kind)
        assert told.states == [PENDING, PROGRAMMED]


async def test_a_route_that_is_rejected_for_the_way_of_probes_is_soon_as_it_was(
    fake: tuple[FakeApi, Cluster],
) -> None:
    """A controller that finds one backend of a route missing says so of the whole route."""
    api, cluster = fake
    unresolved = parent(
        Accepted=("True", "Accepted", ""), ResolvedRefs=("False", "BackendNotFound", "no Service")
    )
    async with (
        open_gateway(prove()) as gateway,
        routing(cluster, GATEWAY, gateway.port) as router,
        following(router) as told,
    ):
        report(api, "httproutes", f"{NAME}-8080", ACCEPTED)
        await told.until(PROGRAMMED)
        # Right after a heartbeat: the next one is far.
        await asyncio.sleep(61)
        (service,) = [name for name in api.objects["services"] if name.endswith("-route-probe")]
        api.remove(service, "services")
        report(api, "httproutes", f"{NAME}-8080", unresolved)
        async with asyncio.timeout(6):
            await api.wait_until(lambda: service in api.objects["services"])
        report(api, "httproutes", f"{NAME}-8080", ACCEPTED)
        await asyncio.sleep(60)
        assert told.states == [PENDING, PROGRAMMED]
