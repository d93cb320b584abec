"""Public hosts on a real cluster, through Traefik: both layers, with and without TLS."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from routing.gateway import GatewayTarget
from routing.ingress import IngressTarget
from routing.publisher import Publisher
from routing.routes import Layer, RoutedPort, SessionRoutes
from telorunner.conf import ClusterKind
from telorunner.kube import objects
from telorunner.kube.client import ClusterSettings, open_cluster
from telorunner.kube.objects import SESSION_ID_LABEL
from tests import routed
from tests.clusters import MANAGED_BY, ClusterUnderTest
from tests.e2e.conftest import Served, Serving, apart
from tests.e2e.entrances import BOTH, CLASS, PLAIN, SECRET, Entrance, delete

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

# How the reason begins of what passes by itself.
PASSING = ("publish: ", "connect: ", "tls: ", "gateway: ", "backend: ")

WAYS = {
    "ingress-http": {"SESSION_INGRESS_CLASS": CLASS},
    "ingress-tls": {"SESSION_INGRESS_CLASS": CLASS, "SESSION_INGRESS_TLS_SECRET": SECRET},
    # Of several listeners one has to be named; of one that is not needed.
    "gateway-http": {"SESSION_GATEWAY_NAME": PLAIN},
    "gateway-tls": {"SESSION_GATEWAY_NAME": BOTH, "SESSION_GATEWAY_SECTION_NAME": "https"},
}


@pytest.mark.parametrize("way", list(WAYS))
async def test_each_port_has_a_host_of_its_own_until_the_session_is_stopped(
    serve: Serving, entrance: Entrance, way: str
) -> None:
    has_tls = way.endswith("tls")
    async with serve(**entrance.runner(has_tls=has_tls), **WAYS[way]) as client:
        session = await routed.create(client, 8080, 9090, udp=(5353,))
        hosts = {port: entrance.host(session, port) for port in (8080, 9090)}
        for port, host in hosts.items():
            await routed.works(client, session, port)
            await routed.until(client, session, routed.is_reachable(port))
            assert await entrance.until(host, 200, has_tls=has_tls) == f"{port} {host} /"
            answer = await entrance.get(host, "/a/path?b=c", has_tls=has_tls)
            assert answer.text == f"{port} {host} /a/path?b=c"
            assert await entrance.echo(host, f"to {port}", has_tls=has_tls) == f"to {port}"
        # Neither the hosts of others nor the reserved paths of this one lead to an application.
        stranger = await entrance.get(entrance.host("aaaaaaaaaaaa"), has_tls=has_tls)
        assert stranger.status_code == 404
        reserved = await entrance.reserved_path(session)
        probed = await entrance.get(hosts[8080], f"{reserved}/nonce", has_tls=has_tls)
        assert probed.headers["telo-route-proof"]
        if "SESSION_GATEWAY_SECTION_NAME" in WAYS[way]:
            assert (await entrance.get(hosts[8080])).status_code == 404
        await routed.stop(client, session)
        check_told([event for _, event in await client.events(session)], hosts)
        await entrance.until_nothing_is_left_of(session)
        await entrance.until(hosts[8080], 404, has_tls=has_tls)


def check_told(events: list[routed.Event], hosts: dict[int, str]) -> None:
    """Check what a session's stream has said of its hosts, from beginning to end."""
    for port in hosts:
        check_states(events, port)
    running = next(one for one in events if one.get("status", {}).get("kind") == "running")
    assert running["status"]["endpoints"] == [
        *(
            {"host": host, "port": port, "protocol": "tcp", "url": f"https://{host}"}
            for port, host in hosts.items()
        ),
        {"host": "", "port": 5353, "protocol": "udp"},
    ]
    # It waited for no route.
    assert events.index(running) < next(i for i, one in enumerate(events) if is_of(one, 8080))


def check_states(events: list[routed.Event], port: int = 8080) -> None:
    """Check that a host began as pending, and worked up to and beyond the end of its session.

    NB: on a busy cluster no list of states is exact. That the API fails once when a session is
    published, or its host for ten seconds, is told by design, and mended. What else makes a host
    `unprogrammed` (a loss, a rejection, no controller, somebody else's answer) must not have been.
    """
    told = [one for one in events if is_of(one, port)]
    assert (told[0]["state"], told[-1]["state"]) == ("pending", "programmed"), events
    for one in told:
        if one["state"] == "unprogrammed":
            assert one["reason"].startswith(PASSING), events
            assert "another place" not in one["reason"], events


def is_of(event: routed.Event, port: int) -> bool:
    # A gap has no type.
    return event.get("type") == "route" and bool(event["port"] == port)


