"""Bare ASGI applications: what the server delivers when the application does nothing else."""

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.types import Receive, Scope, Send


class Bare:
    """Sends the same pieces to everybody who is connected once it is told to go."""

    def __init__(self) -> None:
        self.waiting = 0
        self.arrived = asyncio.Event()
        self._go = asyncio.Event()
        self._pieces: Sequence[bytes] = ()
        self._is_in_step = False

    def load(self, pieces: Sequence[bytes], *, is_in_step: bool) -> None:
        """Take the pieces of the next round; `is_in_step` lets go of the loop after each."""
        self._pieces, self._is_in_step = pieces, is_in_step
        self._go = asyncio.Event()
        self.waiting = 0

    def go(self) -> None:
        """Let everybody who waits be sent to."""
        self._go.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or socket."""
        go = self._go
        await receive()
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": b"", "more_body": True})
        else:
            await send({"type": "websocket.accept"})
        self.waiting += 1
        self.arrived.set()
        await go.wait()
        is_http = scope["type"] == "http"
        for piece in self._pieces:
            await send(_body(piece) if is_http else {"type": "websocket.send", "bytes": piece})
            if self._is_in_step:
                await asyncio.sleep(0)
        if is_http:
            await send(_END)
        else:
            # The client hangs up: Daphne's own server would cut off what is queued before a close.
            await receive()


_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
_END: dict[str, Any] = {"type": "http.response.body", "body": b""}


def _body(piece: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": piece, "more_body": True}
