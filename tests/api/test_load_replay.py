"""Replay under load: whoever comes, or comes back, at any moment misses nothing unknowingly.

Sources, readers and the real server share the reactor's loop, so that all of them compete.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.api.burst import Burst, begin_burst, serving
from tests.api.reactor import on_server, running_reactor
from tests.readers import MANY, EventReader, OutputReader, Place

__all__ = ["running_reactor"]

pytestmark = [
    pytest.mark.usefixtures("transactional_db", "reactor"),
    pytest.mark.timeout(600),
]

MIB = 1_048_576
# Keeps everything, or so little that whoever falls behind has lost something.
RINGS = {"whole": 256 * MIB, "evicting": 262_144}
FOREIGN = 10**9
RECONNECTS = 10
REPLAY_SECONDS = 2.0

Times = Callable[[int, int], int]


@dataclass
class Crowd:
    """Many readers of one burst; `holes` counts what they were told is missing."""

    burst: Burst
    dice: random.Random
    may_lose: bool
    holes: int = 0
    ended: int = 0

    async def visit_events(self) -> None:
        """Come at some moment, read to the end of the stream, and check what came."""
        burst = self.burst
        await burst.reached(self.dice.randrange(burst.last_event + 1))
        place = burst.events_after(*self._cursor(burst.newest_event))
        stream = await burst.open_events(place)
        try:
            await self._pause()
            while await stream.read(self._few()):
                if self.may_lose and self.dice.random() < 0.05:
                    await self._pause()
        finally:
            await stream.hang_up()
        self._leave(place, burst.last_event)

    async def visit_output(self) -> None:
        burst = self.burst
        await burst.reached(self.dice.randrange(burst.last_event + 1))
        place = burst.output_after(*self._cursor(burst.newest_output))
        await self._read_output(place)
        # A socket drains for 2 s after the end; who was slower comes back for the rest.
        while place.last < burst.chunks:
            await self._read_output(place)
        self._leave(place, burst.chunks)

    async def _read_output(self, place: Place) -> None:
        socket = await self.burst.open_output(place)
        try:
            await self._pause()
            while await socket.read():
                if self.may_lose and self.dice.random() < 0.002:
                    await self._pause()
            assert socket.close_code == 1000
        finally:
            await socket.hang_up()

    async def return_to_events(self) -> None:
        """Be cut off again and again, and go on after the last number, or look in at another."""
        burst = self.burst
        place = burst.events_after(0)
        for _ in range(RECONNECTS):
            now = self._detour(place, burst.events_after, burst.newest_event)
            stream = await burst.open_events(now)
            await self._read_some(stream)
            stream.cut()
        stream = await burst.open_events(place)
        while await stream.read():
            pass
        await stream.hang_up()
        self._leave(place, burst.last_event)

    async def return_to_output(self) -> None:
        burst = self.burst
        place = burst.output_after(0)
        for _ in range(RECONNECTS):
            now = self._detour(place, burst.output_after, burst.newest_output)
            socket = await burst.open_output(now)
            await self._read_some(socket)
            socket.cut()
        while place.last < burst.chunks:
            await self._read_output(place)
        self._leave(place, burst.chunks)

    async def _read_some(self, reader: EventReader | OutputReader) -> None:
        """Read up to a tenth of what there will be; more than is there is waited for."""
        burst = self.burst
        total = burst.chunks if isinstance(reader, OutputReader) else burst.last_event
        until = reader.place.seen + self.dice.randrange(2 * total // RECONNECTS)
        while reader.place.seen < until:
            if not await reader.read(until - reader.place.seen):
                return

    def _few(self) -> int:
        """Return how many events to take at once, where there is a pause now and then."""
        return self.dice.randrange(1, 50) if self.may_lose else MANY

    async def _pause(self) -> None:
        """Take nothing for a while, if something may be lost by that."""
        if self.may_lose:
            burst = self.burst
            ahead = self.dice.randrange(1, burst.count // 4)
            await burst.reached(min(burst.newest_event + ahead, burst.last_event))

    def _cursor(self, newest: int) -> tuple[int, bool]:
        """Choose a number to begin after; True: one that was never given out."""
        chosen = self.dice.choice([0, newest, self.dice.randrange(newest + 1), FOREIGN])
        return chosen, chosen == FOREIGN

    def _detour(self, place: Place, make: Callable[[int, bool], Place], newest: int) -> Place:
        """Return the reader's own place, mostly, else another that it looks in at."""
        return make(*self._cursor(newest)) if self.dice.random() < 0.3 else place

    def _leave(self, place: Place, newest: int) -> None:
        assert place.last == newest
        self.holes += place.holes
        self.ended += 1


async def flood(seed: int, ring: str, counts: tuple[int, int, int], *, returning: bool) -> Crowd:
    """Let half of the readers follow the events and half the output of one burst."""
    readers, count, output_bytes = counts
    dice = random.Random(seed)
    async with serving(RINGS[ring]) as (running, port):
        tasks = len(asyncio.all_tasks())
        burst = await begin_burst(port, count, output_bytes, dice)
        crowd = Crowd(burst, dice, may_lose=ring == "evicting")
        if not crowd.may_lose:
            # Nobody pauses: what is taken ahead need not be felt by the server.
            burst.ahead_bytes = MIB
        visits = (
            [crowd.return_to_events, crowd.return_to_output]
            if returning
            else [crowd.visit_events, crowd.visit_output]
        )
        async with asyncio.TaskGroup() as group:
            for _ in range(readers // 2):
                for visit in visits:
                    group.create_task(visit())
            group.create_task(burst.run())
        await nothing_is_left(tasks)
        assert running.bus.attendance(burst.owner.session_id) == 0
    return crowd


async def nothing_is_left(tasks: int) -> None:
    """Wait until the loop has no more tasks than before."""
    async with asyncio.timeout(20):
        while len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("returning", [False, True], ids=["coming", "returning"])
@pytest.mark.parametrize("ring", RINGS)
async def test_readers_of_a_burst_see_every_number_once_or_a_gap(
    times: Times, ring: str, returning: bool
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    counts = (times(200, 20), times(10_000, 1_000), times(50 * MIB, 4 * MIB))
    try:
        crowd = await on_server(flood(seed, ring, counts, returning=returning))
    except BaseException as exc:
        exc.add_note(f"seed {seed}")
        raise
    assert crowd.ended == counts[0]
    if ring == "evicting":
        assert crowd.holes > counts[0] // 10


async def come_after_the_end(times_to_come: int) -> None:
    """Follow both streams of a session that is over, again and again."""
    async with serving(RINGS["whole"]) as (_running, port):
        burst = await begin_burst(port, 50, 100_000, random.Random(0))
        await burst.run()
        tasks = len(asyncio.all_tasks())
        for _ in range(times_to_come):
            async with asyncio.timeout(REPLAY_SECONDS):
                events = await burst.open_events(burst.events_after(0))
                output = await burst.open_output(burst.output_after(0))
                for reader in (events, output):
                    while await reader.read():
                        pass
                    await reader.hang_up()
            assert events.place.last == burst.last_event
            assert (output.place.last, output.close_code) == (burst.chunks, 1000)
        await nothing_is_left(tasks)


async def test_who_comes_after_the_end_gets_the_replay_and_the_end_at_once(times: Times) -> None:
    await on_server(come_after_the_end(times(100, 20)))
