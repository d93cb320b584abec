"""Whether a client has got what it was sent: what the transport and the kernel can tell of it.

The server puts a `Receipt` into the scope of every request. An application that has to know asks
it; for all others, sent is as good as received. It owns no task.
"""

# Twisted's methods have no annotations:
# mypy: allow-untyped-calls

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from starlette.types import Scope
from twisted.internet.error import ConnectionDone

from telorunner.flow import unsent_bytes

SCOPE_KEY = "telorunner.receipt"

# The last piece of a response is on its way for no longer than this, and so is the close that a
# client answers it with; without a close, what its kernel has acknowledged counts.
ACKNOWLEDGED_SECONDS = 10.0
CLOSED_SECONDS = 2.0
# The kernel has no event for an acknowledgement.
_LOOK_SECONDS = 0.01
# After a close the kernel counts our own FIN among what is not acknowledged.
_FIN = 1


class Receipt:
    """What is known of one response's arrival over one connection."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self._transport: Any = None
        self._socket = -1
        self._lost = asyncio.Event()
        self._is_clean = False

    @property
    def is_broken(self) -> bool:
        """Whether the client is gone: what is sent from now on goes nowhere."""
        return self._request.channel is None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the connection, from before the response to its end; it closes after that."""
        if self.is_broken:
            self._lost.set()
            yield
            return
        channel = self._request.channel
        channel.persistent = 0
        self._transport = channel.transport
        self._request.notifyFinish().addBoth(self._note_end)
        # A descriptor of its own still tells what was acknowledged once the server's is closed.
        self._socket = os.dup(self._transport.fileno())
        try:
            yield
        finally:
            os.close(self._socket)

    def _note_end(self, reason: Any) -> None:
        self._is_clean = reason is None or reason.check(ConnectionDone) is not None
        self._lost.set()

    async def settled(self) -> bool:
        """Say whether the client has got everything sent so far, waiting until that is certain.

        It has when its kernel has acknowledged every byte and its side has not reset the
        connection: a client that closes without having read all there is resets it. So its close is
        waited for, as long as that takes an ordinary one.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(ACKNOWLEDGED_SECONDS):
                while not self._lost.is_set() and self._unacknowledged() > 0:
                    await self._wait_end(_LOOK_SECONDS)
        await self._wait_end(CLOSED_SECONDS)
        if self._lost.is_set():
            return self._is_clean and self._unacknowledged() <= _FIN
        return self._unacknowledged() == 0

    async def _wait_end(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._lost.wait()

    def _unacknowledged(self) -> int:
        """Return the bytes that the client's kernel has not acknowledged.

        Source: https://man7.org/linux/man-pages/man7/tcp.7.html (SIOCOUTQ, which is TIOCOUTQ)
        """
        if self._transport is None:
            return _FIN + 1
        queued = fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4))
        unsent = unsent_bytes(self._transport) + int(self._transport.lost_bytes)
        return unsent + int(struct.unpack("i", queued)[0])


class AssumedReceipt(Receipt):
    """Where no server of ours sends: everything sent has been received."""

    def __init__(self) -> None:
        super().__init__(None)

    @property
    def is_broken(self) -> bool:
        """Nothing is known of a connection."""
        return False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch nothing."""
        yield

    async def settled(self) -> bool:
        """Say that everything was received."""
        return True


def of(scope: Scope) -> Receipt:
    """Return the receipt of a request's response."""
    found: Receipt | None = scope.get(SCOPE_KEY)
    return found or AssumedReceipt()
