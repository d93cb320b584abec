"""Codec of the frames on an attach socket; pure.

Every binary WebSocket message is one frame: a byte that names the channel, then the payload.

Source: https://kubernetes.io/docs/reference/using-api/websocket-protocols/ ("channel.k8s.io").
"""

from collections.abc import Iterator
from dataclasses import dataclass

import orjson

STDIN = 0
STDOUT = 1
STDERR = 2
ERROR = 3
RESIZE = 4

PROTOCOL_V4 = "v4.channel.k8s.io"
PROTOCOL_V5 = "v5.channel.k8s.io"

# What the container runtime reads at once; larger frames only sit in buffers on the way.
MAX_INPUT_CHUNK_BYTES = 32 * 1024

# A terminal's size is two unsigned 16-bit numbers (struct winsize).
MAX_TERMINAL_CELLS = 65_535


@dataclass(frozen=True)
class StreamStatus:
    """How the server says that a stream ended: channel 3, a Status."""

    is_success: bool
    text: str


def decode(frame: bytes) -> tuple[int, bytes] | None:
    """Return channel and payload, or None for a frame without payload or without channel."""
    if len(frame) < 2:
        return None
    return frame[0], frame[1:]


def encode_input(data: bytes) -> Iterator[bytes]:
    """Yield the frames that carry `data` to the container's standard input, in order."""
    for start in range(0, len(data), MAX_INPUT_CHUNK_BYTES):
        yield bytes((STDIN,)) + data[start : start + MAX_INPUT_CHUNK_BYTES]


def encode_resize(columns: int, rows: int) -> bytes:
    """Return the frame that sets the terminal's size, clamped to what a terminal can have."""
    size = {"Width": _clamp(columns), "Height": _clamp(rows)}
    return bytes((RESIZE,)) + orjson.dumps(size)


def decode_status(payload: bytes) -> StreamStatus:
    """Read the payload of channel 3, whatever its shape: a Status, one without details, garbage."""
    try:
        status = orjson.loads(payload)
    except ValueError:
        return StreamStatus(is_success=False, text=payload.decode("utf-8", "replace"))
    if not isinstance(status, dict):
        return StreamStatus(is_success=False, text=str(status))
    text = status.get("message") or status.get("reason") or ""
    return StreamStatus(is_success=status.get("status") == "Success", text=str(text))


def _clamp(cells: int) -> int:
    return max(1, min(cells, MAX_TERMINAL_CELLS))
