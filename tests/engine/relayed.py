"""A debug relay at work on a server of the test's; without deadlines, for virtual time too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sessions.debug_relay import DebugRelay, DebugTarget
from telorunner import aio
from tests.debug_servers import DebugServer


@dataclass
class Relayed:
    """A relay at work on a server, and what it has delivered."""

    server: DebugServer
    relay: DebugRelay | None = None
    frames: list[dict[str, Any]] = field(default_factory=list)
    losses: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def deliver(self, frame: dict[str, Any]) -> None:
        self.frames.append(frame)
        self._changed.set()

    async def on_loss(self) -> None:
        self.losses += 1
        self._changed.set()

    async def until(self, count: int) -> list[dict[str, Any]]:
        """Wait until that many frames were delivered and return them."""
        while len(self.frames) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.frames

    async def until_loss(self) -> None:
        while not self.losses:
            self._changed.clear()
            await self._changed.wait()

    async def names(self, count: int) -> list[str]:
        return [frame["event"] for frame in await self.until(count)]


@asynccontextmanager
async def relaying(server: DebugServer, address: str = "127.0.0.1") -> AsyncIterator[Relayed]:
    relayed = Relayed(server)
    target = DebugTarget("abcdefghijkl", address, server.port)
    relayed.relay = DebugRelay(target, relayed.deliver, relayed.on_loss)
    task = aio.start(relayed.relay.run(), name="relay")
    try:
        yield relayed
        assert not task.done(), "the relay ended by itself"
    finally:
        await aio.stop(task)
