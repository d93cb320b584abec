"""The local cluster's ingress on a store of its own, without the API, and raw HTTP towards it."""

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from telorunner import aio
from telorunner.localcluster.ingress.server import Ingress, Listeners
from telorunner.localcluster.ingress.wire import Limits
from telorunner.localcluster.networkdefaults import LOCAL_CLASS, add_local_classes
from telorunner.localcluster.store import Store
from tests.engine.gateways import Certificates, tls_secret

HOST = "127.0.0.1"
NAMESPACE = "apps"
WAIT_SECONDS = 10.0
READ_BYTES = 65_536

Object = dict[str, Any]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def make_service(name: str, port: int = 80, **spec: Any) -> Object:
    ports = [{"name": "http", "port": port, "protocol": "TCP", "targetPort": port}]
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"ports": ports, **spec},
    }


def make_slice(service: str, *endpoints: tuple[str, int]) -> Object:
    """Return an EndpointSlice for a Service; all its endpoints have one port."""
    return {
        "metadata": {
            "name": f"{service}-{endpoints[0][1]}",
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {}} for address, _ in endpoints],
        "ports": [{"name": "http", "port": endpoints[0][1], "protocol": "TCP"}],
    }


def make_ingress(name: str, host: str, service: str, path: str = "/", **spec: Any) -> Object:
    backend = {"service": {"name": service, "port": {"name": "http"}}}
    paths = [{"path": path, "pathType": "Prefix", "backend": backend}]
    rule = {"host": host, "http": {"paths": paths}} if host else {"http": {"paths": paths}}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "generation": 1},
        "spec": {"ingressClassName": LOCAL_CLASS, "rules": [rule], **spec},
    }


def make_secret(name: str, certificate: bytes, key: bytes) -> Object:
    secret = tls_secret(name, certificate, key)
    return {**secret, "metadata": {"name": name, "namespace": NAMESPACE}}


class Answer:
    """What came back on a connection."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head = head
        self.body = body

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines if line)
        return {name.lower(): value.strip() for name, _, value in pairs}


class Talk:
    """A client's connection, byte by byte."""

    def __init__(self, streams: Streams) -> None:
        self.reader, self.writer = streams

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_head(self) -> bytes:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def read_answer(self, *, has_body: bool = True) -> Answer:
        """Return one answer, whichever way its body is framed."""
        head = await self.read_head()
        answer = Answer(head, b"")
        if not has_body or answer.status in (204, 304):
            return answer
        async with asyncio.timeout(WAIT_SECONDS):
            if "content-length" in answer.headers:
                answer.body = await self.reader.readexactly(int(answer.headers["content-length"]))
            elif answer.headers.get("transfer-encoding") == "chunked":
                answer.body = b"".join([piece async for piece in self.chunks()])
            else:
                answer.body = await self.reader.read()
        return answer

    async def chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readuntil(b"\r\n")

    async def read_end(self) -> bytes:
        """Return what comes before the connection ends."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.reader.read()

    def leave(self) -> None:
        self.writer.transport.abort()


@dataclass
class Bench:
    """An ingress with its store."""

    store: Store
    http: tuple[str, int]
    https: tuple[str, int]

    @asynccontextmanager
    async def talk(self, limit: int = READ_BYTES) -> AsyncIterator[Talk]:
        streams = await asyncio.open_connection(*self.http, limit=limit)
        try:
            yield Talk(streams)
        finally:
            streams[1].transport.abort()

    async def ask(self, request: bytes) -> Answer:
        """Send a whole request on a connection of its own and return the answer."""
        async with self.talk() as talk:
            await talk.send(request)
            return await talk.read_answer(has_body=not request.startswith(b"HEAD"))

    def lead(self, host: str, *ports: int, name: str = "app", path: str = "/") -> None:
        """Route a host to ports of this machine."""
        self.store.create("services", make_service(name))
        for port in ports:
            self.store.create("endpointslices", make_slice(name, (HOST, port)))
        self.store.create("ingresses", make_ingress(name, host, name, path))


@asynccontextmanager
async def open_bench(limits: Limits | None = None) -> AsyncIterator[Bench]:
    """Run an ingress while the block runs."""
    store = Store()
    add_local_classes(store, has_gateways=True)
    labels = {"team": "a"}
    store.create("namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server((HOST, 0)) as plain,
        socket.create_server((HOST, 0)) as secure,
    ):
        bench = Bench(store, plain.getsockname(), secure.getsockname())
        context = Certificates.make(Path(folder)).server("the.ingress.itself")
        ingress = Ingress(store, Listeners(plain, secure), context, limits or Limits())
        task = aio.start(ingress.run(), name="ingress under test")
        try:
            yield bench
        finally:
            await aio.stop(task)


class App:
    """An application that does what a test says with each connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.heads: list[bytes] = []
        self.has_been_asked = asyncio.Event()
        self.has_been_left = asyncio.Event()

    def note(self, head: bytes) -> None:
        self.heads.append(head)
        self.has_been_asked.set()


@asynccontextmanager
async def open_app(
    behave: Callable[[App, Talk], Awaitable[None]], host: str = HOST, port: int = 0
) -> AsyncIterator[App]:
    """Serve raw connections: `behave` is called with each once its head has been read."""
    app = App(0)
    tasks: list[asyncio.Task[None]] = []

    async def serve(streams: Streams) -> None:
        talk = Talk(streams)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                app.note(await talk.read_head())
                await behave(app, talk)
        finally:
            talk.writer.close()

    def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(aio.start(serve((reader, writer)), name="application under test"))

    server = await asyncio.start_server(welcome, host, port, limit=READ_BYTES)
    app.port = server.sockets[0].getsockname()[1]
    try:
        yield app
    finally:
        server.close()
        await aio.stop(*tasks)


def say(status: str, *headers: str, body: bytes = b"") -> bytes:
    """Return an answer with a length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def ask_for(path: str = "/", *headers: str, method: str = "GET", host: str = "a.test") -> bytes:
    """Return the head of a request."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode()
