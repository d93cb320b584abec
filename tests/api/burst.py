"""A session that floods both of its streams, served by the real server on the reactor's loop.

Every event and every chunk of output is derived from its number, so that a reader can tell whether
it got the right one.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property

from sessions import events, runtime, sse
from sessions.runtime import Runtime
from sessions.spec import STARTING, exited
from sessions.states import Phase
from telorunner.server import Address, Limits, open_server
from tests.builders import make_runtime, make_settings
from tests.owners import Owner, admit, own
from tests.readers import (
    READ_AHEAD_BYTES,
    EventReader,
    OutputReader,
    Place,
    Transcript,
    open_event_reader,
    open_output_reader,
)

LARGEST_CHUNK_BYTES = 65_536
# Of the events that are followed by a chunk of output.
CHUNK_EVERY = 8
_FILLER = random.Random(1).randbytes(2 * LARGEST_CHUNK_BYTES)
_LETTERS = "".join(random.Random(2).choices("abcdefghijklmnopqrstuvwxyz\u00e9\u20ac", k=2_000))


def event_content(number: int) -> bytes:
    """Return what event `number` of a burst is, but its id."""
    start = number * 7_919 % 1_000
    text = f"{number} {_LETTERS[start : start + number * 104_729 % 200]}"
    return sse.encode(events.progress(Phase.BOOT, text))


@dataclass
class Burst:
    """A flood of `count` events and about `output_bytes` of output; the session then ends."""

    owner: Owner
    port: int
    count: int
    output_bytes: int
    dice: random.Random
    ahead_bytes: int = READ_AHEAD_BYTES
    _moments: dict[int, asyncio.Event] = field(default_factory=dict)
    newest_event: int = 1
    newest_output: int = 0
    # Hundreds of readers compare with these: each is worked out once.
    _chunks: dict[int, bytes] = field(default_factory=dict)

    @property
    def chunks(self) -> int:
        return max(1, self.count // CHUNK_EVERY)

    @property
    def last_event(self) -> int:
        """The number of the terminal status: event 1 is `starting`, then come the flood's."""
        return self.count + 2

    @cached_property
    def transcript(self) -> Transcript:
        """The whole event stream, of a reader that misses nothing."""
        numbers = range(1, self.last_event + 1)
        return Transcript([sse.frame(number, self.event(number)) for number in numbers])

    def chunk(self, number: int) -> bytes:
        """Return the stream byte and the payload of output `number`."""
        if number not in self._chunks:
            self._chunks[number] = self._chunk(number)
        return self._chunks[number]

    def _chunk(self, number: int) -> bytes:
        mean = self.output_bytes // self.chunks
        length = min(1 + number * 15_485_863 % (2 * mean), LARGEST_CHUNK_BYTES)
        start = number * 7_919 % LARGEST_CHUNK_BYTES
        return b"\0" + b"%d:" % number + _FILLER[start : start + max(0, length - 20)]

    def event(self, number: int) -> bytes:
        """Return event `number` as it is encoded."""
        if number == 1:
            return sse.encode(events.status(STARTING.to_json()))
        if number == self.last_event:
            return sse.encode(events.status(exited(0).to_json()))
        return event_content(number)

    async def reached(self, event_number: int) -> None:
        """Wait until an event of this number was published."""
        if event_number > self.newest_event:
            await self._moments.setdefault(event_number, asyncio.Event()).wait()

    async def run(self) -> None:
        """Publish everything and end the session."""
        for number in range(2, self.count + 2):
            await self.owner.log.publish_event(self.event(number))
            self._passed(number)
            if number % CHUNK_EVERY == 1 and self.newest_output < self.chunks:
                chunk = self.chunk(self.newest_output + 1)
                self.newest_output = await self.owner.say(chunk[1:])
            if self.dice.random() < 0.3:
                # Mostly no pause at all; now and then long enough for everybody to catch up.
                await asyncio.sleep(0.002 if self.dice.random() < 0.05 else 0)
        while self.newest_output < self.chunks:
            self.newest_output = await self.owner.say(self.chunk(self.newest_output + 1)[1:])
        await self.owner.become(exited(0))
        self._passed(self.last_event)

    def _passed(self, number: int) -> None:
        self.newest_event = number
        if moment := self._moments.pop(number, None):
            moment.set()

    def events_after(self, number: int, is_foreign: bool = False) -> Place:
        return Place(number, self.event, is_foreign=is_foreign, transcript=self.transcript)

    def output_after(self, number: int, is_foreign: bool = False) -> Place:
        return Place(number, self.chunk, is_foreign=is_foreign)

    async def open_events(self, place: Place) -> EventReader:
        return await open_event_reader(
            self.port, self.owner.session_id, place, ahead_bytes=self.ahead_bytes
        )

    async def open_output(self, place: Place) -> OutputReader:
        return await open_output_reader(
            self.port, self.owner.session_id, place, ahead_bytes=self.ahead_bytes
        )


@asynccontextmanager
async def serving(ring_bytes: int) -> AsyncIterator[tuple[Runtime, int]]:
    """Serve the whole application on this loop, the reactor's; yield the runtime and the port."""
    from telorunner.asgi import build_application

    config = make_settings(replay_buffer_bytes=ring_bytes)
    with runtime.installed(make_runtime(config)) as running:
        limits = Limits(body_bytes=config.max_bundle_bytes)
        application = build_application(config)
        async with open_server(application, Address("127.0.0.1", 0), limits) as server:
            yield running, server.port


async def begin_burst(port: int, count: int, output_bytes: int, dice: random.Random) -> Burst:
    """Register a session for a burst and take it up."""
    owner = await own(await admit())
    return Burst(owner, port, count, output_bytes, dice)
