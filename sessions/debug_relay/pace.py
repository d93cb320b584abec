"""How much of the runner an untrusted stream may cost: a budget that time refills.

Whoever spends more than there is waits, and so does the sender, by TCP's own flow control.
"""

import asyncio

# What a new connection may cost at once: 5,000 frames of 500 bytes, which a kernel replays to a new
# subscriber, cost about 8 MiB.
BURST_COST = 12 * 2**20
# About 600 frames of 300 bytes, or 1 MiB of anything, a second: some 2 % of a core.
COST_PER_SECOND = 2**20

# The price of things in bytes that take as long, so that many tiny ones are no way around.
READ_COST = 256
LINE_COST = 128
MESSAGE_COST = 1_024
TOKEN_COST = 16


class Pace:
    """A budget of `burst`, refilled by `per_second`; once overdrawn it is to be waited for."""

    def __init__(self, burst: float = BURST_COST, per_second: float = COST_PER_SECOND) -> None:
        self._burst = burst
        self._per_second = per_second
        self._left = burst
        self._at: float | None = None

    def spend(self, cost: float) -> None:
        """Take a cost off the budget."""
        now = asyncio.get_running_loop().time()
        if self._at is not None:
            self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        self._left -= cost

    async def wait(self) -> float:
        """Wait until nothing is owed, a turn of the loop at least; return the seconds owed."""
        seconds = max(0.0, -self._left / self._per_second)
        await asyncio.sleep(seconds)
        return seconds
