"""A router at work on the fake API: what is told of a session, and what controllers report."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from routing.layer import Decision, RoutingSettings
from routing.router import Router, RouteState, open_router
from routing.routes import Layer, RoutedPort, SessionRoutes
from telorunner import aio
from telorunner.conf.routing import ProbeAddress
from telorunner.kube.client import Cluster
from tests.engine.gateways import BASE_DOMAIN, SECRET, SESSION_ID, listening_at, make_routes
from tests.fakes import FakeApi

PENDING, PROGRAMMED, UNPROGRAMMED = RouteState
INGRESS = Decision(Layer.INGRESS, "why", ingress_class="nginx")
GATEWAY = Decision(Layer.GATEWAY, "why", gateway_version="v1")
NAME = f"telo-run-{SESSION_ID}"
# The status of an Ingress that its controller has taken.
LIVE = {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}


@asynccontextmanager
async def routing(
    cluster: Cluster, decision: Decision = INGRESS, probed_port: int | None = None
) -> AsyncIterator[Router]:
    """Run a router; with a port, hosts are asked there by HTTP."""
    settings = RoutingSettings(
        base_domain=BASE_DOMAIN,
        is_probing=probed_port is not None,
        probe_address=None
        if probed_port is None
        else ProbeAddress("http", "127.0.0.1", probed_port),
        gateway_name="public",
        gateway_namespace="edge",
    )
    opened = open_router(
        cluster,
        settings,
        decision,
        secret=SECRET,
        listen_port=listening_at(8062),
        self_url="http://10.1.2.3",
    )
    async with opened as router:
        task = aio.start(router.run(), name="router")
        try:
            yield router
            assert not task.done()
        finally:
            await aio.stop(task)


@dataclass
class Told:
    """What was told, and when."""

    said: list[tuple[float, int, RouteState, str]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, router: Router, routes: SessionRoutes) -> None:
        async with aclosing(router.follow(routes)) as following:
            async for news in following:
                now = round(asyncio.get_running_loop().time(), 1)
                self.said.append((now, news.port, news.state, news.reason))
                self._changed.set()

    async def until(self, state: RouteState, port: int = 8080) -> tuple[float, str]:
        """Wait until a port is in a state; return since when, and why."""
        while True:
            last = next((one for one in reversed(self.said) if one[1] == port), None)
            if last is not None and last[2] is state:
                return last[0], last[3]
            self._changed.clear()
            await self._changed.wait()

    @property
    def states(self) -> list[RouteState]:
        return [state for _, _, state, _ in self.said]


@asynccontextmanager
async def following(
    router: Router, *ports: RoutedPort, session_id: str = SESSION_ID
) -> AsyncIterator[Told]:
    """Publish a session and read what is told of it."""
    routes = make_routes(*ports, session_id=session_id)
    await router.publish(routes)
    told = Told()
    task = aio.start(told.read(router, routes), name="reader")
    try:
        yield told
        assert not task.done()
    finally:
        await aio.stop(task)


def report(api: FakeApi, resource: str, name: str, status: dict[str, Any]) -> None:
    """Write a status, as a controller does."""
    thing = api.objects[resource][name]
    labels, spec = thing["metadata"]["labels"], thing["spec"]
    api.put(name, resource, labels=labels, spec=spec, status=status)


def parent(**conditions: tuple[str, str, str]) -> dict[str, Any]:
    """Return the status of an HTTPRoute by our Gateway: status, reason and message of each."""
    said = [
        {"type": name, "status": status, "reason": reason, "message": message}
        for name, (status, reason, message) in conditions.items()
    ]
    reference = {"name": "public", "namespace": "edge"}
    return {"parents": [{"parentRef": reference, "conditions": said}]}


# The status of an HTTPRoute that its controller has taken.
ACCEPTED = parent(Accepted=("True", "Accepted", ""), ResolvedRefs=("True", "ResolvedRefs", ""))
