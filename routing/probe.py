"""Asks a public host itself whether it leads here: name, connection, certificate, gateway, route.

A request goes the way a visitor's would, to a reserved path of which only the route of that very
host knows that it is the runner's. The answer must repeat a nonce and prove that the runner gave
it for this host. Everything is bounded: time, size, connections at once, threads that look up
names. Redirects are not followed, and proxies of the environment are not used.
"""

import asyncio
import hmac
import secrets
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from routing.httpanswer import MAX_BYTES, AnswerReader, HttpAnswer, NotHttpError
from routing.judge import ProbeFailure
from routing.lookups import Address, Lookups
from routing.routes import PROOF_HEADER, WELL_KNOWN, ProbePath
from telorunner import __version__
from telorunner.conf.routing import ProbeAddress

# Of the whole request, and of the connection to one of several addresses.
REQUEST_SECONDS = 5.0
CONNECT_SECONDS = 2.0
# Hosts that are asked at once, over all sessions: a data plane that takes connections and says
# nothing must not use up the process's descriptors.
MAX_PROBES = 64
# As many, so that the time of a probe is not spent on waiting for the look-ups of others.
MAX_LOOKUPS = MAX_PROBES
MAX_ADDRESSES = 4
NONCE_BYTES = 16

_LATE = {
    "dns": "The name could not be looked up in time.",
    "connect": "Nothing takes the connection.",
    "tls": "The TLS handshake did not end in time.",
    "gateway": "There was no complete answer in time.",
}
# Source: X509_V_ERR_* of OpenSSL's x509_vfy.h
_CERTIFICATE_PROBLEMS = {
    10: "The certificate has expired.",
    18: "The certificate is signed by itself.",
    19: "The certificate is not of an authority that the runner trusts.",
    20: "The certificate is not of an authority that the runner trusts.",
    21: "The certificate is not of an authority that the runner trusts.",
    62: "The certificate is for other names.",
}
_UNREACHED = frozenset({502, 503, 504})


class _Failed(Exception):
    """A stage ended with this."""


@dataclass
class _Attempt:
    """How far a request has come."""

    stage: str = "dns"


class Prober:
    """Asks hosts; there is nothing to close."""

    def __init__(
        self, path: ProbePath, address: ProbeAddress, *, tls: ssl.SSLContext | None = None
    ) -> None:
        """Load the authorities that the system trusts, or SSL_CERT_FILE; `tls` is for tests."""
        self._path = path
        self._address = address
        self._tls: ssl.SSLContext | None = None
        if address.scheme == "https":
            self._tls = tls or ssl.create_default_context()
            # What answers is read as HTTP/1.1.
            self._tls.set_alpn_protocols(["http/1.1"])
        self._places = asyncio.Semaphore(MAX_PROBES)
        self._lookups = Lookups(MAX_LOOKUPS)

    async def ask(self, host: str) -> ProbeFailure | None:
        """Return how far the host let itself be asked; None: it leads here."""
        attempt = _Attempt()
        async with self._places:
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    await self._ask(host, attempt)
            except _Failed as exc:
                return ProbeFailure(attempt.stage, str(exc))
            except TimeoutError:
                return ProbeFailure(attempt.stage, _LATE[attempt.stage])
        return None

    async def _ask(self, host: str, attempt: _Attempt) -> None:
        nonce = f"{self._path.key(host)}/{secrets.token_urlsafe(NONCE_BYTES)}"
        addresses = await self._look_up(self._address.host or host, self._address.port)
        attempt.stage = "connect"
        sock = await _connect(addresses)
        attempt.stage = "gateway" if self._tls is None else "tls"
        reader, writer = await self._open_stream(sock, host)
        try:
            attempt.stage = "gateway"
            writer.write(_request(host, f"{WELL_KNOWN}/{nonce}"))
            answer = await _read(reader)
        finally:
            # At once: nobody waits for the other side's farewell.
            writer.transport.abort()
        if answer.status in _UNREACHED:
            attempt.stage = "backend"
        _check(answer, nonce, self._path.proof(host, nonce))

    async def _look_up(self, name: str, port: int) -> list[Address]:
        with suppress(ValueError):
            family = socket.AF_INET6 if ip_address(name).version == 6 else socket.AF_INET
            return [(family, (name, port))]
        try:
            found = await self._lookups.find(name, port)
        except (OSError, UnicodeError) as exc:
            raise _Failed("The name has no address.") from exc
        return found[:MAX_ADDRESSES]

    async def _open_stream(
        self, sock: socket.socket, host: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Speak TLS where that is wanted, with the host's own name; the socket is taken over."""
        try:
            if self._tls is None:
                return await asyncio.open_connection(sock=sock)
            return await asyncio.open_connection(sock=sock, ssl=self._tls, server_hostname=host)
        except ssl.SSLCertVerificationError as exc:
            problem = _CERTIFICATE_PROBLEMS.get(exc.verify_code)
            raise _Failed(problem or "The certificate cannot be verified.") from exc
        except OSError as exc:
            raise _Failed("The TLS handshake failed.") from exc


async def _connect(addresses: list[Address]) -> socket.socket:
    """Return a socket that is connected to the first address that takes it."""
    problem = ""
    for family, address in addresses:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await _dial(family, address)
        except ConnectionRefusedError:
            problem = "The connection was refused."
        except TimeoutError:
            problem = _LATE["connect"]
        except OSError:
            problem = "There is no way to the address."
    raise _Failed(problem)


async def _dial(family: int, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _request(host: str, path: str) -> bytes:
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        f"User-Agent: telorunner/{__version__}",
        "Accept: */*",
        "Cache-Control: no-store",
        "Connection: close",
    )
    return "\r\n".join([*lines, "", ""]).encode()


async def _read(reader: asyncio.StreamReader) -> HttpAnswer:
    answering, length = AnswerReader(), 0
    try:
        while length <= MAX_BYTES:
            piece = await reader.read(MAX_BYTES + 1 - length)
            length += len(piece)
            if (answer := answering.take(piece, is_ended=not piece)) is not None:
                return answer
    except NotHttpError as exc:
        raise _Failed(f"Something else answers: {exc}.") from exc
    except OSError as exc:
        raise _Failed("The connection was cut before an answer.") from exc
    raise _Failed("Something else answers: too much.")


def _check(answer: HttpAnswer, nonce: str, proof: str) -> None:
    """Refuse every answer but the runner's own to this very request."""
    facts = f"(HTTP {answer.status})"
    if answer.status in _UNREACHED:
        raise _Failed(f"The gateway does not reach what the route leads to {facts}.")
    if 300 <= answer.status < 400:
        raise _Failed(f"The gateway answers with a redirect {facts}.")
    if answer.status == 404:
        raise _Failed(f"The gateway has no such route {facts}.")
    if answer.status != 200:
        raise _Failed(f"Something refuses the request {facts}.")
    given = answer.headers.get(PROOF_HEADER.lower(), "")
    is_proof = hmac.compare_digest(given.encode("utf-8"), proof.encode())
    if not is_proof or answer.body != nonce.encode():
        raise _Failed("Something else answers: the host leads to another place.")
