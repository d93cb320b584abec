"""One HTTP connection of the server: limits on what comes in, and errors in JSON.

Subclasses of Twisted's HTTP channel and Daphne's request. What is refused here is still answered by
the application (which knows the CORS headers), except where there is no whole request to answer.
"""

# Twisted's methods have no annotations:
# mypy: allow-untyped-calls

import io
import time
from typing import Any

import orjson
from daphne.http_protocol import HTTPFactory, WebRequest
from twisted.internet.protocol import connectionDone
from twisted.web.http import HTTPChannel

from telorunner.drf import JSON_TYPE, error_of_status, malformed, too_large
from telorunner.errors import RunnerError
from telorunner.flow import Gate, unsent_bytes

# Request line and each header line; all headers together; their number.
MAX_LINE_BYTES = 16_384
MAX_HEADERS_BYTES = 32_768
MAX_HEADERS = 100
# Of a Content-Length; int() raises on more than 4,300, and the connection would go without a word.
MAX_LENGTH_DIGITS = 4_000
# A body may be slow, but not slower than this on average (after its first seconds): a connection
# that is fed a byte now and then would be kept for ever.
MIN_BODY_BYTES_PER_SECOND = 4096
# After a refusal what still comes is read and dropped for so long: a connection closed with unread
# input is reset, and the client might never read the answer.
LINGER_SECONDS = 2.0


class Request(WebRequest):  # type: ignore[misc] # daphne is not typed
    """A request with a bounded body in memory, an output gate and JSON errors."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.gate = Gate()
        self.refusal: RunnerError | None = None
        self.received_bytes = 0
        # Twisted would parse forms on the loop: 10 MB of them stop every client for seconds, and
        # one that is malformed would never be answered.
        super().__init__(*arguments, parsePOSTFormSubmission=False, **named)

    def __repr__(self) -> str:
        """Leave the query out: it may hold a token, and what is logged may show a request."""
        path, _, _ = self.uri.partition(b"?")
        return f"<{type(self).__name__} {self.method!r} {path!r}>"

    def gotLength(self, _length: int | None) -> None:  # noqa: D102 - Twisted's
        # Twisted would spool to a file. Bodies hold environment values, and are bounded.
        self.content = io.BytesIO()

    def handleContentChunk(self, data: bytes) -> None:  # noqa: D102 - Twisted's
        if self.refusal is not None:
            return
        self.received_bytes += len(data)
        if self.received_bytes > self.server.limits.body_bytes:
            self.content = io.BytesIO()
            self.refusal = too_large(self.server.limits.body_bytes)
            self.channel.cut_body()
        else:
            super().handleContentChunk(data)

    def handle_reply(self, message: dict[str, Any]) -> None:
        """Write what the application sends."""
        if self.finished or self.channel is None:
            return
        super().handle_reply(message)
        if message["type"] == "http.response.start":
            self.registerProducer(self.gate, True)

    def finish(self) -> None:
        """End the response; Twisted insists that nothing is registered by then."""
        self.unregisterProducer()
        super().finish()

    def basic_error(self, status: int, _status_text: bytes, body: str) -> None:
        """Answer an error of the server itself, as JSON instead of Daphne's page."""
        error = malformed(f"{body}.") if status == 400 else error_of_status(status)
        content = orjson.dumps(error.body())
        headers = [
            (b"content-type", JSON_TYPE.encode()),
            (b"content-length", b"%d" % len(content)),
        ]
        self.handle_reply({"type": "http.response.start", "status": status, "headers": headers})
        self.handle_reply({"type": "http.response.body", "body": content})

    def conclude(self, *, is_stopping: bool) -> None:
        """End what an application left open when it ended."""
        if self.finished or self.channel is None:
            return
        if not self._response_started:
            self.basic_error(503 if is_stopping else 500, b"", "")
        elif is_stopping:
            self.finish()
        else:
            # A clean end would pass a part for the whole.
            self.abort()

    def abort(self) -> None:
        """Break the connection off."""
        if self.channel is not None:
            self.channel.transport.abortConnection()

    def unsent_bytes(self) -> int:
        """Return how much the transport holds that the client has not taken."""
        return 0 if self.channel is None else unsent_bytes(self.channel.transport)


