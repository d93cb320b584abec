"""One WebSocket of the server.

A subclass of Daphne's protocol that can send every close code, always accepts before it closes (a
browser cannot read a refused handshake), and holds its client back when the application is slow.
"""

import struct
from typing import Any

import orjson
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol

from telorunner.drf import JSON_TYPE, error_of_status
from telorunner.flow import Gate, unsent_bytes

CLOSE_NORMAL = 1000
CLOSE_INTERNAL_ERROR = 1011
CLOSE_RESTARTING = 1012
# A frame's length as it stands in its head: in the second byte, in two bytes or in eight more.
MAX_SHORT_LENGTH = 125
MAX_MEDIUM_LENGTH = 65_535
_FINAL_BINARY = 0x82
_MEDIUM_HEAD = struct.Struct(">BBH")
_LONG_HEAD = struct.Struct(">BBQ")
# A control frame's payload is at most 125 bytes, two of them the code (RFC 6455, 5.5 and 5.5.1).
MAX_REASON_BYTES = 123


class Socket(WebSocketProtocol):  # type: ignore[misc] # daphne is not typed
    """A socket with flow control both ways."""

    # Autobahn's, set once there is a connection.
    closeHandshakeTimeoutCall: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()
        self._is_reading_paused = False

    def connectionMade(self) -> None:  # noqa: D102 - Twisted's
        super().connectionMade()
        # NB: the HTTP channel that the upgrade came by is still registered there.
        self.transport.unregisterProducer()
        self.transport.registerProducer(self.gate, True)

    def connectionLost(self, reason: Any) -> None:  # noqa: D102 - Twisted's
        if (timer := self.closeHandshakeTimeoutCall) is not None:
            # Autobahn lets it run on, and with it what has come of a message that was too large.
            timer.cancel()
            self.closeHandshakeTimeoutCall = None
        super().connectionLost(reason)
        self.factory.server_class.connection_lost(self.transport)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:  # noqa: D102 - Autobahn's
        # A handshake that failed early never reached the server.
        if hasattr(self, "server"):
            super().onClose(wasClean, code, reason)

    def handle_reply(self, message: dict[str, Any]) -> None:
        """Send what the application sends."""
        if message["type"] == "websocket.close":
            self.close(message.get("code") or CLOSE_NORMAL, message.get("reason") or "")
        elif self.state == self.STATE_OPEN and message.get("bytes"):
            self._send_binary(message["bytes"])
        elif self.state not in (self.STATE_CLOSING, self.STATE_CLOSED):
            # What crosses a close on its way has no reader; the application hears of it next.
            super().handle_reply(message)

    def _send_binary(self, payload: bytes) -> None:
        """Send one binary message of one frame; Autobahn would copy the payload into it.

        Source: RFC 6455, 5.2.
        """
        length = len(payload)
        if length <= MAX_SHORT_LENGTH:
            head = bytes((_FINAL_BINARY, length))
        elif length <= MAX_MEDIUM_LENGTH:
            head = _MEDIUM_HEAD.pack(_FINAL_BINARY, MAX_SHORT_LENGTH + 1, length)
        else:
            head = _LONG_HEAD.pack(_FINAL_BINARY, MAX_SHORT_LENGTH + 2, length)
        self.transport.writeSequence((head, payload))

    def close(self, code: int, reason: str = "") -> None:
        """Start the closing handshake, after accepting the socket where that is still to do."""
        if self.state == self.STATE_CONNECTING and hasattr(self, "handshake_deferred"):
            self.serverAccept()
        if self.state == self.STATE_OPEN:
            cut = reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore").encode()
            # Autobahn's sendClose takes no code between 1000 and 3000.
            self.sendCloseFrame(code=code, reasonUtf8=cut)

    def conclude(self, *, is_stopping: bool) -> None:
        """End what an application left open when it ended."""
        self.close(CLOSE_RESTARTING if is_stopping else CLOSE_INTERNAL_ERROR)

    def abort(self) -> None:
        """Break the connection off."""
        self.dropConnection(abort=True)

    def unsent_bytes(self) -> int:
        """Return how much the transport holds that the client has not taken."""
        return unsent_bytes(self.transport)

    def pause_reading(self) -> None:
        """Stop reading: the client feels it as TCP back-pressure."""
        self._is_reading_paused = True
        self.transport.pauseProducing()

    def resume_reading(self) -> None:
        """Go on reading."""
        self._is_reading_paused = False
        self.transport.resumeProducing()

    def onAutoPingTimeout(self) -> None:
        """Drop a client that answers no ping, unless its answer could not have come.

        While reading is paused the answer is not read, and while output is queued the ping waits
        behind it; a reader that takes nothing at all has a deadline of its own.
        """
        if self._is_reading_paused or not self.gate.is_open:
            self.autoPingTimeoutCall = None
            self.autoPingPending = None
        else:
            super().onAutoPingTimeout()

    def _sendAutoPing(self) -> None:
        # A second ping would forget the first one's deadline without cancelling it.
        if self.autoPingTimeoutCall is None:
            super()._sendAutoPing()

    def sendHttpErrorResponse(
        self, code: int, reason: str, responseHeaders: list[tuple[str, str]] | None = None
    ) -> None:
        """Answer a handshake that is none, in JSON."""
        body = orjson.dumps(error_of_status(code).body())
        headers = [
            *(responseHeaders or []),
            ("content-type", JSON_TYPE),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        lines = [f"HTTP/1.1 {code} {reason}", *(f"{name}: {value}" for name, value in headers)]
        self.sendData("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


class SocketFactory(WebSocketFactory):  # type: ignore[misc] # daphne is not typed
    """Makes sockets."""

    protocol = Socket
