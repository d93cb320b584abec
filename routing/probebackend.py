"""Keeps the place that the reserved paths lead to: a Service without a selector, and its addresses.

A route's backend must stand in the route's own namespace, where the runner itself is not. Each
process that answers reserved paths has an EndpointSlice of its own there, which it renews, and
takes away when it stops; what a dead process has left is taken away by the others. `run()` lives
until cancelled.
"""

import asyncio
import hashlib
import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from routing.publisher import ensure_object
from telorunner import aio
from telorunner.aio import Backoff
from telorunner.errors import ClusterError, ClusterUnavailable, ObjectNotFound
from telorunner.kube.client import Cluster
from telorunner.kube.errors import describe
from telorunner.kube.objects import (
    MANAGED_BY_LABEL,
    create,
    delete_if_exists,
    get,
    list_objects,
    replace,
)
from telorunner.values.dns import MAX_LABEL_LENGTH, is_dns_label

logger = logging.getLogger(__name__)

Object = dict[str, Any]

SERVICE_PORT = 80
PORT_NAME = "http"
HEARTBEAT_ANNOTATION = "telo.run/heartbeat"
# Source: https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#management
_SERVICE_LABEL = "kubernetes.io/service-name"
_KEEPER_LABEL = "endpointslice.kubernetes.io/managed-by"
_KEEPER = "telorunner"

HEARTBEAT_SECONDS = 20.0
# Three heartbeats that did not come. Until then a part of all probes goes to a dead process.
STALE_SECONDS = 65.0
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
CLEANUP_SECONDS = 3.0

_SUFFIX = "-route-probe"
_DIGEST_CHARACTERS = 8


@dataclass(frozen=True)
class Address:
    """Where the data plane reaches this process."""

    host: str
    port: int


