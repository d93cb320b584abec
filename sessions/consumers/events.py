"""The event stream: server-sent events of one session until its end.

Each stream owns one task. Sending waits for the client, so that a slow one is told of a gap by the
log instead of growing a queue here.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

import orjson
from channels.exceptions import StopConsumer

from sessions import runtime, sse
from sessions.actions import follow
from sessions.consumers.owner import OwnsOneTask
from sessions.log import Batch, Reader
from telorunner.drf import JSON_TYPE, error_headers, translate

logger = logging.getLogger(__name__)

# 20 s: proxies drop idle streams after 60, which leaves three chances.
HEARTBEAT_SECONDS = 20.0

_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class EventStream(OwnsOneTask):
    """GET /v1/sessions/{id}/events."""

    has_started = False
    _sent_at = 0.0

    async def http_request(self, message: dict[str, Any]) -> None:
        """Start the stream once the request is complete; its body means nothing."""
        if self.task is None and not message.get("more_body"):
            self.start_task(self._serve(), name=f"events of {self.session_id()}")

    async def http_disconnect(self, _message: dict[str, Any]) -> None:
        """End the stream with its client."""
        await self.stop_task()
        raise StopConsumer

    async def _serve(self) -> None:
        try:
            cursor = self._last_event_id()
            async with follow.follow_events(self.session_id(), cursor) as reader:
                await self._start(200, _STREAM_HEADERS)
                await self._send(b"", more=True)
                await self._relay_until_stopping(reader)
            await self._send(b"")
        except Exception as exc:
            await self._fail(exc)

    async def _relay_until_stopping(self, reader: Reader) -> None:
        stopping = runtime.current().stopping
        self._sent_at = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            relay = group.create_task(self._relay(reader))
            helpers = [group.create_task(stopping.wait()), group.create_task(self._beat())]
            await asyncio.wait({relay, *helpers}, return_when=asyncio.FIRST_COMPLETED)
            # A client that is cut off here comes back with the id it has.
            for task in (relay, *helpers):
                task.cancel()

    async def _relay(self, reader: Reader) -> None:
        while True:
            batch = await reader.next()
            if frames := _last_frames.of(batch):
                await self._send(frames, more=True)
            if batch.is_end:
                return

    async def _beat(self) -> None:
        """Send a comment whenever nothing was sent for so long; cancelled with the stream."""
        loop = asyncio.get_running_loop()
        while True:
            idle_seconds = loop.time() - self._sent_at
            if idle_seconds >= HEARTBEAT_SECONDS:
                await self._send(sse.HEARTBEAT, more=True)
            else:
                await asyncio.sleep(HEARTBEAT_SECONDS - idle_seconds)

    def _last_event_id(self) -> str | None:
        """Return where to go on: the header wins over the query."""
        for name, value in self.scope["headers"]:
            if name == b"last-event-id":
                return str(value.decode("latin-1"))
        return query_value(self.scope["query_string"], "lastEventId")

    async def _fail(self, exc: Exception) -> None:
        """Answer with the error; a stream that has begun can only end."""
        error = translate(exc)
        if error is not exc:
            logger.error("An event stream failed.", exc_info=exc)
        if not self.has_started:
            headers = {"content-type": JSON_TYPE, **error_headers(error)}
            encoded = [(name.lower().encode(), text.encode()) for name, text in headers.items()]
            await self._start(error.http_status, encoded)
            await self._send(orjson.dumps(error.body()))
        else:
            await self._send(b"")

    async def _start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.has_started = True
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def _send(self, body: bytes, *, more: bool = False) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": more})
        self._sent_at = asyncio.get_running_loop().time()


class _Frames:
    """The batch that was sent last, as it is sent.

    Readers that keep up are all handed the same batch, one after the other: its frames are built
    once, and are in memory once while clients are slow to take them.
    """

    def __init__(self) -> None:
        self._batch: Batch | None = None
        self._frames = b""

    def of(self, batch: Batch) -> bytes:
        """Return a batch as it is sent: one piece, however many events."""
        if batch is not self._batch:
            gap = sse.GAP if batch.has_gap else b""
            frames = (sse.frame(number, encoded) for number, encoded in batch.items)
            self._batch, self._frames = batch, gap + b"".join(frames)
        return self._frames


_last_frames = _Frames()


def query_value(query_string: bytes, name: str) -> str | None:
    """Return the first value of a query parameter; None: it is not there."""
    values = parse_qs(query_string.decode("latin-1"), keep_blank_values=True).get(name)
    return values[0] if values else None
