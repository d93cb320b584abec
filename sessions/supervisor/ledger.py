"""What a supervisor notes in its row while the session goes on, without anybody waiting for it.

Numbers of the log are reserved in blocks far ahead of their use, so that a later owner goes on
above everything that clients may have seen. A database that is away delays notes and loses none.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sessions import store
from sessions.log import Starts, Writer
from sessions.states import Phase
from telorunner import aio
from telorunner.errors import StaleFence, Unavailable

logger = logging.getLogger(__name__)

# A session tells a few dozen events and some thousand chunks of output in its life, so one
# reservation is mostly enough; a chunk of 64 KiB 100,000 times over is 6 GiB.
EVENT_BLOCK = 1_000
OUTPUT_BLOCK = 100_000

FLUSH_SECONDS = 2.0


def starts_after(events: int, output: int, apps: tuple[str, ...]) -> Starts:
    """Return where an owner goes on numbering that follows another.

    One more block than the row says: the one before may have gone on while the database was away.
    """
    return Starts(events=events + EVENT_BLOCK, output=dict.fromkeys(apps, output + OUTPUT_BLOCK))


class Ledger:
    """The notes of one session; `run()` writes them down."""

    def __init__(self, session_id: str, fence: int, *, starts: Starts) -> None:
        self._session_id = session_id
        self._fence = fence
        self._used_events = starts.events
        self._used_output = max(starts.output.values(), default=0)
        self._reserved_events = self._reserved_output = -1
        self._pod: tuple[str, str] | None = None
        self._progress: tuple[Phase, str] | None = None
        self._endpoints: Sequence[Mapping[str, Any]] | None = None
        self._routes: Sequence[Mapping[str, Any]] | None = None
        self._news = asyncio.Event()
        # The first blocks are reserved at once.
        self._news.set()

    def note_pod(self, name: str, uid: str) -> None:
        """Note the pod that the session runs in."""
        self._pod = (name, uid)
        self._news.set()

    def note_progress(self, phase: Phase, message: str) -> None:
        """Note what was said last."""
        self._progress = (phase, message)
        self._news.set()

    def note_endpoints(self, endpoints: Sequence[Mapping[str, Any]]) -> None:
        """Note where the ports are, where the row says otherwise."""
        self._endpoints = endpoints
        self._news.set()

    def note_routes(self, routes: Sequence[Mapping[str, Any]]) -> None:
        """Note how the public hosts stand."""
        self._routes = routes
        self._news.set()

    def note_event(self, number: int) -> None:
        """Note the number of an event that clients may have seen."""
        self._used_events = max(self._used_events, number)
        if self._lacks_events():
            self._news.set()

    def note_output(self, number: int) -> None:
        """Note the number of a chunk that clients may have seen."""
        self._used_output = max(self._used_output, number)
        if self._lacks_output():
            self._news.set()

    async def run(self) -> None:
        """Write notes down until cancelled; then what is left is tried once more, in a bound.

        Raises:
            StaleFence: Another engine owns the session by now.
        """
        backoff = aio.Backoff()
        try:
            while True:
                await self._news.wait()
                try:
                    await self._write()
                except Unavailable:
                    await backoff.wait()
                else:
                    backoff.reset()
        finally:
            if self._news.is_set():
                await self._flush()

    async def _flush(self) -> None:
        name = f"ledger-{self._session_id}"
        try:
            await aio.finish(self._write(), name=name, timeout_seconds=FLUSH_SECONDS)
        except (Unavailable, TimeoutError, StaleFence):
            logger.info("Last notes are lost.", extra={"session": self._session_id})

    async def _write(self) -> None:
        """Write down what is new; notes made meanwhile, or not written, stay for the next time."""
        self._news.clear()
        try:
            if self._lacks_events() or self._lacks_output():
                await self._reserve()
            if (pod := self._pod) is not None:
                self._check(await store.record_pod(self._session_id, self._fence, *pod))
                self._pod = None
            if (progress := self._progress) is not None:
                self._check(await store.record_progress(self._session_id, self._fence, *progress))
                if self._progress == progress:
                    self._progress = None
            await self._write_network()
        except BaseException:
            self._news.set()
            raise

    async def _write_network(self) -> None:
        if (endpoints := self._endpoints) is not None:
            self._check(await store.record_endpoints(self._session_id, self._fence, endpoints))
            if self._endpoints is endpoints:
                self._endpoints = None
        if (routes := self._routes) is not None:
            self._check(await store.record_routes(self._session_id, self._fence, routes))
            if self._routes is routes:
                self._routes = None

    async def _reserve(self) -> None:
        events, output = self._used_events + EVENT_BLOCK, self._used_output + OUTPUT_BLOCK
        self._check(
            await store.reserve_numbers(self._session_id, self._fence, events=events, output=output)
        )
        self._reserved_events, self._reserved_output = events, output

    def _lacks_events(self) -> bool:
        return self._reserved_events - self._used_events < EVENT_BLOCK // 2

    def _lacks_output(self) -> bool:
        return self._reserved_output - self._used_output < OUTPUT_BLOCK // 2

    @staticmethod
    def _check(is_ours: bool) -> None:
        if not is_ours:
            raise StaleFence


class CountingWriter:
    """A log writer that tells a ledger which numbers are used."""

    def __init__(self, inner: Writer, ledger: Ledger) -> None:
        self._inner = inner
        self._ledger = ledger

    async def publish_event(self, encoded: bytes) -> int:
        """Append an encoded event; return its number."""
        number = await self._inner.publish_event(encoded)
        self._ledger.note_event(number)
        return number

    async def publish_output(self, app: str, stream: int, data: bytes) -> int:
        """Append output; return the last chunk's number."""
        number = await self._inner.publish_output(app, stream, data)
        self._ledger.note_output(number)
        return number

    async def mark_gap(self, app: str) -> None:
        """Say that output was lost before what is published next."""
        await self._inner.mark_gap(app)

    async def close(self) -> None:
        """End every ring of the session."""
        await self._inner.close()
