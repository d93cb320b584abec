"""Publishes the ports of a session while it runs, and tells how their public hosts stand.

It never ends a session: what cannot be published is told in words and tried again, and what
somebody else deletes is published again. `Routing.run()` belongs to `open_network()`. Routes go
with the pod, which is no news: once the session begins to end, nothing more is told of them.
"""

import asyncio
import logging
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any

from routing.router import RouteNews, RouteState, withdraw_left
from routing.routes import RoutedPort, SessionRoutes
from sessions import events
from sessions.pods.run import object_name
from sessions.states import Phase, Protocol
from sessions.supervisor.podview import PodView, is_ending
from sessions.supervisor.session import Session
from telorunner import aio
from telorunner.errors import AlreadyExists, ClusterError
from telorunner.kube import objects
from telorunner.kube.errors import describe
from telorunner.kube.objects import owner_reference, session_labels

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
# Whether the pod is still wanted is asked for at most so long before a host is told to be bad.
LOOK_SECONDS = 2.0

_OPERATION = "publish: could not publish the session's ports"
_TAKEN = (
    f"{_OPERATION}: there is an object of the name that they need which is not this session's; it "
    "was left alone."
)
_WITHDRAW = "withdraw: could not take the session's public hosts away"


@dataclass
class _Trouble:
    """What goes wrong again and again: a warning when it changes, and a remark else."""

    session: Session
    _warned: str = ""

    async def tell(self, sentence: str, failure: ClusterError) -> None:
        """Tell the log, and clients each sentence once."""
        level = logging.INFO if sentence == self._warned else logging.WARNING
        self._warned = sentence
        logger.log(level, "%s", sentence, extra=self.session.log_extra, exc_info=failure)
        await self.session.say(sentence, Phase.BOOT)


