"""Server-sent events out of untrusted bytes, piece by piece and within bounds; pure.

`sessions.sse.parse()` reads a whole stream that is trusted; this reads one without an end that is
not. Only the data of a message is kept: ids, event names and comments are passed over.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from collections.abc import Iterator

# The largest message that is handed on; a kernel's event frames have a few hundred bytes.
MAX_MESSAGE_BYTES = 65_536
# The name of the field and what separates it from its value.
_FIELD_BYTES = len(b"data: ")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class MessageParser:
    """Cuts one stream into messages; what is too long is skipped without being kept.

    `lines` counts the lines so far.
    """

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.lines = 0
        self._oversized = 0
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._is_line_too_long = False
        self._has_ended_in_cr = False
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._is_too_long = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of every message that a chunk completes."""
        if self._has_ended_in_cr and chunk.startswith(b"\n"):
            # The second half of a line end whose first half ended the chunk before.
            chunk = chunk[1:]
            self._has_ended_in_cr = False
        if not chunk:
            return
        # NB: for bytes these are CR, LF and CRLF alone, as the protocol has them.
        lines = chunk.splitlines()
        self._has_ended_in_cr = chunk.endswith(b"\r")
        rest = b"" if chunk.endswith((b"\r", b"\n")) else lines.pop()
        for part in lines:
            self._append(part)
            line, is_cut = bytes(self._line), self._is_line_too_long
            self._line.clear()
            self._is_line_too_long = False
            message = self._take(line, is_cut)
            if message is not None:
                yield message
        self._append(rest)

    def take_oversized(self) -> int:
        """Return how many messages were over the bound since the last call."""
        oversized, self._oversized = self._oversized, 0
        return oversized

    def _append(self, part: bytes) -> None:
        """Add to the line; of one that is too long its beginning is kept, to know its field."""
        room = self._max_bytes + _FIELD_BYTES - len(self._line)
        self._line += part[:room]
        self._is_line_too_long = self._is_line_too_long or len(part) > room

    def _take(self, line: bytes, is_cut: bool) -> bytes | None:
        """Take a line in; return the data of the message that it ends."""
        if not self.lines:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        self.lines += 1
        if not line:
            return self._end()
        name, _, value = line.partition(b":")
        if name == b"data" and not self._is_too_long:
            value = value.removeprefix(b" ")
            # A line end counts too, so that lines of nothing have a bound.
            self._data_bytes += len(value) + 1
            self._is_too_long = is_cut or self._data_bytes > self._max_bytes + 1
            self._data.append(value)
            if self._is_too_long:
                self._data.clear()
        return None

    def _end(self) -> bytes | None:
        data, is_too_long = self._data, self._is_too_long
        self._data, self._data_bytes, self._is_too_long = [], 0, False
        if is_too_long:
            self._oversized += 1
            return None
        return b"\n".join(data) if data else None
