"""Follows public hosts: an informer each for all routes and Services, and a judge for each host.

`RouteWatch.run()` lives until cancelled and owns the informers' work; `verify()` belongs to whoever
asks about a host. Nothing polls the API for a single session.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

from routing.gateway import GatewayTarget
from routing.ingress import IngressTarget
from routing.judge import Judge
from routing.news import RouteNews, RouteState
from routing.probe import Prober
from routing.probeendpoints import ProbeEndpoints
from routing.status import Standing, Verdict, verdict
from telorunner.aio import Backoff
from telorunner.errors import ClusterUnavailable
from telorunner.kube.errors import describe
from telorunner.kube.informer import Informer, Subscription

Tell = Callable[[RouteNews], None]

# The second look after a route is there, or is said to be: a data plane mostly needs a tenth of a
# second to do what its controller has said.
FIRST_PROBE_SECONDS = 0.05
# How often a host is asked that does not work, and one that does.
LONGEST_BAD_SECONDS = 10.0
FIRST_GOOD_SECONDS = 5.0
LONGEST_GOOD_SECONDS = 60.0


@dataclass(frozen=True)
class Probing:
    """What hosts are asked by, and whether the runner's end of it is in place."""

    prober: Prober
    endpoints: ProbeEndpoints


@dataclass(frozen=True)
class PublicHost:
    """A host, the port behind it, and the names of its route and of the Service behind that."""

    host: str
    port: int
    route: str
    service: str


