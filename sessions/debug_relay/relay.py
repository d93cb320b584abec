"""The relay of one debug server: connected to for as long as the session lives.

`run()` is one task of whoever calls it. Everything that the other end can make long, large, deep,
fast or silent has a bound; what breaks one costs a message, or the connection.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from sessions.debug_relay.messages import MessageParser
from sessions.debug_relay.pace import LINE_COST, MESSAGE_COST, READ_COST, TOKEN_COST, Pace
from sessions.debug_relay.replay import ReplayFilter
from sessions.debug_relay.stream import EventStream, NoStream, open_stream

logger = logging.getLogger(__name__)

Frame = dict[str, Any]

# The contract's.
RETRY_SECONDS = 0.5
# The server says something every 15 s; when three of these are missed the connection is dead.
SILENCE_SECONDS = 50.0
# A replay comes in one go. A server that pauses this long in what looked like one has sent no more.
SETTLE_SECONDS = 2.0
# A kernel closes its stream when it ends, mostly before the cluster tells that the container has.
DRAIN_SECONDS = 0.1
REPORT_EVERY_SECONDS = 60.0

# Frames have three or four levels; clients may read them by recursion.
MAX_DEPTH = 64

# A string, which may lack its end, or a bracket. Nothing is tried twice, whatever the text.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


@dataclass(frozen=True)
class DebugTarget:
    """Where a kernel's debug server listens: an IP address, never a name."""

    session_id: str
    address: str
    port: int


class DebugRelay:
    """Hands on the event frames of one kernel, each once and in order.

    `deliver` takes a frame: plain JSON values that orjson can encode. `on_loss` is called, once in
    a while, where frames were left out because they are too large or nested too deeply.
    """

    def __init__(
        self,
        target: DebugTarget,
        deliver: Callable[[Frame], Awaitable[None]],
        on_loss: Callable[[], Awaitable[None]],
    ) -> None:
        self._target = target
        self._deliver = deliver
        self._on_loss = on_loss
        self._replay = ReplayFilter()
        self._pace = Pace()
        self._is_quiet = asyncio.Event()
        self._is_quiet.set()
        self._left_out = 0
        self._report_due_at = 0.0

    async def run(self) -> None:
        """Relay until cancelled."""
        while True:
            # What went wrong is the application's own business: often it just does not listen.
            with suppress(NoStream, OSError, TimeoutError):
                await self._listen()
            await asyncio.sleep(RETRY_SECONDS)

    async def drain(self) -> None:
        """Wait, within a bound, until a stream that is open has brought its last frames."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._is_quiet.wait()

    async def _listen(self) -> None:
        """Relay one connection to its end.

        Raises:
            NoStream: There is something else.
            OSError, TimeoutError: There is nothing, it broke, or it fell silent.
        """
        async with open_stream(self._target.address, self._target.port) as stream:
            self._is_quiet.clear()
            try:
                self._replay.begin()
                await self._receive(stream)
            finally:
                self._is_quiet.set()

    async def _receive(self, stream: EventStream) -> None:
        parser = MessageParser()
        chunks = 0
        while (data := await self._read(stream)) is not None:
            lines, messages = parser.lines, 0
            for message in parser.feed(data):
                messages += 1
                for new in self._replay.take(message):
                    await self._hand_on(new)
            self._left_out += parser.take_oversized()
            pieces = parser.lines - lines + stream.chunks - chunks
            chunks = stream.chunks
            self._pace.spend(
                max(READ_COST, len(data)) + LINE_COST * pieces + MESSAGE_COST * messages
            )
            await self._report(await self._pace.wait())

    async def _read(self, stream: EventStream) -> bytes | None:
        """Return the next bytes, None at the end."""
        if not self._replay.is_settled:
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_SECONDS):
                    return await stream.read()
            for message in self._replay.settle():
                await self._hand_on(message)
        async with asyncio.timeout(SILENCE_SECONDS):
            return await stream.read()

    async def _hand_on(self, message: bytes) -> None:
        """Deliver a message that is an event frame."""
        is_deep, tokens = _measure(message)
        self._pace.spend(TOKEN_COST * tokens)
        if is_deep:
            self._left_out += 1
            return
        try:
            # Whatever passes can be encoded again: no NaN, no lone surrogate, no huge number.
            frame = orjson.loads(message)
        except ValueError:
            return
        if isinstance(frame, dict) and _is_event(frame):
            await self._deliver(frame)

    async def _report(self, owed_seconds: float) -> None:
        """Tell once in a while what the bounds have cost, never the content."""
        now = asyncio.get_running_loop().time()
        if not (self._left_out or owed_seconds) or now < self._report_due_at:
            return
        self._report_due_at = now + REPORT_EVERY_SECONDS
        logger.info(
            "A debug stream is over its bounds: %d frames left out, %.1f s held back.",
            self._left_out,
            owed_seconds,
            extra={"session": self._target.session_id, "action": "debug"},
        )
        if self._left_out:
            self._left_out = 0
            await self._on_loss()


def _is_event(frame: Frame) -> bool:
    """Tell an event frame from log and record frames; a kernel may leave out which it is."""
    kind = frame.get("kind")
    return kind == "event" or (kind is None and isinstance(frame.get("event"), str))


def _measure(message: bytes) -> tuple[bool, int]:
    """Return whether JSON is nested too deeply, and how many tokens were looked at to know it."""
    if message.count(b"{") + message.count(b"[") <= MAX_DEPTH:
        return False, 0
    depth = tokens = 0
    for match in _TOKEN.finditer(message):
        token = match[0]
        tokens += 1
        if token in b"{[":
            depth += 1
            if depth > MAX_DEPTH:
                return True, tokens
        elif token in b"}]":
            depth -= 1
    return False, tokens
