"""A session's event stream and its terminal socket, each opened again where it left off.

Nothing that the runner still has is lost or shown twice over a broken connection. Both live in
tasks of ``run``.
"""

import asyncio
import json
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
from httpx_sse import SSEError, aconnect_sse
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from telorunner.aio import Backoff
from telorunner.cli.api import CONNECT_SECONDS, LOOPBACK, RunnerApi, refusal
from telorunner.cli.failures import ClientFailure, SessionGone
from telorunner.cli.input import PendingInput
from telorunner.cli.terminal import LocalTerminal

TERMINAL_STATUSES = frozenset({"exited", "failed", "stopped"})
# Three heartbeats of the runner.
SILENCE_SECONDS = 60.0
PING_SECONDS = 20.0
SOCKET_CLOSE_SECONDS = 2.0
RECONNECT_CAP_SECONDS = 5.0
# Close codes after which there is nothing more to come; all others mean: try again.
CLOSE_END = 1000
CLOSE_ABNORMAL = 1006
CLOSE_FORBIDDEN_ORIGIN = 4403
FINAL_CLOSE_CODES = frozenset({CLOSE_END, CLOSE_FORBIDDEN_ORIGIN, 4404, 4410})
# Frames are a sequence number, a stream number and at most 64 KiB.
MAX_FRAME_BYTES = 1024 * 1024
_HEADER = struct.Struct(">IB")
_STDERR = 2
# As a shell reports a program that SIGPIPE ended.
OUTPUT_CLOSED = 141


class EventFeed:
    """The events of one session, from the first to the terminal status."""

    def __init__(
        self, api: RunnerApi, session_id: str, on_event: Callable[[dict[str, Any]], None]
    ) -> None:
        self._api = api
        self._path = f"/v1/sessions/{session_id}/events"
        self._on_event = on_event
        self._last_id = 0
        self._is_lost = False
        self._backoff = Backoff(cap_seconds=RECONNECT_CAP_SECONDS)

    async def follow(self) -> dict[str, Any]:
        """Hand on every event once and return the terminal status.

        A lost connection is told as an event of type ``lost``, once until it is back.

        Raises:
            SessionGone: the runner does not know the session.
            ClientFailure: the runner refuses the stream.
        """
        while True:
            with suppress(httpx.HTTPError, SSEError):
                status = await self._read()
                if status is not None:
                    return status
            if not self._is_lost:
                self._on_event({"type": "lost"})
            self._is_lost = True
            await self._backoff.wait()

    async def _read(self) -> dict[str, Any] | None:
        """Read one connection to its end; return the terminal status where it brought one."""
        headers = {"Last-Event-ID": str(self._last_id)} if self._last_id else {}
        timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        async with aconnect_sse(
            self._api.client, "GET", self._path, headers=headers, timeout=timeout
        ) as source:
            status_code = source.response.status_code
            if status_code == httpx.codes.NOT_FOUND:
                raise SessionGone
            if 400 <= status_code < 500:
                raise refusal(status_code, None)
            if status_code != httpx.codes.OK:
                return None
            async for frame in source.aiter_sse():
                status = self._take(frame.event, frame.id, frame.data)
                if status is not None:
                    return status
        return None

    def _take(self, event_type: str, event_id: str, data: str) -> dict[str, Any] | None:
        """Hand on one frame; return its status where that is the terminal one."""
        self._backoff.reset()
        self._is_lost = False
        if event_type == "gap":
            # What follows may be numbered from the beginning.
            self._last_id = 0
            self._on_event({"type": "gap"})
            return None
        number = int(event_id) if event_id.isascii() and event_id.isdecimal() else 0
        if number <= self._last_id:
            return None
        self._last_id = number
        event: dict[str, Any] = json.loads(data)
        self._on_event(event)
        if event.get("type") != "status" or event["status"]["kind"] not in TERMINAL_STATUSES:
            return None
        status: dict[str, Any] = event["status"]
        return status


