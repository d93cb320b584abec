"""The session log: what clients read. One event ring a session, one output ring an application.

Items carry rising numbers. A ring is bounded by bytes: the oldest items are evicted, never the
newest, and a reader that missed some is told so. Publishing never waits for a reader. The log is
written by the engine that owns the session only: a write with an older fence is refused.

Events are what `sessions.sse.encode()` returned; output items are one stream byte (0 tty, 1 stdout,
2 stderr) and at most 64 KiB of payload.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

# The contract's bound of one chunk on /io.
MAX_CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Batch:
    """What a reader got: `has_gap` says that numbers before the first item are gone for it.

    `is_end` says that nothing follows these items: the session has ended, or its log was dropped.
    """

    items: Sequence[tuple[int, bytes]]
    has_gap: bool = False
    is_end: bool = False


@dataclass(frozen=True)
class Starts:
    """The highest numbers that may have been used before; new items are numbered above them."""

    events: int = 0
    output: Mapping[str, int] = field(default_factory=dict)


class Reader(Protocol):
    """One reader's place in one ring."""

    async def next(self) -> Batch:
        """Wait for something newer than the last batch: about 64 KiB, or one larger item.

        Returns an empty batch with `is_end` once the ring has ended. After that it must not be
        called again. Cancelling it loses nothing.
        """


class Writer(Protocol):
    """The owner's end of one session's log."""

    async def publish_event(self, encoded: bytes) -> int:
        """Append an encoded event; return its number.

        Raises:
            StaleFence: Another engine owns the session by now.
        """

    async def publish_output(self, app: str, stream: int, data: bytes) -> int:
        """Append output in chunks of at most 64 KiB; return the last chunk's number (0: no data).

        Raises:
            StaleFence: Another engine owns the session by now.
        """

    async def mark_gap(self, app: str) -> None:
        """Say that output of an application was lost before what is published next.

        Readers get a gap at that place.
        """

    async def close(self) -> None:
        """End every ring of the session: readers drain what is there and then see the end."""


class SessionLog(Protocol):
    """The log of all sessions."""

    async def open(self, session_id: str, *, fence: int, starts: Starts) -> Writer:
        """Open a session's log for its owner; what is there already is kept.

        Raises:
            StaleFence: The log has seen a higher fence.
        """

    def read_events(self, session_id: str, after: int) -> AbstractAsyncContextManager[Reader]:
        """Open a reader of the events after number `after` (0: all).

        A number beyond the newest means a gap and everything. A session whose log does not exist
        yet is waited for.
        """

    def read_output(
        self, session_id: str, app: str, after: int
    ) -> AbstractAsyncContextManager[Reader]:
        """Open a reader of an application's output, as `read_events`."""

    async def has_output(self, session_id: str, app: str) -> bool:
        """Tell whether there is any output of an application to replay."""

    async def drop(self, session_id: str) -> None:
        """Forget a session; its readers see the end."""
