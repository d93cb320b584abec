"""What travels over a terminal socket: output frames, and the texts of both directions."""

import struct
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from sessions.actions.follow import Terminal
from sessions.log import Batch

# The sequence number, big-endian; the log's item behind it begins with its stream byte.
_SEQUENCE = struct.Struct(">I")
_SEQUENCE_MASK = 0xFFFF_FFFF
# More is no size that anybody sends; parsing it would be work for nothing.
MAX_CONTROL_LENGTH = 1024

_GAP = '{"type":"gap","reason":"buffer_evicted"}'


class FrameSender:
    """Sends one viewer's frames; each sending waits until the client takes it."""

    def __init__(self, send: Callable[[Any], Awaitable[None]]) -> None:
        self._send = send

    async def begin(self, terminal: Terminal) -> None:
        """Say where the viewer goes on, before anything else."""
        hello = {
            "type": "seq",
            "seq": terminal.after,
            "app": terminal.app,
            "io": str(terminal.io),
        }
        await self._text(orjson.dumps(hello).decode())

    async def relay(self, batch: Batch) -> None:
        """Send a batch: the gap before it, if there is one, and a frame an item."""
        if batch.has_gap:
            await self._text(_GAP)
        for number, item in batch.items:
            frame = _SEQUENCE.pack(number & _SEQUENCE_MASK) + item
            await self._send({"type": "websocket.send", "bytes": frame})

    async def _text(self, text: str) -> None:
        await self._send({"type": "websocket.send", "text": text})


def parse_size(text: str) -> tuple[int, int] | None:
    """Return columns and rows of a resize message; None for any other text."""
    if len(text) > MAX_CONTROL_LENGTH:
        return None
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(message, dict) or message.get("type") != "resize":
        return None
    columns, rows = message.get("cols"), message.get("rows")
    # bool is an int in Python, not in JSON.
    if type(columns) is not int or type(rows) is not int:
        return None
    return columns, rows
