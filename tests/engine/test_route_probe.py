"""A public host is asked itself: what is found out at each stage, on real sockets with real TLS."""

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from routing.judge import ProbeFailure
from routing.probe import MAX_PROBES, Prober
from routing.routes import ProbePath
from telorunner import aio
from telorunner.conf.routing import ProbeAddress
from tests.engine.gateways import (
    BASE_DOMAIN,
    HOST,
    PATH,
    Certificates,
    Gateway,
    Handler,
    chunked,
    open_gateway,
    prove,
    respond,
    say,
)

WILDCARD = f"*.{BASE_DOMAIN}"


Scheme = Literal["http", "https"]


def prober_of(scheme: Scheme, address: str, port: int, tls: ssl.SSLContext | None = None) -> Prober:
    return Prober(PATH, ProbeAddress(scheme, address, port), tls=tls)


@asynccontextmanager
async def probing(
    handler: Handler, folder: Path, *names: str, days: int = 30
) -> AsyncIterator[tuple[Gateway, Prober]]:
    """Open a data plane with TLS and a prober that trusts its authority."""
    certificates = Certificates.make(folder / "pki")
    tls = certificates.server(*(names or (WILDCARD,)), days=days)
    async with open_gateway(handler, tls) as gateway:
        prober = prober_of("https", "127.0.0.1", gateway.port, certificates.client())
        yield gateway, prober


@asynccontextmanager
async def plain_probing(handler: Handler) -> AsyncIterator[tuple[Gateway, Prober]]:
    async with open_gateway(handler) as gateway:
        prober = prober_of("http", "127.0.0.1", gateway.port)
        yield gateway, prober


async def test_a_host_that_leads_to_the_runner_passes(tmp_path: Path) -> None:
    async with probing(prove(), tmp_path) as (gateway, prober):
        assert await prober.ask(HOST) is None
        assert gateway.server_names == [HOST]
        (head,) = gateway.requests
        assert head.startswith(f"GET /.well-known/telo-route/{PATH.key(HOST)}/".encode())
        assert f"\r\nHost: {HOST}\r\n".encode() in head


async def test_no_two_requests_are_the_same() -> None:
    async with plain_probing(prove()) as (gateway, prober):
        assert await prober.ask(HOST) is None
        assert await prober.ask(HOST) is None
        first, second = gateway.requests
        assert first != second


async def test_authorities_come_from_the_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates.make(tmp_path / "pki")
    async with open_gateway(prove(), certificates.server(WILDCARD)) as gateway:
        prober = prober_of("https", "127.0.0.1", gateway.port)
        assert await prober.ask(HOST) == ProbeFailure(
            "tls", "The certificate is not of an authority that the runner trusts."
        )
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.file))
        prober = prober_of("https", "127.0.0.1", gateway.port)
        assert await prober.ask(HOST) is None


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:9")
    async with plain_probing(prove()) as (_, prober):
        assert await prober.ask(HOST) is None


def shout(header: str) -> str:
    name, _, value = header.partition(":")
    return f"{name.upper()}:{value}"


@pytest.mark.parametrize(
    "encode",
    [
        chunked,
        lambda body, *headers: (
            b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + respond(200, body, *headers)
        ),
        lambda body, *headers: "\r\n".join(["HTTP/1.0 200 OK", *headers, "", ""]).encode() + body,
        lambda body, *headers: respond(200, body, *(shout(header) for header in headers)),
    ],
    ids=["in chunks", "after an interim answer", "to the end of the connection", "shouted"],
)
async def test_a_gateway_may_pass_the_answer_on_in_its_own_form(encode: object) -> None:
    async with plain_probing(prove(encode=encode)) as (_, prober):  # type: ignore[arg-type]
        assert await prober.ask(HOST) is None


@pytest.mark.parametrize(
    ("names", "days", "sentence"),
    [
        ((f"*.other.{BASE_DOMAIN}",), 30, "The certificate is for other names."),
        ((BASE_DOMAIN,), 30, "The certificate is for other names."),
        ((WILDCARD,), -2, "The certificate has expired."),
    ],
)
async def test_a_certificate_that_visitors_would_be_warned_of_is_found_out(
    tmp_path: Path, names: tuple[str, ...], days: int, sentence: str
) -> None:
    async with probing(prove(), tmp_path, *names, days=days) as (gateway, prober):
        assert await prober.ask(HOST) == ProbeFailure("tls", sentence)
        assert gateway.requests == []


@pytest.mark.parametrize("greeting", [b"SSH-2.0-x\r\n", b""], ids=["something else", "nothing"])
async def test_a_port_that_speaks_no_tls_is_found_out(greeting: bytes) -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        prober = prober_of("https", "127.0.0.1", port)
        assert await prober.ask(HOST) == ProbeFailure("tls", "The TLS handshake failed.")


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_port_that_nobody_listens_on_is_found_out(scheme: Scheme) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        prober = prober_of(scheme, "127.0.0.1", bound.getsockname()[1])
        refused = ProbeFailure("connect", "The connection was refused.")
        assert await prober.ask(HOST) == refused