class RouteWatch:
    """Knows the routes of all sessions, and whether their Services are there."""

    def __init__(
        self,
        routes: Informer,
        services: Informer,
        target: IngressTarget | GatewayTarget,
        ready_seconds: float,
        probing: Probing | None,
    ) -> None:
        self.routes = routes
        self.services = services
        self.target = target
        self.ready_seconds = ready_seconds
        self.probing = probing

    async def run(self) -> None:
        """Watch the routes and the Services until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.routes.run(), name="route-watch-routes")
            group.create_task(self.services.run(), name="route-watch-services")

    async def verify(self, host: PublicHost, tell: Tell) -> None:
        """Tell how a host stands, `pending` first and then whatever changes, until cancelled."""
        with (
            self.routes.subscribe(host.route) as route,
            self.services.subscribe(host.service) as service,
        ):
            verification = _Verification(self, host, route, service, tell)
            try:
                async with asyncio.TaskGroup() as group:
                    name = f"route-{host.host}"
                    for what, watched in {"status": route, "service": service}.items():
                        group.create_task(verification.follow(watched), name=f"{name}-{what}")
                    if self.probing is not None:
                        probes = verification.follow_answers(self.probing)
                        group.create_task(probes, name=f"{name}-probe")
            finally:
                verification.end()

    def unclaimed(self) -> str:
        """Return what to look at where no controller has said anything of a route."""
        seconds = f"{self.ready_seconds:g} s"
        words = f"No controller has reported on this route within {seconds}; it may work or not."
        if isinstance(self.target, GatewayTarget):
            gateway = f"{self.target.namespace}/{self.target.name}"
            listener = "a listener"
            if self.target.section_name:
                listener = f'the listener "{self.target.section_name}"'
            return (
                f'{words} Check that the Gateway "{gateway}" exists, that a controller serves it, '
                f"and that {listener} takes this host and routes from the session namespace."
            )
        if self.target.class_name:
            return (
                f"{words} Check that an ingress controller serves the ingress class "
                f'"{self.target.class_name}".'
            )
        return f"{words} Check that there is an ingress controller and a default ingress class."

    def unreadable(self, route: Subscription) -> str:
        """Return why the status of a route cannot be read just now; empty if it can."""
        if route.is_listed and (self.routes.failure is None or self.routes.is_fresh):
            return ""
        kind = "HTTPRoutes" if isinstance(self.target, GatewayTarget) else "Ingresses"
        failure = self.routes.failure or ClusterUnavailable()
        return describe(failure, f"Could not read the status of {kind}")


class _Verification:
    """One host: its judge, and what is learned for it."""

    def __init__(
        self,
        watch: RouteWatch,
        host: PublicHost,
        route: Subscription,
        service: Subscription,
        tell: Tell,
    ) -> None:
        self._watch = watch
        self._host = host
        self._route = route
        self._service = service
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._judge = self._begin()
        # The uid of the route, or else of the Service, that somebody has deleted.
        self._lost = ""
        self._timer: asyncio.TimerHandle | None = None
        # Set when a host may work from now on.
        self._stirred = asyncio.Event()
        tell(RouteNews(host.host, host.port, RouteState.PENDING))

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def follow(self, watched: Subscription) -> None:
        """Judge by what the cluster says of the route or of the Service, when that changes."""
        self._conclude()
        while True:
            await watched.changed()
            self._take_change()

    async def follow_answers(self, probing: Probing) -> None:
        """Judge by how the host answers, asked at once when its controller says that it works."""
        good = Backoff(FIRST_GOOD_SECONDS, LONGEST_GOOD_SECONDS)
        bad = Backoff(FIRST_PROBE_SECONDS, LONGEST_BAD_SECONDS)
        while True:
            pause = bad.next_delay()
            if probing.endpoints.is_usable:
                failure = await probing.prober.ask(self._host.host)
                self._judge.take_probe(self._loop.time(), failure)
                if failure is None:
                    bad.reset()
                    pause = good.next_delay()
                else:
                    good.reset()
                    if failure.stage in ("gateway", "backend"):
                        # What a gateway says of a backend that is not there differs.
                        probing.endpoints.doubt()
            self._conclude()
            if await self._has_stirred_within(pause):
                bad.reset()

    async def _has_stirred_within(self, seconds: float) -> bool:
        """Wait; return True, at once, where a controller says meanwhile that the route works.

        Or where there is a route again.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._stirred.wait()
        except TimeoutError:
            return False
        self._stirred.clear()
        return True

    def _begin(self) -> Judge:
        watch = self._watch
        return Judge(
            self._loop.time(), ready_seconds=watch.ready_seconds, unclaimed=watch.unclaimed()
        )

    def _take_change(self) -> None:
        self._take_loss()
        was_claimed = self._judge.is_claimed
        read, probing = self._read(), self._watch.probing
        self._judge.take_verdict(self._loop.time(), read)
        if read.state is Standing.REJECTED and probing is not None:
            # It may be the probes' own Service that is not there.
            probing.endpoints.doubt()
        if self._judge.is_claimed and not was_claimed:
            self._stirred.set()
        self._conclude()

    def _take_loss(self) -> None:
        """Note what is gone; what was known before says nothing of what is made in its place."""
        lost = _lost(self._route) or _lost(self._service)
        if self._lost and not lost:
            self._judge = self._begin()
            self._stirred.set()
        self._lost = lost

    def _read(self) -> Verdict:
        if _lost(self._route):
            return Verdict(Standing.REJECTED, "The route has been deleted in the cluster.")
        if _lost(self._service):
            # Of an Ingress no controller would ever say so.
            words = "The Service behind the route has been deleted in the cluster."
            return Verdict(Standing.REJECTED, words)
        if self._route.object is None:
            return Verdict(Standing.PENDING)
        return verdict(self._route.object, self._watch.target)

    def _conclude(self) -> None:
        """Tell what follows of all that is known, and come back when time alone changes it."""
        self.end()
        now = self._loop.time()
        probing = self._watch.probing
        judgement = self._judge.judge(
            now,
            is_probing=probing is not None and probing.endpoints.is_usable is not False,
            unreadable=self._watch.unreadable(self._route),
        )
        host, state, reason = self._host, judgement.state, judgement.reason
        self._tell(RouteNews(host.host, host.port, state, reason, self._lost))
        if judgement.again_at < math.inf:
            self._timer = self._loop.call_at(judgement.again_at, self._conclude)


def _lost(watched: Subscription) -> str:
    """Return the uid of an object that is gone; empty where it is there, or not seen yet."""
    if watched.object is not None or watched.last is None:
        return ""
    return str(watched.last["metadata"]["uid"])
