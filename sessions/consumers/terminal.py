"""The terminal socket: output frames to the client, keystrokes and sizes to the application.

Each socket owns one task with one helper a direction. Sending waits for the client, so that a slow
one is told of a gap by the log. Received keystrokes are held here up to a bound; beyond it the
consumer takes no more messages and the server stops reading, which the typist feels.
"""

import asyncio
import logging
from collections import deque
from enum import IntEnum
from typing import Any

import orjson
from channels.exceptions import StopConsumer
from django.conf import settings

from sessions import runtime
from sessions.actions import follow
from sessions.consumers.events import query_value
from sessions.consumers.frames import FrameSender, parse_size
from sessions.consumers.owner import OwnsOneTask
from telorunner.errors import (
    NotFound,
    NothingToReplay,
    OwnerUnreachable,
    ResizeUnsupported,
    Stopping,
    Unavailable,
)

logger = logging.getLogger(__name__)

# Enough to notice resizes and the end of the socket behind a paste that the application is slow
# to take; the bus holds 1 MiB more.
MAX_HELD_INPUT_BYTES = 262_144
# At most one size per 50 ms: the contract's.
RESIZE_INTERVAL_SECONDS = 0.05
# After the session's end, for what has not been sent yet: the contract's.
DRAIN_SECONDS = 2.0
# After the client has gone, for what it had typed before.
TYPED_GRACE_SECONDS = 2.0


class CloseCode(IntEnum):
    """Why a socket is closed.

    Source: https://www.iana.org/assignments/websocket/websocket.xhtml; 4xxx are the contract's.
    """

    DONE = 1000
    INTERNAL = 1011
    RESTART = 1012
    TRY_AGAIN = 1013
    FORBIDDEN_ORIGIN = 4403
    NOT_FOUND = 4404
    NOTHING_TO_REPLAY = 4410


_CODES: dict[type[Exception], CloseCode] = {
    NotFound: CloseCode.NOT_FOUND,
    NothingToReplay: CloseCode.NOTHING_TO_REPLAY,
    OwnerUnreachable: CloseCode.TRY_AGAIN,
    Stopping: CloseCode.RESTART,
    Unavailable: CloseCode.TRY_AGAIN,
}