@pytest.mark.parametrize("layer", list(Layer)[1:])
async def test_another_set_of_ports_takes_the_place_of_the_published_one_and_back(
    serve: Serving, entrance: Entrance, layer: Layer
) -> None:
    variables = {**entrance.runner(), **WAYS[f"{layer}-http"]}
    async with serve(**variables) as client:
        session = await routed.create(client, 8080, 9090)
        await routed.works(client, session, 9090)
        host = entrance.host(session, 9090)
        await entrance.until(host, 200)
    # Visitors do not notice that the runner is away.
    assert (await entrance.get(host)).text == f"9090 {host} /"
    before = await service(entrance, session)
    await publish(entrance, layer, before, RoutedPort(9090), RoutedPort(8080, is_tcp=False))
    after = await service(entrance, session)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["clusterIP"] == before["spec"]["clusterIP"]
    assert ports_of(after) == [("p9090", 9090, "TCP"), ("p8080", 8080, "UDP")]
    await entrance.until(entrance.host(session, 8080), 404)
    assert (await entrance.get(host)).status_code == 200
    # The next runner publishes what the session declares.
    async with serve(**variables) as client:
        await routed.works(client, session)
        again = await service(entrance, session)
        assert again["metadata"]["uid"] == before["metadata"]["uid"]
        assert ports_of(again) == ports_of(before)
        await entrance.until(entrance.host(session, 8080), 200)
        await routed.works(client, session, 9090)
        await routed.stop(client, session)
        events = [event for _, event in await client.events(session)]
        for port in (8080, 9090):
            check_states(events, port)
        await entrance.until_nothing_is_left_of(session)


async def publish(
    entrance: Entrance, layer: Layer, service: dict[str, Any], *ports: RoutedPort
) -> None:
    """Publish the session of a Service with these ports, with the rights of a runner."""
    kubeconfig = entrance.cluster.environment["KUBECONFIG"]
    settings = ClusterSettings(ClusterKind.KUBECONFIG, kubeconfig, entrance.namespace, MANAGED_BY)
    target: IngressTarget | GatewayTarget = IngressTarget(CLASS, "", entrance.base_domain)
    if layer is Layer.GATEWAY:
        target = GatewayTarget(PLAIN, entrance.namespace, "", "v1", entrance.base_domain)
    metadata = service["metadata"]
    routes = SessionRoutes(
        session_id=metadata["labels"][SESSION_ID_LABEL],
        labels=metadata["labels"],
        owner=metadata["ownerReferences"][0],
        ports=ports,
    )
    async with open_cluster(settings) as cluster:
        await Publisher(cluster, target, None).publish(routes)


async def service(entrance: Entrance, session: str) -> dict[str, Any]:
    async with entrance.cluster.opened() as cluster:
        return await objects.get(cluster, "services", f"telo-run-{session}")


def ports_of(service: dict[str, Any]) -> list[tuple[str, int, str]]:
    return [(one["name"], one["port"], one["protocol"]) for one in service["spec"]["ports"]]


@pytest.mark.parametrize("layer", list(Layer)[1:])
async def test_a_service_that_somebody_deletes_alone_is_made_again(
    serve: Serving, entrance: Entrance, layer: Layer
) -> None:
    async with serve(**entrance.runner(), **WAYS[f"{layer}-http"]) as client:
        session = await serving(client, entrance)
        before = await service(entrance, session)
        delete(entrance, "service", before["metadata"]["name"])
        await routed.works(client, session, times=2)
        after = await service(entrance, session)
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert after["spec"]["selector"] == before["spec"]["selector"]
        assert ports_of(after) == ports_of(before)
        await entrance.until(entrance.host(session), 200)
        await routed.stop(client, session)
        await entrance.until_nothing_is_left_of(session)


async def test_two_releases_in_one_namespace_leave_each_other_alone(
    serve: Serving, entrance: Entrance, prepared: ClusterUnderTest, tmp_path: Path
) -> None:
    variables = {**entrance.runner(), **WAYS["gateway-http"]}
    async with serve(**variables) as client:
        session = await serving(client, entrance)
        # At its start a runner takes away what is its own and nobody's.
        async with serve(**variables, **apart(tmp_path, "second")) as other:
            others = await serving(other, entrance)
            for kind, own in (("httproutes", 1), ("services", 2)):
                for runner in (MANAGED_BY, "second"):
                    assert len(await prepared.objects(kind, runner)) == own, (kind, runner)
            await routed.stop(other, others)
            await entrance.until_nothing_is_left_of(others)
        await until_no_addresses(prepared, "second")
        assert (await entrance.get(entrance.host(session))).status_code == 200
        await routed.stop(client, session)
        check_states([event for _, event in await client.events(session)])


async def serving(client: Served, entrance: Entrance) -> str:
    """Have a session that answers under its public host."""
    session = await routed.create(client, 8080)
    await routed.works(client, session)
    await entrance.until(entrance.host(session), 200)
    return session


async def until_no_addresses(cluster: ClusterUnderTest, runner: str) -> None:
    """Wait until the way to a runner that has ended is gone."""
    async with asyncio.timeout(routed.SETTLED_SECONDS):
        while left := await cluster.objects("endpointslices", runner):
            assert left
            await asyncio.sleep(0.1)
