"""The ingress of `manage.py runcluster`, in front of pods that are real processes."""

import asyncio
import base64
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import yaml
from websockets.asyncio.client import connect

from tests.engine.gateways import Certificates, tls_secret
from tests.serving import ROOT, Process

pytestmark = pytest.mark.cluster

NAMESPACE = "default"
GATEWAYS = "gateway.networking.k8s.io"
WAIT_SECONDS = 30.0
INGRESS = re.compile(r"ingress is at http://127\.0\.0\.1:(\d+) and https://127\.0\.0\.1:(\d+)\.")

Object = dict[str, Any]

# Says its name to whoever asks, and each message back to whoever opens a WebSocket.
PROGRAM = """
import os, asyncio
from http import HTTPStatus
from websockets.asyncio.server import serve

def greet(socket, request):
    if "upgrade" not in request.headers.get("connection", "").lower():
        return socket.respond(HTTPStatus.OK, os.environ["NAME"] + " " + request.headers["host"])

async def echo(socket):
    async for message in socket:
        await socket.send(message)
    await asyncio.sleep(0)

async def main():
    async with serve(echo, os.environ["POD_IP"], 8080, process_request=greet) as server:
        print("listening", flush=True)
        await server.serve_forever()

asyncio.run(main())
"""


class Api:
    """A client of the cluster's API, as its kubeconfig says."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._context = ssl.create_default_context(cadata=authority)
        self._url = cluster["server"]
        self._headers = {
            "Authorization": f"Bearer {user['token']}",
            "Content-Type": "application/json",
        }

    async def call(self, method: str, path: str, body: Object | None = None) -> Object:
        async with (
            aiohttp.ClientSession(headers=self._headers) as session,
            session.request(
                method,
                self._url + path,
                data=orjson.dumps(body) if body else None,
                ssl=self._context,
            ) as response,
        ):
            text = await response.text()
            assert response.ok, f"{method} {path}: {response.status} {text[:500]}"
            return dict(orjson.loads(text))

    async def create(self, resource: str, manifest: Object, group: str = "") -> Object:
        return await self.call("POST", _path(resource, group), manifest)

    async def until(self, resource: str, name: str, condition: Any, group: str = "") -> Object:
        """Ask for an object until it is as a condition wants it."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                found = await self.call("GET", f"{_path(resource, group)}/{name}")
                if condition(found):
                    return found
                await asyncio.sleep(0.05)


def _path(resource: str, group: str) -> str:
    start = f"/apis/{group}/v1" if group else "/api/v1"
    return f"{start}/namespaces/{NAMESPACE}/{resource}"


class Running:
    """A cluster with an ingress."""

    def __init__(self, process: Process, folder: Path) -> None:
        found = process.wait_for(INGRESS)
        self.port, self.tls_port = int(found[1]), int(found[2])
        self.api = Api(folder / "localcluster" / "kubeconfig")

    async def ask(self, host: str, context: ssl.SSLContext | None = None) -> tuple[int, str]:
        """Ask for a host's first page; with a context over TLS."""
        port, scheme = (self.tls_port, "https") if context else (self.port, "http")
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"{scheme}://127.0.0.1:{port}/",
                headers={"Host": host},
                ssl=context or True,
                server_hostname=host if context else None,
            ) as response,
        ):
            return response.status, await response.text()

    async def until_answered(self, host: str) -> str:
        """Ask until an application answers: that its pod is ready does not say that it listens."""
        async with asyncio.timeout(WAIT_SECONDS):
            while (answer := await self.ask(host))[0] != 200:
                assert answer[0] in (502, 503), answer
                await asyncio.sleep(0.05)
        return answer[1]

    async def run_app(self, name: str) -> None:
        """Run a pod that answers with its name, and a Service for it."""
        environment = [
            {"name": "NAME", "value": name},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ]
        container = {
            "name": "app",
            "image": "busybox:1",
            "command": [sys.executable, "-c", PROGRAM],
            "env": environment,
        }
        metadata = {"name": name, "labels": {"app": name}}
        spec = {"containers": [container], "restartPolicy": "Never"}
        await self.api.create("pods", {"metadata": metadata, "spec": spec})
        port = {"name": "p8080", "port": 8080, "targetPort": 8080}
        service = {
            "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [port]},
        }
        await self.api.create("services", service)


