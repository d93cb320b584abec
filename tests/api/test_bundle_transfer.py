"""The transfer of a bundle by the real server: what is complete, and what is cut off."""

import asyncio
import re
import socket
import struct
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from sessions import bundles, store
from sessions.models import Bundle, Session
from sessions.spec import STOPPED
from sessions.states import Delivery, StatusKind
from sessions.store import awrite
from telorunner.errors import NotFound
from telorunner.server import Server
from tests.api.reactor import Opener, hang_up, running_reactor, serve
from tests.builders import make_new_session, make_spec

__all__ = ["running_reactor", "serve"]

pytestmark = pytest.mark.django_db(transaction=True)

TOKEN = bundles.new_token()
LARGE = bytes(range(256)) * 20_000
SMALL = b"an archive of one piece"
NOT_FOUND = b'{"error":"not_found","message":"There is nothing at this address."}'
WAIT_SECONDS = 20.0


async def register(session_id: str, archive: bytes, **fields: Any) -> str:
    """Write down a session whose pod is to fetch its archive; return the transfer's target."""
    new = make_new_session(
        spec=make_spec(session_id=session_id, delivery=Delivery.FETCH),
        archive=archive,
        token_sealed=store.seal_token(TOKEN),
        **fields,
    )
    await awrite(store.insert, new)
    return f"/internal/bundles/{session_id}?token={TOKEN}"


async def row(session_id: str) -> Bundle:
    return await store.aread(lambda: Bundle.objects.get(session=session_id))


