"""A small data plane on port 0: what takes requests for public hosts, TLS and all, as told."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from routing.reserved import answer_reserved
from routing.routes import ProbePath, RoutedPort, SessionRoutes
from telorunner.localcluster.tls import Authority, load_authority
from tests.tcp import open_server

BASE_DOMAIN = "apps.test"
SESSION_ID = "abcdefghijkl"
HOST = f"8080-{SESSION_ID}.{BASE_DOMAIN}"
SECRET = b"the runner's secret"
PATH = ProbePath(SECRET)

# What it gets is the request's head; what it writes is the whole answer.
Handler = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


def make_routes(*ports: RoutedPort, session_id: str = SESSION_ID) -> SessionRoutes:
    """Return the routes of a session, as its supervisor would describe them."""
    return SessionRoutes(
        session_id=session_id,
        labels={
            "app.kubernetes.io/managed-by": "fake-runner",
            "telo.run/session-id": session_id,
        },
        owner={"apiVersion": "v1", "kind": "Pod", "name": f"telo-run-{session_id}", "uid": "u"},
        ports=ports or (RoutedPort(8080),),
    )


def listening_at(port: int) -> Callable[[], Awaitable[int]]:
    """Return what a process says that listens already."""

    async def get() -> int:
        return port

    return get


@dataclass
class Certificates:
    """An authority, and servers' contexts with certificates of it."""

    folder: Path
    authority: Authority

    @classmethod
    def make(cls, folder: Path) -> "Certificates":
        folder.mkdir(exist_ok=True)
        return cls(folder, load_authority(folder, _write))

    @property
    def file(self) -> Path:
        return self.folder / "ca.crt"

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.file))

    def server(self, *names: str, days: int = 30) -> ssl.SSLContext:
        """Return a context with a certificate for these names; of negative days: an expired one."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        issuer = self.authority
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")]))
            .issuer_name(issuer.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=60))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(alternatives, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key()),
                critical=False,
            )
            .sign(issuer.key, hashes.SHA256())
        )
        pem = self.folder / "server.pem"
        pem.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        return context

    def pair(self, *names: str) -> tuple[bytes, bytes]:
        """Return a certificate for these names, and its key; both PEM."""
        self.server(*names)
        certificate, mark, key = (
            (self.folder / "server.pem").read_bytes().partition(b"-----BEGIN PRIVATE KEY-----")
        )
        return certificate, mark + key


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def tls_secret(name: str, certificate: bytes, key: bytes) -> dict[str, Any]:
    """Return the manifest of a Secret by which an ingress controller serves TLS."""
    data = {"tls.crt": certificate, "tls.key": key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name},
        "data": {field: base64.b64encode(value).decode() for field, value in data.items()},
    }


@dataclass
class Gateway:
    """What the fake data plane does with requests, and which have come."""

    handler: Handler
    port: int = 0
    requests: list[bytes] = field(default_factory=list)
    open: int = 0
    server_names: list[str | None] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head)
                await self.handler(head, writer)
        finally:
            self.open -= 1
            writer.close()

    def hello(self, _socket: object, name: str | None, _context: object) -> None:
        self.server_names.append(name)


@asynccontextmanager
async def open_gateway(
    handler: Handler, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Gateway]:
    """Serve on loopback; connections that are open at the end are cut."""
    gateway = Gateway(handler)
    if tls is not None:
        tls.sni_callback = gateway.hello
    async with open_server(gateway.serve, tls=tls) as gateway.port:
        yield gateway


def respond(status: int = 200, body: bytes = b"", *headers: str) -> bytes:
    """Return the bytes of an answer with a length."""
    lines = (f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", *headers)
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(body: bytes, *headers: str) -> bytes:
    """Return the bytes of an answer in chunks of three bytes."""
    head = "\r\n".join(["HTTP/1.1 200 OK", "transfer-encoding: chunked", *headers, "", ""])
    pieces = [body[at : at + 3] for at in range(0, len(body), 3)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return head.encode() + chunks + b"0\r\n\r\n"


def say(data: bytes) -> Handler:
    """Return a handler that answers with these bytes, and ends."""

    async def handler(_head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return handler


def prove(
    path: ProbePath = PATH, encode: Callable[..., bytes] | None = None, host: str = ""
) -> Handler:
    """Return a handler that sends reserved paths to a runner, as a route does that works.

    With a `host`, the runner is asked for that one, whatever the request says.
    """

    async def handler(head: bytes, writer: asyncio.StreamWriter) -> None:
        start, *lines = head.decode().split("\r\n")
        named = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("Host:"))
        answer = answer_reserved(path, host or named, start.split(" ")[1])
        if answer is None:
            writer.write(respond(404, b"no such page"))
        else:
            body, headers = answer
            said = [f"{name}: {value}" for name, value in headers]
            writer.write(encode(body, *said) if encode else respond(200, body, *said))
        await writer.drain()

    return handler
