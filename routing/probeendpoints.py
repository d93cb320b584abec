"""Keeps the place that the reserved paths lead to: a Service without a selector, and its addresses.

A route's backend must stand in the route's own namespace, where the runner itself is not. Each
process that answers reserved paths has an EndpointSlice of its own there, which it renews, and
takes away when it stops; what a dead process has left is taken away by the others. Two processes
at one address share one, which the first that stops leaves alone. `run()` lives until cancelled.
"""

import asyncio
import hashlib
import logging
import math
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from routing.probeservice import PORT_NAME, ensure_service, service_name
from telorunner import aio
from telorunner.aio import Backoff
from telorunner.errors import AlreadyExists, ClusterError, ClusterUnavailable, Conflict
from telorunner.kube.client import Cluster
from telorunner.kube.errors import describe
from telorunner.kube.objects import (
    MANAGED_BY_LABEL,
    create,
    delete_if_exists,
    list_objects,
    replace,
)

logger = logging.getLogger(__name__)

Object = dict[str, Any]
# Returns the port that this process answers HTTP at, as soon as it does.
GetListenPort = Callable[[], Awaitable[int]]

HEARTBEAT_ANNOTATION = "telo.run/heartbeat"
# Which process has renewed it last.
PROCESS_ANNOTATION = "telo.run/process"
# Source: https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#management
_SERVICE_LABEL = "kubernetes.io/service-name"
_KEEPER_LABEL = "endpointslice.kubernetes.io/managed-by"
_KEEPER = "telorunner"

HEARTBEAT_SECONDS = 20.0
# Where probes find that the way ends: half of the time after which they are believed.
SHORTEST_HEARTBEAT_SECONDS = 5.0
# Three heartbeats that did not come. Until then a part of all probes goes to a dead process.
STALE_SECONDS = 65.0
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
CLEANUP_SECONDS = 3.0

_DIGEST_CHARACTERS = 8


@dataclass(frozen=True)
class Address:
    """Where the data plane reaches this process."""

    host: str
    port: int


class ProbeEndpoints:
    """The Service and this process's part of it.

    Attributes:
        is_usable: Whether reserved paths lead to a runner: None as long as it is not known. False
            means that a failing probe says nothing about a route.
    """

    def __init__(
        self, cluster: Cluster, *, listen_port: GetListenPort | None, self_url: str = ""
    ) -> None:
        """Prepare; a process without a `listen_port` answers nothing and only looks after others.

        A `self_url` whose host is an IP address says where the process is reached.
        """
        self._cluster = cluster
        self._listen_port = listen_port
        self._self_url = self_url
        self._service = service_name(cluster.managed_by)
        # By name: the version of another process's slice, and when it was first seen.
        self._others: dict[str, tuple[str, float]] = {}
        self._seen_at = -math.inf
        self._own = ""
        self._process = secrets.token_hex(8)
        # When this process has renewed its slice, and when another one was seen to have done so.
        self._renewed_at = -math.inf
        self._shared_at = -math.inf
        self._is_doubted = asyncio.Event()
        self._warned = ""
        self.is_usable: bool | None = None

    def doubt(self) -> None:
        """Look soon whether everything is in place: a probe has failed as if it were not."""
        self._is_doubted.set()

    async def run(self) -> None:
        """Keep it current until cancelled, and then take this process's part away.

        Nothing is done before the process listens.
        """
        port = None if self._listen_port is None else await self._listen_port()
        backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        try:
            while True:
                try:
                    await self._beat(port)
                except (ClusterError, OSError) as exc:
                    self._take_failure(exc)
                    await backoff.wait(getattr(exc, "retry_after_seconds", 0.0))
                else:
                    self._warned = ""
                    backoff.reset()
                    await self._rest()
        finally:
            await self._leave()

    async def _rest(self) -> None:
        """Wait until it is time for a heartbeat, or for a look because of a doubt."""
        self._is_doubted.clear()
        await asyncio.sleep(SHORTEST_HEARTBEAT_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT_SECONDS - SHORTEST_HEARTBEAT_SECONDS):
                await self._is_doubted.wait()

    async def _beat(self, port: int | None) -> None:
        await ensure_service(self._cluster)
        slices = await self._list()
        if port is not None:
            await self._renew(await self._locate(port), slices)
        slices.pop(self._own, None)
        await self._reap(slices)
        self.is_usable = bool(self._own or self._others)

    async def _list(self) -> dict[str, Object]:
        """Return all that stand behind the Service, by name."""
        selector = f"{_SERVICE_LABEL}={self._service}"
        found = await list_objects(self._cluster, "endpointslices", selector=selector)
        return {thing["metadata"]["name"]: thing for thing in found}

    async def _renew(self, address: Address, slices: dict[str, Object]) -> None:
        """Put this process's slice in place; one of this very address is its predecessor's."""
        manifest = self._build_slice(address)
        name = manifest["metadata"]["name"]
        was_own = self._own == name
        if self._own and not was_own:
            await self._take_away(self._own)
        # NB: before it is there. Whoever stops while it is being made takes it away too.
        self._own = name
        known, now = slices.get(name), asyncio.get_running_loop().time()
        if known is None:
            await create(self._cluster, "endpointslices", manifest)
        elif _process(known) == self._process and now < self._renewed_at + HEARTBEAT_SECONDS:
            # It was only doubted, and each change is work for everything that routes.
            return
        else:
            if was_own and _process(known) != self._process:
                self._shared_at = now
            manifest["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"]
            await replace(self._cluster, "endpointslices", manifest)
        self._renewed_at = now

    def _build_slice(self, address: Address) -> Object:
        digest = hashlib.sha256(f"{address.host} {address.port}".encode()).hexdigest()
        labels = {_SERVICE_LABEL: self._service, _KEEPER_LABEL: _KEEPER}
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{self._service}-{digest[:_DIGEST_CHARACTERS]}",
                "labels": {**self._labels(), **labels},
                "annotations": {
                    HEARTBEAT_ANNOTATION: datetime.now(UTC).isoformat(),
                    PROCESS_ANNOTATION: self._process,
                },
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
        if now - self._seen_at > 2 * HEARTBEAT_SECONDS:
            # Who could not see them for so long does not know that they were silent: where the
            # cluster was away, all were.
            self._others.clear()
        self._seen_at = now
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
        leaving = self._take_away(self._own)
        try:
            await aio.finish(leaving, name="route-probe-leave", timeout_seconds=CLEANUP_SECONDS)
        except (ClusterError, TimeoutError) as exc:
            # Others will see that it is not renewed.
            logger.warning("%s could not be deleted (%s).", self._own, type(exc).__name__)

    async def _take_away(self, name: str) -> None:
        """Delete a slice of this process, unless it is another one's too."""
        if asyncio.get_running_loop().time() - self._shared_at < 2 * HEARTBEAT_SECONDS:
            return
        found = (await self._list()).get(name)
        if found is not None and _process(found) == self._process:
            uid = found["metadata"].get("uid")
            await delete_if_exists(self._cluster, "endpointslices", name, uid=uid)

    def _take_failure(self, failure: ClusterError | OSError) -> None:
        is_conflict = isinstance(failure, Conflict) and not isinstance(failure, AlreadyExists)
        if is_conflict or isinstance(failure, ClusterUnavailable):
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


def _process(known: Object) -> str:
    """Return which process has renewed a slice last."""
    return str((known["metadata"].get("annotations") or {}).get(PROCESS_ANNOTATION, ""))
