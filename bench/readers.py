"""Clients on raw sockets, in a process of their own: cheap, so that the server is what is measured.

They count and look for a few bytes, and parse no more of HTTP and WebSocket than they must.
"""

import selectors
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from bench.commands import obey_in_turn
from bench.wire import HEAD_END, get_request, is_whole, masked, post_request

CONNECT_SECONDS = 10.0
DRAIN_SECONDS = 120.0
READ_BYTES = 1 << 20
# Nobody types faster.
KEY_SECONDS = 0.02
BINARY = 2
# In front of the output: the number and the stream.
ITEM_HEAD_BYTES = 5


@dataclass(eq=False)
class Reader:
    """One connection: what it has received, and how often the marks were in it."""

    socket: socket.socket
    received_bytes: int = 0
    marks: int = 0
    gaps: int = 0
    tail: bytes = b""
    ended_at: float = 0.0

    def take(self, data: memoryview, mark: bytes, gap: bytes) -> None:
        """Count a piece; a mark that a border of pieces cuts is found by what is kept."""
        self.received_bytes += len(data)
        if mark:
            text = self.tail + data
            self.marks += text.count(mark)
            self.gaps += text.count(gap)
            self.tail = text[-(len(mark) - 1) :]


class Frames:
    """Finds the frames in a WebSocket's bytes, without keeping their payload."""

    def __init__(self) -> None:
        self._head = b""
        self._skip = 0

    def take(self, data: memoryview) -> list[tuple[bytes, int]]:
        """Return of each frame that begins here its opcode and number, and its payload's length."""
        found = []
        while len(data):
            if self._skip:
                skipped = min(self._skip, len(data))
                self._skip -= skipped
                data = data[skipped:]
                continue
            self._head += bytes(data[:1])
            data = data[1:]
            if (whole := _frame_head(self._head)) is not None:
                (opcode, length), number = whole, self._head[-4:]
                found.append((bytes((opcode,)) + number, length))
                self._skip = length - min(length, 4)
                self._head = b""
        return found


def _frame_head(head: bytes) -> tuple[int, int] | None:
    """Return opcode and length of a frame; None: more of its head and number is to come."""
    if len(head) < 2:
        return None
    more = {126: 2, 127: 8}.get(head[1], 0)
    if len(head) < 2 + more:
        return None
    length = int.from_bytes(head[2 : 2 + more], "big") if more else head[1]
    return (head[0] & 0x0F, length) if len(head) == 2 + more + min(length, 4) else None


