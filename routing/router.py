"""Public routes as `sessions` sees them: publish, follow, withdraw, and answer probes.

The one face of this package at run time. `open_router()` makes a router of a decision;
`inactive_router()` one that publishes nothing and costs nothing. `Router.run()` owns what works for
all sessions: two informers, and the runner's end of the probes.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from routing.gateway import GatewayTarget
from routing.ingress import IngressTarget
from routing.layer import Decision, RoutingSettings
from routing.news import RouteNews, RouteState
from routing.probe import Prober
from routing.probeendpoints import GetListenPort, ProbeEndpoints
from routing.probeservice import SERVICE_PORT, service_name
from routing.publisher import Publisher, withdraw_left
from routing.reserved import Answer, answer_reserved
from routing.routes import Layer, ProbeBackend, ProbePath, SessionRoutes, hostname, object_name
from routing.watching import Probing, PublicHost, RouteWatch
from telorunner import aio
from telorunner.kube.client import Cluster
from telorunner.kube.informer import Informer
from telorunner.kube.objects import managed_selector

__all__ = [
    "RouteNews",
    "RouteState",
    "Router",
    "inactive_router",
    "open_router",
    "withdraw_left",
]


@dataclass(frozen=True)
class Publishing:
    """The parts of a router that publishes."""

    base_domain: str
    publisher: Publisher
    watch: RouteWatch
    path: ProbePath
    probing: Probing | None


class Router:
    """Publishes sessions through the layer that boot decided on, or does nothing at all."""

    def __init__(self, decision: Decision, publishing: Publishing | None) -> None:
        self.layer = decision.layer
        self.why = decision.why
        self._publishing = publishing

    @property
    def is_active(self) -> bool:
        """Whether sessions get public hosts."""
        return self._publishing is not None

    def hosts(self, session_id: str, ports: Iterable[int]) -> dict[int, str]:
        """Return the public host of each tcp port; none where the router is not active."""
        if self._publishing is None:
            return {}
        domain = self._publishing.base_domain
        return {port: hostname(port, session_id, domain) for port in ports}

    async def publish(self, routes: SessionRoutes) -> None:
        """Let the cluster have what these routes need, and nothing else of that session.

        It may be repeated, also with other ports. Hosts work when `follow()` says so.

        Raises:
            ClusterError: The API refused or did not answer; a part of it may be done.
        """
        if self._publishing is not None:
            await self._publishing.publisher.publish(routes)

    async def withdraw(self, session_id: str) -> None:
        """Delete whatever publishes a session; nothing is no failure.

        Raises:
            ClusterError: The API refused or did not answer; something may be left.
        """
        if self._publishing is not None:
            await self._publishing.publisher.withdraw(session_id)

    async def session_ids(self) -> set[str]:
        """Return the sessions of which anything is published, as the cluster says.

        Raises:
            ClusterError: The API refused or did not answer.
        """
        if self._publishing is None:
            return set()
        return await self._publishing.publisher.session_ids()

    async def follow(self, routes: SessionRoutes) -> AsyncGenerator[RouteNews, None]:
        """Yield `pending` for each host, then each change, for ever; close it to end it.

        Nothing is told twice, and what changed more than once meanwhile is told as it is now.
        Where there is no host it ends at once.
        """
        hosts = self.hosts(routes.session_id, routes.tcp_ports)
        if self._publishing is None or not hosts:
            return
        for port, host in hosts.items():
            yield RouteNews(host, port, RouteState.PENDING)
        board = _Board(hosts)
        watch, session_id = self._publishing.watch, routes.session_id
        route_of, service = self._publishing.publisher.route_of, object_name(session_id)
        followed = [
            PublicHost(host, port, route_of(session_id, port), service)
            for port, host in hosts.items()
        ]
        tasks = [
            aio.start(watch.verify(one, board.post), name=f"route-{one.host}") for one in followed
        ]
        try:
            for task in tasks:
                task.add_done_callback(board.ring)
            while True:
                for news in await board.take():
                    yield news
                for task in tasks:
                    if task.done():
                        task.result()
        finally:
            await aio.stop(*tasks)

    def answer(self, host: str, path: str) -> Answer | None:
        """Return body and headers of a reserved path's answer (a 200); None: it is not ours.

        `host` is the Host header as it came, `path` has no query.
        """
        if self._publishing is None or self._publishing.probing is None:
            return None
        return answer_reserved(self._publishing.path, host, path)

    async def run(self) -> None:
        """Watch the routes, and keep the probes' way to this process once it listens.

        Lives until cancelled. A process that only answers probes needs none of it.
        """
        if self._publishing is None:
            return
        probing = self._publishing.probing
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publishing.watch.run(), name="route-watch")
            if probing is not None:
                group.create_task(probing.endpoints.run(), name="route-probe-endpoints")


class _Board:
    """The newest news of each host; one reads, and is told nothing twice."""

    def __init__(self, hosts: dict[int, str]) -> None:
        self._told = {
            port: RouteNews(host, port, RouteState.PENDING) for port, host in hosts.items()
        }
        self._newest = dict(self._told)
        self._changed = asyncio.Event()

    def post(self, news: RouteNews) -> None:
        self._newest[news.port] = news
        if news != self._told[news.port]:
            self._changed.set()

    def ring(self, _ended: object) -> None:
        """Let the reader look up."""
        self._changed.set()

    async def take(self) -> list[RouteNews]:
        await self._changed.wait()
        self._changed.clear()
        fresh = [news for port, news in self._newest.items() if news != self._told[port]]
        self._told |= {news.port: news for news in fresh}
        return fresh


def inactive_router(why: str) -> Router:
    """Return a router that publishes nothing, and the sentence that says why."""
    return Router(Decision(Layer.NONE, why), None)


@asynccontextmanager
async def open_router(
    cluster: Cluster,
    settings: RoutingSettings,
    decision: Decision,
    *,
    secret: bytes,
    listen_port: GetListenPort | None,
    self_url: str = "",
) -> AsyncIterator[Router]:
    """Open the router of a decision; nothing happens before `Router.run()`.

    Args:
        cluster: Where; it is asked for the decision's version of the Gateway API from now on.
        settings: What the operator has set.
        decision: The layer.
        secret: The same in every process of a runner, and in no other runner.
        listen_port: Returns where this process answers HTTP, once it does; None: it never does.
        self_url: RUNNER_SELF_URL; an IP address in it is where the data plane reaches this process.
    """
    if decision.layer is Layer.NONE:
        yield Router(decision, None)
        return
    if decision.gateway_version:
        cluster.gateway_version = decision.gateway_version
    path = ProbePath(secret)
    probing, backend = None, None
    if settings.is_probing and settings.probe_address is not None:
        backend = ProbeBackend(service_name(cluster.managed_by), SERVICE_PORT, path)
        endpoints = ProbeEndpoints(cluster, listen_port=listen_port, self_url=self_url)
        probing = Probing(Prober(path, settings.probe_address), endpoints)
    target = _target(settings, decision)
    publisher = Publisher(cluster, target, backend)
    watch = RouteWatch(
        _informer(cluster, publisher.resource),
        _informer(cluster, "services"),
        target,
        settings.ready_timeout_seconds,
        probing,
    )
    yield Router(decision, Publishing(settings.base_domain, publisher, watch, path, probing))


def _informer(cluster: Cluster, resource: str) -> Informer:
    return Informer(cluster, resource, managed_selector(cluster.managed_by))


def _target(settings: RoutingSettings, decision: Decision) -> IngressTarget | GatewayTarget:
    if decision.layer is Layer.INGRESS:
        return IngressTarget(decision.ingress_class, settings.tls_secret, settings.base_domain)
    return GatewayTarget(
        settings.gateway_name,
        settings.gateway_namespace,
        settings.gateway_section_name,
        decision.gateway_version,
        settings.base_domain,
    )
