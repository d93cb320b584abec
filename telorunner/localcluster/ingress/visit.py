"""Serves one connection of a client: request after request, each to where its route leads.

The ingress answers itself where it cannot pass a request on: 404 without a route, 503 where
nothing is ready behind it, 502 where the application refuses or speaks no HTTP, 504 where it does
not answer in time. `run()` ends with the connection.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import h11

from telorunner.localcluster.ingress import headers
from telorunner.localcluster.ingress.backends import Endpoint
from telorunner.localcluster.ingress.exchange import Exchange
from telorunner.localcluster.ingress.headers import Visitor
from telorunner.localcluster.ingress.table import Asked
from telorunner.localcluster.ingress.tunnel import run_tunnel
from telorunner.localcluster.ingress.wire import CHUNK_BYTES, Limits, Lost, Malformed, Wire

logger = logging.getLogger(__name__)

# How many places of a Service are tried before it counts as refusing.
MAX_TRIES = 3
# What is read of a request that has been answered already, so that its client reads the answer.
MAX_DROPPED_BYTES = 262_144

# None: there is no route; no endpoints: nothing is ready.
Resolve = Callable[[Asked], list[Endpoint] | None]

_WORDS = {
    400: "This is no HTTP request.",
    404: "No route leads anywhere for this host and path.",
    405: "The ingress does not connect to other hosts.",
    408: "The request did not come in time.",
    431: "The head of the request is too large.",
    501: "The request is sent in a way that is not supported.",
    502: "The application does not take the request.",
    503: "Nothing is ready behind this route.",
    504: "The application did not answer in time.",
}


class Refused(Exception):
    """A request that the ingress answers itself."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


@dataclass
class Visit:
    """A client's connection."""

    client: Wire
    visitor: Visitor
    resolve: Resolve
    limits: Limits
    _is_head: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Serve requests until the client has gone, or must go."""
        try:
            while await self._serve_next():
                self.client.protocol.start_next_cycle()
        except (Lost, OSError):
            # An answer may lack its end, and the client must see that.
            self.client.reset()
        except Malformed as exc:
            logger.debug("A connection of the ingress ends: %s.", exc)
            self.client.abort()

    async def _serve_next(self) -> bool:
        """Serve a request; say whether another one may follow."""
        try:
            request = await self._read_head()
            if request is None:
                return False
            await self._serve(request)
        except Refused as exc:
            await self._answer(exc.status)
        return await self._is_reusable()

    async def _read_head(self) -> h11.Request | None:
        """Return the head of the next request, None where none comes.

        Raises:
            Refused: What came is no request.
        """
        protocol, loop = self.client.protocol, asyncio.get_running_loop()
        has_begun = bool(protocol.trailing_data[0])
        wait = self.limits.head_seconds if has_begun else self.limits.idle_seconds
        try:
            async with asyncio.timeout(wait) as deadline:
                while (event := protocol.next_event()) is h11.NEED_DATA:
                    is_there = await self.client.receive()
                    if is_there and not has_begun:
                        has_begun = True
                        deadline.reschedule(loop.time() + self.limits.head_seconds)
        except TimeoutError as exc:
            if not has_begun:
                return None
            raise Refused(408) from exc
        except h11.RemoteProtocolError as exc:
            raise Refused(exc.error_status_hint) from exc
        if not isinstance(event, h11.Request):
            return None
        self._is_head = event.method == b"HEAD"
        return event

    async def _serve(self, request: h11.Request) -> None:
        """Pass a request on.

        Raises:
            Refused: That cannot be done.
        """
        if request.method == b"CONNECT":
            raise Refused(405)
        heading = headers.read_heading(request)
        endpoints = self.resolve(headers.asked(request, heading, self.visitor))
        if endpoints is None:
            raise Refused(404)
        if not endpoints:
            raise Refused(503)
        application = await self._connect(endpoints)
        exchange = Exchange(self.client, application, self.limits)
        try:
            await self._pass_on(exchange, headers.request_for(request, heading, self.visitor))
            if exchange.has_switched:
                await run_tunnel(
                    self.client,
                    application,
                    idle_seconds=self.limits.stream_seconds,
                    linger_seconds=self.limits.linger_seconds,
                )
        finally:
            # At once, whatever it may still have to say: it sees a client that has gone.
            application.abort()

    async def _pass_on(self, exchange: Exchange, request: h11.Request) -> None:
        try:
            await exchange.run(request)
        except (Lost, Malformed, TimeoutError) as exc:
            fault = exc.wire if isinstance(exc, Lost | Malformed) else exchange.application
            if exchange.has_answered:
                raise Lost(self.client) from exc
            if fault is self.client:
                if isinstance(exc, Malformed):
                    raise Refused(exc.status) from exc
                raise
            raise Refused(504 if isinstance(exc, TimeoutError) else 502) from exc

    async def _connect(self, endpoints: list[Endpoint]) -> Wire:
        """Return a connection to the first endpoint that takes one.

        Raises:
            Refused: None does.
        """
        status = 502
        for endpoint in endpoints[:MAX_TRIES]:
            try:
                async with asyncio.timeout(self.limits.connect_seconds):
                    streams = await asyncio.open_connection(
                        endpoint.address, endpoint.port, limit=CHUNK_BYTES
                    )
            except TimeoutError:
                status = 504
            except OSError:
                status = 502
            else:
                return Wire(h11.CLIENT, streams)
        raise Refused(status)

    async def _answer(self, status: int) -> None:
        """Answer in the application's place.

        Raises:
            Lost: The client has an answer already, or takes none.
        """
        protocol = self.client.protocol
        if protocol.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            raise Lost(self.client)
        body = f"{_WORDS.get(status, _WORDS[400])}\n".encode()
        fields = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
        ]
        if protocol.their_state is h11.ERROR or protocol.they_are_waiting_for_100_continue:
            fields.append(("Connection", "close"))
        events: list[h11.Event] = [h11.Response(status_code=status, headers=fields)]
        if not self._is_head:
            events.append(h11.Data(data=body))
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                for event in [*events, h11.EndOfMessage()]:
                    await self.client.send(event)
        except TimeoutError as exc:
            # It asks on and on without reading: its place is for others.
            raise Lost(self.client) from exc

    async def _is_reusable(self) -> bool:
        """Read what is left of a request; say whether another one may come after it."""
        protocol, dropped = self.client.protocol, 0
        with suppress(TimeoutError, Malformed):
            async with asyncio.timeout(self.limits.linger_seconds):
                while self._has_more and dropped < MAX_DROPPED_BYTES:
                    event = await self.client.next_event()
                    dropped += len(event.data) if isinstance(event, h11.Data) else 0
        if (protocol.our_state, protocol.their_state) == (h11.DONE, h11.DONE):
            return True
        if protocol.their_state in (h11.SEND_BODY, h11.ERROR):
            await self._linger()
        return False

    @property
    def _has_more(self) -> bool:
        """Whether the rest of a request stands between it and the next one."""
        protocol = self.client.protocol
        return (protocol.our_state, protocol.their_state) == (h11.DONE, h11.SEND_BODY)

    async def _linger(self) -> None:
        """Say that this is all, and wait a moment for the client to stop.

        A connection that is closed while something unread has come is reset, and its client may
        never read the answer.
        """
        writer, left = self.client.writer, MAX_DROPPED_BYTES
        if not writer.can_write_eof():
            return
        writer.write_eof()
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(self.limits.linger_seconds):
                while left > 0 and (data := await self.client.reader.read(CHUNK_BYTES)):
                    left -= len(data)