async def test_without_an_address_the_host_itself_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = []

    def look_up(name: str, port: int, **_named: object) -> list[object]:
        looked_up.append((name, port))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", gateway.port))]

    certificates = Certificates.make(tmp_path / "pki")
    async with open_gateway(prove(), certificates.server(WILDCARD)) as gateway:
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        prober = prober_of("https", "", 443, certificates.client())
        assert await prober.ask(HOST) is None
        assert looked_up == [(HOST, 443)]
        assert gateway.server_names == [HOST]


@pytest.mark.parametrize("address", ["gateway.test", ""], ids=["address", "host"])
async def test_a_name_that_dns_does_not_know_is_found_out(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    looked_up = []

    def look_up(name: str, *_given: object, **_named: object) -> list[object]:
        looked_up.append(name)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    prober = prober_of("https", address, 443)
    assert await prober.ask(HOST) == ProbeFailure("dns", "The name has no address.")
    assert looked_up == [address or HOST]


async def test_a_host_that_can_be_no_name_is_found_out() -> None:
    """A label has 63 characters at most: DNS is not even asked."""
    prober = prober_of("https", "", 443)
    failure = ProbeFailure("dns", "The name has no address.")
    assert await prober.ask(f"8080-{'x' * 60}.{BASE_DOMAIN}") == failure


async def test_looking_names_up_slowly_costs_no_other_host_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look-up ends when all are on their way: one that waited for another would never end."""
    together = threading.Barrier(MAX_PROBES)
    threads = []

    def look_up(name: str, *_given: object, **_named: object) -> list[object]:
        threads.append(threading.current_thread())
        together.wait(timeout=30)
        raise socket.gaierror(name)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    prober = prober_of("https", "", 443)
    async with asyncio.TaskGroup() as asking:
        asked = [
            asking.create_task(prober.ask(f"{number}.{BASE_DOMAIN}"))
            for number in range(MAX_PROBES)
        ]
    unknown = ProbeFailure("dns", "The name has no address.")
    assert [one.result() for one in asked] == [unknown] * MAX_PROBES
    # A name server that never answers must not keep a process that is to end.
    assert all(thread.daemon for thread in threads)


async def test_a_process_that_can_have_no_more_threads_looks_names_up_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with open_gateway(prove()) as gateway:
        prober = prober_of("http", "localhost", gateway.port)
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refuse)
            unknown = ProbeFailure("dns", "The name has no address.")
            for _ in range(MAX_PROBES + 1):
                assert await prober.ask(HOST) == unknown
        assert await prober.ask(HOST) is None


async def test_a_name_for_all_hosts_is_looked_up_once_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody ends a look-up that hangs: without that, each host would begin another one."""
    may_end = threading.Event()
    looked_up = []

    def look_up(name: str, *_given: object, **_named: object) -> list[object]:
        looked_up.append(name)
        may_end.wait(timeout=30)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", gateway.port))]

    async with open_gateway(prove()) as gateway:
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        prober = prober_of("http", "gateway.test", gateway.port)
        given_up = aio.start(prober.ask(HOST), name="given up")
        while not looked_up:  # noqa: ASYNC110 - a thread tells nobody
            await asyncio.sleep(0.01)
        await aio.stop(given_up)
        async with asyncio.TaskGroup() as asking:
            asked = [asking.create_task(prober.ask(HOST)) for _ in range(10)]
            await asyncio.sleep(0)
            may_end.set()
        assert [one.result() for one in asked] == [None] * 10
        assert looked_up == ["gateway.test"]
        # What was found may be another address by now.
        assert await prober.ask(HOST) is None
        assert looked_up == ["gateway.test"] * 2


async def test_the_address_may_be_a_name() -> None:
    async with open_gateway(prove()) as gateway:
        prober = prober_of("http", "localhost", gateway.port)
        assert await prober.ask(HOST) is None


NOT_OURS = ProbeFailure("gateway", "Something else answers: the host leads to another place.")


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (respond(404), ProbeFailure("gateway", "The gateway has no such route (HTTP 404).")),
        (
            respond(301, b"", "Location: https://elsewhere.test/"),
            ProbeFailure("gateway", "The gateway answers with a redirect (HTTP 301)."),
        ),
        (respond(401), ProbeFailure("gateway", "Something refuses the request (HTTP 401).")),
        (respond(500), ProbeFailure("gateway", "Something refuses the request (HTTP 500).")),
        *[
            (
                respond(status),
                ProbeFailure(
                    "backend",
                    f"The gateway does not reach what the route leads to (HTTP {status}).",
                ),
            )
            for status in (502, 503, 504)
        ],
        (respond(200, b"<html>Welcome to nginx!</html>"), NOT_OURS),
        (respond(200, b""), NOT_OURS),
        (respond(204), ProbeFailure("gateway", "Something refuses the request (HTTP 204).")),
        (
            b"SSH-2.0-OpenSSH\r\n\r\n",
            ProbeFailure("gateway", "Something else answers: the answer is no HTTP."),
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf",
            ProbeFailure("gateway", "Something else answers: the answer was cut off."),
        ),
        (b"", ProbeFailure("gateway", "Something else answers: the answer was cut off.")),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n",
            ProbeFailure("gateway", "Something else answers: the body is too long."),
        ),
        (
            b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000,
            ProbeFailure("gateway", "Something else answers: the headers are too long."),
        ),
    ],
)
async def test_an_answer_that_is_not_the_runners_is_found_out(
    answer: bytes, failure: ProbeFailure
) -> None:
    async with plain_probing(say(answer)) as (_, prober):
        assert await prober.ask(HOST) == failure


