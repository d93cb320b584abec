"""A client of /v1 for tests: creates sessions out of Python programs, follows and types."""

import asyncio
import struct
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import httpx_sse
import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests import description

FOLLOW_SECONDS = 60.0
TERMINAL_KINDS = {"exited", "failed", "stopped"}


@dataclass
class Terminal:
    """An open /io socket and what it has brought so far."""

    socket: ClientConnection
    numbers: list[int] = field(default_factory=list)
    output: bytearray = field(default_factory=bytearray)
    # The same by its stream: 0 of a terminal, 1 and 2 without one.
    streams: defaultdict[int, bytearray] = field(default_factory=lambda: defaultdict(bytearray))
    texts: list[dict[str, Any]] = field(default_factory=list)

    async def receive(self) -> None:
        """Take the next frame in."""
        frame = await self.socket.recv()
        if isinstance(frame, str):
            self.texts.append(orjson.loads(frame))
            description.check_text(self.texts[-1])
            return
        number, stream = struct.unpack(">IB", frame[:5])
        self.numbers.append(number)
        self.output += frame[5:]
        self.streams[stream] += frame[5:]

    async def until(self, wanted: bytes) -> None:
        """Receive until the output holds the wanted bytes."""
        searched = 0
        async with asyncio.timeout(FOLLOW_SECONDS):
            # NB: each piece is searched once, or a long output makes a viewer that falls behind.
            while self.output.find(wanted, searched) < 0:
                searched = max(0, len(self.output) - len(wanted) + 1)
                await self.receive()

    async def drain(self) -> int:
        """Receive to the end and return the close code."""
        try:
            async with asyncio.timeout(FOLLOW_SECONDS):
                while True:
                    await self.receive()
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else description.BROKEN
            description.check_close(code)
            return code

    async def resize(self, columns: int, rows: int) -> None:
        await self.socket.send(
            orjson.dumps({"type": "resize", "cols": columns, "rows": rows}).decode()
        )


class Client:
    """One client of a platform."""

    def __init__(self, url: str, image: str) -> None:
        self.url = url
        self.image = image
        self.http = httpx.AsyncClient(
            base_url=url,
            timeout=FOLLOW_SECONDS,
            trust_env=False,
            event_hooks={"response": [description.check_response]},
        )

    async def create(self, program: str, **fields: Any) -> str:
        """Start a session whose entry is a Python program (for the test kernel)."""
        answer = await self.ask_to_create(program, **fields)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["sessionId"])

    async def ask_to_create(self, program: str, **fields: Any) -> httpx.Response:
        """Ask for such a session, and leave it to the caller what a refusal means."""
        body = {
            "bundle": {
                "entryRelativePath": "telo.yaml",
                "files": [{"relativePath": "telo.yaml", "contents": program}],
            },
            "env": {},
            "config": {"image": self.image, "pullPolicy": "missing"},
            # A node of two cores has room for several only if each asks for little.
            "limits": {"cpu": "200m"},
            **fields,
        }
        return await self.http.post("/v1/sessions", json=body)

    async def events(self, session: str, after: int = 0) -> list[tuple[int, dict[str, Any]]]:
        """Follow the stream to its end; a gap is listed with number 0."""
        return [event async for event in self.follow(session, after)]

    async def follow(
        self, session: str, after: int = 0
    ) -> AsyncIterator[tuple[int, dict[str, Any]]]:
        """Yield numbers and events as they come."""
        headers = {"last-event-id": str(after)} if after else {}
        path = f"/v1/sessions/{session}/events"
        async with (
            asyncio.timeout(FOLLOW_SECONDS),
            httpx_sse.aconnect_sse(self.http, "GET", path, headers=headers) as stream,
        ):
            async for message in stream.aiter_sse():
                # httpx-sse makes a message without data of each heartbeat.
                if not message.data:
                    continue
                description.check_event(message.event, message.data)
                number = 0 if message.event == "gap" else int(message.id)
                yield number, orjson.loads(message.data)

    async def status(self, session: str) -> dict[str, Any]:
        """Return the last status of the stream, once it has ended."""
        kinds = [event["status"] for _, event in await self.events(session) if "status" in event]
        assert kinds, "the stream ended without a status"
        assert kinds[-1]["kind"] in TERMINAL_KINDS
        return dict(kinds[-1])

    async def until_running(self, session: str) -> None:
        """Follow the stream until the session runs."""
        async for _, event in self.follow(session):
            kind = event.get("status", {}).get("kind")
            assert kind not in TERMINAL_KINDS, event
            if kind == "running":
                return

    @asynccontextmanager
    async def terminal(self, session: str, last_seq: int = 0) -> AsyncIterator[Terminal]:
        """Open /io."""
        address = f"{self.url.replace('http', 'ws', 1)}/v1/sessions/{session}/io?lastSeq={last_seq}"
        async with connect(address, max_size=None, proxy=None, compression=None) as socket:
            yield Terminal(socket)

    async def replay(self, session: str, *, is_whole: bool = False) -> bytes:
        """Return all output of a session up to its end, checking that numbers have no hole.

        After the end a socket drains for 2 s; on a busy machine that is not enough for much output,
        and a viewer comes back until there is no more. With `is_whole` nothing of it may be gone.
        """
        output, numbers = bytearray(), list[int]()
        while True:
            last = numbers[-1] if numbers else 0
            async with self.terminal(session, last) as terminal:
                code = await terminal.drain()
            assert code == 1000, f"closed with {code} after {len(terminal.output)} bytes"
            if is_whole:
                assert [text["type"] for text in terminal.texts] == ["seq"], terminal.texts
            if not terminal.numbers:
                break
            numbers += terminal.numbers
            output += terminal.output
        first = 1 if is_whole or not numbers else numbers[0]
        assert numbers == list(range(first, first + len(numbers)))
        return bytes(output)

    async def close(self) -> None:
        await self.http.aclose()
