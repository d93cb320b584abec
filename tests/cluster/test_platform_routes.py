"""Public hosts from end to end on the local cluster: what answers is the application itself."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from telorunner.kube import objects
from telorunner.kube.client import Call
from tests import routed
from tests.clients import Client
from tests.clusters import MANAGED_BY, ClusterUnderTest, local_cluster
from tests.engine.gateways import Certificates, tls_secret
from tests.serving import Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

BASE_DOMAIN = "apps.test"
KINDS = ("services", "ingresses", "httproutes")
INGRESS_AT = re.compile(
    r"Its ingress is at http://127\.0\.0\.1:(\d+) and https://127\.0\.0\.1:(\d+)"
)
GATEWAY_API = "gateway.networking.k8s.io/v1"

WAITS = 'print("waits", flush=True)\ninput()\n'


@dataclass(frozen=True)
class Gate:
    """What leads to sessions from outside: a layer, its variables, and where it listens."""

    layer: str
    platform: Platform
    cluster: ClusterUnderTest
    http_port: int
    https_port: int
    trusted: ssl.SSLContext
    managed_by: str

    @property
    def routes(self) -> str:
        return "ingresses" if self.layer == "ingress" else "httproutes"

    async def get(self, host: str, path: str = "/", *, has_tls: bool = False) -> httpx.Response:
        """Ask a public host, as a visitor whose DNS knows it would."""
        scheme, port = ("https", self.https_port) if has_tls else ("http", self.http_port)
        async with httpx.AsyncClient(verify=self.trusted, trust_env=False, timeout=20) as client:
            return await client.get(
                f"{scheme}://127.0.0.1:{port}{path}",
                headers={"host": host},
                extensions={"sni_hostname": host},
            )

    async def until_answered(self, host: str) -> str:
        """Ask until an application answers; return what."""
        return await routed.until_answered(lambda: self.get(host), 200)

    async def names(self, kind: str) -> list[str]:
        found = await self.cluster.objects(kind, self.managed_by)
        return [name for name in found if name != f"{self.managed_by}-route-probe"]

    async def until_no_routes(self) -> None:
        """Wait until nothing publishes any session."""
        async with asyncio.timeout(routed.SETTLED_SECONDS):
            for kind in KINDS:
                while left := await self.names(kind):
                    assert left
                    await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", name="cluster")
def routing_cluster(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[ClusterUnderTest]:
    """A local cluster with its ingress, a certificate and a Gateway."""
    folder = tmp_path_factory.mktemp("routes")
    with local_cluster(folder, RUNNER_LOCAL_GATEWAY_API="true") as cluster:
        # In a thread of its own: this one has the loop of the tests.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, prepare(cluster, certificates)).result()
        yield cluster


async def prepare(cluster: ClusterUnderTest, certificates: Certificates) -> None:
    tls = {"certificateRefs": [{"name": "certificate"}]}
    listeners = [
        {"name": "http", "protocol": "HTTP", "port": 80},
        {"name": "https", "protocol": "HTTPS", "port": 443, "tls": tls},
    ]
    gateway = {
        "apiVersion": GATEWAY_API,
        "kind": "Gateway",
        "metadata": {"name": "public"},
        "spec": {"gatewayClassName": "telorunner-local", "listeners": listeners},
    }
    async with cluster.opened() as api:
        secret = tls_secret("certificate", *certificates.pair(f"*.{BASE_DOMAIN}"))
        await objects.create(api, "secrets", secret)
        path = f"/apis/{GATEWAY_API}/namespaces/{cluster.namespace}/gateways"
        await api.request(Call("POST", path, body=gateway))


@contextmanager
def publishing(
    layer: str, cluster: ClusterUnderTest, certificates: Certificates, database: str, **more: str
) -> Iterator[Gate]:
    """Have a platform, not started yet, that publishes by a layer and asks hosts by HTTPS."""
    assert cluster.process is not None
    listening = next(filter(None, map(INGRESS_AT.search, cluster.process.output)))
    http_port, https_port = (int(port) for port in listening.groups())
    of_layer = {
        # The default class of the cluster.
        "ingress": {"SESSION_INGRESS_TLS_SECRET": "certificate"},
        "gateway": {"SESSION_GATEWAY_NAME": "public"},
    }
    variables = {
        "SESSION_ROUTING_BASE_DOMAIN": BASE_DOMAIN,
        "SESSION_ROUTE_PROBE_ADDRESS": f"127.0.0.1:{https_port}",
        "SSL_CERT_FILE": str(certificates.file),
        "DATABASE_URL": f"sqlite:///{database}/db.sqlite3",
        **of_layer[layer],
        **more,
    }
    platform = Platform(cluster.data_dir, {**cluster.environment, **variables})
    managed_by = more.get("RUNNER_MANAGED_BY", MANAGED_BY)
    trusted = certificates.client()
    try:
        yield Gate(layer, platform, cluster, http_port, https_port, trusted, managed_by)
    finally:
        if platform.process is not None:
            assert platform.stop() == 0, "serve did not end cleanly"


@pytest.fixture(scope="module", params=["ingress", "gateway"])
def gate(
    request: pytest.FixtureRequest,
    cluster: ClusterUnderTest,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Gate]:
    """A platform that runs for all tests of a layer."""
    database = str(tmp_path_factory.mktemp("database"))
    with publishing(request.param, cluster, certificates, database) as gate:
        gate.platform.start()
        yield gate


@asynccontextmanager
async def opened(gate: Gate) -> AsyncIterator[Client]:
    client = Client(gate.platform.url, gate.cluster.image)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def client(gate: Gate) -> AsyncIterator[Client]:
    async with opened(gate) as client:
        yield client


async def test_each_port_is_reached_under_its_own_host(gate: Gate, client: Client) -> None:
    features = (await client.http.get("/v1/capabilities")).json()["features"]
    assert features["ports"] is True
    session = await routed.create(client, 8080, 9090)
    hosts = {port: f"{port}-{session}.{BASE_DOMAIN}" for port in (8080, 9090)}
    events = await routed.until(client, session, routed.is_route("programmed", 9090))
    running = next(one for one in events if one.get("status", {}).get("kind") == "running")
    assert running["status"]["endpoints"] == [
        {"host": host, "port": port, "protocol": "tcp", "url": f"https://{host}"}
        for port, host in hosts.items()
    ]
    # `running` waited for no route, and each was pending first.
    states = [(one["port"], one["state"]) for one in events if one["type"] == "route"]
    assert states[:2] == [(8080, "pending"), (9090, "pending")]
    assert events.index(running) < next(i for i, one in enumerate(events) if "host" in one)
    await routed.works(client, session)
    await routed.until(client, session, routed.is_reachable(8080))
    await routed.until(client, session, routed.is_reachable(9090))
    for port, host in hosts.items():
        await gate.until_answered(host)
        for has_tls in (False, True):
            answer = await gate.get(host, "/a/path?b=c", has_tls=has_tls)
            assert (answer.status_code, answer.text) == (200, f"{port} {host} /a/path?b=c")
    # The hosts of others lead nowhere.
    assert (await gate.get(f"8080-aaaaaaaaaaaa.{BASE_DOMAIN}")).status_code == 404
    await routed.stop(client, session)
    await gate.until_no_routes()
    assert (await gate.get(hosts[8080])).status_code == 404


async def test_a_websocket_is_carried_both_ways(gate: Gate, client: Client) -> None:
    session = await routed.create(client, 8080)
    host = f"8080-{session}.{BASE_DOMAIN}"
    await routed.works(client, session)
    await gate.until_answered(host)
    for scheme, port in (("ws", gate.http_port), ("wss", gate.https_port)):
        more: dict[str, Any] = {"ssl": gate.trusted} if scheme == "wss" else {}
        connecting = connect(
            f"{scheme}://{host}/", host="127.0.0.1", port=port, proxy=None, compression=None, **more
        )
        async with connecting as socket:
            await socket.send("both ways")
            assert await socket.recv() == "both ways"
    await routed.stop(client, session)


async def test_the_way_is_proved_while_nothing_listens(gate: Gate, client: Client) -> None:
    session = await routed.create(client, 8080, program=routed.IDLES)
    await routed.works(client, session)
    host = f"8080-{session}.{BASE_DOMAIN}"
    assert (await gate.get(host)).status_code in (502, 503)
    # What a visitor finds below the reserved path is the runner's, which tells him nothing.
    assert (await gate.get(host, "/.well-known/telo-route/x/y")).status_code in (502, 503)
    document = (await client.http.get(f"/v1/sessions/{session}")).json()
    assert document["status"]["endpoints"][0]["host"] == host
    await routed.stop(client, session)


async def test_a_route_that_leads_elsewhere_is_found_out_whatever_its_status_says(
    gate: Gate, client: Client
) -> None:
    session = await routed.create(client, 8080)
    await routed.works(client, session)
    name = f"telo-run-{session}" if gate.layer == "ingress" else f"telo-run-{session}-8080"
    async with gate.cluster.opened() as api:
        found = await objects.get(api, gate.routes, name)
        await objects.replace(api, gate.routes, without_reserved_path(found))
        assert (await routed.reason(client, session)).startswith("gateway: ")
        # And back.
        changed = await objects.get(api, gate.routes, name)
        changed["spec"] = found["spec"]
        await objects.replace(api, gate.routes, changed)
        await routed.works(client, session, times=2)
    await routed.stop(client, session)


@pytest.mark.parametrize("end", ["stop", "exit", "delete"])
async def test_the_end_of_a_session_is_no_news_of_its_routes(
    gate: Gate, client: Client, end: str
) -> None:
    session = await routed.create(client, 8080, program=WAITS)
    await routed.works(client, session)
    if end == "stop":
        assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
    elif end == "exit":
        async with client.terminal(session) as terminal:
            await terminal.until(b"waits")
            await terminal.socket.send(b"\r")
    else:
        async with gate.cluster.opened() as api:
            await objects.delete_if_exists(api, "pods", f"telo-run-{session}", grace_seconds=5)
    kind = {"stop": "stopped", "exit": "exited", "delete": "failed"}[end]
    assert (await client.status(session))["kind"] == kind
    events = [event for _, event in await client.events(session)]
    states = [one["state"] for one in events if one["type"] == "route"]
    assert states == ["pending", "programmed"]
    await gate.until_no_routes()


@pytest.mark.parametrize("is_whole", [True, False], ids=["all", "service"])
async def test_what_somebody_deletes_is_published_again(
    gate: Gate, client: Client, *, is_whole: bool
) -> None:
    session = await routed.create(client, 8080)
    host = f"8080-{session}.{BASE_DOMAIN}"
    await routed.works(client, session)
    kinds = (gate.routes, "services") if is_whole else ("services",)
    async with gate.cluster.opened() as api:
        selector = f"{objects.managed_selector(gate.managed_by)},telo.run/session-id={session}"
        found = [
            (kind, one["metadata"]["name"])
            for kind in kinds
            for one in await objects.list_objects(api, kind, selector=selector)
        ]
        assert [kind for kind, _ in found] == list(kinds)
        # All at once: what goes later, when healing has begun, is lost a second time.
        async with asyncio.TaskGroup() as group:
            for kind, name in found:
                group.create_task(objects.delete_if_exists(api, kind, name))
    events = await routed.until(client, session, routed.is_route("programmed", times=2))
    # Which of the two is seen to go first is chance, and each is told in its own words.
    states = [
        state for state, _ in groupby(one["state"] for one in events if one["type"] == "route")
    ]
    assert states == ["pending", "programmed", "unprogrammed", "pending", "programmed"]
    assert await gate.until_answered(host) == f"8080 {host} /"
    await routed.stop(client, session)


def without_reserved_path(found: dict[str, Any]) -> dict[str, Any]:
    """Return a route that sends everything to the application."""
    spec = found["spec"]
    if found["kind"] == "Ingress":
        http = spec["rules"][0]["http"]
        rules = [{**spec["rules"][0], "http": {"paths": http["paths"][1:]}}]
    else:
        rules = spec["rules"][1:]
    return {**found, "spec": {**spec, "rules": rules}}


@pytest.mark.parametrize("layer", ["ingress", "gateway"])
async def test_sessions_go_on_under_their_hosts_through_a_restart(
    cluster: ClusterUnderTest, certificates: Certificates, tmp_path: Path, layer: str
) -> None:
    with publishing(
        layer, cluster, certificates, str(tmp_path), RUNNER_MANAGED_BY="restarted"
    ) as gate:
        await asyncio.to_thread(gate.platform.start)
        async with opened(gate) as client:
            session = await routed.create(client, 8080)
            await routed.works(client, session)
        host = f"8080-{session}.{BASE_DOMAIN}"
        await gate.until_answered(host)
        before = await services(gate)
        assert await asyncio.to_thread(gate.platform.stop) == 0
        # Nobody is left to answer probes, and visitors do not notice.
        assert await cluster.objects("endpointslices", gate.managed_by) == []
        assert (await gate.get(host)).text == f"8080 {host} /"
        await asyncio.to_thread(gate.platform.start)
        async with opened(gate) as client:
            await routed.works(client, session)
            assert await services(gate) == before
            assert (await gate.get(host)).text == f"8080 {host} /"
            assert len(await cluster.objects("endpointslices", gate.managed_by)) == 1
            await routed.stop(client, session)
        await gate.until_no_routes()


async def services(gate: Gate) -> dict[str, tuple[str, str]]:
    """Return uid and address of each Service of the runner's."""
    async with gate.cluster.opened() as api:
        selector = objects.managed_selector(gate.managed_by)
        found = await objects.list_objects(api, "services", selector=selector)
    return {
        one["metadata"]["name"]: (one["metadata"]["uid"], one["spec"]["clusterIP"]) for one in found
    }