class TerminalLink:
    """The application's terminal: its output to the user's, the user's input to it.

    ``is_tty`` is set once the runner has said that the application has a terminal.
    """

    def __init__(
        self, url: str, session_id: str, terminal: LocalTerminal, pending: PendingInput
    ) -> None:
        parts = urlsplit(url)
        scheme = "wss" if parts.scheme == "https" else "ws"
        self._url = f"{scheme}://{parts.netloc}{parts.path}/v1/sessions/{session_id}/io"
        # True: the proxy that the environment names.
        self._proxy: Literal[True] | None = None if parts.hostname in LOOPBACK else True
        self._terminal = terminal
        self._pending = pending
        self._last_seq = 0
        self._accepted = asyncio.Event()
        self._resized = asyncio.Event()
        self._backoff = Backoff(cap_seconds=RECONNECT_CAP_SECONDS)
        self.is_tty = asyncio.Event()

    def resize(self) -> None:
        """Tell the application the terminal's size as soon as there is a socket."""
        self._resized.set()

    async def run(self) -> None:
        """Relay until the application's terminal has ended; cancelling closes the socket.

        Raises:
            ClientFailure: nobody reads the user's side any more.
        """
        while (code := await self._connect()) not in FINAL_CLOSE_CODES:
            await self._backoff.wait()
        if code == CLOSE_FORBIDDEN_ORIGIN:
            self._terminal.notice("the runner takes terminals from its listed origins only")

    async def _connect(self) -> int:
        """Relay one connection and return its close code."""
        code = CLOSE_ABNORMAL
        # What fails on the way there or on the way out is a connection to be made again.
        with suppress(OSError, TimeoutError, WebSocketException):
            async with connect(
                f"{self._url}?lastSeq={self._last_seq}",
                proxy=self._proxy,
                compression=None,
                max_size=MAX_FRAME_BYTES,
                open_timeout=CONNECT_SECONDS,
                ping_interval=PING_SECONDS,
                ping_timeout=PING_SECONDS,
                close_timeout=SOCKET_CLOSE_SECONDS,
            ) as socket:
                code = await self._relay(socket)
        return code

    async def _relay(self, socket: ClientConnection) -> int:
        self._accepted.clear()
        async with asyncio.TaskGroup() as tasks:
            senders = [
                tasks.create_task(self._send_input(socket), name="send input"),
                tasks.create_task(self._send_sizes(socket), name="send sizes"),
            ]
            code = await self._receive(socket)
            for sender in senders:
                sender.cancel()
        return code

    async def _receive(self, socket: ClientConnection) -> int:
        while True:
            try:
                message = await socket.recv()
            except ConnectionClosed as exc:
                return exc.rcvd.code if exc.rcvd is not None else CLOSE_ABNORMAL
            self._backoff.reset()
            if isinstance(message, str):
                self._take_text(message)
            else:
                await self._take_output(message)

    def _take_text(self, text: str) -> None:
        message = json.loads(text)
        if message.get("type") == "seq":
            self._accepted.set()
            # Every connection begins with the size: it may have changed while there was none.
            self._resized.set()
            if message.get("io") == "tty":
                self.is_tty.set()
        elif message.get("type") == "gap":
            self._last_seq = 0
            self._terminal.notice("[some output was lost]")

    async def _take_output(self, frame: bytes) -> None:
        seq, stream = _HEADER.unpack_from(frame)
        if seq <= self._last_seq:
            return
        try:
            await self._terminal.write(frame[_HEADER.size :], is_error=stream == _STDERR)
        except OSError as exc:
            raise ClientFailure("nobody reads the output", code=OUTPUT_CLOSED) from exc
        self._last_seq = seq

    async def _send_input(self, socket: ClientConnection) -> None:
        # A connection that breaks is seen by the receiving side, which ends this task.
        with suppress(ConnectionClosed):
            # A socket that the runner opens only to close it would swallow the input.
            await self._accepted.wait()
            while True:
                await socket.send(await self._pending.first())
                self._pending.take_off()

    async def _send_sizes(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            await self._accepted.wait()
            await self.is_tty.wait()
            while True:
                await self._resized.wait()
                self._resized.clear()
                if (size := self._terminal.size()) is not None:
                    message = {"type": "resize", "cols": size[0], "rows": size[1]}
                    await socket.send(json.dumps(message))
