"""Clients of the product that start sessions, so many at once, in a process of their own.

Each posts a session, then follows its events and, for some figures, its terminal, and notes when
what it waits for has come. They obey `bench.starts` and `bench.routes`.
"""

import json
import selectors
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from bench.commands import obey_in_turn
from bench.wire import get_request, is_whole, post_request

WAIT_SECONDS = 120.0
READ_BYTES = 1 << 16
Address = tuple[str, int]

RUNNING = b'"kind":"running"'


@dataclass(eq=False)
class _Expected:
    """One connection, the texts that it is read for, and when each was there."""

    socket: socket.socket
    texts: tuple[bytes, ...]
    received: bytearray = field(default_factory=bytearray)
    found_at: dict[bytes, float] = field(default_factory=dict)


class Starters:
    """All clients of this process."""

    def start(self, host: str, port: int, body: str, count: int, output: str) -> dict[str, Any]:
        """Start sessions at once.

        Returns:
            Their `ids`, and of each the seconds from its POST to what its events call running, and
            to the output on its terminal: `running` and `first`.
        """
        server, text = (host, port), output.encode()
        posts, posted = _post(server, body, count)
        ids, events, terminals = [], [], []
        for post in posts:
            session_id = _created(post)
            ids.append(session_id)
            path = f"/v1/sessions/{session_id}"
            events.append(_follow(server, f"{path}/events", RUNNING, is_socket=False))
            terminals.append(_follow(server, f"{path}/io", text, is_socket=True))
        _read_all([*events, *terminals])
        return {
            "ids": ids,
            "running": [one.found_at[RUNNING] - at for one, at in zip(events, posted, strict=True)],
            "first": [one.found_at[text] - at for one, at in zip(terminals, posted, strict=True)],
        }

    def publish(self, host: str, port: int, body: str, count: int, ports: list[int]) -> Any:
        """Start sessions at once, and wait until all their public hosts are programmed.

        Returns:
            Of each session its id, and at which times its ports' hosts were said to be programmed.
        """
        server = (host, port)
        programmed = tuple(_programmed(one) for one in ports)
        posts, _ = _post(server, body, count)
        events = {}
        for post in posts:
            session_id = _created(post)
            path = f"/v1/sessions/{session_id}/events"
            events[session_id] = _follow(server, path, *programmed, is_socket=False)
        _read_all([*events.values()])
        return {
            session_id: [one.found_at[text] for text in programmed]
            for session_id, one in events.items()
        }

    def stop(self, host: str, port: int, ids: list[str]) -> None:
        """Stop sessions, and wait until their streams have ended."""
        for session_id in ids:
            with _connect((host, port)) as connection:
                head = f"DELETE /v1/sessions/{session_id} HTTP/1.1\r\nhost: bench\r\n"
                connection.sendall(f"{head}connection: close\r\n\r\n".encode())
                _read_to_end(connection)
        for session_id in ids:
            with _connect((host, port)) as connection:
                path = f"/v1/sessions/{session_id}/events"
                connection.sendall(get_request(path, is_socket=False))
                _read_to_end(connection)


def _connect(server: Address) -> socket.socket:
    connection = socket.create_connection(server, WAIT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _post(server: Address, body: str, count: int) -> tuple[list[socket.socket], list[float]]:
    """Post sessions at once; return the connections, whose answers are to come, and when."""
    posts = [_connect(server) for _ in range(count)]
    request, posted = post_request("/v1/sessions", body), []
    for post in posts:
        posted.append(time.monotonic())
        post.sendall(request)
    return posts, posted


def _programmed(port: int) -> bytes:
    """Return what of an event says that a port's host works."""
    return f'"port":{port},"state":"programmed"'.encode()


def _created(connection: socket.socket) -> str:
    """Read a creation's answer and return the session's id."""
    answer = b""
    with connection:
        while not is_whole(answer):
            piece = connection.recv(READ_BYTES)
            if not piece:
                raise ConnectionError("no answer to the POST")
            answer += piece
    session_id: str = json.loads(answer.partition(b"\r\n\r\n")[2])["sessionId"]
    return session_id


def _follow(server: Address, path: str, *texts: bytes, is_socket: bool) -> _Expected:
    connection = _connect(server)
    connection.sendall(get_request(path, is_socket=is_socket))
    return _Expected(connection, texts)


def _read_all(expected: list[_Expected]) -> None:
    """Read every connection up to its last text, note when each was there, and hang up."""
    deadline = time.monotonic() + WAIT_SECONDS
    with selectors.DefaultSelector() as selector:
        for one in expected:
            selector.register(one.socket, selectors.EVENT_READ, one)
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            if not ready:
                raise TimeoutError(f"{len(selector.get_map())} streams are not there yet")
            for key, _ in ready:
                if _is_done(key.data):
                    selector.unregister(key.fileobj)
    for one in expected:
        one.socket.close()


def _is_done(one: _Expected) -> bool:
    """Read once; tell whether all that the connection is read for has come."""
    piece = one.socket.recv(READ_BYTES)
    now = time.monotonic()
    if not piece:
        raise ConnectionError(f"it ended with {bytes(one.received[-400:])!r}")
    one.received += piece
    for text in one.texts:
        if text not in one.found_at and text in one.received:
            one.found_at[text] = now
    return len(one.found_at) == len(one.texts)


def _read_to_end(connection: socket.socket) -> None:
    while connection.recv(READ_BYTES):
        pass


if __name__ == "__main__":
    obey_in_turn(Starters())
