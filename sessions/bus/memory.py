"""The bus of one process, in its memory.

Everything but `wake()` happens on the event loop. No tasks are owned: senders and the owner wait in
their callers' tasks.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from sessions.bus import INPUT_PIECE_BYTES, MAX_PENDING_INPUT_BYTES, Inbox, Pending, Size

# Ids of ended sessions are remembered so that a late keystroke makes no new inbox; the oldest are
# forgotten beyond this many (about 1 MB), long after their sockets are gone.
REMEMBERED_ENDED_SESSIONS = 10_000


class _MemoryInbox:
    """The undelivered input of one application; it outlives its owner, not its session."""

    def __init__(self) -> None:
        self._size: Size | None = None
        self._new_size: Size | None = None
        self._data = bytearray()
        self._is_dropped = False
        # FIFO: a message's pieces stay together, and senders take turns in the order they came.
        self._sending = asyncio.Lock()
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()

    @property
    def size(self) -> Size | None:
        """The last size any viewer asked for."""
        return self._size

    async def peek(self) -> Pending:
        """Wait for a new size or bytes; nothing is taken out."""
        while self._new_size is None and not self._data:
            self._arrived.clear()
            await self._arrived.wait()
        return Pending(self._new_size, bytes(self._data[:INPUT_PIECE_BYTES]))

    def commit(self, pending: Pending) -> None:
        """Take out what is on its way to the application; a size that came since then stays."""
        del self._data[: len(pending.data)]
        if pending.size is not None and pending.size == self._new_size:
            self._new_size = None
        self._has_room.set()

    async def push(self, data: bytes) -> None:
        """Add bytes piece by piece as room comes; return early when the session is dropped."""
        async with self._sending:
            for start in range(0, len(data), INPUT_PIECE_BYTES):
                piece = data[start : start + INPUT_PIECE_BYTES]
                await self._wait_for_room(len(piece))
                if self._is_dropped:
                    return
                self._data += piece
                self._arrived.set()

    def resize(self, size: Size) -> None:
        """Keep the size that was asked for last."""
        self._size = self._new_size = size
        self._arrived.set()

    def drop(self) -> None:
        """Discard what is pending and let waiting senders return."""
        self._is_dropped = True
        self._data.clear()
        self._new_size = None
        self._has_room.set()

    async def _wait_for_room(self, length_bytes: int) -> None:
        while len(self._data) + length_bytes > MAX_PENDING_INPUT_BYTES and not self._is_dropped:
            self._has_room.clear()
            await self._has_room.wait()


class _Wakes:
    """Woken ids that one listener has not taken yet."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.arrived = asyncio.Event()
        self.session_ids: dict[str, None] = {}


class MemoryBus:
    """Input, wake-ups and presence of all sessions of this process."""

    def __init__(self) -> None:
        self._inboxes: dict[str, dict[str, _MemoryInbox]] = {}
        self._ended: dict[str, None] = {}
        self._attendance: Counter[str] = Counter()
        # Guards the listeners and their ids: wake() comes from any thread.
        self._lock = threading.Lock()
        self._listeners: list[_Wakes] = []

    async def push_input(self, session_id: str, app: str, data: bytes) -> None:
        """Hand keystrokes over; wait while more than the bound would be undelivered."""
        if data and session_id not in self._ended:
            await self._inbox(session_id, app).push(data)

    async def push_size(self, session_id: str, app: str, size: Size) -> None:
        """Hand a terminal size over; the last one wins."""
        if session_id not in self._ended:
            self._inbox(session_id, app).resize(size)

    @asynccontextmanager
    async def open_inbox(self, session_id: str, app: str) -> AsyncIterator[Inbox]:
        """Open the owner's end; what is undelivered when it closes waits for the next owner."""
        # A session that is taken up is live, whatever was thought of it before.
        self._ended.pop(session_id, None)
        yield self._inbox(session_id, app)

    def wake(self, session_id: str) -> None:
        """Tell every listener that a session's row has a wish; from any thread."""
        with self._lock:
            for wakes in self._listeners:
                if session_id not in wakes.session_ids:
                    wakes.session_ids[session_id] = None
                    wakes.loop.call_soon_threadsafe(wakes.arrived.set)

    async def wakes(self) -> AsyncIterator[str]:
        """Yield woken session ids; those woken before the first step are not known here."""
        wakes = _Wakes()
        with self._lock:
            self._listeners.append(wakes)
        try:
            while True:
                wakes.arrived.clear()
                with self._lock:
                    taken, wakes.session_ids = wakes.session_ids, {}
                for session_id in taken:
                    yield session_id
                if not taken:
                    await wakes.arrived.wait()
        finally:
            with self._lock:
                self._listeners.remove(wakes)

    @contextmanager
    def attend(self, session_id: str) -> Iterator[None]:
        """Count a client as watching for the length of the context."""
        self._attendance[session_id] += 1
        try:
            yield
        finally:
            self._attendance[session_id] -= 1
            if not self._attendance[session_id]:
                del self._attendance[session_id]

    def attendance(self, session_id: str) -> int:
        """Return how many clients watch the session."""
        return self._attendance.get(session_id, 0)

    def drop(self, session_id: str) -> None:
        """Forget a session's input; what is pushed for it from now on is let fall."""
        self._ended[session_id] = None
        if len(self._ended) > REMEMBERED_ENDED_SESSIONS:
            del self._ended[next(iter(self._ended))]
        for inbox in self._inboxes.pop(session_id, {}).values():
            inbox.drop()

    def _inbox(self, session_id: str, app: str) -> _MemoryInbox:
        inboxes = self._inboxes.setdefault(session_id, {})
        if app not in inboxes:
            inboxes[app] = _MemoryInbox()
        return inboxes[app]
