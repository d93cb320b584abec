"""Readers that take nothing: what they cost, that they slow nobody down, what they get later."""

import asyncio
import random
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sessions import events, sse
from sessions.spec import exited
from sessions.states import Phase
from tests.api.burst import Burst, begin_burst, serving
from tests.api.reactor import on_server, running_reactor
from tests.readers import EventReader, OutputReader, Place

__all__ = ["running_reactor"]

pytestmark = pytest.mark.usefixtures("transactional_db", "reactor")

MIB = 1_048_576
RING_BYTES = 5_000_000
FLOOD_BYTES = 30_000_000
STALLED = 10
# What all of them together may hold, beside the ring that is there for everybody.
STALLED_BYTES = 20 * MIB
# The items of a ring are objects: of these sizes they cost a few percent more than their bytes.
RING_OVERHEAD = 1.1
EVENT_BYTES = 5_000
CHUNK_BYTES = 65_536
VIEWED_BYTES = 20_000_000
# 20 MB in a second: faster than a container's terminal, slower than memory.
PACE_SECONDS = CHUNK_BYTES / VIEWED_BYTES
DELAY_SECONDS = 1.0

Stalled = EventReader | OutputReader


def big_event(number: int) -> bytes:
    return sse.encode(events.progress(Phase.BOOT, f"{number} ".ljust(EVENT_BYTES, "x")))


def big_chunk(number: int) -> bytes:
    return b"%d " % number + b"x" * (CHUNK_BYTES - 20)


class Flood:
    """A session that is flooded on one of its streams; what it says is derived from the number."""

    def __init__(self, burst: Burst, kind: str) -> None:
        self.burst = burst
        self.kind = kind
        self.newest = 1 if kind == "events" else 0
        self.sent_at: dict[int, float] = {}

    def content(self, number: int) -> bytes:
        if self.kind == "output":
            return b"\0" + big_chunk(number)
        if number == 1:
            return self.burst.event(1)
        return (
            big_event(number)
            if number <= self.newest
            else sse.encode(events.status(exited(0).to_json()))
        )

    async def pour(self, total_bytes: int, *, pause_seconds: float = 0.0) -> None:
        """Say that much, letting readers run after each piece."""
        size = EVENT_BYTES if self.kind == "events" else CHUNK_BYTES
        for _ in range(total_bytes // size):
            number = self.newest + 1
            self.sent_at[number] = time.monotonic()
            if self.kind == "events":
                self.newest = await self.burst.owner.log.publish_event(big_event(number))
            else:
                self.newest = await self.burst.owner.say(big_chunk(number))
            assert self.newest == number
            await asyncio.sleep(pause_seconds)

    async def open(self) -> Stalled:
        place = Place(0, self.content)
        is_events = self.kind == "events"
        return await (self.burst.open_events(place) if is_events else self.burst.open_output(place))

    async def until_read(self, reader: Stalled) -> None:
        while reader.place.last < self.newest:
            await reader.read()


@asynccontextmanager
async def flooding(kind: str) -> AsyncIterator[Flood]:
    async with serving(RING_BYTES) as (_running, port):
        burst = await begin_burst(port, 0, 0, random.Random(0))
        yield Flood(burst, kind)


async def cost_of_stalled(kind: str) -> tuple[int, list[int]]:
    """Return what the flood costs at most with stalled readers, and the holes they were told of."""
    async with flooding(kind) as flood:
        # Once without any, so that what is made only once is there.
        warm = await flood.open()
        await flood.pour(4 * CHUNK_BYTES)
        await flood.until_read(warm)
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        stalled = [await flood.open() for _ in range(STALLED)]
        await flood.pour(FLOOD_BYTES)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for reader in stalled:
            await flood.until_read(reader)
        await flood.burst.owner.become(exited(0))
        for reader in (warm, *stalled):
            while await reader.read():
                pass
            await reader.hang_up()
        return peak - before, [reader.place.holes for reader in stalled]


@pytest.mark.parametrize("kind", ["events", "output"])
async def test_ten_stalled_readers_cost_at_most_a_ring_and_20_mb(kind: str) -> None:
    cost_bytes, holes = await on_server(cost_of_stalled(kind))
    assert cost_bytes < RING_BYTES * RING_OVERHEAD + STALLED_BYTES
    # Each was told that something is missing, where it was, and then went on.
    assert min(holes) >= 1


async def delay_beside_stalled() -> tuple[float, int]:
    """Return the longest delay of a viewer's output, and the holes of one that reads nothing."""
    async with flooding("output") as flood:
        viewer, stalled = await flood.open(), await flood.open()
        longest = 0.0

        async def watch() -> None:
            nonlocal longest
            while viewer.place.last < VIEWED_BYTES // CHUNK_BYTES:
                seen = viewer.place.seen
                await viewer.read()
                if viewer.place.seen > seen:
                    delay = time.monotonic() - flood.sent_at[viewer.place.last]
                    longest = max(longest, delay)

        async with asyncio.TaskGroup() as group:
            group.create_task(watch())
            group.create_task(flood.pour(VIEWED_BYTES, pause_seconds=PACE_SECONDS))
        assert viewer.place.holes == 0
        await flood.until_read(stalled)
        for reader in (viewer, stalled):
            await reader.hang_up()
        return longest, stalled.place.holes


async def test_a_viewer_is_not_delayed_by_another_that_stops_reading() -> None:
    longest, holes = await on_server(delay_beside_stalled())
    assert longest < DELAY_SECONDS
    assert holes == 1