def service_name(managed_by: str) -> str:
    """Return the name of the Service of one runner, which is a DNS label beginning with a letter.

    A label value may be longer, and have other characters: then a digest keeps two apart.
    """
    name = f"{managed_by}{_SUFFIX}"
    if is_dns_label(name) and name[0].isalpha():
        return name
    digest = hashlib.sha256(managed_by.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    words = re.sub(r"[^a-z0-9]+", "-", managed_by.lower()).strip("-")
    room = MAX_LABEL_LENGTH - len(f"telo--{digest}{_SUFFIX}")
    return f"telo-{words[:room].strip('-')}-{digest}{_SUFFIX}"


class ProbeEndpoints:
    """The Service and this process's part of it.

    Attributes:
        is_usable: Whether reserved paths lead to a runner: None as long as it is not known. False
            means that a failing probe says nothing about a route.
    """

    def __init__(self, cluster: Cluster, *, listen_port: int | None, self_url: str = "") -> None:
        """Prepare; a process without a `listen_port` answers nothing and only looks after others.

        A `self_url` whose host is an IP address says where the process is reached.
        """
        self._cluster = cluster
        self._listen_port = listen_port
        self._self_url = self_url
        self._service = service_name(cluster.managed_by)
        # By name: the version of another process's slice, and when it was first seen.
        self._others: dict[str, tuple[str, float]] = {}
        self._own = ""
        self._warned = ""
        self.is_usable: bool | None = None

    def listening_at(self, port: int) -> None:
        """Take the port that this process answers at, where it was not known from the start."""
        self._listen_port = port

    async def run(self) -> None:
        """Keep it current until cancelled, and then take this process's part away."""
        backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        try:
            while True:
                try:
                    await self._beat()
                except (ClusterError, OSError) as exc:
                    self._take_failure(exc)
                    await backoff.wait(getattr(exc, "retry_after_seconds", 0.0))
                else:
                    self._warned = ""
                    backoff.reset()
                    await asyncio.sleep(HEARTBEAT_SECONDS)
        finally:
            await self._leave()

    async def _beat(self) -> None:
        await self._keep_service()
        selector = f"{_SERVICE_LABEL}={self._service}"
        found = await list_objects(self._cluster, "endpointslices", selector=selector)
        slices = {thing["metadata"]["name"]: thing for thing in found}
        if self._listen_port is not None:
            address = await self._locate(self._listen_port)
            await self._renew(address, slices)
        slices.pop(self._own, None)
        await self._reap(slices)
        self.is_usable = bool(self._own or self._others)

    async def _keep_service(self) -> None:
        try:
            await get(self._cluster, "services", self._service)
        except ObjectNotFound:
            port = {"name": PORT_NAME, "port": SERVICE_PORT, "protocol": "TCP"}
            manifest = {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": self._service, "labels": self._labels()},
                "spec": {"type": "ClusterIP", "ports": [port]},
            }
            await ensure_object(self._cluster, "services", manifest)

    async def _renew(self, address: Address, slices: dict[str, Object]) -> None:
        """Put this process's slice in place; one of this very address is its predecessor's."""
        manifest = self._build_slice(address)
        name = manifest["metadata"]["name"]
        if self._own and self._own != name:
            await delete_if_exists(self._cluster, "endpointslices", self._own)
        known = slices.get(name)
        if known is None:
            await create(self._cluster, "endpointslices", manifest)
        else:
            manifest["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"]
            await replace(self._cluster, "endpointslices", manifest)
        self._own = name

    def _build_slice(self, address: Address) -> Object:
        digest = hashlib.sha256(f"{address.host} {address.port}".encode()).hexdigest()
        labels = {_SERVICE_LABEL: self._service, _KEEPER_LABEL: _KEEPER}
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{self._service}-{digest[:_DIGEST_CHARACTERS]}",
                "labels": {**self._labels(), **labels},
                "annotations": {HEARTBEAT_ANNOTATION: datetime.now(UTC).isoformat()},
            },
            "addressType": f"IPv{ip_address(address.host).version}",
            "endpoints": [{"addresses": [address.host], "conditions": {"ready": True}}],
            "ports": [{"name": PORT_NAME, "port": address.port, "protocol": "TCP"}],
        }

    async def _reap(self, others: dict[str, Object]) -> None:
        """Delete the slices of processes whose heart has stopped.

        By how long a slice stays as it is here, not by the time that it names: clocks differ.
        """
        now = asyncio.get_running_loop().time()
        seen = {}
        for name, thing in others.items():
            version = thing["metadata"]["resourceVersion"]
            known, since = self._others.get(name, ("", now))
            seen[name] = (version, since if known == version else now)
        self._others = seen
        for name, (_, since) in list(seen.items()):
            labels = others[name]["metadata"].get("labels") or {}
            if now - since >= STALE_SECONDS and labels.get(_KEEPER_LABEL) == _KEEPER:
                logger.info("A runner has not been heard of for a while: %s goes.", name)
                uid = others[name]["metadata"].get("uid")
                await delete_if_exists(self._cluster, "endpointslices", name, uid=uid)
                del self._others[name]

    async def _leave(self) -> None:
        if not self._own:
            return
        deletion = delete_if_exists(self._cluster, "endpointslices", self._own)
        try:
            await aio.finish(deletion, name="route-probe-leave", timeout_seconds=CLEANUP_SECONDS)
        except (ClusterError, TimeoutError) as exc:
            # Others will see that it is not renewed.
            logger.warning("%s could not be deleted (%s).", self._own, type(exc).__name__)

    def _take_failure(self, failure: ClusterError | OSError) -> None:
        if isinstance(failure, ClusterUnavailable):
            # What was there is there still.
            self.is_usable = bool(self.is_usable)
            return
        self.is_usable = False
        if isinstance(failure, ClusterError):
            reason = describe(failure, "could not keep the Service that probes lead to")
        else:
            reason = "the runner's own address cannot be found"
        if reason != self._warned:
            self._warned = reason
            logger.warning("Public hosts are not probed, only their status counts: %s", reason)

    async def _locate(self, port: int) -> Address:
        """Return where the data plane reaches this process.

        Raises:
            OSError: There is no way to the API server, so that no address of ours shows.
        """
        with suppress(ValueError):
            own = urlsplit(self._self_url)
            return Address(str(ip_address(own.hostname or "")), own.port or port)
        # Connecting a datagram socket sends nothing, but it chooses the address that leads there.
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=self._cluster.address
        )
        try:
            return Address(str(transport.get_extra_info("sockname")[0]), port)
        finally:
            transport.close()

    def _labels(self) -> dict[str, str]:
        return {MANAGED_BY_LABEL: self._cluster.managed_by}
