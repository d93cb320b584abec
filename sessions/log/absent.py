"""The log of a process that cannot reach it: engines keep theirs in their own memory.

Whoever wants to read is told to try again, for another process may have it.
"""

from contextlib import AbstractAsyncContextManager
from typing import Any

from sessions.log import Reader, Writer
from telorunner.errors import Unavailable

_PROBLEM = "This process serves no events and no terminals, another one does. Try again shortly."


class AbsentLog:
    """A log that cannot be had: whatever needs one raises Unavailable."""

    async def open(self, *_args: Any, **_options: Any) -> Writer:
        """Refuse."""
        raise Unavailable(_PROBLEM)

    def read_events(self, *_args: Any) -> AbstractAsyncContextManager[Reader]:
        """Refuse."""
        raise Unavailable(_PROBLEM)

    def read_output(self, *_args: Any) -> AbstractAsyncContextManager[Reader]:
        """Refuse."""
        raise Unavailable(_PROBLEM)

    async def has_output(self, *_args: Any) -> bool:
        """Refuse."""
        raise Unavailable(_PROBLEM)

    async def drop(self, session_id: str) -> None:
        """Do nothing: the engine that has the log looks for what was evicted."""
