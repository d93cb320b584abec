"""Every address with every method, and what browsers are told whatever the answer is."""

from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from sessions.models import Session
from sessions.runtime import Runtime
from telorunner.conf import Settings
from telorunner.drf import REFUSAL_KEY, too_large
from tests.builders import create_body, make_settings
from tests.connections import open_socket
from tests.owners import admit

pytestmark = pytest.mark.usefixtures("transactional_db")

SESSION = "/v1/sessions/aaaaaaaaaaaa"
ADDRESSES = {
    "/v1/health": {"GET", "HEAD"},
    "/livez": {"GET", "HEAD"},
    "/readyz": {"GET", "HEAD"},
    "/v1/capabilities": {"GET", "HEAD"},
    "/v1/probe": {"POST"},
    "/v1/sessions": {"POST"},
    SESSION: {"GET", "HEAD", "DELETE"},
    f"{SESSION}/events": {"GET"},
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")


@pytest.mark.parametrize(("path", "allowed"), ADDRESSES.items())
async def test_another_method_is_refused_with_those_that_are_allowed(
    client: httpx.AsyncClient, path: str, allowed: set[str]
) -> None:
    for method in METHODS:
        if method in allowed:
            continue
        answer = await client.request(method, path, json=create_body())
        assert (method, answer.status_code) == (method, 405)
        # A preflight is answered everywhere.
        listed = {name.strip() for name in answer.headers["allow"].split(",")}
        assert listed - {"OPTIONS"} == allowed
        if method != "HEAD":
            assert answer.json() == {
                "error": "method_not_allowed",
                "message": "This address does not take the request's method.",
            }


@pytest.mark.parametrize("path", ["/v1/health", "/v1/capabilities", SESSION])
async def test_head_is_get_without_the_body(client: httpx.AsyncClient, path: str) -> None:
    whole, head = await client.get(path), await client.head(path)
    assert head.status_code == whole.status_code
    assert head.headers["content-type"] == whole.headers["content-type"] == "application/json"


async def test_an_unknown_address_has_exactly_this_body(client: httpx.AsyncClient) -> None:
    for path in ("/", "/v1/nothing", "/v1/sessions/", f"{SESSION}/nothing", f"{SESSION}/events/x"):
        for method in ("GET", "POST", "PATCH", "OPTIONS"):
            answer = await client.request(method, path)
            assert (answer.status_code, answer.json()) == (
                404,
                {"error": "not_found", "message": "There is nothing at this address."},
            )


@pytest.mark.parametrize("is_debug", [False, True])
async def test_a_defect_inside_shows_nothing_of_the_inside(
    client: httpx.AsyncClient, app: ASGIApp, settings: Any, is_debug: bool
) -> None:
    settings.DEBUG = is_debug
    session_id = await admit()
    await Session.objects.filter(id=session_id).aupdate(spec={"unreadable": 1})
    answer = await client.get(f"/v1/sessions/{session_id}")
    assert (answer.status_code, answer.json()) == (
        500,
        {"error": "internal_error", "message": "Something went wrong inside the runner."},
    )
    async with open_socket(app, session_id) as socket:
        assert await socket.read_to_close() == 1011


GOOD = "https://a.example"


class TestCrossOrigin:
    """The headers that browsers need stand on every answer, whoever gave it."""

    @pytest.fixture(params=[("*",), (GOOD, "http://c.example")], ids=["everybody", "list"])
    def config(self, request: pytest.FixtureRequest) -> Settings:
        return make_settings(cors_origins=request.param)

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/v1/health", 200),
            ("GET", "/v1/capabilities", 200),
            ("GET", SESSION, 404),
            ("GET", f"{SESSION}/events", 404),
            ("DELETE", SESSION, 204),
            ("PUT", "/v1/sessions", 405),
            ("POST", "/v1/sessions", 400),
            ("GET", "/elsewhere", 404),
            ("GET", "/static/admin/css/base.css", 200),
            ("GET", "/static/nothing.css", 404),
            ("GET", "/readyz", 503),
        ],
    )
    async def test_an_answer_can_be_read_by_whom_it_is_for(
        self,
        client: httpx.AsyncClient,
        running: Runtime,
        config: Settings,
        method: str,
        path: str,
        status: int,
    ) -> None:
        running.pods = type("Stale", (), {"is_fresh": False})  # type: ignore[assignment] # all that is asked of it
        running.engine = type("Idle", (), {"is_working": False})()
        answer = await client.request(method, path, json={}, headers={"origin": GOOD})
        assert answer.status_code == status
        self.assert_readable(answer, config)
        # A cache must not give the answer for one page to another one.
        without = await client.request(method, path, json={})
        if config.cors_origins != ("*",):
            assert "origin" in without.headers["vary"].lower()
            assert "access-control-allow-origin" not in without.headers

    @pytest.mark.parametrize("status", [413, 500, 503])
    async def test_so_can_one_of_the_server_itself(
        self, app: ASGIApp, running: Runtime, config: Settings, status: int
    ) -> None:
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            refused = {REFUSAL_KEY: too_large(1)} if status == 413 else {}
            await app({**scope, **refused}, receive, send)

        if status == 503:
            running.stopping.set()
        session_id = await admit()
        await Session.objects.filter(id=session_id).aupdate(spec={})
        method, path = (
            ("GET", f"/v1/sessions/{session_id}") if status == 500 else ("DELETE", SESSION)
        )
        transport = httpx.ASGITransport(app=serve)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            answer = await client.request(method, path, headers={"origin": GOOD})
        assert answer.status_code == status
        self.assert_readable(answer, config)

    def assert_readable(self, answer: httpx.Response, config: Settings) -> None:
        is_list = config.cors_origins != ("*",)
        assert answer.headers["access-control-allow-origin"] == (GOOD if is_list else "*")
        if is_list:
            assert "origin" in answer.headers["vary"].lower()
