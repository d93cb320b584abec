"""A session in its supervisor's hands: its row's facts, its log, and the ways to change them.

The order is always the same: the row first, then the log. No tasks are owned here.
"""

import asyncio
import logging
import math
from datetime import UTC, datetime
from typing import Any

from sessions import events, sse, store
from sessions.log import Starts
from sessions.spec import STOPPED, App, Status
from sessions.states import Phase, StatusKind
from sessions.store import OwnedSession
from sessions.supervisor.endpoints import note_endpoints
from sessions.supervisor.ledger import CountingWriter, Ledger, starts_after
from sessions.supervisor.ownership import Owner
from telorunner import aio
from telorunner.errors import StaleFence, Unavailable

logger = logging.getLogger(__name__)

# One write of a status and of the event that tells it; a database that takes longer is away.
WRITE_SECONDS = 5.0
# The contract's bound between a wish to stop and `stopped`.
STOP_SECONDS = 15.0
# What is left of it at least for an owner that takes over in the middle of a stop, or after it: a
# pod's grace of 2 s, and what a kubelet and an API server take for the rest.
LEAST_STOP_SECONDS = 4.0


class Session:
    """What the parts of a supervisor share; `open_session()` makes one."""

    def __init__(
        self, owner: Owner, row: OwnedSession, writer: CountingWriter, ledger: Ledger
    ) -> None:
        self.owner = owner
        self.runtime = owner.runtime
        self.row = row
        self.writer = writer
        self.ledger = ledger
        self.status = row.status
        self.stop_asked = asyncio.Event()
        # By when the stop is over, whatever is still there, by the loop's clock.
        self.stop_deadline = math.inf
        # Set once clients have been told that the session runs.
        self.has_run = asyncio.Event()
        # Set whenever anything that decides about the session has changed.
        self.wake = asyncio.Event()
        # Why the start can never be done, where the pod does not say so; empty: it may be.
        self.start_failure = ""
        self.pod_uid = row.pod_uid
        # Whether the pod ran before this supervisor came, so that output of it may be missed.
        self.is_adopted = False
        # Whether there may be anything in the cluster, however the calls that made it ended.
        self.may_have_objects = self.is_taken_over
        self._said: set[str] = set()
        self._told = Status(row.status, endpoints=row.endpoints)
        if row.stop_requested_at is not None:
            self.ask_stop(wished_at=row.stop_requested_at)

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.row.spec.session_id

    @property
    def app(self) -> App:
        """The one application of a run session."""
        return self.row.spec.apps[0]

    @property
    def is_taken_over(self) -> bool:
        """Whether another engine, or this one before a restart, had the session already."""
        return self.row.fence > 1

    @property
    def log_extra(self) -> dict[str, str]:
        """What every log line about the session carries."""
        return {"session": self.session_id}

    def ask_stop(self, *, wished_at: datetime | None = None) -> None:
        """Let the session end as `stopped`, as soon as its supervisor comes to it.

        `wished_at` is when that was first asked for, be it of an earlier owner; None: just now.
        """
        left_seconds = STOP_SECONDS
        if wished_at is not None:
            # Of another machine's clock, maybe: one that is ahead must not lengthen the stop.
            gone_seconds = max((datetime.now(UTC) - wished_at).total_seconds(), 0.0)
            left_seconds = max(STOP_SECONDS - gone_seconds, LEAST_STOP_SECONDS)
        deadline = asyncio.get_running_loop().time() + left_seconds
        self.stop_deadline = min(self.stop_deadline, deadline)
        self.stop_asked.set()
        self.wake.set()

    def fail_start(self, message: str) -> None:
        """Let a session that has not started end as failed, with this sentence for clients."""
        self.start_failure = message
        self.wake.set()

    async def announce(self) -> None:
        """Tell the status that the row has: event 1, or what a log that begins anew must say."""
        await self._tell(self._told)
        if self.row.progress is not None and self.status is StatusKind.STARTING:
            phase, message = self.row.progress
            self._said.add(message)
            await self.publish(events.progress(phase, message))

    async def tell_again(self) -> None:
        """Tell the status once more, so that much that follows it cannot push it out of the log."""
        await self._tell(self._told)

    async def say(self, message: str, phase: Phase = Phase.PROVISION) -> None:
        """Tell a step of the start, once."""
        if message in self._said:
            return
        self._said.add(message)
        await self.publish(events.progress(phase, message))
        self.ledger.note_progress(phase, message)

    async def advance(self, status: Status) -> None:
        """Write a status to the row and then to the log; wait while the database is away.

        A terminal status ends the log and the input too. Once the row is written the log follows,
        whoever cancels meanwhile.

        Raises:
            StaleFence: Another engine owns the session by now.
        """
        backoff, is_certain = aio.Backoff(), True
        while True:
            await self.owner.lease.wait_held()
            try:
                await aio.finish(
                    self._write(status, is_certain),
                    name=f"status-{self.session_id}",
                    timeout_seconds=WRITE_SECONDS,
                )
                return
            except (Unavailable, TimeoutError):
                # The write may have happened all the same.
                is_certain = False
                logger.warning(
                    "The status %s waits for the database.", status.kind, extra=self.log_extra
                )
                await backoff.wait()

    async def _write(self, status: Status, is_certain: bool) -> None:
        written = await self._write_row(status, is_certain)
        self.status = written.kind
        await self._tell(written)
        logger.info("Session is %s.", written.kind, extra=self.log_extra)
        if written.kind.is_terminal:
            await self.writer.close()
            self.runtime.bus.drop(self.session_id)

    async def _tell(self, status: Status) -> None:
        self._told = status
        await self.publish(events.status(status.to_json()))
        if status.kind is StatusKind.RUNNING:
            self.has_run.set()

    async def _write_row(self, status: Status, is_certain: bool) -> Status:
        """Write a status to the row and return the one that it has now.

        Raises:
            StaleFence: Another engine owns the session by now.
        """
        if await self._transition(status):
            return status
        written = None if is_certain else await self._written(status)
        if written is not None:
            return written
        # The wish may have been recorded a moment before the end was: asked to stop is stopped.
        if await self._is_stop_wished() and await self._transition(STOPPED):
            return STOPPED
        raise StaleFence

    async def _transition(self, status: Status) -> bool:
        return await store.transition(self.owner.engine_id, self.session_id, self.row.fence, status)

    async def _is_stop_wished(self) -> bool:
        row = await store.load(self.owner.engine_id, self.session_id)
        return row is not None and row.fence == self.row.fence and row.is_stop_requested

    async def _written(self, status: Status) -> Status | None:
        """Return what an earlier try that seemed to fail has written all the same."""
        if not status.kind.is_terminal:
            row = await store.load(self.owner.engine_id, self.session_id)
            if row is None or row.fence != self.row.fence or row.status is not status.kind:
                return None
            return status
        for ended in await store.unlogged():
            if ended.session_id == self.session_id and ended.fence == self.row.fence:
                return ended.status
        return None

    async def publish(self, event: dict[str, Any]) -> None:
        """Append an event to the session's log."""
        await self.writer.publish_event(sse.encode(event))


async def open_session(owner: Owner, row: OwnedSession) -> Session:
    """Open the session's log above all numbers that were ever used in it.

    Raises:
        StaleFence: Another engine owns the session by now.
    """
    apps = tuple(app.name for app in row.spec.apps)
    if row.fence > 1:
        starts = starts_after(row.event_numbers, row.output_numbers, apps)
    else:
        starts = Starts(output=dict.fromkeys(apps, 0))
    writer = await owner.runtime.log.open(row.spec.session_id, fence=row.fence, starts=starts)
    ledger = Ledger(row.spec.session_id, row.fence, starts=starts)
    row = note_endpoints(row, owner.runtime.router, ledger)
    return Session(owner, row, CountingWriter(writer, ledger), ledger)
