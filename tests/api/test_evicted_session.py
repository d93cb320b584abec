"""A session that was evicted is gone for clients at once; its row stays for staff."""

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta

import httpx
import pytest
from django.utils import timezone
from starlette.types import ASGIApp

from sessions import store
from sessions.models import Bundle, Session
from sessions.runtime import Runtime
from sessions.spec import exited
from tests.connections import open_events, open_socket
from tests.owners import admit, own

pytestmark = pytest.mark.usefixtures("transactional_db")

NOT_FOUND = {"error": "not_found", "message": "There is no such session."}


async def by_capacity() -> None:
    await admit(max_sessions=1)


async def by_age() -> None:
    await store.evict_ended(timezone.now() + timedelta(seconds=1))


@pytest.mark.parametrize("evict", [by_capacity, by_age])
async def test_an_evicted_session_is_gone_for_clients(
    app: ASGIApp,
    client: httpx.AsyncClient,
    running: Runtime,
    evict: Callable[[], Awaitable[None]],
) -> None:
    session_id = await admit(env_sealed=b"sealed")
    owner = await own(session_id)
    await owner.say(b"output")
    await owner.become(exited(0))
    await evict()
    # NB: its log may still be there: the row alone decides.
    answer = await client.get(f"/v1/sessions/{session_id}")
    assert (answer.status_code, answer.json()) == (404, NOT_FOUND)
    async with open_events(app, session_id) as stream:
        assert (stream.status, json.loads(await stream.read_to_end())) == (404, NOT_FOUND)
    async with open_socket(app, session_id) as socket:
        assert await socket.read_to_close() == 4404
    assert (await client.delete(f"/v1/sessions/{session_id}")).status_code == 204
    row = await Session.objects.aget(id=session_id)
    assert (row.status, row.exit_code, bytes(row.env_sealed)) == ("exited", 0, b"")
    assert row.evicted_at is not None
    assert not await Bundle.objects.filter(session=session_id).aexists()


async def test_a_live_session_is_never_too_old(client: httpx.AsyncClient) -> None:
    session_id = await admit()
    await by_age()
    assert (await client.get(f"/v1/sessions/{session_id}")).status_code == 200