@pytest.mark.parametrize(
    "handler",
    [
        # The controller sends this host to another session, whose own route leads to the runner.
        prove(host="8080-zyxwvutsrqpo.apps.test"),
        prove(ProbePath(b"of another runner")),
    ],
    ids=["another session", "another runner"],
)
async def test_a_route_of_another_session_or_runner_does_not_pass(handler: Handler) -> None:
    async with plain_probing(handler) as (_, prober):
        failure = ProbeFailure("gateway", "The gateway has no such route (HTTP 404).")
        assert await prober.ask(HOST) == failure


async def test_an_answer_that_was_given_before_does_not_pass() -> None:
    kept: list[bytes] = []

    async def replay(head: bytes, writer: asyncio.StreamWriter) -> None:
        nonce = head.split(b" ")[1].decode().removeprefix("/.well-known/telo-route/")
        proof = PATH.proof(HOST, nonce)
        kept.append(respond(200, nonce.encode(), f"Telo-Route-Proof: {proof}"))
        writer.write(kept[0])

    async with plain_probing(replay) as (_, prober):
        assert await prober.ask(HOST) is None
        assert await prober.ask(HOST) == NOT_OURS


async def test_who_repeats_the_nonce_only_does_not_pass() -> None:
    async def echo(head: bytes, writer: asyncio.StreamWriter) -> None:
        nonce = head.split(b" ")[1].decode().removeprefix("/.well-known/telo-route/")
        writer.write(respond(200, nonce.encode(), "Telo-Route-Proof: \u00e9"))

    async with plain_probing(echo) as (_, prober):
        assert await prober.ask(HOST) == NOT_OURS


async def test_a_body_without_end_is_not_read_to_its_end() -> None:
    sent = 0

    async def pour(_head: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()
            sent += 65_536

    async with plain_probing(pour) as (gateway, prober):
        failure = ProbeFailure("gateway", "Something else answers: the body is too long.")
        assert await prober.ask(HOST) == failure
        await until_closed(gateway)
        # What fits into the buffers of two sockets, and no more.
        assert sent < 32 * 2**20


async def until_closed(gateway: Gateway) -> None:
    async with asyncio.timeout(10):
        while gateway.open:  # noqa: ASYNC110 - the other side of a socket tells nobody
            await asyncio.sleep(0.01)


@pytest.mark.looptime
@pytest.mark.parametrize("is_tls", [False, True], ids=["http", "https"])
async def test_an_answer_that_drips_is_given_up_after_five_seconds(
    tmp_path: Path, is_tls: bool, looptime: float
) -> None:
    async def drip(_head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X: y\r\n")
            await writer.drain()
            await asyncio.sleep(1)

    opened = probing(drip, tmp_path) if is_tls else plain_probing(drip)
    async with opened as (gateway, prober):
        late = ProbeFailure("gateway", "There was no complete answer in time.")
        assert await prober.ask(HOST) == late
        assert looptime == 5
        while gateway.open:  # noqa: ASYNC110 - the other side of a socket tells nobody
            await asyncio.sleep(0.5)


@pytest.mark.looptime
async def test_a_port_that_says_nothing_to_a_handshake_is_given_up_after_five_seconds(
    looptime: float,
) -> None:
    async with open_gateway(say(b"")) as gateway:
        prober = prober_of("https", "127.0.0.1", gateway.port)
        late = ProbeFailure("tls", "The TLS handshake did not end in time.")
        assert await prober.ask(HOST) == late
        assert looptime == 5


async def test_no_descriptor_is_left_whatever_happened(tmp_path: Path) -> None:
    async def leave(_head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with (
        probing(prove(), tmp_path) as (_, good),
        probing(prove(), tmp_path, "other.test") as (_, strange),
        plain_probing(leave) as (_, cut),
    ):
        before = len(os.listdir("/proc/self/fd"))
        for prober in (good, strange, cut):
            for _ in range(5):
                await prober.ask(HOST)
            asked = aio.start(prober.ask(HOST), name="cancelled")
            await asyncio.sleep(0)
            await aio.stop(asked)
        async with asyncio.timeout(10):
            while len(os.listdir("/proc/self/fd")) > before:  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.01)
