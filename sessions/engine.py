"""The engine: root owner of all supervisors of this process.

It holds a lease, takes up live sessions that nobody owns, passes stop wishes on, evicts what has
been kept long enough, and runs the reconciler. A wake-up makes it look at once; a lost one costs a
second. What one session does to its supervisor never reaches the engine or another session.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from sessions import store
from sessions.reconciler import Reconciler
from sessions.runtime import Runtime
from sessions.supervisor import UNEXPECTED, Lease, Owner, Supervisor
from telorunner import aio
from telorunner.errors import StaleFence, Unavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")
Duty = Callable[[], Coroutine[Any, Any, None]]

# A wake-up that was lost costs this much.
LOOK_SECONDS = 1.0
CLAIM_LIMIT = 100
PURGE_SECONDS = 3600.0
# What is too late to be fetched is refused at once, and kept this much longer at most.
DROP_SECONDS = 15.0
# How often evictions are looked for: an ended session may stay this much longer than its time.
SHORTEST_EVICTION_SECONDS = 1.0
LONGEST_EVICTION_SECONDS = 30.0
# What the clocks of the machines that evict may differ by.
CLOCKS_APART = timedelta(seconds=60)
# A duty that met a defect begins anew after this pause.
RESTART_SECONDS = 1.0
# With RUNNER_STOP_SESSIONS_ON_EXIT: a pod's grace is 2 s, and what is still there then is left to
# the next engine. Both together fit into what `telorunner.lifespan` gives the engine.
STOP_ALL_SECONDS = 5.0
RETIRE_SECONDS = 2.0


class Engine:
    """Runs sessions until `run()` is cancelled.

    `is_sole_engine` says that no other engine can be alive: leases found at boot are taken at once.
    """

    def __init__(self, runtime: Runtime, *, is_sole_engine: bool) -> None:
        self._runtime = runtime
        self._is_sole_engine = is_sole_engine
        self._lease = Lease(store.LEASE_SECONDS)
        self._reconciler = Reconciler(runtime, self._lease)
        self._engine_id = ""
        self._supervisors: dict[str, Supervisor] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_stopping = False
        self._wake = asyncio.Event()

    @property
    def is_working(self) -> bool:
        """Whether the engine runs and may decide: part of readiness."""
        return bool(self._engine_id) and self._lease.is_held

    async def run(self) -> None:
        """Own sessions until cancelled, then hand all of them over, or stop them if so configured.

        Sessions that are handed over go on in the cluster; the next engine adopts them.
        """
        try:
            # NB: before anything is taken up: what ends from then on has its log written by its
            # supervisor.
            await self._restore_logs()
            await self._register()
            async with asyncio.TaskGroup() as group:
                tasks = {
                    name: group.create_task(_keep(duty), name=f"engine-{name}")
                    for name, duty in self._duties(group).items()
                }
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if "routes" in tasks:
                        # What it takes away on its way out, it takes away meanwhile.
                        tasks["routes"].cancel()
                    await self._wind_down()
                    raise
        finally:
            await self._retire()

    def _duties(self, group: asyncio.TaskGroup) -> dict[str, Duty]:
        duties: dict[str, Duty] = {
            "lease": self._renew,
            "wakes": self._listen,
            "sessions": partial(self._look_after, group),
            "evictions": self._evict,
            "history": self._purge,
            "bundles": self._drop_bundles,
            "reconciler": self._reconciler.run,
        }
        if self._runtime.router.is_active:
            duties["routes"] = self._runtime.router.run
        return duties

    async def _restore_logs(self) -> None:
        try:
            await self._reconciler.restore_logs(await _persist(store.unlogged))
        except Exception:
            # Live sessions are worth more than the end of those that are over.
            logger.exception("The logs of ended sessions could not be restored.")

    async def _register(self) -> None:
        asked_at = self._lease.now()
        self._engine_id = await _persist(store.register_engine)
        self._lease.renewed(asked_at)
        logger.info("Engine %s works.", self._engine_id)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(store.RENEW_SECONDS)
            asked_at = self._lease.now()
            try:
                await store.renew_engine(self._engine_id)
            except Unavailable:
                logger.warning("The lease cannot be renewed: the database cannot be reached.")
            except StaleFence:
                logger.warning("Others have taken this engine's sessions; it begins anew.")
                self._lease.lost()
                await aio.stop(*self._tasks.values())
                await self._register()
            else:
                self._lease.renewed(asked_at)

    async def _listen(self) -> None:
        async for _ in self._runtime.bus.wakes():
            self._wake.set()

    async def _look_after(self, group: asyncio.TaskGroup) -> None:
        """Take up sessions and pass wishes on, at every wake-up and every second."""
        while True:
            self._wake.clear()
            try:
                await self._take_up(group)
                for session_id in await store.stop_wishes(self._engine_id):
                    if (supervisor := self._supervisors.get(session_id)) is not None:
                        supervisor.stop()
            except Unavailable:
                logger.debug("Nothing is taken up: the database cannot be reached.")
            except StaleFence:
                logger.debug("Nothing is taken up before the lease is renewed.")
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()

    async def _take_up(self, group: asyncio.TaskGroup) -> None:
        while self._lease.is_held and not self._is_stopping:
            claimed = await store.claim(
                self._engine_id, limit=CLAIM_LIMIT, is_sole_engine=self._is_sole_engine
            )
            owner = Owner(self._runtime, self._engine_id, self._lease)
            for session_id in claimed:
                supervisor = Supervisor(owner, session_id)
                self._supervisors[session_id] = supervisor
                self._tasks[session_id] = group.create_task(
                    self._supervise(supervisor), name=f"supervisor-{session_id}"
                )
            if len(claimed) < CLAIM_LIMIT:
                return

    async def _supervise(self, supervisor: Supervisor) -> None:
        """Run a supervisor; one that fails beyond its own means has its session failed."""
        session_id = supervisor.session_id
        try:
            await supervisor.run()
        except Exception:
            logger.exception("A supervisor failed.", extra={"session": session_id})
            await self._fail(session_id)
        finally:
            if self._supervisors.get(session_id) is supervisor:
                del self._supervisors[session_id], self._tasks[session_id]

    async def _fail(self, session_id: str) -> None:
        """End a session that cannot be supervised; its objects are the reaper's."""
        try:
            await _persist(partial(store.fail, self._engine_id, session_id, UNEXPECTED))
            ended = await _persist(store.unlogged)
            await self._reconciler.restore_logs(
                [session for session in ended if session.session_id == session_id]
            )
            self._runtime.bus.drop(session_id)
        except Exception:
            logger.exception("A session cannot be failed.", extra={"session": session_id})

    async def _evict(self) -> None:
        kept = timedelta(milliseconds=self._runtime.config.exit_ttl_ms)
        interval_seconds = min(
            max(kept.total_seconds() / 4, SHORTEST_EVICTION_SECONDS), LONGEST_EVICTION_SECONDS
        )
        looked_at = datetime.now(UTC)
        while True:
            began_at = datetime.now(UTC)
            with suppress(Unavailable):
                for session_id in await store.evict_ended(began_at - kept):
                    logger.info("Session evicted.", extra={"session": session_id})
                # Those, and what other processes have evicted to admit new ones.
                for session_id in await store.evicted_since(looked_at - CLOCKS_APART):
                    await self._runtime.log.drop(session_id)
                    self._runtime.bus.drop(session_id)
                looked_at = began_at
            await asyncio.sleep(interval_seconds)

    async def _purge(self) -> None:
        kept = timedelta(days=self._runtime.config.history_days)
        while True:
            with suppress(Unavailable):
                await store.purge_history(datetime.now(UTC) - kept)
            await asyncio.sleep(PURGE_SECONDS)

    async def _drop_bundles(self) -> None:
        while True:
            with suppress(Unavailable):
                for session_id in await store.drop_unfetched(datetime.now(UTC)):
                    logger.warning("A bundle was not fetched.", extra={"session": session_id})
            await asyncio.sleep(DROP_SECONDS)

    async def _wind_down(self) -> None:
        """Stop every session, in a bound, where the operator wants that."""
        self._is_stopping = True
        if not self._runtime.config.stop_sessions_on_exit or not self._tasks:
            logger.info("Handing %d sessions over.", len(self._tasks))
            return
        logger.info("Stopping %d sessions.", len(self._tasks))
        for supervisor in self._supervisors.values():
            supervisor.stop()
        await asyncio.wait(self._tasks.values(), timeout=STOP_ALL_SECONDS)

    async def _retire(self) -> None:
        if not self._engine_id:
            return
        try:
            await aio.finish(
                store.retire_engine(self._engine_id),
                name="engine-retire",
                timeout_seconds=RETIRE_SECONDS,
            )
        except (Unavailable, TimeoutError):
            logger.warning("The engine's lease was left to run out.")
        self._engine_id = ""


async def _keep(duty: Duty) -> None:
    """Let a duty go on after a defect of its own: one that ended would look healthy."""
    while True:
        try:
            await duty()
        except Exception:
            logger.exception("A duty of the engine failed; it begins anew.")
        await asyncio.sleep(RESTART_SECONDS)


async def _persist(action: Callable[[], Awaitable[T]]) -> T:
    """Do something in the database, as soon as it can be reached."""
    backoff = aio.Backoff()
    while True:
        try:
            return await action()
        except Unavailable:
            logger.warning("The database cannot be reached; trying again.")
            await backoff.wait()