class Routing:
    """The public routes of one session."""

    def __init__(self, session: Session, view: PodView) -> None:
        self._session = session
        self._view = view
        self._router = session.runtime.router
        self._told: dict[int, RouteNews] = {}
        # Ports of which no route is known to be there: at first all of them.
        self._missing: set[int] = set()
        self._has_lost = asyncio.Event()
        self._is_closed = False

    def close(self) -> None:
        """Tell nothing more; whoever has started `run()` ends it."""
        self._is_closed = True

    async def run(self) -> None:
        """Publish as soon as the session runs, then tell what becomes of it, until cancelled.

        Raises:
            StaleFence: Another engine owns the session by now, maybe in an ExceptionGroup.
        """
        await self._session.has_run.wait()
        if not self._router.is_active:
            await self._withdraw_left()
            return
        routes = _routes(self._session)
        self._missing.update(routes.tcp_ports)
        if not await self._publish(routes):
            return
        async with asyncio.TaskGroup() as group:
            session_id = self._session.session_id
            healing = group.create_task(self._heal(routes), name=f"routes-healed-{session_id}")
            await self._follow(routes)
            healing.cancel()

    async def tell_again(self) -> None:
        """Tell once more how each host stands."""
        # News may come meanwhile: what is told is the newest.
        for port in list(self._told):
            await self._publish_event(self._told[port])

    async def _follow(self, routes: SessionRoutes) -> None:
        """Tell what becomes of the hosts, until the session begins to end."""
        async with aclosing(self._router.follow(routes)) as following:
            async for news in following:
                is_bad = news.state is RouteState.UNPROGRAMMED
                if is_bad and await self._is_ending():
                    return
                await self._tell(news)
                if news.lost:
                    self._missing.add(news.port)
                    self._has_lost.set()
                else:
                    self._missing.discard(news.port)

    async def _heal(self, routes: SessionRoutes) -> None:
        """Publish again what somebody deletes, the more seldom the sooner that comes again."""
        clock = asyncio.get_running_loop().time
        backoff, published_at = aio.Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS), clock()
        while True:
            await self._wait_for_loss()
            if clock() - published_at >= LONGEST_PAUSE_SECONDS:
                backoff.reset()
            await backoff.wait()
            self._has_lost.clear()
            if not self._missing:
                # Somebody else was faster.
                continue
            logger.warning(
                "Somebody has deleted a route of the session or its Service; they are made again.",
                extra=self._session.log_extra,
            )
            if not await self._publish(routes):
                return
            published_at = clock()

    async def _wait_for_loss(self) -> None:
        """Wait until a route is seen to be gone; for one that is missing only so long."""
        # NB: what is made again and deleted again in a hole of the watch is no news to it.
        seconds = LONGEST_PAUSE_SECONDS if self._missing else None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._has_lost.wait()

    async def _publish(self, routes: SessionRoutes) -> bool:
        """Make what the routes need, however often that fails; False: the session ends before."""
        session = self._session
        backoff = aio.Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        trouble = _Trouble(session)
        await self._tell_missing(routes, RouteState.PENDING)
        while True:
            await session.owner.lease.wait_held()
            if self._is_over:
                return False
            try:
                await self._router.publish(routes)
                logger.info("The session's ports are published.", extra=session.log_extra)
                return True
            except ClusterError as exc:
                failure = exc
            if await self._is_ending():
                return False
            is_taken = isinstance(failure, AlreadyExists)
            sentence = _TAKEN if is_taken else describe(failure, _OPERATION)
            await trouble.tell(sentence, failure)
            await self._tell_missing(routes, RouteState.UNPROGRAMMED, sentence)
            await backoff.wait(failure.retry_after_seconds)

    async def _withdraw_left(self) -> None:
        """Take away what was published when the runner still did that, and say so."""
        session = self._session
        backoff = aio.Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        trouble = _Trouble(session)
        while True:
            await session.owner.lease.wait_held()
            try:
                await withdraw_left(session.runtime.cluster, session.session_id)
                break
            except ClusterError as exc:
                failure = exc
            await trouble.tell(describe(failure, _WITHDRAW), failure)
            if not failure.is_retryable:
                # They go with the pod.
                return
            await backoff.wait(failure.retry_after_seconds)
        logger.info("The session's routes are withdrawn.", extra=session.log_extra)
        session.ledger.note_routes([])
        await session.say(
            f"This session has no public hosts any more. {self._router.why}", Phase.BOOT
        )

    async def _tell_missing(
        self, routes: SessionRoutes, state: RouteState, reason: str = ""
    ) -> None:
        """Tell of the hosts of which no route is known to be there."""
        hosts = self._router.hosts(routes.session_id, routes.tcp_ports)
        for port, host in hosts.items():
            if port in self._missing:
                await self._tell(RouteNews(host, port, state, reason))

    async def _tell(self, news: RouteNews) -> None:
        news = replace(news, lost="")
        if self._is_over or self._told.get(news.port) == news:
            return
        self._told[news.port] = news
        await self._publish_event(news)
        self._session.ledger.note_routes([_row(told) for told in self._told.values()])

    async def _publish_event(self, news: RouteNews) -> None:
        session = self._session
        event = events.route(session.app.name, news.host, news.port, news.state, news.reason)
        if not self._is_over:
            await session.publish(event)

    @property
    def _is_over(self) -> bool:
        """Whether the session is known to end."""
        return self._is_closed or self._session.stop_asked.is_set() or self._view.is_ending

    async def _is_ending(self) -> bool:
        """Tell whether the session is about to end, also where the watch of pods is behind.

        Routes that vanish with their pod are often seen to go before the pod is.
        """
        if self._is_over:
            return True
        session = self._session
        name = object_name(session.session_id)
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                pod = await objects.find(session.runtime.cluster, "pods", name)
        except (ClusterError, TimeoutError):
            # Nobody knows; what the watch says counts.
            return self._is_over
        is_own = pod is not None and pod["metadata"].get("uid") == session.pod_uid
        return self._is_over or pod is None or not is_own or is_ending(pod)


def _row(news: RouteNews) -> dict[str, Any]:
    """Return how the session's row remembers the state of a host."""
    return {"host": news.host, "port": news.port, "state": news.state, "reason": news.reason}


def is_routed(session: Session) -> bool:
    """Tell whether the session has ports that are published."""
    return session.runtime.router.is_active and bool(session.app.ports)


def was_routed(session: Session) -> bool:
    """Tell whether an owner before has published the session, and this runner does not."""
    return session.row.is_published and not session.runtime.router.is_active


async def withdraw(session: Session) -> bool:
    """Delete what publishes a session; return whether there may have been something.

    Mostly it goes with the pod, and this makes sure.

    Raises:
        ClusterError: The API refused or did not answer; something may be left.
    """
    # Nothing is published before the session runs.
    if not is_routed(session) or not session.has_run.is_set():
        return False
    await session.runtime.router.withdraw(session.session_id)
    return True


def _routes(session: Session) -> SessionRoutes:
    pod = {"metadata": {"name": object_name(session.session_id), "uid": session.pod_uid}}
    return SessionRoutes(
        session_id=session.session_id,
        labels=session_labels(session.runtime.cluster.managed_by, session.session_id),
        owner=owner_reference(pod),
        ports=tuple(
            RoutedPort(port.port, is_tcp=port.protocol is Protocol.TCP)
            for port in session.app.ports
        ),
    )
