"""The lease that an engine holds on its sessions, and what it gives every supervisor.

An engine whose lease has run out may have lost its sessions to another: it goes on relaying, but
takes up nothing, deletes no pod and writes no status until a renewal has worked.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from sessions.runtime import Runtime

# Another engine may take over when the lease is up by the database's clock; ours ends earlier by
# what a request that was sent in time may still be under way.
LEASE_MARGIN_SECONDS = 2.0


class Lease:
    """Whether the engine may decide; held from a renewal on, for as long as that one lasts."""

    def __init__(
        self, lease_seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._ends_at = clock()
        self._renewal = asyncio.Event()

    @property
    def is_held(self) -> bool:
        """Whether nobody else can have taken this engine's sessions."""
        return self._clock() < self._ends_at

    def now(self) -> float:
        """Return the time to hand to `renewed()`, taken before the renewal is asked for."""
        return self._clock()

    def renewed(self, asked_at: float) -> None:
        """Hold the lease, counted from when the renewal was asked for."""
        self._ends_at = asked_at + self._lease_seconds - LEASE_MARGIN_SECONDS
        self._renewal.set()

    def lost(self) -> None:
        """Hold nothing until the next renewal."""
        self._ends_at = self._clock()

    async def wait_held(self) -> None:
        """Wait until the lease is held."""
        while not self.is_held:
            self._renewal.clear()
            await self._renewal.wait()


@dataclass(frozen=True)
class Owner:
    """The engine as its supervisors see it."""

    runtime: Runtime
    engine_id: str
    lease: Lease
