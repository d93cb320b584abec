"""What a new connection to a debug server repeats, and what is new; pure.

A debug server sends its ring to each subscriber before what follows, and says nowhere where the one
ends. Nothing in a frame is trusted to tell frames apart: what comes is compared with what came over
the connection before, by digests. A replay begins somewhere in what is remembered and goes on to
its end; what does not is the ring of another kernel, or one that has moved on too far.

Frames that cannot be told from a replay are one: a kernel that is started again and sends, without
any timestamp, exactly what the one before had sent.
"""

from array import array
from collections import deque
from collections.abc import Sequence

# What a kernel keeps for a new subscriber, by the contract.
RING_MESSAGES = 5_000
# What is kept of messages that look like a replay and may prove to be none. Of a longer replay only
# the digests are: so many bytes that agree are no coincidence.
MAX_HELD_BYTES = 4 * 2**20


class ReplayFilter:
    """Lets every message of a kernel through once, over any number of connections."""

    def __init__(self, ring: int = RING_MESSAGES, max_held_bytes: int = MAX_HELD_BYTES) -> None:
        self._ring = ring
        self._max_held_bytes = max_held_bytes
        self._known: array[int] = array("q")
        self._seen: array[int] = array("q")
        self._is_settled = True
        self._comparison = _Comparison(self._known)
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._let_go = 0

    @property
    def is_settled(self) -> bool:
        """Whether everything that follows on this connection is new."""
        return self._is_settled

    def begin(self) -> None:
        """Expect a replay: a connection was made.

        One that broke in mid replay has brought nothing: what was known before it still is.
        """
        if self._is_settled:
            self._known = self._seen[-self._ring :]
        self._seen = array("q")
        self._comparison = _Comparison(self._known)
        self._drop_held()
        self._is_settled = not self._known

    def take(self, message: bytes) -> Sequence[bytes]:
        """Return the messages that are now known to be new, in their order."""
        # 64 bits of Python's keyed hash: whoever could forge them would lose frames of his own.
        self._seen.append(hash(message))
        if self._is_settled:
            if len(self._seen) > 2 * self._ring:
                del self._seen[: -self._ring]
            return (message,)
        self._hold(message)
        replayed = self._comparison.replayed(self._seen)
        if replayed is None and len(self._seen) > self._ring:
            # No ring is that long.
            return self.settle()
        return () if replayed is None else self._settle(replayed)

    def settle(self) -> Sequence[bytes]:
        """Decide with what has come: the server has fallen silent in what looked like a replay."""
        return () if self._is_settled else self._settle(self._comparison.shortest(self._seen))

    def _settle(self, replayed: int) -> Sequence[bytes]:
        self._is_settled = True
        self._known = array("q")
        self._comparison = _Comparison(self._known)
        new = list(self._held)[max(0, replayed - self._let_go) :]
        self._drop_held()
        return new

    def _hold(self, message: bytes) -> None:
        self._held.append(message)
        self._held_bytes += len(message)
        while self._held_bytes > self._max_held_bytes:
            self._held_bytes -= len(self._held.popleft())
            self._let_go += 1

    def _drop_held(self) -> None:
        self._held.clear()
        self._held_bytes = self._let_go = 0


class _Comparison:
    """Finds, message by message, the longest end of what is known that what comes begins with.

    This is the search of Knuth, Morris and Pratt for a pattern that is still growing: its cost is
    one or two comparisons a message, whatever is sent.
    """

    def __init__(self, known: "array[int]") -> None:
        self._known = known
        # How many known messages were looked at, and how many of what came match before there.
        self._position = self._matched = 0
        # For each beginning of what came: the longest shorter one that it ends with.
        self._borders: array[int] = array("i")
        # No end of what is known begins what came: then its last messages are looked for in it.
        self._is_broken = False

    def replayed(self, came: "array[int]") -> int | None:
        """Return how many of the messages that came are a replay, None while that is open.

        To be called after each message.
        """
        if self._is_broken:
            return self._end_in(came)
        self._grow(came)
        self._advance(came)
        if self._matched == len(came) and self._position < len(self._known):
            return None
        if self._matched:
            return self._matched
        if came[0] not in self._known:
            return 0
        # It began in what is known and went on otherwise: a ring with what this side was too slow
        # for, between what it has.
        self._is_broken = True
        for end in range(1, len(came) + 1):
            if (found := self._end_in(came, end)) is not None:
                return found
        return None

    def shortest(self, came: "array[int]") -> int:
        """Return how many messages that came are a replay if that is complete by now."""
        if self._is_broken or not came:
            return 0
        while self._position < len(self._known):
            # Another place than the one that waits for more.
            if self._matched == len(came):
                self._matched = self._borders[self._matched - 1]
            self._advance(came)
        return self._matched

    def _grow(self, came: "array[int]") -> None:
        border = self._borders[-1] if self._borders else 0
        if self._borders:
            while border and came[-1] != came[border]:
                border = self._borders[border - 1]
            border += came[-1] == came[border]
        self._borders.append(border)

    def _advance(self, came: "array[int]") -> None:
        """Look on in what is known, until it ends or all that came matches."""
        while self._position < len(self._known) and self._matched < len(came):
            if self._known[self._position] == came[self._matched]:
                self._matched += 1
                self._position += 1
            elif self._matched:
                self._matched = self._borders[self._matched - 1]
            else:
                self._position += 1

    def _end_in(self, came: "array[int]", end: int | None = None) -> int | None:
        """Return `end` (None: all) if what came ends there as what is known does."""
        end = len(came) if end is None else end
        length = min(2, len(self._known))
        is_found = end >= length and came[end - length : end] == self._known[-length:]
        return end if is_found else None
