"""Clients of the ASGI application that can be slow: an event stream and a terminal socket.

`hold()` makes the server's sending wait, as flow control does behind a client that reads nothing.
Nothing here has a deadline, so that it also works in virtual time; pytest's ends what hangs.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
from starlette.types import ASGIApp, Message

from sessions import sse
from tests import description


class Connection:
    """One connection: what the application sent, and a gate in front of its sending."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.outgoing: asyncio.Queue[Message] = asyncio.Queue()
        self.is_finished = asyncio.Event()
        self._gate = asyncio.Event()
        self._gate.set()

    async def send(self, message: Message) -> None:
        self.outgoing.put_nowait(message)
        await self._gate.wait()

    def hold(self) -> None:
        """Read nothing more: the next sending waits."""
        self._gate.clear()

    def let_go(self) -> None:
        self._gate.set()

    async def next(self) -> Message:
        return await self.outgoing.get()

    async def finished(self) -> None:
        """Wait until the application has returned."""
        await self.is_finished.wait()


class EventClient(Connection):
    """A client of an event stream."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.text = ""
        self.is_ended = False

    async def begin(self) -> None:
        start = await self.next()
        self.status = start["status"]
        self.headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}

    async def read_until(self, text: str) -> str:
        """Read until the text has come; return everything so far."""
        while text not in self.text and not self.is_ended:
            await self._read()
        assert text in self.text
        return self.text

    async def read_to_end(self) -> str:
        while not self.is_ended:
            await self._read()
        return self.text

    def messages(self) -> list[sse.Message]:
        return list(sse.parse(self.text))

    def check(self, path: str) -> None:
        """Fail unless what was read is described; an error's body is, once all of it is there."""
        is_stream = self.headers["content-type"] == description.STREAM_TYPE
        body = self.text.encode() if self.is_ended and not is_stream else None
        description.check_answer("GET", path, self.status, self.headers, body)
        for message in self.messages() if is_stream else ():
            description.check_event(message.event, message.data)

    async def _read(self) -> None:
        message = await self.next()
        assert message["type"] == "http.response.body"
        self.text += message["body"].decode()
        self.is_ended = not message.get("more_body", False)


class TerminalClient(Connection):
    """A client of a terminal socket; `frames` are (number, stream, payload)."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[dict[str, Any]] = []
        self.frames: list[tuple[int, int, bytes]] = []
        self.close_code = 0

    async def read(self) -> Message:
        message = await self.next()
        if message["type"] == "websocket.close":
            self.close_code = message["code"]
            description.check_close(self.close_code)
        elif message.get("text") is not None:
            self.texts.append(orjson.loads(message["text"]))
            description.check_text(self.texts[-1])
        elif message.get("bytes") is not None:
            number, stream = struct.unpack_from(">IB", message["bytes"])
            self.frames.append((number, stream, message["bytes"][5:]))
        return message

    async def read_until(self, payload: bytes) -> None:
        while payload not in self.output():
            assert not self.close_code
            await self.read()

    async def read_to_close(self) -> int:
        while not self.close_code:
            await self.read()
        return self.close_code

    async def read_text(self) -> dict[str, Any]:
        """Read on until the next text and return it."""
        count = len(self.texts)
        while len(self.texts) == count:
            await self.read()
        return self.texts[-1]

    def output(self) -> bytes:
        return b"".join(payload for _, _, payload in self.frames)

    def type(self, data: bytes) -> None:
        self.incoming.put_nowait({"type": "websocket.receive", "bytes": data})

    def say(self, text: str) -> None:
        self.incoming.put_nowait({"type": "websocket.receive", "text": text})

    def resize(self, columns: Any, rows: Any) -> None:
        size = {"type": "resize", "cols": columns, "rows": rows}
        self.say(orjson.dumps(size).decode())

    def disconnect(self) -> None:
        self.incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})


Headers = Sequence[tuple[str, str]]


@asynccontextmanager
async def open_events(
    app: ASGIApp, session_id: str, *, query: str = "", headers: Headers = ()
) -> AsyncIterator[EventClient]:
    """Open an event stream; leaving disconnects, and waits for the application to return."""
    client = EventClient()
    path = f"/v1/sessions/{session_id}/events"
    async with _running(app, client, _scope("http", path, query, headers)):
        client.incoming.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        await client.begin()
        yield client
        client.check(path)
        client.incoming.put_nowait({"type": "http.disconnect"})


@asynccontextmanager
async def open_socket(
    app: ASGIApp, session_id: str, *, query: str = "", headers: Headers = ()
) -> AsyncIterator[TerminalClient]:
    """Open a terminal socket, which is always accepted; leaving disconnects."""
    client = TerminalClient()
    path = f"/v1/sessions/{session_id}/io"
    async with _running(app, client, _scope("websocket", path, query, headers)):
        client.incoming.put_nowait({"type": "websocket.connect"})
        assert (await client.read())["type"] == "websocket.accept"
        yield client
        client.disconnect()


def _scope(kind: str, path: str, query: str, headers: Headers) -> dict[str, Any]:
    return {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers],
        "subprotocols": [],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


@asynccontextmanager
async def _running(app: ASGIApp, client: Connection, scope: dict[str, Any]) -> AsyncIterator[None]:
    async def serve() -> None:
        try:
            await app(scope, client.incoming.get, client.send)
        finally:
            client.is_finished.set()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(serve())
        try:
            yield
            client.let_go()
            await client.finished()
        finally:
            task.cancel()
