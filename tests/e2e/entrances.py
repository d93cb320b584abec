"""The ingress controller of a real cluster: Traefik, what leads a namespace to it, and visitors.

Its classes belong to whoever started it; what is made here is in the tests' own namespace and goes
with that.
"""

import asyncio
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from websockets.asyncio.client import connect

from routing.routes import WELL_KNOWN
from telorunner.kube import objects
from tests.clusters import ClusterUnderTest
from tests.engine.gateways import Certificates, tls_secret
from tests.realcluster import kubectl
from tests.routed import SETTLED_SECONDS, until_answered

Object = dict[str, Any]

CLASS = "traefik"
GATEWAY_API = "gateway.networking.k8s.io/v1"
SECRET = "certificate"
# The Gateways: one with a listener for HTTP, one that has one for HTTPS beside it.
PLAIN, BOTH = "plain", "both"
VARIABLES = ("TELORUNNER_TEST_INGRESS", "TELORUNNER_TEST_INGRESS_TLS", "TELORUNNER_TEST_SELF_HOST")
KINDS = ("pods", "services", "endpointslices", "ingresses", "httproutes")


@dataclass(frozen=True)
class Entrance:
    """Where visitors come in, and what a runner is told of it.

    `http` and `https` are each `host:port`.
    """

    cluster: ClusterUnderTest
    http: str
    https: str
    self_host: str
    certificates: Certificates
    trusted: ssl.SSLContext

    @property
    def namespace(self) -> str:
        return self.cluster.namespace

    @property
    def base_domain(self) -> str:
        # Of its own: all namespaces share one Traefik, which may still have what is going away.
        return f"{self.namespace}.test"

    def runner(self, *, has_tls: bool = False) -> dict[str, str]:
        """Return the variables of a runner that the data plane reaches, and that asks hosts."""
        return {
            "RUNNER_HOST": self.self_host,
            "RUNNER_SELF_URL": f"http://{self.self_host}",
            "SESSION_ROUTING_BASE_DOMAIN": self.base_domain,
            "SESSION_ROUTE_PROBE_ADDRESS": self.https if has_tls else f"http://{self.http}",
            "SSL_CERT_FILE": str(self.certificates.file),
        }

    def host(self, session: str, port: int = 8080) -> str:
        return f"{port}-{session}.{self.base_domain}"

    async def get(self, host: str, path: str = "/", *, has_tls: bool = False) -> httpx.Response:
        """Ask a public host, as a visitor whose DNS knows it would."""
        url = f"https://{self.https}{path}" if has_tls else f"http://{self.http}{path}"
        async with httpx.AsyncClient(verify=self.trusted, trust_env=False, timeout=20) as client:
            return await client.get(url, headers={"host": host}, extensions={"sni_hostname": host})

    async def until(self, host: str, status: int, *, has_tls: bool = False) -> str:
        """Ask until there is an answer of this status; return its text."""
        return await until_answered(lambda: self.get(host, has_tls=has_tls), status)

    async def echo(self, host: str, text: str, *, has_tls: bool = False) -> str:
        """Send a text over a WebSocket and return what comes back."""
        address, port = (self.https if has_tls else self.http).split(":")
        url = f"{'wss' if has_tls else 'ws'}://{host}/"
        more: dict[str, Any] = {"ssl": self.trusted} if has_tls else {}
        opening = connect(url, host=address, port=int(port), proxy=None, compression=None, **more)
        async with opening as socket:
            await socket.send(text)
            return str(await socket.recv())

    async def of_session(self, session: str) -> list[Object]:
        """Return what the cluster has of a session, its EndpointSlices too."""
        async with self.cluster.opened() as api:
            found = [one for kind in KINDS for one in await objects.list_objects(api, kind)]
        return [one for one in found if session in one["metadata"]["name"]]

    async def until_nothing_is_left_of(self, session: str) -> None:
        async with asyncio.timeout(SETTLED_SECONDS):
            while left := await self.of_session(session):
                assert left
                await asyncio.sleep(0.1)

    async def reserved_path(self, session: str) -> str:
        """Return the path that the session's first host sends to the runner."""
        for one in await self.of_session(session):
            for path in _paths(one):
                if path.startswith(WELL_KNOWN):
                    return path
        raise AssertionError(f"no route of the session {session} leads to the runner")


def prepare(cluster: ClusterUnderTest, folder: Path) -> Entrance:
    """Put a certificate and two Gateways into the namespace; skip where no controller is named."""
    http, https, self_host = (os.environ.get(name, "") for name in VARIABLES)
    if not (http and https and self_host):
        pytest.skip(f"{', '.join(VARIABLES)} do not say where public hosts of the cluster are")
    certificates = Certificates.make(folder)
    trusted = certificates.client()
    entrance = Entrance(cluster, http, https, self_host, certificates, trusted)
    apply(entrance, tls_secret(SECRET, *certificates.pair(f"*.{entrance.base_domain}")))
    apply(entrance, gateway(entrance, PLAIN, "http"))
    apply(entrance, gateway(entrance, BOTH, "http", "https"))
    return entrance


def apply(entrance: Entrance, manifest: Object) -> None:
    """Create an object in the namespace, as an administrator."""
    kubectl("create", "-n", entrance.namespace, "-f", "-", manifest=manifest)


def patch(entrance: Entrance, kind: str, name: str, change: Object) -> None:
    """Change an object in the namespace, as an administrator."""
    text = orjson.dumps(change).decode()
    kubectl("patch", kind, name, "-n", entrance.namespace, "--type=merge", "-p", text)


def delete(entrance: Entrance, kind: str, name: str) -> None:
    kubectl("delete", kind, name, "-n", entrance.namespace)


def gateway(entrance: Entrance, name: str, *listeners: str, **allowed: Any) -> Object:
    """Return a Gateway with listeners `http` and `https`; `allowed` are the namespaces' fields."""
    return {
        "apiVersion": GATEWAY_API,
        "kind": "Gateway",
        "metadata": {"name": name},
        "spec": {
            "gatewayClassName": CLASS,
            "listeners": [_listener(entrance, one, allowed) for one in listeners],
        },
    }


def _listener(entrance: Entrance, name: str, allowed: Object) -> Object:
    listener: Object = {
        "name": name,
        "protocol": name.upper(),
        # Traefik listens nowhere else, and a listener names its port.
        "port": int((entrance.http if name == "http" else entrance.https).rpartition(":")[2]),
        "allowedRoutes": {"namespaces": allowed or {"from": "Same"}},
    }
    if name == "https":
        listener["tls"] = {"certificateRefs": [{"name": SECRET}]}
    return listener


def _paths(thing: Object) -> list[str]:
    """Return the paths of an Ingress or an HTTPRoute; of anything else none."""
    paths: list[str] = []
    for rule in thing.get("spec", {}).get("rules", ()):
        # An API server does not say of what kind the items of its lists are.
        if "http" in rule:
            paths += [path["path"] for path in rule["http"]["paths"]]
        else:
            paths += [match["path"]["value"] for match in rule["matches"]]
    return paths
