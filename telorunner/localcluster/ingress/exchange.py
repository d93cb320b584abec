"""Passes one request on to an application, and its answer back, piece by piece.

Nothing is held: each side is read as fast as the other takes it. Both directions run at once, so an
application may answer before it has read everything. A client that goes away ends the exchange.
"""

import asyncio
from dataclasses import dataclass, field

import h11

from telorunner.localcluster.ingress import headers
from telorunner.localcluster.ingress.wire import Limits, Lost, Malformed, Wire


@dataclass
class Exchange:
    """A request on its way; `client` has read its head already.

    Attributes:
        has_answered: Whether the client has got the head of an answer.
        has_switched: Whether both sides speak WebSocket from now on.
    """

    client: Wire
    application: Wire
    limits: Limits
    has_answered: bool = field(default=False, init=False)
    has_switched: bool = field(default=False, init=False)

    async def run(self, request: h11.Request) -> None:
        """Pass everything on, until the answer has ended or both sides have switched.

        Raises:
            Lost: A side went away.
            Malformed: A side does not speak HTTP.
            TimeoutError: The application does not answer.
        """
        await self.application.send(request)
        try:
            async with asyncio.TaskGroup() as tasks:
                body = tasks.create_task(self._pass_body(), name="ingress request body")
                await self._pass_answer()
                body.cancel()
        except BaseExceptionGroup as group:
            # The first one ended the other direction.
            raise group.exceptions[0] from group

    async def _pass_body(self) -> None:
        """Pass the request's body on, then watch for the client's leaving.

        Raises:
            Lost: The client went away, or fell silent in the middle.
        """
        while True:
            event = await self._next_of_body()
            if isinstance(event, h11.ConnectionClosed):
                raise Lost(self.client)
            if not isinstance(event, h11.Data | h11.EndOfMessage):
                break
            if isinstance(event, h11.EndOfMessage):
                event = headers.trailers_for(event)
            try:
                await self.application.send(event)
            except (Lost, Malformed):
                # It may have answered without reading on: that answer counts, and the rest of the
                # request does not.
                break
            if isinstance(event, h11.EndOfMessage):
                break
        await self._until_gone()

    async def _next_of_body(self) -> h11.Event | None:
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                return await self.client.next_event()
        except TimeoutError as exc:
            raise Lost(self.client) from exc

    async def _until_gone(self) -> None:
        """Wait until the client leaves; it is not looked after once it has said more.

        Raises:
            Lost: It has left.
        """
        if not self.client.protocol.trailing_data[0] and not await self.client.receive():
            raise Lost(self.client)

    async def _pass_answer(self) -> None:
        response = await self._pass_head()
        if response is None:
            return
        while True:
            async with asyncio.timeout(self.limits.stream_seconds):
                event = await self.application.next_event()
            if not isinstance(event, h11.Data | h11.EndOfMessage):
                raise Lost(self.application)
            if isinstance(event, h11.EndOfMessage):
                has_trailers = self._takes_trailers(response)
                event = headers.trailers_for(event) if has_trailers else h11.EndOfMessage()
            await self._send(event)
            if isinstance(event, h11.EndOfMessage):
                return

    async def _pass_head(self) -> h11.Response | None:
        """Pass the head of the answer on; None: both sides have switched."""
        async with asyncio.timeout(self.limits.answer_seconds):
            while True:
                event = await self.application.next_event()
                if isinstance(event, h11.Response):
                    break
                if not isinstance(event, h11.InformationalResponse):
                    raise Lost(self.application)
                if self.client.protocol.their_http_version == b"1.1":
                    await self._send(headers.interim_for(event))
                if event.status_code == 101:
                    self.has_answered = self.has_switched = True
                    return None
        is_last = self.client.protocol.their_state is h11.SEND_BODY
        self.has_answered = True
        await self._send(headers.response_for(event, is_last=is_last))
        return event

    async def _send(self, event: h11.Event) -> None:
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                await self.client.send(event)
        except TimeoutError as exc:
            raise Lost(self.client) from exc

    def _takes_trailers(self, response: h11.Response) -> bool:
        is_chunked = any(name == b"transfer-encoding" for name, _ in response.headers)
        return is_chunked and self.client.protocol.their_http_version == b"1.1"
