"""A client that keeps to no rule, and what must hold of every answer it gets.

It speaks bytes to the real server, which runs the whole application on its own loop.
"""

import asyncio
import gc
import os
import re
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import orjson

from sessions import runtime
from sessions.runtime import Runtime
from telorunner import aio
from telorunner.conf import Settings
from telorunner.server import Address, Limits, Server, open_server, server_loop
from tests.api import frames
from tests.builders import make_runtime
from tests.description import check_exchange
from tests.fakes import NAMESPACE, open_fake_cluster
from tests.offered import offer_app
from tests.owners import Owner, admit, own

T = TypeVar("T")

# Long enough on a busy machine; an answer takes milliseconds, and silence is ended by SOON.
BOUND_SECONDS = 20.0
SETTLE_SECONDS = 15.0
QUIET_SECONDS = 0.5
UNTOUCHED = b"what the running session has shown"
SOON = {"header_seconds": 0.5, "body_seconds": 0.5, "idle_seconds": 0.5}
TRACES = re.compile(
    rb"Traceback|\.py\b|File \"|Exception|Error:|telorunner\.|sessions\.|django|pydantic|twisted"
    rb"|autobahn|daphne|sqlite|psycopg|orjson|<html|<!doctype|<title",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Answer:
    """One HTTP answer; `is_whole` is False where the connection ended in the middle of it."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool = True

    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass(frozen=True)
class World:
    """A server with the whole application, and a running session that nobody may disturb."""

    server: Server
    runtime: Runtime
    owner: Owner
    # What it listens on, and the cluster that it may ask.
    ports: frozenset[int]

    @property
    def session_id(self) -> str:
        return self.owner.session_id

    def talk(self, *pieces: bytes) -> list[Answer]:
        """Send bytes; return all answers until the server closes, within the bound."""
        received = self.send(*pieces)
        answers = parse(received, is_head=pieces[0].startswith(b"HEAD "))
        if len(pieces) == len(answers) == 1:
            (answer,) = answers
            check_exchange(pieces[0], answer.status, answer.headers, answer.body)
        return answers

    def send(self, *pieces: bytes) -> bytes:
        """Send bytes; return what came until the server closed, or a stream began."""
        received = bytearray()
        # A timeout is not suppressed: it is what a hanging server is found by.
        with self.dial() as client, suppress(ConnectionError):
            with suppress(ConnectionError):
                for piece in pieces:
                    client.sendall(piece)
            while b"text/event-stream" not in received and (data := client.recv(2**18)):
                received += data
        return bytes(received)

    def dial(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), BOUND_SECONDS)

    def upgrade(self, path: str, *pieces: bytes) -> list[frames.Frame]:
        """Open a socket, send bytes, and return frames to the close, or until nothing comes."""
        with self.dial() as client:
            client.sendall(frames.handshake(path))
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(1)
            assert b" 101 " in head
            received = bytearray()
            # Half a frame is waited for as long as its sender answers pings.
            client.settimeout(QUIET_SECONDS)
            with suppress(ConnectionError, TimeoutError):
                for piece in pieces:
                    client.sendall(piece)
            with suppress(ConnectionError, TimeoutError):
                while not frames.is_closed(received) and (data := client.recv(2**18)):
                    received += data
        return frames.read(bytes(received))

    def count(self) -> tuple[int, int, int, int]:
        """Return how many tasks, descriptors, connections and requests there are."""

        async def counted() -> tuple[int, int, int, int]:
            return self._count()

        return on_loop(counted())

    def _count(self) -> tuple[int, int, int, int]:
        gc.collect()
        tasks, files = len(asyncio.all_tasks()), len(_open_files(self.ports))
        return tasks, files, len(self.server.transports), len(self.server.connections)

    def settle(self, *, at_most: tuple[int, int, int, int]) -> None:
        """Wait until there is no more of anything than before; fail where it never comes."""

        async def wait() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_SECONDS):
                    while _exceeds(self._count(), at_most):  # noqa: ASYNC110 - it has no event
                        await asyncio.sleep(0.05)
            files = _open_files(self.ports)
            assert not _exceeds(self._count(), at_most), (self._count(), at_most, files)

        on_loop(wait())


def _open_files(ports: frozenset[int]) -> list[str]:
    """Return what is open, but for the files of the database's pool of threads and for strangers.

    Fixtures that live as long as this process, such as a proxy for other tests, have connections
    that come and go by themselves: those that have neither end at one of the ports are theirs.
    """
    found = []
    for name in os.listdir("/proc/self/fd"):
        # One that is listed may be closed by now, as the listing's own is.
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    strangers = _connections_elsewhere(ports)
    return sorted(name for name in found if "sqlite" not in name and name not in strangers)


def _connections_elsewhere(ports: frozenset[int]) -> set[str]:
    """Return TCP sockets that have neither end at one of the ports, as descriptors name them.

    One whose connection was reset is in no table: whatever it was, it is not among them.
    """
    found = set[str]()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        # Source: proc(5). Addresses are hexadecimal with the port behind a colon.
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, remote, _, _, _, _, _, _, inode, *_ = line.split()
            ends = {int(end.rpartition(":")[2], 16) for end in (local, remote)}
            if not ends & ports:
                found.add(f"socket:[{inode}]")
    return found


def _exceeds(counts: tuple[int, ...], bounds: tuple[int, ...]) -> bool:
    return any(count > bound for count, bound in zip(counts, bounds, strict=True))


def on_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run something on the server's loop, from the test's thread."""
    return asyncio.run_coroutine_threadsafe(coroutine, server_loop).result(BOUND_SECONDS)


@contextmanager
def open_world(config: Settings, folder: Path, **limits: Any) -> Iterator[World]:
    """Serve the application with a running session; `limits` are the server's."""
    from telorunner.asgi import build_application

    stack = AsyncExitStack()

    async def begin() -> World:
        api, cluster = await stack.enter_async_context(open_fake_cluster(folder))
        api.put(NAMESPACE, "namespaces")
        await offer_app()
        current = make_runtime(config, cluster=cluster)
        stack.enter_context(runtime.installed(current))
        all_limits = {"body_bytes": config.max_bundle_bytes, **SOON, **limits}
        server = await stack.enter_async_context(
            open_server(build_application(config), Address("127.0.0.1", 0), Limits(**all_limits))
        )
        owner = await own(await admit())
        await owner.run()
        await owner.say(UNTOUCHED)
        eating = aio.start(_eat(current, owner.session_id), name="the application's input")
        stack.push_async_callback(aio.stop, eating)
        api_port = urlsplit(api.url).port or 0
        return World(server, current, owner, frozenset({server.port, api_port}))

    async def end() -> None:
        await stack.aclose()

    try:
        yield on_loop(begin())
    finally:
        on_loop(end())


async def _eat(current: Runtime, session_id: str) -> None:
    """Take input as an application that reads all of it."""
    async with current.bus.open_inbox(session_id, "app") as inbox:
        while True:
            inbox.commit(await inbox.peek())


def parse(received: bytes, *, is_head: bool = False) -> list[Answer]:
    """Return the answers in what came; what is no answer fails."""
    answers: list[Answer] = []
    while received:
        head, gap, received = received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        if is_head and not gap and answers:
            # The refusal of what is no request does not know of its method.
            return answers
        assert gap, f"a head without an end: {head!r}"
        assert re.fullmatch(r"HTTP/1\.[01] [1-5][0-9][0-9] .*", first), f"no answer: {first!r}"
        status = int(first.split(" ")[1])
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        if status == 100:
            continue
        if status == 101 or headers.get("content-type", "").startswith("text/event-stream"):
            return [*answers, Answer(status, headers, b"")]
        if status in {204, 304} or (is_head and not answers):
            answers.append(Answer(status, headers, b""))
        elif "content-length" in headers:
            length = int(headers["content-length"])
            body, received = received[:length], received[length:]
            answers.append(Answer(status, headers, body, is_whole=len(body) == length))
        else:
            body, is_whole, received = _dechunked(received)
            answers.append(Answer(status, headers, body, is_whole=is_whole))
    return answers


def _dechunked(received: bytes) -> tuple[bytes, bool, bytes]:
    body = b""
    while True:
        size, gap, received = received.partition(b"\r\n")
        if not gap:
            return body, False, b""
        length = int(size, 16)
        body, received = body + received[:length], received[length + 2 :]
        if length == 0:
            return body, True, received


def check(answer: Answer, asked: bytes) -> None:
    """Fail on an answer that shows an inside, is no JSON, or says that the server failed.

    A key that the client made up is told back to it, whatever it is called.
    """
    assert answer.status not in {500, 502}, answer
    assert answer.is_whole, answer
    head = "".join(f"{name}: {value}\n" for name, value in answer.headers.items())
    for trace in TRACES.findall(head.encode() + answer.body[:100_000]):
        assert trace in asked, answer
    if not answer.body:
        assert answer.status < 400 or answer.headers.get("content-length") != "0", answer
        return
    assert answer.headers["content-type"] == "application/json", answer
    body = answer.json()
    assert isinstance(body, dict), answer
    if answer.status >= 400:
        assert isinstance(body["error"], str), answer
        assert re.fullmatch(r"[a-z_]+", body["error"]), answer
        assert isinstance(body["message"], str), answer
        for issue in body.get("issues", ()):
            assert issue.keys() == {"path", "message"}, answer
            assert re.fullmatch(r"(/[^/]*)*", issue["path"], re.DOTALL), answer


def request(
    target: bytes,
    body: bytes = b"",
    *,
    method: bytes = b"POST",
    of_type: bytes = b"application/json",
    headers: Callable[[], list[bytes]] = list,
) -> bytes:
    """Return a request that asks for the connection to be closed behind it."""
    lines = [
        b"%s %s HTTP/1.1" % (method, target),
        b"host: runner",
        b"connection: close",
        *([b"content-type: " + of_type, b"content-length: %d" % len(body)] if body else []),
        *headers(),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
