"""DELETE /v1/sessions/{id}: the wish is recorded, whatever the id."""

from collections.abc import Iterator

import httpx
import pytest
from django.db import connection

from sessions import store
from sessions.actions import stop
from sessions.models import Session
from sessions.runtime import Runtime
from sessions.spec import exited
from tests.builders import create_body
from tests.owners import admit, own

pytestmark = pytest.mark.usefixtures("transactional_db")


async def wish(session_id: str) -> object:
    return (await Session.objects.aget(id=session_id)).stop_requested_at


async def test_a_stop_is_recorded_for_the_owner(client: httpx.AsyncClient) -> None:
    session_id = await admit()
    owner = await own(session_id)
    assert await store.stop_wishes(owner.engine_id) == set()
    answer = await client.delete(f"/v1/sessions/{session_id}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert await store.stop_wishes(owner.engine_id) == {session_id}
    loaded = await store.load(owner.engine_id, session_id)
    assert loaded is not None
    assert loaded.is_stop_requested
    assert loaded.stop_requested_at == await wish(session_id)
    # The status is the owner's to write.
    document = (await client.get(f"/v1/sessions/{session_id}")).json()
    assert document["status"] == {"kind": "starting"}


async def test_stopping_twice_keeps_the_first_wish(client: httpx.AsyncClient) -> None:
    session_id = await admit()
    await client.delete(f"/v1/sessions/{session_id}")
    first = await wish(session_id)
    assert first is not None
    assert (await client.delete(f"/v1/sessions/{session_id}")).status_code == 204
    assert await wish(session_id) == first


async def test_an_ended_session_needs_no_stop(client: httpx.AsyncClient) -> None:
    session_id = await admit()
    await (await own(session_id)).become(exited(0))
    assert (await client.delete(f"/v1/sessions/{session_id}")).status_code == 204
    assert await wish(session_id) is None


@pytest.mark.parametrize("session_id", ["aaaaaaaaaaaa", "x", "..", "A" * 300, "%F0%9F%98%80"])
async def test_any_id_can_be_stopped(client: httpx.AsyncClient, session_id: str) -> None:
    assert (await client.delete(f"/v1/sessions/{session_id}")).status_code in {204, 404}
    assert not await Session.objects.aexists()


@pytest.fixture
def broken_database(transactional_db: None) -> Iterator[None]:
    """A database without the sessions' table: SQLite counts that as being away, PostgreSQL not."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE runner_sessions_session RENAME TO elsewhere")
    yield
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE elsewhere RENAME TO runner_sessions_session")


async def test_a_stop_that_is_not_recorded_is_no_204(
    broken_database: None, client: httpx.AsyncClient
) -> None:
    expected = {"sqlite": (503, "unavailable"), "postgresql": (500, "stop_failed")}
    answer = await client.delete("/v1/sessions/aaaaaaaaaaaa")
    assert (answer.status_code, answer.json()["error"]) == expected[connection.vendor]
    assert ("retry-after" in answer.headers) == (answer.status_code == 503)


@pytest.fixture
def refusing_database(transactional_db: None) -> Iterator[None]:
    """A database that is there, and refuses what is changed in sessions."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TRIGGER refusal BEFORE UPDATE ON runner_sessions_session "
            "BEGIN SELECT RAISE(ABORT, 'inside'); END"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER refusal")


@pytest.mark.skipif(connection.vendor != "sqlite", reason="the trigger is SQLite's")
async def test_a_stop_that_is_refused_inside_has_failed_and_says_no_more(
    refusing_database: None, client: httpx.AsyncClient
) -> None:
    session_id = await admit()
    answer = await client.delete(f"/v1/sessions/{session_id}")
    assert (answer.status_code, answer.json()) == (
        500,
        {"error": "stop_failed", "message": "The stop could not be recorded."},
    )
    assert await wish(session_id) is None


async def test_nothing_else_is_answered_without_a_database(
    broken_database: None, client: httpx.AsyncClient
) -> None:
    expected = {"sqlite": (503, "unavailable"), "postgresql": (500, "internal_error")}
    created = await client.post("/v1/sessions", json=create_body())
    read = await client.get("/v1/sessions/aaaaaaaaaaaa")
    for answer in (created, read):
        assert (answer.status_code, answer.json()["error"]) == expected[connection.vendor]
        assert set(answer.json()) == {"error", "message"}


async def test_a_stop_is_still_recorded_while_the_process_goes_down(running: Runtime) -> None:
    session_id = await admit()
    running.stopping.set()
    await store.aread(stop.stop, session_id)
    assert await wish(session_id) is not None