class Channel(HTTPChannel):
    """A connection that refuses oversized requests with an answer the client can read."""

    MAX_LENGTH = MAX_LINE_BYTES
    totalHeadersSize = MAX_HEADERS_BYTES
    maxHeaders = MAX_HEADERS
    requestFactory = Request
    # Twisted's interfaces are no types.
    transport: Any
    _is_draining = False
    _must_linger = False
    # Whether a request has begun to come, and since when its body does.
    _is_receiving = False
    _body_since: float | None = None

    def connectionMade(self) -> None:  # noqa: D102 - Twisted's
        super().connectionMade()
        self.factory.server.connection_made(self.transport)

    def connectionLost(self, reason: Any = connectionDone) -> None:  # noqa: D102 - Twisted's
        super().connectionLost(reason)
        self.factory.server.connection_lost(self.transport)

    def allHeadersReceived(self) -> None:
        """Refuse a body by its announced length, before any of it is read."""
        request = self.requests[-1]
        limit = self.factory.server.limits.body_bytes
        if self.length is not None and self.length > limit:
            request.refusal = too_large(limit)
            # NB: with no body left to expect, the request is handed to the application at once.
            self.length = 0
        super().allHeadersReceived()
        if request.refusal is not None:
            self._close_after(request)
        elif self.length != 0:
            self._body_since = time.monotonic()
            self.setTimeout(self.factory.server.limits.body_seconds)

    def allContentReceived(self) -> None:  # noqa: D102 - Twisted's
        self._is_receiving = False
        self._body_since = None
        super().allContentReceived()

    def requestDone(self, request: Request) -> None:  # noqa: D102 - Twisted's
        self._savedTimeOut = self.factory.server.limits.idle_seconds
        super().requestDone(request)

    def resetTimeout(self) -> None:
        """Do nothing: what comes byte by byte must not put the deadline off."""

    def timeoutConnection(self) -> None:
        """Close a connection that is idle, or whose request does not come in time."""
        left = self._body_time_left()
        if left > 0:
            self.setTimeout(left)
        elif self._is_receiving and not self._handlingRequest:
            self._refuse("The request did not arrive in time.")
        else:
            super().timeoutConnection()

    def _body_time_left(self) -> float:
        if self._body_since is None:
            return 0.0
        earned_seconds = self.requests[-1].received_bytes / MIN_BODY_BYTES_PER_SECOND
        allowed_seconds = self.factory.server.limits.body_seconds + earned_seconds
        return float(self._body_since + allowed_seconds - time.monotonic())

    def cut_body(self) -> None:
        """Stop taking a body that has exceeded the limit; the application answers."""
        self._close_after(self.requests[-1])
        self.allContentReceived()

    def close_when_idle(self) -> None:
        """Close after the response that is being sent, or at once."""
        self.persistent = 0
        if not self.requests:
            self.loseConnection()

    def dataReceived(self, data: bytes) -> None:  # noqa: D102 - Twisted's
        if self._is_draining:
            return
        if not self._is_receiving and not self._handlingRequest:
            self._is_receiving = True
            self.setTimeout(self.factory.server.limits.header_seconds)
        super().dataReceived(data)

    def lineReceived(self, line: bytes) -> None:  # noqa: D102 - Twisted's
        if not self._is_draining:
            super().lineReceived(line)

    def rawDataReceived(self, data: bytes) -> None:  # noqa: D102 - Twisted's
        if self.transport.protocol is not self:
            # It is a WebSocket's now, and this came in one piece with the handshake.
            self.transport.protocol.dataReceived(data)
        elif not self._is_draining:
            super().rawDataReceived(data)

    def lineLengthExceeded(self, _line: bytes) -> None:
        """Refuse a request line or a header that is too long."""
        self._refuse("The request line or a header is too long.")

    def loseConnection(self) -> None:
        """Close; with input left to come, only after it was given time to come."""
        if self._must_linger:
            self._linger()
        else:
            super().loseConnection()
            self._watch_rest()

    def _watch_rest(self) -> None:
        """Break a close off whose client takes nothing of what is left to send."""
        left = unsent_bytes(self.transport)
        if left and self._abortingCall is None:
            stall_seconds = self.factory.server.limits.stall_seconds
            self._abortingCall = self.callLater(stall_seconds, lambda: self._judge_rest(left))

    def _judge_rest(self, before: int) -> None:
        self._abortingCall = None
        if unsent_bytes(self.transport) < before:
            self._watch_rest()
        else:
            self.forceAbortClient()

    def _close_after(self, request: Request) -> None:
        self.persistent = 0
        self._must_linger = True
        request.responseHeaders.setRawHeaders(b"connection", [b"close"])

    def _finishRequestBody(self, data: bytes) -> None:
        # A body that was cut has been handed on already.
        if self.requests and self.requests[-1].refusal is None:
            super()._finishRequestBody(data)

    def _send100Continue(self) -> None:
        if self.requests[-1].refusal is None:
            super()._send100Continue()

    def _maybeChooseTransferDecoder(self, header: bytes, data: bytes) -> bool:
        if header == b"Content-Length" and len(data) > MAX_LENGTH_DIGITS:
            return bool(self._failChooseTransferDecoder())
        return bool(super()._maybeChooseTransferDecoder(header, data))

    def _respondToBadRequestAndDisconnect(self) -> None:
        self._refuse("The request is not valid HTTP, or has too many headers.")

    def _refuse(self, message: str) -> None:
        """Answer where there is no request to hand to the application."""
        if self._is_draining or self._handlingRequest:
            return
        body = orjson.dumps(malformed(message).body())
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )
        self._linger()

    def _linger(self) -> None:
        """Close the sending side, drop what comes, and let the client close; or do it in time."""
        if self._is_draining:
            return
        self._is_draining = True
        self.setTimeout(None)
        self._networkProducer.unregisterProducer()
        self.transport.resumeProducing()
        self.transport.loseWriteConnection()
        self._abortingCall = self.callLater(LINGER_SECONDS, self.forceAbortClient)


class Factory(HTTPFactory):  # type: ignore[misc] # daphne is not typed
    """Makes channels."""

    protocol = Channel

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.timeOut = server.limits.idle_seconds

    def buildProtocol(self, addr: Any) -> Any:  # noqa: D102 - Twisted's
        protocol = super().buildProtocol(addr)
        protocol.requestFactory = Request
        return protocol
