"""The session log of one process, in its memory.

Everything happens on the event loop. No tasks are owned: a reader waits in its caller's task, and
publishing only schedules one wake-up of all readers of a ring, so that its cost does not depend on
how many there are. It comes once a turn of the loop has brought nothing more: waking many readers
takes longer than publishing, and a burst reaches them in few batches instead of item by item.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sessions.log import MAX_CHUNK_BYTES, Batch, Reader, Starts, Writer
from sessions.log.ring import Place, Ring, split_output
from telorunner.errors import StaleFence

# A reader that stalls keeps its batch alive, also once the ring has let go of it; those that stand
# at the same place share one. Smaller ones cost readers of a burst half their speed.
MAX_BATCH_BYTES = 65_536

# A burst is gathered no further than this. What is read at once is sent at once: the bytes also
# keep a lone reader of a flood close behind it.
GATHERED_BYTES = 65_536
GATHERED_TURNS = 256
GATHERED_SECONDS = 0.05

_END = Batch((), is_end=True)


class _Feed:
    """A ring and its waiting readers; the ring is None until the owner has opened the log."""

    def __init__(self) -> None:
        self.ring: Ring | None = None
        self.is_ended = False
        self.is_dropped = False
        self._changed = asyncio.Event()
        self._waiting = 0
        # Of the wake-up that is due: turns waited, until when, bytes come so far and since then.
        self._is_wake_due = False
        self._turns = 0
        self._gather_until = 0.0
        self._gathered_bytes = self._new_bytes = 0

    def wake(self, new_bytes: int = 0) -> None:
        """Let every waiting reader look again, soon; `new_bytes` (0: none) are there to be read."""
        self._new_bytes += new_bytes
        if self._waiting and not self._is_wake_due:
            self._is_wake_due = True
            self._turns = self._gathered_bytes = 0
            loop = asyncio.get_running_loop()
            loop.call_soon(self._gather, loop)

    async def wait(self) -> None:
        """Wait for the next wake-up."""
        self._waiting += 1
        try:
            await self._changed.wait()
        finally:
            self._waiting -= 1

    def _gather(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the readers, or wait for another turn of the loop while every one brings more."""
        if not self._turns:
            # NB: now, for the turn before may have been a long one: the readers' last round.
            self._gather_until = loop.time() + GATHERED_SECONDS
        brought_bytes, self._new_bytes = self._new_bytes, 0
        self._gathered_bytes += brought_bytes
        self._turns += 1
        if (
            brought_bytes
            and self._gathered_bytes < GATHERED_BYTES
            and self._turns < GATHERED_TURNS
            and loop.time() < self._gather_until
        ):
            loop.call_soon(self._gather, loop)
            return
        self._is_wake_due = False
        # Setting releases those who wait now; clearing makes the next ones wait again.
        self._changed.set()
        self._changed.clear()


class _SessionRings:
    """All rings of one session, and the fence of its owner."""

    def __init__(self, max_ring_bytes: int) -> None:
        self.fence = 0
        self.is_open = False
        self.is_dropped = False
        self.readers = 0
        self.events = _Feed()
        self.output: dict[str, _Feed] = {}
        self._max_ring_bytes = max_ring_bytes
        self._starts = Starts()
        self._is_ended = False

    def open(self, fence: int, starts: Starts) -> None:
        """Give every ring its first number, or go on with those that are there."""
        if fence < self.fence:
            raise StaleFence
        self.fence = fence
        self.is_open = True
        self._is_ended = False
        # A ring that exists knows its numbers better than what the row has reserved.
        self._starts = starts
        for app in starts.output:
            self.output.setdefault(app, _Feed())
        self._prepare(self.events, starts.events)
        for app, feed in self.output.items():
            self._prepare(feed, starts.output.get(app, 0))

    def output_feed(self, app: str) -> _Feed:
        """Return an application's feed; it is made when it is first asked for."""
        feed = self.output.get(app)
        if feed is None:
            feed = self.output[app] = _Feed()
            if self.is_open:
                self._prepare(feed, self._starts.output.get(app, 0))
        return feed

    def end(self) -> None:
        """End every ring; those made later are ended from the start."""
        self._is_ended = True
        for feed in (self.events, *self.output.values()):
            feed.is_ended = True
            feed.wake()

    def drop(self) -> None:
        """Let every reader see the end at once."""
        self.is_dropped = True
        for feed in (self.events, *self.output.values()):
            feed.is_dropped = True
            feed.wake()

    def _prepare(self, feed: _Feed, start: int) -> None:
        if feed.ring is None:
            feed.ring = Ring(self._max_ring_bytes, start)
        feed.is_ended = self._is_ended
        feed.wake()


