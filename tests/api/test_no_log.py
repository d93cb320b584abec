"""A process without an engine: what it serves of sessions, and what it cannot without a log."""

import json

import httpx
import pytest
from starlette.types import ASGIApp

from sessions.log.absent import AbsentLog
from sessions.models import Session
from sessions.runtime import Runtime
from sessions.spec import exited
from telorunner.conf import Settings
from tests.builders import create_body, make_settings
from tests.connections import open_events, open_socket
from tests.owners import admit, own

pytestmark = pytest.mark.usefixtures("transactional_db")

REFUSAL = {
    "error": "unavailable",
    "message": (
        "This process serves no events and no terminals, another one does. Try again shortly."
    ),
}
UNKNOWN = "aaaaaaaaaaaa"


@pytest.fixture
def config() -> Settings:
    return make_settings(max_sessions=1)


async def test_events_are_unavailable_and_a_terminal_is_told_to_try_again(
    app: ASGIApp, running: Runtime
) -> None:
    session_id = await admit()
    running.log = AbsentLog()
    async with open_events(app, session_id) as stream:
        assert (stream.status, json.loads(await stream.read_to_end())) == (503, REFUSAL)
        assert int(stream.headers["retry-after"]) > 0
    async with open_socket(app, session_id) as socket:
        assert await socket.read_to_close() == 1013


async def test_what_does_not_exist_is_not_found_all_the_same(
    app: ASGIApp, running: Runtime
) -> None:
    running.log = AbsentLog()
    async with open_events(app, UNKNOWN) as stream:
        assert stream.status == 404
    async with open_socket(app, UNKNOWN) as socket:
        assert await socket.read_to_close() == 4404


async def test_sessions_are_registered_read_and_stopped_by_their_rows(
    client: httpx.AsyncClient, running: Runtime
) -> None:
    running.log = AbsentLog()
    created = await client.post("/v1/sessions", json=create_body())
    assert created.status_code == 201
    session_id = created.json()["sessionId"]
    document = (await client.get(f"/v1/sessions/{session_id}")).json()
    assert document["status"] == {"kind": "starting"}
    assert (await client.delete(f"/v1/sessions/{session_id}")).status_code == 204
    row = await Session.objects.aget(id=session_id)
    # An engine elsewhere sees both wishes in the row.
    assert (row.engine_id, row.stop_requested_at is not None) == (None, True)


async def test_an_ended_session_gives_way_to_a_new_one(
    client: httpx.AsyncClient, running: Runtime
) -> None:
    ended = await admit()
    await (await own(ended)).become(exited(0))
    running.log = AbsentLog()
    assert (await client.post("/v1/sessions", json=create_body())).status_code == 201
    assert (await client.get(f"/v1/sessions/{ended}")).status_code == 404


async def test_it_is_ready_by_its_database_alone(
    client: httpx.AsyncClient, running: Runtime
) -> None:
    running.log = AbsentLog()
    ready = await client.get("/readyz")
    assert (ready.status_code, ready.json()) == (
        200,
        {"ready": True, "checks": {"database": "ok"}},
    )
