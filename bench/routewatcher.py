"""A bare client: notes when routes come, when their controller says so, and when hosts answer.

What it reads off a status, and what it asks a host for, is what the product does, so that both wait
for the same. It obeys `bench.routes`.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bench.commands import obey
from routing.gateway import GatewayTarget
from routing.ingress import IngressTarget
from routing.status import Standing, verdict
from telorunner.conf import ClusterKind
from telorunner.errors import ClusterUnavailable
from telorunner.kube.client import Call, Cluster, ClusterSettings, open_cluster
from telorunner.kube.objects import GATEWAY_GROUP, list_with_version, managed_selector
from telorunner.kube.watch import watch

WAIT_SECONDS = 60.0
# How often a host is asked until it answers.
ASK_SECONDS = 0.02
GATEWAY = "public"


@dataclass
class _Host:
    """When a host's route was there, when its status said that it works, and when it answered."""

    created_at: float
    claimed_at: float = 0.0
    answered_at: float = 0.0


class Watcher:
    """What can be asked of the bare client; `url` is where hosts are asked, if they are."""

    def __init__(self, cluster: Cluster, resource: str, url: str) -> None:
        self._cluster = cluster
        self._resource = resource
        self._at = urlsplit(url)
        self._target: IngressTarget | GatewayTarget = IngressTarget("", "", "")
        if resource == "httproutes":
            self._target = GatewayTarget(GATEWAY, cluster.namespace, "", "v1", "")
        self._selector = managed_selector(cluster.managed_by)
        self._hosts: dict[str, _Host] = {}
        self._news = asyncio.Event()
        self.listed = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        _, version = await list_with_version(self._cluster, self._resource, selector=self._selector)
        self.listed.set()
        async with asyncio.TaskGroup() as asking:
            await self._watch(version, asking)

    async def _watch(self, version: str, asking: asyncio.TaskGroup) -> None:
        while True:
            watching = watch(
                self._cluster, self._resource, selector=self._selector, version=version
            )
            # A busy server may end a watch too late: then it is only begun again, as at each end.
            async with aclosing(watching) as events:
                with suppress(ClusterUnavailable):
                    async for event in events:
                        version = event.object["metadata"]["resourceVersion"]
                        if event.type in ("ADDED", "MODIFIED"):
                            self._note(event.object, asking)

    async def make_gateway(self, gateway_class: str, port: int) -> None:
        """Make the Gateway that HTTPRoutes go to."""
        version = f"{GATEWAY_GROUP}/v1"
        gateway = {
            "apiVersion": version,
            "kind": "Gateway",
            "metadata": {"name": GATEWAY},
            "spec": {
                "gatewayClassName": gateway_class,
                "listeners": [{"name": "http", "protocol": "HTTP", "port": port}],
            },
        }
        path = f"/apis/{version}/namespaces/{self._cluster.namespace}/gateways"
        await self._cluster.request(Call("POST", path, body=gateway))

    async def times(self, hosts: list[str]) -> list[tuple[float, float, float]]:
        """Return of each host when its route was there, was said to work, and had answered.

        Where hosts are not asked, the last is 0.
        """
        async with asyncio.timeout(WAIT_SECONDS):
            while not all(self._is_settled(host) for host in hosts):
                self._news.clear()
                await self._news.wait()
        found = [self._hosts[host] for host in hosts]
        return [(one.created_at, one.claimed_at, one.answered_at) for one in found]

    def _is_settled(self, host: str) -> bool:
        found = self._hosts.get(host)
        return bool(found and found.claimed_at and (found.answered_at or not self._at.hostname))

    def _note(self, thing: dict[str, Any], asking: asyncio.TaskGroup) -> None:
        now = time.monotonic()
        is_claimed = verdict(thing, self._target).state is Standing.PROGRAMMED
        for host, path in _hosts(thing):
            if host not in self._hosts:
                self._hosts[host] = _Host(now)
                if self._at.hostname:
                    asking.create_task(self._ask(host, path), name=f"ask {host}")
            if is_claimed and not self._hosts[host].claimed_at:
                self._hosts[host].claimed_at = now
                self._news.set()

    async def _ask(self, host: str, path: str) -> None:
        """Ask a host until it leads to the runner."""
        nonce = secrets.token_urlsafe(16)
        request = f"GET {path}/{nonce} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
        while True:
            reader, writer = await asyncio.open_connection(self._at.hostname, self._at.port)
            writer.write(request.encode())
            status = await reader.readline()
            writer.transport.abort()
            if b" 200 " in status:
                break
            await asyncio.sleep(ASK_SECONDS)
        self._hosts[host].answered_at = time.monotonic()
        self._news.set()


def _hosts(route: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the hosts of a route, and the first path of each: the reserved one, if it has one."""
    spec = route["spec"]
    if route["kind"] == "Ingress":
        for rule in spec["rules"]:
            yield rule["host"], rule["http"]["paths"][0]["path"]
    else:
        yield spec["hostnames"][0], spec["rules"][0]["matches"][0]["path"]["value"]


async def _run() -> None:
    settings = ClusterSettings(
        kind=ClusterKind.KUBECONFIG,
        kubeconfig=os.environ["BENCH_KUBECONFIG"],
        namespace=os.environ["BENCH_NAMESPACE"],
        managed_by=os.environ["BENCH_MANAGED_BY"],
    )
    async with open_cluster(settings) as cluster:
        watcher = Watcher(cluster, os.environ["BENCH_RESOURCE"], os.environ["BENCH_ASKED_URL"])
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watcher.run(), name="bare watch")
            await watcher.listed.wait()
            await obey(watcher)
            watching.cancel()


if __name__ == "__main__":
    asyncio.run(_run())
