"""A bounded ring of numbered items, and a reader's place in it; pure.

Numbers rise by one. The oldest items are evicted by bytes, the newest never is. A reader learns of
every place where something is missing for it: what was evicted before it came, where output was
lost (`mark_gap`), and where the numbers of an earlier life of the session end (`start`).
It knows neither sessions nor waiting.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from sessions.log import MAX_CHUNK_BYTES, Batch

# An item of one byte costs some 170 bytes here. A flood of tiny items is bounded by their number:
# one to 64 bytes of the cap, but never fewer than these, so that small rings go by bytes alone.
BYTES_PER_COUNTED_ITEM = 64
MIN_COUNTED_ITEMS = 4_096
# Evicted slots are cut off together once there are this many and they are half of the list.
COMPACT_AT_SLOTS = 1_024

_BEYOND = -1
_EVICTED = (0, b"")


def split_output(stream: int, data: bytes) -> Iterator[bytes]:
    """Yield output items: the stream byte and at most 64 KiB of payload each; none for no data."""
    prefix = bytes((stream,))
    if len(data) <= MAX_CHUNK_BYTES:
        if data:
            yield prefix + data
        return
    view = memoryview(data)
    for start in range(0, len(data), MAX_CHUNK_BYTES):
        yield prefix + view[start : start + MAX_CHUNK_BYTES]


@dataclass(slots=True)
class Place:
    """Where a reader stands: the last number it has, and the last marked gap it was told of."""

    cursor: int
    reported_mark: int = _BEYOND


class Ring:
    """Items above `start`, at most `max_bytes` of them (or the newest alone, if it is larger)."""

    def __init__(self, max_bytes: int, start: int = 0) -> None:
        self.start = start
        self.newest = start
        self._max_bytes = max_bytes
        self._max_items = max(MIN_COUNTED_ITEMS, max_bytes // BYTES_PER_COUNTED_ITEM)
        # The slots before `_head` are evicted. `_ends[i]` is the sum of all bytes ever appended
        # up to and with item i, so that a batch's end is found by bisection.
        self._items: list[tuple[int, bytes]] = []
        self._ends: list[int] = []
        self._head = 0
        self._appended_bytes = 0
        self._evicted_bytes = 0
        # Numbers after which something is missing, rising. Numbers up to `start` may have been
        # reserved and never used, so that even a reader at `start` cannot know it has everything.
        self._marks = [start] if start > 0 else []
        # The batch read last: readers that stand at the same place share it.
        self._recent: tuple[tuple[int, int, bool, int], Batch] | None = None

    @property
    def floor(self) -> int:
        """The number before the oldest item that is still here."""
        return self.newest - len(self)

    @property
    def stored_bytes(self) -> int:
        """The bytes of all items that are still here."""
        return self._appended_bytes - self._evicted_bytes

    def __len__(self) -> int:
        return len(self._items) - self._head

    def append(self, item: bytes) -> int:
        """Add an item, evict what no longer fits, return the item's number."""
        self.newest += 1
        self._recent = None
        self._appended_bytes += len(item)
        self._items.append((self.newest, item))
        self._ends.append(self._appended_bytes)
        while len(self) > 1 and (
            self.stored_bytes > self._max_bytes or len(self) > self._max_items
        ):
            self._evict()
        return self.newest

    def mark_gap(self) -> None:
        """Say that something was lost before what is appended next."""
        if not self._marks or self._marks[-1] < self.newest:
            self._marks.append(self.newest)

    def place(self, after: int, *, newest: int | None = None) -> Place:
        """Return the place of a reader that has everything up to number `after`.

        A number beyond `newest` (None: the newest there is) is none of ours: the reader gets a gap
        and everything.
        """
        return Place(_BEYOND if after > (self.newest if newest is None else newest) else after)

    def read(self, place: Place, max_bytes: int) -> Batch | None:
        """Return what follows a place and move it on; None when there is nothing new.

        A batch has at most `max_bytes` (or one larger item) and ends where a gap is marked, so that
        a gap is always before the first item of its batch. A gap may come without items.
        """
        has_gap = place.cursor < self.floor
        if has_gap:
            place.cursor = place.reported_mark = self.floor
        following = bisect_left(self._marks, place.cursor)
        if following < len(self._marks) and self._marks[following] == place.cursor:
            has_gap = has_gap or place.reported_mark < place.cursor
            place.reported_mark = place.cursor
            following += 1
        last = self._marks[following] if following < len(self._marks) else self.newest
        if place.cursor >= last and not has_gap:
            return None
        key = (place.cursor, last, has_gap, max_bytes)
        if self._recent is None or self._recent[0] != key:
            items = self._slice(place.cursor, last, max_bytes)
            self._recent = (key, Batch(items, has_gap=has_gap))
        batch = self._recent[1]
        place.cursor += len(batch.items)
        return batch

    def _slice(self, after: int, last: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """Return the items above `after` up to number `last`, within the bound."""
        if after >= last:
            return []
        begin = self._head + after - self.floor
        limit = self._head + last - self.floor
        before = self._ends[begin] - len(self._items[begin][1])
        end = bisect_right(self._ends, before + max_bytes, begin, limit)
        return self._items[begin : max(end, begin + 1)]

    def _evict(self) -> None:
        """Take out the oldest item; marks that only readers before it could pass go with it."""
        self._evicted_bytes = self._ends[self._head]
        # The payload is let go at once; the slot when the list is compacted.
        self._items[self._head] = _EVICTED
        self._head += 1
        if self._head >= COMPACT_AT_SLOTS and self._head * 2 >= len(self._items):
            del self._items[: self._head]
            del self._ends[: self._head]
            self._head = 0
        if self._marks and self._marks[0] < self.floor:
            del self._marks[: bisect_left(self._marks, self.floor)]
