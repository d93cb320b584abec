"""Publishes the ports of a session once it runs, and tells how their public hosts stand.

It never ends a session: what cannot be published is told in words and tried again. `Routing.run()`
belongs to `open_network()`, which ends it before clients learn how the session ended.
"""

import logging
from contextlib import aclosing
from dataclasses import asdict

from routing.router import RouteNews, RouteState
from routing.routes import RoutedPort, SessionRoutes
from sessions import events
from sessions.pods.run import object_name
from sessions.states import Phase, Protocol
from sessions.supervisor.session import Session
from telorunner import aio
from telorunner.errors import AlreadyExists, ClusterError
from telorunner.kube.errors import describe
from telorunner.kube.objects import owner_reference, session_labels

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0

_OPERATION = "publish: could not publish the session's ports"
_TAKEN = (
    f"{_OPERATION}: there is an object of the name that they need which is not this session's; it "
    "was left alone."
)


class Routing:
    """The public routes of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._router = session.runtime.router
        self._told: dict[int, RouteNews] = {}

    async def run(self) -> None:
        """Publish as soon as the session runs, then tell what becomes of it, until cancelled.

        Raises:
            StaleFence: Another engine owns the session by now.
        """
        session = self._session
        await session.has_run.wait()
        routes = _routes(session)
        for port, host in self._router.hosts(session.session_id, routes.tcp_ports).items():
            await self._tell(RouteNews(host, port, RouteState.PENDING))
        await self._publish(routes)
        async with aclosing(self._router.follow(routes)) as following:
            async for news in following:
                await self._tell(news)

    async def tell_again(self) -> None:
        """Tell once more how each host stands."""
        # News may come meanwhile: what is told is the newest.
        for port in list(self._told):
            await self._publish_event(self._told[port])

    async def _publish(self, routes: SessionRoutes) -> None:
        """Make what the routes need, however often that fails."""
        session, backoff = self._session, aio.Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while True:
            await session.owner.lease.wait_held()
            try:
                await self._router.publish(routes)
                logger.info("The session's ports are published.", extra=session.log_extra)
                return
            except ClusterError as exc:
                is_taken = isinstance(exc, AlreadyExists)
                sentence = _TAKEN if is_taken else describe(exc, _OPERATION)
                logger.warning("%s", sentence, extra=session.log_extra, exc_info=exc)
                wanted_pause_seconds = exc.retry_after_seconds
            await session.say(sentence, Phase.BOOT)
            for port, host in self._router.hosts(routes.session_id, routes.tcp_ports).items():
                await self._tell(RouteNews(host, port, RouteState.UNPROGRAMMED, sentence))
            await backoff.wait(wanted_pause_seconds)

    async def _tell(self, news: RouteNews) -> None:
        if self._told.get(news.port) == news:
            return
        self._told[news.port] = news
        await self._publish_event(news)
        self._session.ledger.note_routes([asdict(told) for told in self._told.values()])

    async def _publish_event(self, news: RouteNews) -> None:
        session = self._session
        event = events.route(session.app.name, news.host, news.port, news.state, news.reason)
        await session.publish(event)


def is_routed(session: Session) -> bool:
    """Tell whether the session has ports that are published."""
    return session.runtime.router.is_active and bool(session.app.ports)


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
