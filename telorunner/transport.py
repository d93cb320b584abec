"""Twisted's connection with an output queue of references, sent without asking first.

What was written in one turn of the loop leaves in the next one by a single system call; the
selector is asked only about a client that does not keep up. Pieces are kept as they were handed
over and never joined, so that what many clients wait for is in memory once.
"""

# Twisted's methods have no annotations:
# mypy: allow-untyped-calls

import fcntl
import itertools
import struct
from collections import deque
from typing import Any

from twisted.internet import main
from twisted.internet.tcp import Server

# What sendmsg() takes at most is 1024 (IOV_MAX); a turn's writes seldom are so many.
MAX_PIECES = 256
# Sent without asking whether the client takes it. The kernel would go on buffering beyond what the
# server wants to have on its way, until the selector is asked.
MAX_UNASKED_BYTES = 131_072
# What waits here holds the sender back. It is less than a large piece: what a client that stalls
# keeps in memory is one of them.
FULL_BYTES = 8_192
# What the kernel has taken and not sent yet. Source: tcp(7) and linux/sockios.h.
_SIOCOUTQNSD = 0x894B
_INT = struct.Struct("i")


class Transport(Server):
    """One accepted connection."""

    def __init__(self, *arguments: Any) -> None:
        self._pieces: deque[bytes | memoryview] = deque()
        self._is_flush_due = False
        self._unasked_bytes = 0
        self.unsent_bytes = 0
        # What was still to be sent when the connection was lost.
        self.lost_bytes = 0
        super().__init__(*arguments)

    def write(self, data: bytes) -> None:
        """Queue bytes; they leave on the loop's next turn."""
        self.writeSequence((data,))

    def writeSequence(self, iovec: Any) -> None:
        """Queue pieces; they leave on the loop's next turn."""
        if not self.connected or self._writeDisconnected:
            return
        for piece in iovec:
            if piece:
                self._pieces.append(piece)
                self.unsent_bytes += len(piece)
        if self._isSendBufferFull() and self._may_push():
            # NB: before the sender is held back, which costs a large piece three turns of the loop:
            # a source in the same loop would run away from its readers. A failure comes again.
            self._push()
        self._maybePauseProducer()
        self.startWriting()

    def startWriting(self) -> None:
        """Send on the loop's next turn, or once the client takes more."""
        if self._is_flush_due or not self.connected:
            return
        if not self._may_push():
            super().startWriting()
        else:
            self._is_flush_due = True
            self.reactor._asyncioEventloop.call_soon(self._flush)

    def doWrite(self) -> Any:
        """Send to a client that takes more; an exception ends the connection."""
        self._unasked_bytes = 0
        return self._send()

    def _flush(self) -> None:
        self._is_flush_due = False
        if self.connected and not self._aborting:
            if failure := self._send():
                self.reactor._disconnectSelectable(self, failure, False)
            elif self._pieces:
                super().startWriting()

    def _send(self) -> Any:
        if self._pieces and (failure := self._push()):
            return failure
        if self._pieces:
            return None
        # With nothing queued, this resumes the producer or closes the connection, as it was asked.
        return super().doWrite()

    def _push(self) -> Any:
        """Hand the kernel what it takes; return what ends the connection, mostly None."""
        try:
            sent = self.socket.sendmsg(itertools.islice(self._pieces, MAX_PIECES))
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return main.CONNECTION_LOST
        self._unasked_bytes += sent
        self._drop(sent)
        return None

    def _may_push(self) -> bool:
        """Tell whether the kernel still has little of this connection to send."""
        if self._unasked_bytes >= MAX_UNASKED_BYTES:
            queued = fcntl.ioctl(self.socket, _SIOCOUTQNSD, bytes(4))
            self._unasked_bytes = int(_INT.unpack(queued)[0])
        return self._unasked_bytes < MAX_UNASKED_BYTES

    def writeSomeData(self, data: bytes) -> int:
        """Send nothing: Twisted's own buffer is always empty."""
        return len(data)

    def connectionLost(self, reason: Any) -> None:
        """Let go of what was not sent."""
        self._pieces.clear()
        self.lost_bytes, self.unsent_bytes = self.unsent_bytes, 0
        super().connectionLost(reason)

    def _drop(self, sent: int) -> None:
        """Take what was sent out of the queue."""
        self.unsent_bytes -= sent
        while sent:
            first = self._pieces.popleft()
            if len(first) > sent:
                self._pieces.appendleft(memoryview(first)[sent:])
                return
            sent -= len(first)

    def _isSendBufferFull(self) -> bool:
        return bool(self.unsent_bytes > FULL_BYTES)
