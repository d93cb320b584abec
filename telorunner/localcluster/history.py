"""The bounded history of changes of one resource, which watches read.

A change is serialised once, whoever watches. Readers keep a position of their own and are woken
together, so a slow one costs nothing and one that falls out of the history is told so. No tasks
are started here.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from telorunner.localcluster import statuses


@dataclass(frozen=True)
class HistoryBounds:
    """How much of its changes a resource remembers.

    What a relist costs is small; what an unbounded history of megabyte ConfigMaps costs is not.
    `bytes` counts JSON: an object takes several times as much.
    """

    changes: int = 1024
    bytes: int = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Change:
    """One write: what happened to which object.

    `obj` is the object after the change (for DELETED as it last was, with the version of its
    deletion), `encoded` the same as JSON, `previous` the object before it, None for ADDED.
    """

    type: str
    revision: int
    obj: dict[str, Any]
    encoded: bytes
    previous: dict[str, Any] | None


class History:
    """Changes of one resource, oldest first, bounded in number and bytes."""

    def __init__(self, revision: int, bounds: HistoryBounds) -> None:
        self._bounds = bounds
        self._changes: list[Change] = []
        self._first_position = 0
        self._bytes = 0
        self._dropped_revision = revision
        self._news = asyncio.Event()

    @property
    def end(self) -> int:
        """Return the position after the newest change."""
        return self._first_position + len(self._changes)

    def append(self, change: Change) -> None:
        """Add a change and wake everybody who waits for one."""
        self._changes.append(change)
        self._bytes += len(change.encoded)
        while len(self._changes) > self._bounds.changes or self._bytes > self._bounds.bytes:
            # A half at a time, so that trimming does not cost on every write.
            self._drop((len(self._changes) + 1) // 2)
        news, self._news = self._news, asyncio.Event()
        news.set()

    def forget(self, revision: int) -> None:
        """Drop every change, so that each version before `revision` is answered with 410."""
        self._drop(len(self._changes))
        self._dropped_revision = revision

    def position_after(self, revision: int) -> int:
        """Return the position of the first change that is newer than `revision`.

        Raises:
            StoreError: 410, changes after `revision` have been dropped already.
        """
        if revision < self._dropped_revision:
            raise statuses.too_old(revision, self._dropped_revision)
        low, high = 0, len(self._changes)
        while low < high:
            middle = (low + high) // 2
            if self._changes[middle].revision <= revision:
                low = middle + 1
            else:
                high = middle
        return self._first_position + low

    def read(self, position: int) -> list[Change]:
        """Return the changes from `position` on, perhaps none.

        Raises:
            StoreError: 410, the reader is so slow that its next change has been dropped.
        """
        if position < self._first_position:
            raise statuses.expired("too old resource version: the watch fell behind")
        return self._changes[position - self._first_position :]

    async def wait(self) -> None:
        """Wait until something is appended after this call."""
        await self._news.wait()

    def _drop(self, count: int) -> None:
        if not count:
            return
        dropped = self._changes[:count]
        del self._changes[:count]
        self._first_position += count
        self._bytes -= sum(len(change.encoded) for change in dropped)
        self._dropped_revision = dropped[-1].revision