async def until_row(session_id: str, holds: Callable[[Bundle], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds(await row(session_id)):  # noqa: ASYNC110 - a row has no event
            await asyncio.sleep(0.02)


def is_consumed(bundle: Bundle) -> bool:
    return not bundle.archive and not bundle.token_sealed


@pytest.fixture
async def server(serve: Opener) -> AsyncIterator[Server]:
    from telorunner.asgi import application

    async with serve(application) as opened:
        yield opened


async def fetch(server: Server, target: str, method: str = "GET") -> tuple[bytes, bytes]:
    """Return head and body of an answer; the client closes when it has the body, as wget does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"{method} {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    async with asyncio.timeout(WAIT_SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
        body = b"" if method == "HEAD" else await reader.readexactly(length)
    await hang_up(writer)
    return head, body


async def open_transfer(server: Server, target: str) -> socket.socket:
    """Ask for a bundle on a socket that takes little, and read its first bytes."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    client.setblocking(False)
    await loop.sock_connect(client, ("127.0.0.1", server.port))
    await loop.sock_sendall(client, f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    assert (await loop.sock_recv(client, 10_240)).startswith(b"HTTP/1.1 200 OK\r\n")
    return client


async def drain(client: socket.socket) -> int:
    """Read to the end, close, and return how much came."""
    loop = asyncio.get_running_loop()
    received = 0
    with client:
        while data := await loop.sock_recv(client, 2**20):
            received += len(data)
    return received


@pytest.mark.parametrize("archive", [SMALL, LARGE, b"x" * 65_536, b"x" * 65_537])
async def test_a_complete_transfer_brings_the_archive_and_consumes_it(
    server: Server, archive: bytes
) -> None:
    target = await register("aaaaaaaaaaaa", archive)
    head, body = await fetch(server, target)
    assert body == archive
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"http/1.1 200 ok"
    assert b"content-type: application/gzip" in lines
    assert b"cache-control: no-store" in lines
    assert b"content-length: %d" % len(archive) in lines
    # NB: asked at once, while the server may still be noting the end of the first.
    head, body = await fetch(server, target)
    assert head.startswith(b"HTTP/1.1 404 Not Found")
    assert body == NOT_FOUND
    assert is_consumed(await row("aaaaaaaaaaaa"))
    assert (await row("aaaaaaaaaaaa")).files, "staff still see what was in it"


async def test_whatever_is_wrong_is_the_same_404_and_consumes_nothing(server: Server) -> None:
    target = await register("aaaaaaaaaaaa", SMALL)
    await register("bbbbbbbbbbbb", SMALL)
    await awrite(
        lambda: Session.objects.filter(id="bbbbbbbbbbbb").update(
            status=StatusKind.STOPPED, ended_at=timezone.now()
        )
    )
    inline = make_new_session(spec=make_spec(session_id="cccccccccccc"))
    await awrite(store.insert, inline)
    wrong = [
        "/internal/bundles/aaaaaaaaaaaa",
        "/internal/bundles/aaaaaaaaaaaa?token=",
        f"/internal/bundles/aaaaaaaaaaaa?token={TOKEN[:-1]}",
        f"/internal/bundles/aaaaaaaaaaaa?token={TOKEN.upper()}",
        f"/internal/bundles/aaaaaaaaaaaa?token={TOKEN}x",
        "/internal/bundles/aaaaaaaaaaaa?token=%C3%A9%ED%A0%80%00",
        f"/internal/bundles/bbbbbbbbbbbb?token={TOKEN}",
        f"/internal/bundles/cccccccccccc?token={TOKEN}",
        "/internal/bundles/cccccccccccc?token=",
        f"/internal/bundles/dddddddddddd?token={TOKEN}",
        f"/internal/bundles/AAAAAAAAAAAA?token={TOKEN}",
        f"/internal/bundles/x?token={TOKEN}",
    ]
    for path in wrong:
        head, body = await fetch(server, path)
        assert head.startswith(b"HTTP/1.1 404 Not Found"), path
        assert body == NOT_FOUND, path
    assert (await fetch(server, target))[1] == SMALL


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_another_method_is_refused_and_consumes_nothing(server: Server, method: str) -> None:
    target = await register("aaaaaaaaaaaa", SMALL)
    head, _ = await fetch(server, target, method)
    assert head.startswith(b"HTTP/1.1 405 ")
    assert b"allow: get" in head.lower().split(b"\r\n")
    assert (await fetch(server, target))[1] == SMALL


async def test_a_client_that_goes_away_early_consumes_nothing(server: Server) -> None:
    target = await register("aaaaaaaaaaaa", LARGE)
    (await open_transfer(server, target)).close()
    assert (await fetch(server, target))[1] == LARGE
    await until_row("aaaaaaaaaaaa", is_consumed)


@pytest.mark.parametrize("is_reset", [True, False], ids=["reset", "closed unread"])
async def test_a_client_that_breaks_off_at_the_very_end_consumes_nothing(
    server: Server, is_reset: bool
) -> None:
    """The whole of a small response is in the client's kernel before it breaks the connection."""
    target = await register("aaaaaaaaaaaa", SMALL)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    transport = writer.transport
    transport.pause_reading()  # type: ignore[attr-defined] # asyncio's socket transports have it
    client = writer.get_extra_info("socket")
    writer.write(f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    await until_row("aaaaaaaaaaaa", lambda bundle: bool(bundle.claim))
    if is_reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    assert reader is not None
    await until_row("aaaaaaaaaaaa", lambda bundle: not bundle.claim)
    assert not is_consumed(await row("aaaaaaaaaaaa"))
    assert (await fetch(server, target))[1] == SMALL


async def test_of_two_transfers_at_once_one_completes(server: Server) -> None:
    target = await register("aaaaaaaaaaaa", LARGE)
    first, second = await open_transfer(server, target), await open_transfer(server, target)
    async with asyncio.TaskGroup() as group:
        received = [group.create_task(received_by(client)) for client in (first, second)]
    whole = [task.result() for task in received].count(True)
    assert whole == 1
    assert (await fetch(server, target))[1] == NOT_FOUND


async def received_by(client: socket.socket) -> bool:
    """Say whether a client that has its first bytes gets all of the rest."""
    try:
        return await drain(client) > len(LARGE) - 10_240
    except ConnectionResetError:
        return False


async def test_a_transfer_that_is_not_fetched_in_time_is_refused_and_then_dropped(
    server: Server,
) -> None:
    late = timezone.now() - timedelta(minutes=5, seconds=1)
    target = await register("aaaaaaaaaaaa", SMALL, created_at=late)
    await register("bbbbbbbbbbbb", SMALL)
    assert (await fetch(server, target))[1] == NOT_FOUND
    now = timezone.now()
    assert await store.drop_unfetched(now) == ["aaaaaaaaaaaa"]
    assert is_consumed(await row("aaaaaaaaaaaa"))
    assert await store.drop_unfetched(now) == []
    assert await store.drop_unfetched(now + timedelta(minutes=5)) == ["bbbbbbbbbbbb"]


async def test_the_end_of_a_session_drops_archive_and_token_and_keeps_the_list(
    server: Server,
) -> None:
    engine_id = await store.register_engine()
    target = await register("aaaaaaaaaaaa", SMALL)
    await awrite(store.insert, make_new_session(spec=make_spec(session_id="bbbbbbbbbbbb")))
    assert len(await store.claim(engine_id, limit=10)) == 2
    for session_id in ("aaaaaaaaaaaa", "bbbbbbbbbbbb"):
        assert not await store.transition(engine_id, session_id, 99, STOPPED)
        assert (await row(session_id)).archive
        assert await store.transition(engine_id, session_id, 1, STOPPED)
        assert is_consumed(await row(session_id))
        assert (await row(session_id)).files
    assert (await fetch(server, target))[1] == NOT_FOUND


async def age_claims(*, seconds: int) -> None:
    old = timezone.now() - timedelta(seconds=seconds)
    await awrite(lambda: Bundle.objects.update(claimed_at=old))


async def test_a_claim_of_a_process_that_was_killed_runs_out(server: Server) -> None:
    target = await register("aaaaaaaaaaaa", SMALL)
    assert await store.claim_fetch("aaaaaaaaaaaa", "dead")
    await age_claims(seconds=15)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await store.claim_fetch("aaaaaaaaaaaa", "another")
    await age_claims(seconds=21)
    assert (await fetch(server, target))[1] == SMALL
    await store.release_fetch("aaaaaaaaaaaa", "dead")
    await store.complete_fetch("aaaaaaaaaaaa", "dead")
    await until_row("aaaaaaaaaaaa", is_consumed)


async def test_code_of_before_the_token_goes_on_writing_bundles() -> None:
    """In a rolling deployment the columns are there before every process knows them."""
    await register("aaaaaaaaaaaa", SMALL)

    def insert() -> None:
        Bundle.objects.all().delete()
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO runner_sessions_bundle (session_id, archive, files) "
                "VALUES ('aaaaaaaaaaaa', %s, '[]')",
                [SMALL],
            )

    await awrite(insert)
    assert await store.load_bundle("aaaaaaaaaaaa") == SMALL
    with pytest.raises(NotFound):
        await store.load_token("aaaaaaaaaaaa")


async def test_the_token_is_in_no_row_and_no_repr() -> None:
    await register("aaaaaaaaaaaa", SMALL)
    bundle = await row("aaaaaaaaaaaa")
    assert TOKEN.encode() not in bytes(bundle.token_sealed)
    assert await store.load_token("aaaaaaaaaaaa") == TOKEN
    assert TOKEN not in repr(vars(bundle))
