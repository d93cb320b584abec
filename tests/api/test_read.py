"""GET /v1/sessions/{id}: the document of a session, in the contract's exact form."""

import re
from typing import Any

import httpx
import pytest

from sessions.models import Session
from sessions.runtime import Runtime
from sessions.spec import STOPPED, Status, exited, failed
from sessions.states import StatusKind
from tests.builders import create_body
from tests.owners import admit, own

pytestmark = pytest.mark.usefixtures("transactional_db")

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def create(client: httpx.AsyncClient, **overrides: Any) -> dict[str, Any]:
    answer = await client.post("/v1/sessions", json=create_body(**overrides))
    body: dict[str, Any] = answer.json()
    return body


async def read(client: httpx.AsyncClient, session_id: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/sessions/{session_id}")
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


async def test_a_session_is_starting_from_its_registration(client: httpx.AsyncClient) -> None:
    created = await create(client)
    assert await read(client, created["sessionId"]) == {
        "sessionId": created["sessionId"],
        "status": {"kind": "starting"},
        "mode": "run",
        "apps": [{"name": "app", "io": "tty", "generation": 0, "ports": []}],
        "createdAt": created["createdAt"],
    }


async def test_a_running_session_tells_its_endpoints(client: httpx.AsyncClient) -> None:
    session_id = (await create(client, ports=[{"port": 80, "protocol": "tcp"}]))["sessionId"]
    endpoint = {"host": "", "port": 80, "protocol": "tcp"}
    await (await own(session_id)).become(Status(StatusKind.RUNNING, endpoints=(endpoint,)))
    document = await read(client, session_id)
    assert TIME.fullmatch(document.pop("createdAt"))
    ports = [{"port": 80, "protocol": "tcp"}]
    assert document == {
        "sessionId": session_id,
        "status": {"kind": "running", "endpoints": [endpoint]},
        "mode": "run",
        "apps": [{"name": "app", "io": "tty", "generation": 0, "ports": ports}],
    }


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (exited(3), {"kind": "exited", "code": 3}),
        (failed("pod disappeared"), {"kind": "failed", "message": "pod disappeared"}),
        (STOPPED, {"kind": "stopped"}),
    ],
)
async def test_an_ended_session_says_how_and_when(
    client: httpx.AsyncClient, status: Status, told: dict[str, Any]
) -> None:
    session_id = (await create(client))["sessionId"]
    owner = await own(session_id)
    await owner.become(
        Status(StatusKind.RUNNING, endpoints=({"host": "", "port": 1, "protocol": "tcp"},))
    )
    await owner.become(status)
    document = await read(client, session_id)
    assert TIME.fullmatch(document.pop("exitedAt"))
    assert TIME.fullmatch(document.pop("createdAt"))
    # What it was reachable by is over with it.
    assert document == {
        "sessionId": session_id,
        "status": told,
        "mode": "run",
        "apps": [{"name": "app", "io": "tty", "generation": 0, "ports": []}],
    }


@pytest.mark.parametrize(
    "session_id",
    ["aaaaaaaaaaaa", "x", "AAAAAAAAAAAA", "a" * 5000, "%00", "..%5c", "%F0%9F%98%80", "a%0Ab"],
)
async def test_what_is_no_session_is_not_found(client: httpx.AsyncClient, session_id: str) -> None:
    answer = await client.get(f"/v1/sessions/{session_id}")
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


async def test_an_evicted_session_is_not_found(client: httpx.AsyncClient, running: Runtime) -> None:
    session_id = await admit()
    await (await own(session_id)).become(exited(0))
    await admit(max_sessions=1)
    assert (await client.get(f"/v1/sessions/{session_id}")).status_code == 404
    assert await Session.objects.filter(id=session_id).aexists()


async def test_reading_does_not_write(client: httpx.AsyncClient) -> None:
    for method in ("PUT", "POST", "PATCH"):
        answer = await client.request(method, "/v1/sessions/aaaaaaaaaaaa")
        assert (answer.status_code, answer.json()["error"]) == (405, "method_not_allowed")
        assert answer.headers["allow"] == "GET, DELETE, HEAD, OPTIONS"