class TerminalSocket(OwnsOneTask):
    """WS /v1/sessions/{id}/io."""

    def __init__(self) -> None:
        super().__init__()
        self._typed: deque[bytes] = deque()
        self._typed_bytes = 0
        self._size: tuple[int, int] | None = None
        # Each is set when there may be something new to look at.
        self._has_input = asyncio.Event()
        self._has_size = asyncio.Event()
        self._has_room = asyncio.Event()

    async def websocket_connect(self, _message: dict[str, Any]) -> None:
        """Accept whatever comes: a browser cannot read a refused handshake."""
        await self.send({"type": "websocket.accept"})
        self.start_task(self._serve(), name=f"terminal of {self.session_id()}")

    async def websocket_receive(self, message: dict[str, Any]) -> None:
        """Keep keystrokes in order and the last size; wait while too much is held already.

        The message at hand is in memory anyway; it is the next one that waits, so that what stands
        behind a single large paste is still seen.
        """
        data = message.get("bytes")
        if data is None:
            self._keep_size(message.get("text") or "")
            return
        await self._wait_until_typed(MAX_HELD_INPUT_BYTES)
        self._typed.append(data)
        self._typed_bytes += len(data)
        self._has_input.set()

    async def websocket_disconnect(self, _message: dict[str, Any]) -> None:
        """Deliver what was typed before the client went, then end."""
        try:
            async with asyncio.timeout(TYPED_GRACE_SECONDS):
                await self._wait_until_typed(0)
        except TimeoutError:
            logger.info("Typed input was not taken.", extra={"session": self.session_id()})
        await self.stop_task()
        raise StopConsumer

    async def _wait_until_typed(self, held_bytes: int) -> None:
        """Wait until no more than this is held, or nobody takes input any more."""
        while self._typed_bytes > held_bytes and self.task and not self.task.done():
            self._has_room.clear()
            await self._has_room.wait()

    def _keep_size(self, text: str) -> None:
        size = parse_size(text)
        if size is not None:
            self._size = size
            self._has_size.set()

    async def _serve(self) -> None:
        try:
            code = await self._talk()
        except Exception as exc:
            code = _CODES.get(type(exc), CloseCode.INTERNAL)
            if code is CloseCode.INTERNAL:
                logger.exception("A terminal failed.", extra={"session": self.session_id()})
        finally:
            self._drop_typed()
        close = {"type": "websocket.close", "code": int(code), "reason": code.name.lower()}
        await self.send(close)

    async def _talk(self) -> CloseCode:
        """Carry both directions until the session, the client or the process ends."""
        if not self._is_allowed_origin():
            return CloseCode.FORBIDDEN_ORIGIN
        query = self.scope["query_string"]
        app, last_seq = query_value(query, "app"), query_value(query, "lastSeq")
        stopping = runtime.current().stopping
        async with follow.open_terminal(self.session_id(), app, last_seq) as terminal:
            verdict: asyncio.Future[CloseCode] = asyncio.get_running_loop().create_future()
            async with asyncio.TaskGroup() as group:
                helpers = [
                    group.create_task(self._show(terminal, verdict)),
                    group.create_task(self._type(terminal, verdict)),
                    group.create_task(self._resize(terminal)),
                    group.create_task(_restart(stopping, verdict)),
                    group.create_task(_bound_drain(terminal, verdict)),
                ]
                code = await verdict
                for helper in helpers:
                    helper.cancel()
        return code

    def _is_allowed_origin(self) -> bool:
        config = settings.RUNNER
        if not config.has_origin_list:
            return True
        origins = [value for name, value in self.scope["headers"] if name == b"origin"]
        allowed = {origin.encode() for origin in config.cors_origins}
        return len(origins) == 1 and origins[0] in allowed

    async def _show(self, terminal: follow.Terminal, verdict: "asyncio.Future[CloseCode]") -> None:
        """Send output until there will be no more."""
        sender = FrameSender(self.send)
        await sender.begin(terminal)
        while True:
            batch = await terminal.reader.next()
            await sender.relay(batch)
            if batch.is_end:
                _decide(verdict, CloseCode.DONE)
                return

    async def _type(self, terminal: follow.Terminal, verdict: "asyncio.Future[CloseCode]") -> None:
        """Hand keystrokes over in order; what was handed over is no longer held."""
        while True:
            while self._typed:
                try:
                    await terminal.type(self._typed[0])
                except OwnerUnreachable:
                    _decide(verdict, CloseCode.TRY_AGAIN)
                    return
                self._typed_bytes -= len(self._typed.popleft())
                self._has_room.set()
            self._has_input.clear()
            await self._has_input.wait()

    async def _resize(self, terminal: follow.Terminal) -> None:
        """Pass on the last size asked for, at most once an interval."""
        while True:
            await self._has_size.wait()
            self._has_size.clear()
            if self._size is not None:
                try:
                    await terminal.resize(*self._size)
                except ResizeUnsupported as exc:
                    refusal = {"type": "error", "error": exc.code, **exc.fields}
                    await self.send(
                        {"type": "websocket.send", "text": orjson.dumps(refusal).decode()}
                    )
            await asyncio.sleep(RESIZE_INTERVAL_SECONDS)

    def _drop_typed(self) -> None:
        """Let a waiting receiver go: nobody takes input any more."""
        self._typed.clear()
        self._typed_bytes = 0
        self._has_room.set()


def _decide(verdict: "asyncio.Future[CloseCode]", code: CloseCode) -> None:
    """Say why the socket closes; the first reason counts."""
    if not verdict.done():
        verdict.set_result(code)


async def _restart(stopping: asyncio.Event, verdict: "asyncio.Future[CloseCode]") -> None:
    await stopping.wait()
    _decide(verdict, CloseCode.RESTART)


async def _bound_drain(terminal: follow.Terminal, verdict: "asyncio.Future[CloseCode]") -> None:
    """Close on a viewer that has not taken the rest in time after the session's end.

    One that came after the end has asked for a replay, and gets all of it.
    """
    if terminal.is_live:
        await terminal.wait_ended()
        await asyncio.sleep(DRAIN_SECONDS)
        _decide(verdict, CloseCode.DONE)
