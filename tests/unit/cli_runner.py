"""A runner that a test plays itself: ``/v1`` as the command-line client sees it, on port 0."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable, Sized
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web

SESSION = "abcdefgh2345"
IMAGE = "registry.test/kernel:1"
CAPABILITIES = {"config": {"schema": {"properties": {"image": {"default": IMAGE}}}}}
TIMEOUT_SECONDS = 20.0


class FakeRunner:
    """One session whose events and output the test publishes; what the client sent is kept."""

    def __init__(self) -> None:
        self.url = ""
        self.refusal: tuple[int, dict[str, Any]] | None = None
        self.refused_sockets: list[int] = []
        self.created: list[dict[str, Any]] = []
        self.create_headers: list[dict[str, str]] = []
        self.stops = 0
        self.is_forgotten = False
        self.event_resumes: list[str | None] = []
        self.socket_resumes: list[str] = []
        self.input = bytearray()
        self.sizes: list[tuple[int, int]] = []
        self._events: list[dict[str, Any]] = []
        self._chunks: list[tuple[int, bytes]] = []
        self._is_over = False
        self._streams: list[web.Request] = []
        self._sockets: list[web.Request] = []
        self._changed = asyncio.Condition()

    async def publish(self, **event: Any) -> None:
        """Publish one event under the next number."""
        self._events.append(event)
        await self._tell()

    async def write(self, data: bytes, stream: int = 0) -> None:
        """Write one chunk of the application's output."""
        self._chunks.append((stream, data))
        await self._tell()

    async def finish(self, **status: Any) -> None:
        """End the session: the terminal status, then the end of the streams."""
        self._is_over = True
        await self.publish(type="status", status=status)

    async def cut(self) -> None:
        """Break every connection as a network would."""
        for request in [*self._streams, *self._sockets]:
            assert request.transport is not None
            request.transport.abort()
        await self.until(lambda: not self._streams and not self._sockets)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for something that the client does."""
        async with asyncio.timeout(TIMEOUT_SECONDS), self._changed:
            await self._changed.wait_for(lambda: bool(condition()))

    async def _more_than(self, count: int, items: Sized) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(items) > count or self._is_over)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def capabilities(self, _: web.Request) -> web.Response:
        return web.json_response(CAPABILITIES)

    async def create(self, request: web.Request) -> web.Response:
        if self.refusal is not None:
            status, body = self.refusal
            return web.json_response(body, status=status)
        self.created.append(await request.json())
        self.create_headers.append({key.lower(): value for key, value in request.headers.items()})
        await self._tell()
        return web.json_response({"sessionId": SESSION}, status=201)

    async def delete(self, _: web.Request) -> web.Response:
        self.stops += 1
        await self._tell()
        return web.Response(status=204)

    async def events(self, request: web.Request) -> web.StreamResponse:
        if self.is_forgotten:
            return web.json_response({"error": "not_found", "message": "Gone."}, status=404)
        resume = request.headers.get("last-event-id")
        self.event_resumes.append(resume)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        self._streams.append(request)
        await self._tell()
        try:
            await self._send_events(response, int(resume or 0))
        except ConnectionError:
            pass  # cut by the test
        finally:
            self._streams.remove(request)
            await self._tell()
        return response

    async def _send_events(self, response: web.StreamResponse, seen: int) -> None:
        while True:
            for number, event in enumerate(self._events[seen:], seen + 1):
                frame = f"id: {number}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n"
                await response.write(frame.encode())
                seen = number
            if self._is_over:
                return
            await self._more_than(seen, self._events)

    async def io(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.socket_resumes.append(request.query["lastSeq"])
        if self.refused_sockets:
            await socket.close(code=self.refused_sockets.pop(0))
            await self._tell()
            return socket
        self._sockets.append(request)
        await self._tell()
        try:
            async with asyncio.TaskGroup() as tasks:
                sender = tasks.create_task(self._send_output(socket, request))
                await self._receive(socket)
                sender.cancel()
        finally:
            self._sockets.remove(request)
            await self._tell()
        return socket

    async def _send_output(self, socket: web.WebSocketResponse, request: web.Request) -> None:
        seen = int(request.query["lastSeq"])
        try:
            await socket.send_json({"type": "seq", "seq": seen, "app": "app", "io": "tty"})
            while not self._is_over or len(self._chunks) > seen:
                for seq, (stream, data) in enumerate(self._chunks[seen:], seen + 1):
                    await socket.send_bytes(struct.pack(">IB", seq, stream) + data)
                    seen = seq
                await self._more_than(seen, self._chunks)
            await socket.close(code=1000)
        except ConnectionError:
            pass  # cut by the test

    async def _receive(self, socket: web.WebSocketResponse) -> None:
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                self.input += message.data
            elif message.type is WSMsgType.TEXT:
                size = json.loads(message.data)
                assert size["type"] == "resize"
                self.sizes.append((size["cols"], size["rows"]))
            await self._tell()


@asynccontextmanager
async def open_runner() -> AsyncIterator[FakeRunner]:
    """Serve a runner on a free port of the loopback."""
    runner = FakeRunner()
    application = web.Application()
    session = f"/v1/sessions/{SESSION}"
    application.add_routes(
        [
            web.get("/v1/capabilities", runner.capabilities),
            web.post("/v1/sessions", runner.create),
            web.delete(session, runner.delete),
            web.get(f"{session}/events", runner.events),
            web.get(f"{session}/io", runner.io),
        ]
    )
    server = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1.0)
    await server.setup()
    try:
        site = web.TCPSite(server, "127.0.0.1", 0)
        await site.start()
        runner.url = "http://{}:{}".format(*server.addresses[0][:2])
        yield runner
    finally:
        await server.cleanup()
