"""Input on its way to the application, and what Ctrl-C means.

Bytes wait here while no socket is open; none are lost over a reconnection, and none are sent twice
unless the connection broke while they were under way.
"""

import asyncio
from collections import deque
from enum import Enum

CTRL_C = b"\x03"
CTRL_D = b"\x04"
DOUBLE_PRESS_SECONDS = 1.0
# A key arrives in a read of its own, or with few others; longer reads are pasted text, in which a
# byte 3 is no key.
LONGEST_KEYS_BYTES = 16
# Reading goes on this far ahead of the application, so that Ctrl-C is seen behind a long paste.
MAX_WAITING_BYTES = 4 * 1024 * 1024


class PendingInput:
    """A queue of input with one reader; its writer waits for room where it can."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size_bytes = 0
        self._last_byte = b"\n"
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def add(self, data: bytes) -> None:
        """Append input at once."""
        self._chunks.append(data)
        self._size_bytes += len(data)
        self._last_byte = data[-1:]
        self._filled.set()
        if self._size_bytes >= MAX_WAITING_BYTES:
            self._room.clear()

    def add_end(self) -> None:
        """Append what a user would press to end the input.

        A terminal takes the first Ctrl-D behind an unfinished line for the end of that line.
        """
        self.add(CTRL_D if self._last_byte == b"\n" else CTRL_D * 2)

    async def wait_for_room(self) -> None:
        """Wait while too much is undelivered."""
        await self._room.wait()

    async def first(self) -> bytes:
        """Wait for input and return its first piece, which stays until it is taken off."""
        await self._filled.wait()
        return self._chunks[0]

    def take_off(self) -> None:
        """Remove the first piece: it has been sent."""
        self._size_bytes -= len(self._chunks.popleft())
        if not self._chunks:
            self._filled.clear()
        if self._size_bytes < MAX_WAITING_BYTES:
            self._room.set()


class Press(Enum):
    """What a Ctrl-C asks for."""

    INTERRUPT = "the application's own"
    STOP = "the session's end"
    LEAVE = "not to wait for it"


class InterruptKey:
    """Counts presses of Ctrl-C: the second within a second stops, a later one leaves."""

    def __init__(self) -> None:
        self._last_press: float | None = None
        self._is_stopping = False

    def press(self, now: float) -> Press:
        """Return what a press at a time of the loop's clock asks for."""
        if self._is_stopping:
            return Press.LEAVE
        last, self._last_press = self._last_press, now
        if last is None or now - last > DOUBLE_PRESS_SECONDS:
            return Press.INTERRUPT
        self._is_stopping = True
        return Press.STOP


def count_presses(data: bytes) -> int:
    """Return how many times Ctrl-C was pressed in what one read brought."""
    return data.count(CTRL_C) if len(data) <= LONGEST_KEYS_BYTES else 0