def make_ingress(name: str, **spec: Any) -> Object:
    backend = {"service": {"name": name, "port": {"name": "p8080"}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    rules = [{"host": f"{name}.apps.localhost", "http": {"paths": paths}}]
    # No class: the default one is the cluster's own.
    return {"metadata": {"name": name}, "spec": {"rules": rules, **spec}}


@contextmanager
def running(folder: Path, **variables: str) -> Iterator[Running]:
    environment: Mapping[str, str] = {"RUNNER_DATA_DIR": str(folder), **variables}
    process = Process("runcluster", environment=environment)
    try:
        yield Running(process, folder)
    finally:
        assert process.stop() == 0, "".join(process.output)


@pytest.fixture(scope="module", name="cluster")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("cluster")
    with running(folder, RUNNER_LOCAL_GATEWAY_API="true") as cluster:
        yield cluster


async def test_two_applications_on_the_same_port_have_a_host_each(cluster: Running) -> None:
    for name in ("one", "two"):
        await cluster.run_app(name)
        await cluster.api.create("ingresses", make_ingress(name), "networking.k8s.io")
    for name in ("one", "two"):
        host = f"{name}.apps.localhost"
        assert await cluster.until_answered(host) == f"{name} {host}"
        ingress = await cluster.api.until(
            "ingresses",
            name,
            lambda found: found["status"]["loadBalancer"].get("ingress"),
            "networking.k8s.io",
        )
        assert ingress["status"]["loadBalancer"]["ingress"] == [{"ip": "127.0.0.1"}]
    assert (await cluster.ask("three.apps.localhost"))[0] == 404


@asynccontextmanager
async def application(cluster: Running, name: str, **spec: Any) -> AsyncIterator[str]:
    """Have an application behind an Ingress; gives its host."""
    await cluster.run_app(name)
    await cluster.api.create("ingresses", make_ingress(name, **spec), "networking.k8s.io")
    host = f"{name}.apps.localhost"
    await cluster.until_answered(host)
    yield host


async def test_a_websocket_reaches_its_pod(cluster: Running) -> None:
    async with (
        application(cluster, "chat") as host,
        connect(f"ws://{host}/", host="127.0.0.1", port=cluster.port, proxy=None) as client,
    ):
        await client.send("hello")
        async with asyncio.timeout(WAIT_SECONDS):
            assert await client.recv() == "hello"


async def test_a_route_that_is_deleted_answers_404_at_once(cluster: Running) -> None:
    async with application(cluster, "brief") as host:
        await cluster.api.call("DELETE", _path("ingresses", "networking.k8s.io") + "/brief")
        assert (await cluster.ask(host))[0] == 404


async def test_a_pod_that_has_gone_leaves_a_route_without_anything_behind_it(
    cluster: Running,
) -> None:
    async with application(cluster, "mortal") as host:
        await cluster.api.call("DELETE", f"{_path('pods', '')}/mortal", {"gracePeriodSeconds": 0})
        status, text = await cluster.ask(host)
        assert (status, text) == (503, "Nothing is ready behind this route.\n")


async def test_tls_by_a_secret_that_changes(cluster: Running, tmp_path: Path) -> None:
    certificates = [Certificates.make(tmp_path / name) for name in ("a", "b")]
    tls = [{"hosts": ["safe.apps.localhost"], "secretName": "safe"}]
    async with application(cluster, "safe", tls=tls) as host:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await cluster.ask(host, certificates[0].client())
        for number, one in enumerate(certificates):
            manifest = tls_secret("safe", *one.pair(host))
            path = _path("secrets", "") + ("/safe" if number else "")
            await cluster.api.call("PUT" if number else "POST", path, manifest)
            assert (await cluster.ask(host, one.client()))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await cluster.ask(host, certificates[0].client())


async def test_a_route_of_the_gateway_api_is_programmed(cluster: Running) -> None:
    listener = {"name": "http", "port": 80, "protocol": "HTTP", "hostname": "*.apps.localhost"}
    gateway = {
        "apiVersion": f"{GATEWAYS}/v1",
        "kind": "Gateway",
        "metadata": {"name": "gw"},
        "spec": {"gatewayClassName": "telorunner-local", "listeners": [listener]},
    }
    await cluster.api.create("gateways", gateway, GATEWAYS)
    await cluster.run_app("routed")
    route = {
        "apiVersion": f"{GATEWAYS}/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "routed"},
        "spec": {
            "parentRefs": [{"name": "gw"}],
            "hostnames": ["routed.apps.localhost"],
            "rules": [{"backendRefs": [{"name": "routed", "port": 8080}]}],
        },
    }
    await cluster.api.create("httproutes", route, GATEWAYS)

    def is_programmed(found: Object) -> bool:
        parents = (found.get("status") or {}).get("parents") or [{"conditions": []}]
        conditions = {one["type"]: one["status"] for one in parents[0]["conditions"]}
        return conditions == {"Accepted": "True", "ResolvedRefs": "True"}

    await cluster.api.until("httproutes", "routed", is_programmed, GATEWAYS)
    answer = await cluster.until_answered("routed.apps.localhost")
    assert answer == "routed routed.apps.localhost"
    await cluster.api.call("DELETE", f"{_path('httproutes', GATEWAYS)}/routed")
    assert (await cluster.ask("routed.apps.localhost"))[0] == 404


async def test_after_a_restart_the_ingress_is_where_it_was(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        ports = (first.port, first.tls_port)
        await first.run_app("one")
        await first.api.create("ingresses", make_ingress("one"), "networking.k8s.io")
        await first.until_answered("one.apps.localhost")
    with running(tmp_path) as second:
        assert (second.port, second.tls_port) == ports
        # Nothing is kept but the ports.
        assert (await second.ask("one.apps.localhost"))[0] == 404


def test_a_port_that_is_taken_is_said_to_be(tmp_path: Path) -> None:
    with running(tmp_path / "one") as cluster:
        second = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "runcluster"],
            env={
                "PATH": "/usr/bin:/bin",
                "RUNNER_DATA_DIR": str(tmp_path / "two"),
                "RUNNER_LOCAL_INGRESS_PORT": str(cluster.port),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert second.returncode == 2
    assert second.stderr.splitlines() == [
        "telorunner: RUNNER_LOCAL_INGRESS_PORT: must be a port that is free: Address already in"
        " use."
    ]


async def test_a_cluster_may_have_no_ingress(tmp_path: Path) -> None:
    environment = {"RUNNER_DATA_DIR": str(tmp_path), "RUNNER_LOCAL_INGRESS": "false"}
    process = Process("runcluster", environment=environment)
    try:
        process.wait_for(re.compile("KUBECONFIG="))
        api = Api(tmp_path / "localcluster" / "kubeconfig")
        found = await api.call("GET", "/apis/networking.k8s.io/v1/ingressclasses")
        assert found["items"] == []
    finally:
        assert process.stop() == 0
    assert not any("ingress" in line for line in process.output)
