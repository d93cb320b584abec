"""The supervisor of one session: `run()` owns its tasks, from taking it up to letting it go.

It can begin from any state that a row and a pod can be in: starting a new session and going on with
one that another process had are the same path. The lead is `_lead()`; the helpers are the ledger,
the pod's news, the bundle's ConfigMap, the terminal, and what is done over the pod's network.
"""

import asyncio
import logging
from dataclasses import dataclass

from sessions import store
from sessions.pods.run import object_name
from sessions.spec import STOPPED, failed
from sessions.store import OwnedSession
from sessions.supervisor import finish, start
from sessions.supervisor.delivery import watch_config_map
from sessions.supervisor.network import Network, open_network
from sessions.supervisor.ownership import Owner
from sessions.supervisor.podview import PodView
from sessions.supervisor.running import Watch
from sessions.supervisor.session import Session, open_session
from sessions.supervisor.terminal import Terminal, open_terminal
from telorunner import aio
from telorunner.errors import StaleFence, StartFailed, Unavailable
from telorunner.kube.informer import Subscription

logger = logging.getLogger(__name__)

UNEXPECTED = "the runner met an unexpected problem with this session; its log has the details"


class Supervisor:
    """Owns one live session of an engine."""

    def __init__(self, owner: Owner, session_id: str) -> None:
        self.session_id = session_id
        self._owner = owner
        self._session: Session | None = None
        self._is_stop_asked = False

    def stop(self) -> None:
        """Ask for the session to end as `stopped`; `run()` returns when it has."""
        self._is_stop_asked = True
        if self._session is not None:
            self._session.ask_stop()

    async def run(self) -> None:
        """Bring the session from the state it is in to its end.

        Returns early, leaving everything as it is, when another engine owns the session. Cancelling
        hands the session over: its pod, its row and its log stay as they are.
        """
        try:
            row = await self._load()
            if row is None:
                return
            session = self._session = await open_session(self._owner, row)
            if self._is_stop_asked:
                session.ask_stop()
            await self._supervise(session)
        except StaleFence:
            logger.info("Another engine has the session.", extra={"session": self.session_id})

    async def _load(self) -> OwnedSession | None:
        backoff = aio.Backoff()
        while True:
            try:
                return await store.load(self._owner.engine_id, self.session_id)
            except Unavailable:
                await backoff.wait()

    async def _supervise(self, session: Session) -> None:
        """Run the lead with its helpers; a defect ends the session with a readable reason."""
        try:
            async with asyncio.TaskGroup() as group:
                ledger = group.create_task(session.ledger.run(), name=f"ledger-{self.session_id}")
                await self._lead(session, group)
                ledger.cancel()
        except BaseExceptionGroup as failures:
            if failures.subgroup(StaleFence) is not None:
                raise StaleFence from failures
            if failures.subgroup(Exception) is None:
                raise
            logger.exception("The supervisor failed.", extra=session.log_extra)
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # What breaks while the session is handed over is no end of it, and a group of
                # failures has swallowed the cancellation.
                raise asyncio.CancelledError from failures
        else:
            return
        await session.advance(failed(UNEXPECTED))
        await finish.clean_up(session)

    async def _lead(self, session: Session, group: asyncio.TaskGroup) -> None:
        deadline = asyncio.get_running_loop().time() + start.START_SECONDS
        await session.announce()
        with session.runtime.pods.subscribe(object_name(self.session_id)) as subscription:
            news = group.create_task(
                _pass_on(subscription, session.wake), name=f"pod-news-{self.session_id}"
            )
            try:
                pod = await start.ensure_pod(session, deadline)
            except start.StopAsked:
                await finish.finish(session, STOPPED, subscription, None)
            except StartFailed as exc:
                await finish.finish(session, failed(exc.message), subscription, None)
            else:
                owned = group.create_task(
                    start.own_config_map(session, pod), name=f"owner-{self.session_id}"
                )
                view = PodView(subscription, session.pod_uid)
                bundle = group.create_task(
                    watch_config_map(session, view, owned), name=f"bundle-{self.session_id}"
                )
                await self._follow(session, subscription, deadline)
                bundle.cancel()
            news.cancel()

    async def _follow(self, session: Session, subscription: Subscription, deadline: float) -> None:
        """Relay what a pod that exists has to say, until the session has ended."""
        async with open_terminal(session) as terminal, open_network(session) as network:
            watch = Watch(session, subscription, terminal.link.proved, deadline)
            status = await watch.run()
            await finish.finish(session, status, subscription, _Outlets(terminal, network))


@dataclass(frozen=True)
class _Outlets:
    """All that may still bring something of a container that has ended."""

    terminal: Terminal
    network: Network

    async def end_routes(self) -> None:
        """Publish nothing more, and tell nothing more of public routes."""
        await self.network.end_routes()

    async def drain(self) -> None:
        """Return once it is all in the log, or cannot be had; bounded."""
        await self.terminal.drain()
        await self.network.drain()


async def _pass_on(subscription: Subscription, wake: asyncio.Event) -> None:
    """Wake the lead whenever the pod has changed."""
    while True:
        await subscription.changed()
        wake.set()
