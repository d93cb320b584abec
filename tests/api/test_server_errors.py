"""Errors outside the admin are the contract's JSON, whatever part of the house they come from."""

from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from sessions.runtime import Runtime
from telorunner import __version__
from telorunner.jsonerrors import JsonErrors


@pytest.fixture(params=[False, True], ids=["", "debug"])
def debug(request: pytest.FixtureRequest, settings: Any) -> bool:
    settings.DEBUG = request.param
    return bool(request.param)


UNKNOWN = (
    "/",
    "/v1",
    "/v1/",
    "/v1/sessions/",
    "/v1/health/",
    "/v1/sessions/aaaaaaaaaaaa/events/",
    "/v1/sessions/aaaaaaaaaaaa/io",
    "//v1/health",
    "/v1/sessions/aaaa%2f..%2fhealth",
    "/v1/sessions/%00",
    "/v1/sessions/a%0d%0ab",
    "/index.html",
    "/static/nothing.css",
)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_an_unknown_address_is_404(
    debug: bool, client: httpx.AsyncClient, method: str
) -> None:
    for path in UNKNOWN:
        answer = await client.request(method, path)
        assert (path, answer.status_code) == (path, 404)
        assert answer.json()["error"] == "not_found"
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("session", ["%F0%9F%98%80", "..", "A" * 12, "a" * 5000, "a;b", "%2e%2e"])
async def test_an_odd_session_id_is_just_unknown(client: httpx.AsyncClient, session: str) -> None:
    for suffix in ("", "/events"):
        answer = await client.get(f"/v1/sessions/{session}{suffix}")
        assert answer.status_code == 404
        assert answer.json()["error"] == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/health", "GET"),
        ("DELETE", "/readyz", "GET"),
        ("PATCH", "/v1/sessions", "POST"),
        ("GET", "/v1/probe", "POST"),
        ("POST", "/v1/sessions/aaaaaaaaaaaa", "DELETE"),
        ("POST", "/v1/sessions/aaaaaaaaaaaa/events", "GET"),
        ("HEAD", "/v1/sessions/aaaaaaaaaaaa/events", "GET"),
        ("OPTIONS", "/v1/sessions", "POST"),
    ],
)
async def test_a_wrong_method_is_405_and_names_the_right_ones(
    debug: bool, client: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await client.request(method, path)
    assert answer.status_code == 405
    assert allowed in [name.strip() for name in answer.headers["allow"].split(",")]
    if method != "HEAD":
        assert answer.json()["error"] == "method_not_allowed"


async def test_an_impossible_host_is_refused_in_json(
    debug: bool, app: ASGIApp, caplog: pytest.LogCaptureFixture
) -> None:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        answer = await client.get("/v1/capabilities", headers={"host": "a b;c"})
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_request"
    # A client's mistake does not fill the operator's log with tracebacks.
    assert not caplog.records


async def test_a_page_with_a_traceback_never_leaves_the_server(debug: bool) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"Content-Type", b"text/html"), (b"Vary", b"Cookie"), (b"X-Frame", b"secret")]
        await send({"type": "http.response.start", "status": 500, "headers": headers})
        await send({"type": "http.response.body", "body": b"Traceback secret"})

    for path in ("/v1/sessions", "/admin/"):
        transport = httpx.ASGITransport(app=JsonErrors(broken, is_debug=debug))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            answer = await client.get(path)
        assert (answer.status_code, answer.json()["error"]) == (500, "internal_error")
        assert "secret" not in answer.text + str(answer.headers)
        assert answer.headers["vary"] == "Cookie"


@pytest.mark.django_db(transaction=True)
async def test_the_admin_keeps_its_own_pages(client: httpx.AsyncClient) -> None:
    login = await client.get("/admin/", follow_redirects=True)
    assert login.url.path == "/admin/login/"
    assert login.headers["content-type"].startswith("text/html")
    assert (await client.get("/admin")).headers["location"] == "/admin/"
    # Without a token of the form.
    assert (await client.post("/admin/login/", data={"username": "x"})).status_code == 403


async def test_static_files_of_the_admin_are_served(client: httpx.AsyncClient) -> None:
    whole = await client.get("/static/admin/css/base.css")
    assert whole.status_code == 200
    assert whole.headers["content-type"].startswith("text/css")
    assert b"body" in whole.content
    known = {"if-modified-since": whole.headers["last-modified"]}
    assert (await client.get("/static/admin/css/base.css", headers=known)).status_code == 304
    part = await client.get("/static/admin/css/base.css", headers={"range": "bytes=0-9"})
    assert (part.status_code, part.content) == (206, whole.content[:10])
    escape = await client.get("/static/%2e%2e/%2e%2e/settings.py")
    assert escape.status_code == 404


async def test_health_says_which_version_lives(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/health")
    assert answer.json() == {"ok": True, "version": __version__}
    assert (await client.get("/livez")).json() == {"ok": True}


class Watch:
    """An informer that is as fresh as a test says."""

    def __init__(self, *, is_fresh: bool) -> None:
        self.is_fresh = is_fresh


class Engine:
    """An engine that works or not, as a test says."""

    def __init__(self, *, is_working: bool) -> None:
        self.is_working = is_working


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_fresh", [True, False])
@pytest.mark.parametrize("is_working", [True, False])
async def test_readiness_says_what_is_missing(
    client: httpx.AsyncClient, running: Runtime, is_fresh: bool, is_working: bool
) -> None:
    running.pods = Watch(is_fresh=is_fresh)  # type: ignore[assignment] # all that is asked of it
    running.engine = Engine(is_working=is_working)
    is_ready = is_fresh and is_working
    answer = await client.get("/readyz")
    assert answer.status_code == (200 if is_ready else 503)
    assert answer.json() == {
        "ready": is_ready,
        "checks": {
            "database": "ok",
            "log": "ok",
            "cluster": "ok" if is_fresh else "stale",
            "engine": "ok" if is_working else "not working",
        },
    }


@pytest.mark.django_db(transaction=True)
async def test_a_process_without_an_engine_needs_none_to_be_ready(
    client: httpx.AsyncClient, running: Runtime
) -> None:
    running.pods = Watch(is_fresh=True)  # type: ignore[assignment] # all that is asked of it
    answer = await client.get("/readyz")
    assert answer.status_code == 200
    assert "engine" not in answer.json()["checks"]


async def test_a_process_that_goes_down_is_not_ready(
    client: httpx.AsyncClient, running: Runtime
) -> None:
    running.stopping.set()
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "checks": {"process": "stopping"}}