class _MemoryReader:
    """A place in one feed."""

    def __init__(self, feed: _Feed, after: int) -> None:
        self._feed = feed
        self._after = after
        self._place: Place | None = None
        if feed.ring is not None:
            self._place = feed.ring.place(after)

    async def next(self) -> Batch:
        """Return what follows, as the protocol says."""
        while True:
            if self._feed.is_dropped:
                return _END
            if (batch := self._read()) is not None:
                return batch
            if self._feed.is_ended:
                return _END
            await self._feed.wait()

    def _read(self) -> Batch | None:
        ring = self._feed.ring
        if ring is None:
            return None
        if self._place is None:
            # It came before the owner: what is new to it is everything since the ring began.
            self._place = ring.place(self._after, newest=ring.start)
        return ring.read(self._place, MAX_BATCH_BYTES)


class _MemoryWriter:
    """The owner's end; every write checks that the log has seen no higher fence."""

    def __init__(self, rings: _SessionRings, fence: int) -> None:
        self._rings = rings
        self._fence = fence
        self._since_turn_bytes = 0

    async def publish_event(self, encoded: bytes) -> int:
        """Append an encoded event; return its number."""
        self._check()
        return self._append(self._rings.events, encoded)

    async def publish_output(self, app: str, stream: int, data: bytes) -> int:
        """Append output in chunks; return the last chunk's number."""
        self._check()
        feed = self._rings.output_feed(app)
        number = 0
        for item in split_output(stream, data):
            number = self._append(feed, item)
        self._since_turn_bytes += len(data)
        if self._since_turn_bytes >= MAX_CHUNK_BYTES:
            # A source that never waits would keep the readers from running at all.
            self._since_turn_bytes = 0
            await asyncio.sleep(0)
        return number

    async def mark_gap(self, app: str) -> None:
        """Mark that output was lost here."""
        self._check()
        feed = self._rings.output_feed(app)
        if feed.ring is not None:
            feed.ring.mark_gap()
            feed.wake()

    async def close(self) -> None:
        """End every ring of the session."""
        self._check()
        self._rings.end()

    def _check(self) -> None:
        if self._fence < self._rings.fence or self._rings.is_dropped:
            raise StaleFence

    def _append(self, feed: _Feed, item: bytes) -> int:
        assert feed.ring is not None  # noqa: S101 - opening the log made the rings
        number = feed.ring.append(item)
        feed.wake(len(item))
        return number


class MemoryLog:
    """The log of all sessions of this process; `max_ring_bytes` bounds each ring."""

    def __init__(self, max_ring_bytes: int) -> None:
        self._max_ring_bytes = max_ring_bytes
        self._sessions: dict[str, _SessionRings] = {}

    async def open(self, session_id: str, *, fence: int, starts: Starts) -> Writer:
        """Open a session's log for its owner, as the protocol says."""
        rings = self._rings(session_id)
        rings.open(fence, starts)
        return _MemoryWriter(rings, fence)

    @asynccontextmanager
    async def read_events(self, session_id: str, after: int) -> AsyncIterator[Reader]:
        """Open a reader of the events after number `after`."""
        rings = self._hold(session_id)
        try:
            yield _MemoryReader(rings.events, after)
        finally:
            self._let_go(session_id, rings)

    @asynccontextmanager
    async def read_output(self, session_id: str, app: str, after: int) -> AsyncIterator[Reader]:
        """Open a reader of an application's output."""
        rings = self._hold(session_id)
        try:
            yield _MemoryReader(rings.output_feed(app), after)
        finally:
            self._let_go(session_id, rings)

    async def has_output(self, session_id: str, app: str) -> bool:
        """Tell whether there is any output of an application to replay."""
        rings = self._sessions.get(session_id)
        feed = rings.output.get(app) if rings is not None else None
        return feed is not None and feed.ring is not None and len(feed.ring) > 0

    async def drop(self, session_id: str) -> None:
        """Forget a session; its readers see the end, a writer is refused."""
        rings = self._sessions.pop(session_id, None)
        if rings is not None:
            rings.drop()

    def _rings(self, session_id: str) -> _SessionRings:
        rings = self._sessions.get(session_id)
        if rings is None:
            rings = self._sessions[session_id] = _SessionRings(self._max_ring_bytes)
        return rings

    def _hold(self, session_id: str) -> _SessionRings:
        rings = self._rings(session_id)
        rings.readers += 1
        return rings

    def _let_go(self, session_id: str, rings: _SessionRings) -> None:
        """Count a reader out; a log that only readers asked for goes with the last of them."""
        rings.readers -= 1
        is_unused = not rings.readers and not rings.is_open
        if is_unused and self._sessions.get(session_id) is rings:
            del self._sessions[session_id]
