"""Runs the ingress of a local cluster: its two listeners, its visits and its controller.

`run()` owns the task of each client's connection, and ends them when it is cancelled.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import h11

from telorunner.errors import ConfigError
from telorunner.localcluster import statefolder
from telorunner.localcluster.ingress.backends import Endpoint, find_endpoints
from telorunner.localcluster.ingress.certificates import Certificates
from telorunner.localcluster.ingress.controller import IngressController
from telorunner.localcluster.ingress.headers import Visitor
from telorunner.localcluster.ingress.table import HTTP, HTTPS, Asked, Backend
from telorunner.localcluster.ingress.visit import Visit
from telorunner.localcluster.ingress.wire import CHUNK_BYTES, Limits, Streams, Wire
from telorunner.localcluster.store import Store

logger = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10.0
# What a client gets that is one too many, before anything of it is read.
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: 35\r\nConnection: close\r\n\r\nThe ingress has too many visitors.\n"
)


@dataclass(frozen=True)
class IngressPorts:
    """Where an ingress is to listen; 0 means the port last used, else a free one."""

    http: int = 0
    https: int = 0


@dataclass(frozen=True)
class Listeners:
    """The listening sockets of an ingress."""

    http: socket.socket
    https: socket.socket

    @property
    def urls(self) -> tuple[str, str]:
        """Return where the ingress is, without and with TLS."""
        plain, secure = (one.getsockname()[1] for one in (self.http, self.https))
        return f"http://{statefolder.HOST}:{plain}", f"https://{statefolder.HOST}:{secure}"


@contextmanager
def open_listeners(folder: Path, ports: IngressPorts | None) -> Iterator[Listeners | None]:
    """Have the sockets of an ingress; their ports are in the state folder as long as there is one.

    None as `ports` means no ingress.

    Raises:
        ConfigError: A port that was asked for cannot be had.
    """
    if ports is None:
        for name in (statefolder.INGRESS_PORT, statefolder.INGRESS_TLS_PORT):
            (folder / name).unlink(missing_ok=True)
        yield None
        return
    wanted = (
        (ports.http, statefolder.INGRESS_PORT, "RUNNER_LOCAL_INGRESS_PORT"),
        (ports.https, statefolder.INGRESS_TLS_PORT, "RUNNER_LOCAL_INGRESS_TLS_PORT"),
    )
    with ExitStack() as stack:
        sockets = []
        for port, name, variable in wanted:
            try:
                sockets.append(stack.enter_context(statefolder.open_listener(folder, port, name)))
            except OSError as exc:
                problem = os.strerror(exc.errno or 0)
                raise ConfigError(f"{variable}: must be a port that is free: {problem}.") from exc
        yield Listeners(*sockets)


@dataclass
class Ingress:
    """The ingress of one cluster; `tls` has the certificate for hosts that have none."""

    store: Store
    listeners: Listeners
    tls: ssl.SSLContext
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self._controller = IngressController(self.store)
        self._certificates = Certificates(self.store, lambda: self._controller.table, self.tls)
        self._is_open = True
        self._visits = 0
        self._turn = 0

    async def run(self) -> None:
        """Route requests and write statuses until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            plain = await asyncio.start_server(
                self._welcome, sock=self.listeners.http, limit=CHUNK_BYTES
            )
            secure = await asyncio.start_server(
                self._welcome_secure,
                sock=self.listeners.https,
                limit=CHUNK_BYTES,
                ssl=self.tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=self.limits.linger_seconds,
            )
            try:
                await self._controller.run()
            finally:
                self._is_open = False
                plain.close()
                secure.close()

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._start((reader, writer), HTTP)

    def _welcome_secure(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._start((reader, writer), HTTPS)

    def _start(self, streams: Streams, scheme: str) -> None:
        _, writer = streams
        peer = writer.get_extra_info("peername")
        if peer is None or not self._is_open:
            # The client, or the ingress, is on its way out.
            writer.close()
        elif self._visits >= self.limits.connections:
            writer.write(_FULL)
            writer.close()
        else:
            # asyncio leaves that out for listeners that it did not open itself: without it, a piece
            # of an answer waits until the client has confirmed the one before.
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._visits += 1
            name = f"ingress visit of {peer[0]}:{peer[1]}"
            self._tasks.create_task(self._visit(streams, Visitor(peer[0], scheme)), name=name)

    async def _visit(self, streams: Streams, visitor: Visitor) -> None:
        client = Wire(h11.SERVER, streams)
        try:
            await Visit(client, visitor, self._resolve, self.limits).run()
            await client.close(self.limits.body_seconds)
        except Exception:
            logger.exception("A visit to the local ingress failed.")
        finally:
            self._visits -= 1
            client.abort()

    def _resolve(self, asked: Asked) -> list[Endpoint] | None:
        """Return where a request can go, the first to be tried first; None without a route."""
        rule = self._controller.table.find(asked)
        if rule is None:
            return None
        self._turn += 1
        total = sum(backend.weight for backend in rule.backends)
        if not total:
            return []
        found = find_endpoints(self.store, _choose(rule.backends, self._turn % total))
        start = self._turn // total % len(found) if found else 0
        return found[start:] + found[:start]


def _choose(backends: tuple[Backend, ...], turn: int) -> Backend:
    """Return the backend whose turn it is, of all that their weights come to."""
    for backend in backends:
        if turn < backend.weight:
            return backend
        turn -= backend.weight
    raise ValueError("the turn is beyond all weights")