@dataclass
class Readers:
    """All connections of this process."""

    buffer: bytearray = field(default_factory=lambda: bytearray(READ_BYTES))
    groups: dict[str, list[Reader]] = field(default_factory=dict)

    def open(
        self, group: str, port: int, path: str, count: int, kind: str, receive_bytes: int = 0
    ) -> None:
        """Connect, send the requests and read the answers' heads."""
        request = get_request(path, is_socket=kind == "ws")
        opened = self.groups.setdefault(group, [])
        for _ in range(count):
            connection = socket.socket()
            if receive_bytes:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            connection.settimeout(CONNECT_SECONDS)
            connection.connect(("127.0.0.1", port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(request)
            opened.append(Reader(connection))
        for reader in opened[-count:]:
            _read_head(reader)

    def drain(
        self, group: str, until_bytes: int = 0, mark: str = "", gap: str = ""
    ) -> dict[str, Any]:
        """Read until the connections end, or each has so many bytes; return when and how much."""
        readers = self.groups[group]
        with selectors.DefaultSelector() as selector:
            for reader in readers:
                reader.socket.setblocking(False)
                selector.register(reader.socket, selectors.EVENT_READ, reader)
            deadline = time.monotonic() + DRAIN_SECONDS
            while selector.get_map():
                ready = selector.select(deadline - time.monotonic())
                if not ready:
                    raise TimeoutError(f"{len(selector.get_map())} readers are not done")
                for key, _ in ready:
                    if not self._read(key.data, until_bytes, mark.encode(), gap.encode()):
                        selector.unregister(key.fileobj)
        return {
            "ended_at": max(reader.ended_at for reader in readers),
            "bytes": [reader.received_bytes for reader in readers],
            "marks": [reader.marks for reader in readers],
            "gaps": sum(reader.gaps for reader in readers),
        }

    def _read(self, reader: Reader, until_bytes: int, mark: bytes, gap: bytes) -> bool:
        """Read once; tell whether there is more to read."""
        try:
            length = reader.socket.recv_into(self.buffer)
        except BlockingIOError:
            return True
        except ConnectionError:
            length = 0
        reader.take(memoryview(self.buffer)[:length], mark, gap)
        if length and not (until_bytes and reader.received_bytes >= until_bytes):
            return True
        reader.ended_at = time.monotonic()
        return False

    def type(self, group: str, text: str) -> None:
        """Send keystrokes on every socket of a group."""
        for reader in self.groups[group]:
            reader.socket.setblocking(True)
            reader.socket.sendall(masked(text.encode()))

    def read_until(self, group: str, text: str) -> float:
        """Read the first connection of a group until it has brought a text; return when it had."""
        connection, received = self.groups[group][0].socket, b""
        connection.settimeout(DRAIN_SECONDS)
        while text.encode() not in received:
            piece = connection.recv(READ_BYTES)
            if not piece:
                raise ConnectionError(f"it ended with {received[-400:]!r}")
            received += piece
        return time.monotonic()

    def drain_payload(self, group: str, count: int) -> float:
        """Read a terminal until so much of the application's output has come; return when."""
        connection = self.groups[group][0].socket
        connection.settimeout(DRAIN_SECONDS)
        frames, received, number = Frames(), 0, None
        while received < count:
            length = connection.recv_into(self.buffer)
            if not length:
                raise ConnectionError(f"it ended after {received:,} bytes")
            for head, payload_bytes in frames.take(memoryview(self.buffer)[:length]):
                if head[0] != BINARY:
                    raise ConnectionError(f"a gap after {received:,} bytes of output")
                if number is not None and int.from_bytes(head[1:], "big") != number + 1:
                    raise ConnectionError("a number is missing")
                number = int.from_bytes(head[1:], "big")
                received += payload_bytes - ITEM_HEAD_BYTES
        return time.monotonic()

    def echo(self, group: str, count: int) -> list[float]:
        """Type letters one at a time; return how long each took to come back."""
        connection = self.groups[group][0].socket
        connection.settimeout(CONNECT_SECONDS)
        lasted = []
        for _ in range(count):
            typed_at = time.monotonic()
            connection.sendall(masked(b"k"))
            while not connection.recv(READ_BYTES).endswith(b"k"):
                pass
            lasted.append(time.monotonic() - typed_at)
            time.sleep(KEY_SECONDS)
        return lasted

    def close(self, group: str) -> None:
        """Hang up."""
        for reader in self.groups.pop(group, []):
            reader.socket.close()

    def post(self, port: int, path: str, body: str, parallel: int, count: int) -> list[float]:
        """Send requests on kept connections, so many at a time; return how long each took."""
        request = post_request(path, body)
        lasted: list[float] = []
        with selectors.DefaultSelector() as selector:
            left = count
            for _ in range(min(parallel, count)):
                connection = socket.create_connection(("127.0.0.1", port), CONNECT_SECONDS)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(connection, selectors.EVENT_READ, [time.monotonic(), b""])
            for key in list(selector.get_map().values()):
                left -= 1
                key.data[0] = time.monotonic()
                _socket(key).sendall(request)
            while selector.get_map():
                for key, _ in selector.select(DRAIN_SECONDS):
                    key.data[1] += _socket(key).recv(READ_BYTES)
                    if not is_whole(key.data[1]):
                        continue
                    lasted.append(time.monotonic() - key.data[0])
                    if left:
                        left -= 1
                        key.data[:] = [time.monotonic(), b""]
                        _socket(key).sendall(request)
                    else:
                        selector.unregister(key.fileobj)
                        _socket(key).close()
        return lasted


def _socket(key: selectors.SelectorKey) -> socket.socket:
    assert isinstance(key.fileobj, socket.socket)  # noqa: S101 - only sockets are registered
    return key.fileobj


def _read_head(reader: Reader) -> None:
    """Read to the end of the head, byte by byte so as to take nothing that follows."""
    head = b""
    while not head.endswith(HEAD_END):
        piece = reader.socket.recv(1)
        if not piece:
            raise ConnectionError(f"the server hung up: {head.decode('latin-1')}")
        head += piece
    status = head.split(b" ", 2)[1]
    if status not in (b"200", b"101"):
        raise ConnectionError(head.decode("latin-1"))


if __name__ == "__main__":
    obey_in_turn(Readers())
