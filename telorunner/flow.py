"""Flow control between Twisted's transports and ASGI applications, which Daphne lacks.

`Gate` makes a sender wait while its client does not read; `Inbox` stops reading from a client while
the application does not take what came. Neither owns a task.
"""

import asyncio
from typing import Any, Protocol

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer  # type: ignore[import-untyped] # no types

# Received but not yet taken by the application: reading stops above the first figure and goes on
# below the second. One message may exceed it, up to the socket's message limit.
INBOX_PAUSE_BYTES = 262_144
INBOX_RESUME_BYTES = 65_536
# A message costs more than its payload: a flood of empty frames is bounded too.
MESSAGE_OVERHEAD_BYTES = 512


@implementer(IPushProducer)
class Gate:
    """Closed while the transport has more to send than it wants; what sends waits for it."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._is_released = False

    @property
    def is_open(self) -> bool:
        """Whether more may be sent."""
        return self._open.is_set()

    def pauseProducing(self) -> None:
        """Close: the transport's buffer is full."""
        if not self._is_released:
            self._open.clear()

    def resumeProducing(self) -> None:
        """Open: the transport's buffer is empty."""
        self._open.set()

    def stopProducing(self) -> None:
        """Open for good: the connection is gone, and nothing will be sent."""
        self._is_released = True
        self._open.set()

    async def wait(self) -> None:
        """Wait until it is open."""
        await self._open.wait()


class Pausable(Protocol):
    """The reading side of a connection."""

    def pause_reading(self) -> None:
        """Stop reading from the client."""

    def resume_reading(self) -> None:
        """Go on reading from the client."""


class Inbox(asyncio.Queue[dict[str, Any]]):
    """An application's queue of received messages, which holds its connection back when full."""

    def __init__(self, connection: Pausable) -> None:
        super().__init__()
        self._connection = connection
        self._held_bytes = 0
        self._is_paused = False

    def _put(self, item: dict[str, Any]) -> None:
        super()._put(item)
        self._held_bytes += _size(item)
        if not self._is_paused and self._held_bytes > INBOX_PAUSE_BYTES:
            self._is_paused = True
            self._connection.pause_reading()

    def _get(self) -> dict[str, Any]:
        item = super()._get()
        self._held_bytes -= _size(item)
        if self._is_paused and self._held_bytes < INBOX_RESUME_BYTES:
            self._is_paused = False
            self._connection.resume_reading()
        return item


def unsent_bytes(transport: Any) -> int:
    """Return how much a transport of the server holds that the kernel has not taken."""
    return transport.unsent_bytes  # type: ignore[no-any-return] # Twisted's transports are not typed


def _size(message: dict[str, Any]) -> int:
    payload = message.get("bytes") or message.get("text") or b""
    return len(payload) + MESSAGE_OVERHEAD_BYTES
