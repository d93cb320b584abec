"""Task helpers: the only place that makes tasks outside a TaskGroup.

It starts nothing by itself; each task belongs to the caller that asked for it.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

STOP_REPORT_SECONDS = 5.0


def start(coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Start a task that the caller owns: it must be stopped with `stop()` and its end looked at."""
    return asyncio.get_running_loop().create_task(coroutine, name=name)


async def stop(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they are gone, however long that takes.

    What is still running is named in the log every few seconds. Failures are logged, not raised:
    whoever stops a task no longer waits for its result. Being cancelled meanwhile cancels the
    tasks once more and goes on waiting, then raises CancelledError.
    """
    was_cancelled = False
    pending = {task for task in tasks if not task.done()}
    for task in pending:
        task.cancel()
    while pending:
        try:
            _, pending = await asyncio.wait(pending, timeout=STOP_REPORT_SECONDS)
        except asyncio.CancelledError:
            was_cancelled = True
            for task in pending:
                task.cancel()
            pending = {task for task in pending if not task.done()}
            continue
        for task in pending:
            logger.warning("Task %s is still stopping.", task.get_name())
    for task in tasks:
        if not task.cancelled() and (failure := task.exception()) is not None:
            logger.error("Task %s failed while stopping.", task.get_name(), exc_info=failure)
    if was_cancelled:
        raise asyncio.CancelledError


async def finish(coroutine: Coroutine[Any, Any, T], *, name: str, timeout_seconds: float) -> T:
    """Run to its end, within a bound, what must not be lost to a cancellation.

    A cancellation that arrives meanwhile is held back until the work is done, and then raised.

    Raises:
        TimeoutError: The work took longer than the bound; it was cancelled.
    """

    async def bounded() -> T:
        async with asyncio.timeout(timeout_seconds):
            return await coroutine

    task = start(bounded(), name=name)
    was_cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            was_cancelled = True
    if was_cancelled:
        with suppress(Exception):
            task.result()
        raise asyncio.CancelledError
    return task.result()


@dataclass
class Backoff:
    """Delays between attempts: doubling from `first_seconds` up to `cap_seconds`, with jitter.

    `jitter` is the share of a delay that is random (0.2: between 0.8 and 1.0 of it), so that many
    that failed together do not try again together.
    """

    first_seconds: float = 0.1
    cap_seconds: float = 10.0
    jitter: float = 0.2
    random: Callable[[], float] = random.random
    _attempts: int = field(default=0, init=False)

    def next_delay(self, at_least_seconds: float = 0.0) -> float:
        """Return the seconds to wait before the next attempt, but no less than what was asked."""
        # The exponent is capped so that an outage of days cannot overflow a float.
        delay = min(self.cap_seconds, self.first_seconds * 2.0 ** min(self._attempts, 60))
        self._attempts += 1
        return max(at_least_seconds, delay * (1.0 - self.jitter * self.random()))

    def reset(self) -> None:
        """Begin anew after an attempt that worked."""
        self._attempts = 0

    async def wait(self, at_least_seconds: float = 0.0) -> None:
        """Sleep for the next delay."""
        await asyncio.sleep(self.next_delay(at_least_seconds))
