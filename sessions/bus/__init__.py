"""The bus: what travels towards the engine that owns a session, and who is watching.

Keystrokes travel in order and are kept until the owner has written them to the application, with a
bound that the sender feels. Wake-ups may get lost: whoever waits for one also looks by itself.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

# Undelivered input that is held for an application before the sender is paused: the contract's.
MAX_PENDING_INPUT_BYTES = 1_048_576
# One write to the attach stream: small enough to interleave a resize.
INPUT_PIECE_BYTES = 32_768


@dataclass(frozen=True)
class Size:
    """A terminal's size, clamped to 1..10000 each."""

    columns: int
    rows: int


@dataclass(frozen=True)
class Pending:
    """What waits for the application: the last size asked for (if newer), and the next bytes."""

    size: Size | None
    data: bytes


class Inbox(Protocol):
    """The owner's end of one application's input."""

    @property
    def size(self) -> Size | None:
        """The last size any viewer asked for; a new attach begins with it."""

    async def peek(self) -> Pending:
        """Wait for a new size or bytes (at most INPUT_PIECE_BYTES); nothing is taken out."""

    def commit(self, pending: Pending) -> None:
        """Take out what `peek()` returned: it is on its way to the application."""


class Bus(Protocol):
    """Input, wake-ups and presence of all sessions."""

    async def push_input(self, session_id: str, app: str, data: bytes) -> None:
        """Hand keystrokes over; wait while more than the bound would be undelivered.

        A message larger than the bound is taken in pieces. Returns quietly when the session has
        ended.

        Raises:
            OwnerUnreachable: The owning engine cannot be reached.
        """

    async def push_size(self, session_id: str, app: str, size: Size) -> None:
        """Hand a terminal size over; the last one wins."""

    def open_inbox(self, session_id: str, app: str) -> AbstractAsyncContextManager[Inbox]:
        """Open the owner's end; what was pushed before is waiting in it."""

    def wake(self, session_id: str) -> None:
        """Tell the engines that a session's row has a wish. Callable from any thread."""

    def wakes(self) -> AsyncIterator[str]:
        """Yield session ids that were woken, each once however often; ends when cancelled."""

    def attend(self, session_id: str) -> AbstractContextManager[None]:
        """Count a client as watching the session for the length of the context."""

    def attendance(self, session_id: str) -> int:
        """Return how many clients watch the session."""

    def drop(self, session_id: str) -> None:
        """Forget a session: pending input is discarded and waiting senders return."""
