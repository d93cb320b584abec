"""Origins: what browsers are told, and what never happens for a foreign one."""

import httpx
import pytest
from starlette.types import ASGIApp

from sessions.models import Session
from sessions.runtime import Runtime
from telorunner.conf import Settings
from tests.builders import make_settings

pytestmark = pytest.mark.django_db(transaction=True)

GOOD = "https://a.example"
BAD = "https://b.example"
EVENTS = "/v1/sessions/aaaaaaaaaaaa/events"
BUNDLE = {
    "bundle": {
        "entryRelativePath": "telo.yaml",
        "files": [{"relativePath": "telo.yaml", "contents": "x"}],
    },
    "env": {},
    "config": {"image": "telorun/node:latest-slim", "pullPolicy": "missing"},
}


@pytest.fixture
def config(request: pytest.FixtureRequest) -> Settings:
    """An origin list, unless a test is marked with other origins."""
    return make_settings(cors_origins=getattr(request, "param", (GOOD, "http://c.example")))


every_origin = pytest.mark.parametrize("config", [("*",)], indirect=True)


@every_origin
@pytest.mark.parametrize("path", ["/v1/health", "/v1/nothing", EVENTS])
async def test_everybody_may_read_by_default(client: httpx.AsyncClient, path: str) -> None:
    for headers in ({}, {"origin": BAD}):
        answer = await client.get(path, headers=headers)
        assert answer.headers["access-control-allow-origin"] == "*"


@every_origin
async def test_everybody_may_change_by_default(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/sessions", json=BUNDLE, headers={"origin": BAD})
    assert answer.status_code == 201


@pytest.mark.parametrize("path", ["/v1/health", "/v1/nothing", EVENTS, "/v1/sessions"])
async def test_a_listed_origin_is_echoed_whatever_the_answer(
    client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(path, headers={"origin": GOOD})
    assert answer.headers["access-control-allow-origin"] == GOOD
    assert "origin" in [part.strip().lower() for part in answer.headers["vary"].split(",")]


@pytest.mark.parametrize("origin", [BAD, "null", "https://a.example.evil", "http://a.example"])
async def test_an_origin_that_is_not_listed_is_not_echoed(
    client: httpx.AsyncClient, origin: str
) -> None:
    answer = await client.get("/v1/health", headers={"origin": origin})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/sessions"),
        ("POST", "/v1/probe"),
        ("DELETE", "/v1/sessions/aaaaaaaaaaaa"),
        ("PUT", "/v1/sessions/aaaaaaaaaaaa/apps"),
        ("GET", EVENTS),
    ],
)
@pytest.mark.parametrize("origin", [BAD, "null"])
async def test_nothing_happens_for_a_foreign_origin(
    client: httpx.AsyncClient, method: str, path: str, origin: str
) -> None:
    answer = await client.request(method, path, json=BUNDLE, headers={"origin": origin})
    assert answer.status_code == 403
    assert answer.json()["error"] == "origin_not_allowed"
    assert await Session.objects.acount() == 0


async def test_one_foreign_origin_among_several_is_foreign(client: httpx.AsyncClient) -> None:
    headers = [("origin", GOOD), ("origin", BAD)]
    answer = await client.post("/v1/sessions", json=BUNDLE, headers=headers)
    assert answer.status_code == 403


@pytest.mark.parametrize("headers", [{}, {"origin": GOOD}])
async def test_no_origin_and_a_listed_one_may_change(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    answer = await client.post("/v1/sessions", json=BUNDLE, headers=headers)
    assert answer.status_code == 201
    assert await Session.objects.acount() == 1


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_a_preflight_lists_what_clients_need(client: httpx.AsyncClient, method: str) -> None:
    answer = await client.options(
        "/v1/sessions",
        headers={
            "origin": GOOD,
            "access-control-request-method": method,
            "access-control-request-headers": "content-type,x-telo-accepted-terms,last-event-id",
        },
    )
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == GOOD
    methods = {name.strip() for name in answer.headers["access-control-allow-methods"].split(",")}
    assert methods == {"GET", "POST", "PUT", "DELETE", "OPTIONS"}
    allowed = answer.headers["access-control-allow-headers"].lower()
    for name in ("content-type", "x-telo-accepted-terms", "last-event-id"):
        assert name in allowed


@pytest.mark.parametrize(
    "changed",
    [
        {"origin": BAD},
        {"access-control-request-method": "PATCH"},
        {"access-control-request-headers": "x-other"},
    ],
)
async def test_a_refused_preflight_is_json(
    client: httpx.AsyncClient, changed: dict[str, str]
) -> None:
    headers = {"origin": GOOD, "access-control-request-method": "POST"} | changed
    answer = await client.options("/v1/sessions", headers=headers)
    assert answer.status_code == 403
    assert answer.json()["error"] == "origin_not_allowed"


@every_origin
async def test_the_admin_is_not_shared_with_other_origins(client: httpx.AsyncClient) -> None:
    answer = await client.get("/admin/login/", headers={"origin": BAD})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


async def test_changes_are_refused_while_the_process_goes_down(
    client: httpx.AsyncClient, running: Runtime
) -> None:
    running.stopping.set()
    for method, path in (("POST", "/v1/sessions"), ("DELETE", "/v1/sessions/aaaaaaaaaaaa")):
        answer = await client.request(method, path, json=BUNDLE, headers={"origin": GOOD})
        assert answer.status_code == 503
        assert answer.json()["error"] == "stopping"
        assert int(answer.headers["retry-after"]) > 0
        assert answer.headers["access-control-allow-origin"] == GOOD
    assert (await client.get("/v1/health")).status_code == 200
    assert await Session.objects.acount() == 0


async def test_a_socket_passes_so_that_its_consumer_can_answer(app: ASGIApp) -> None:
    sent = []

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    async def send(message: object) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/nowhere", "headers": [(b"origin", BAD.encode())]}
    await app(scope, receive, send)
    assert sent == [
        {"type": "websocket.accept"},
        {"type": "websocket.close", "code": 4404, "reason": "not_found"},
    ]
