"""Both routes that create sessions with several faults at once: the contract says which is told."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import httpx
import orjson
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from sessions.models import Session
from sessions.runtime import Runtime
from telorunner.conf import Settings
from telorunner.drf import REFUSAL_KEY, too_large
from tests.builders import ENTRY, IMAGE, create_body, make_bundle, make_settings
from tests.offered import APP_NAME, offer_app, publish_terms
from tests.owners import admit

pytestmark = pytest.mark.usefixtures("transactional_db")

LIMIT_BYTES = 5000
VERSION = "Rev-1"
APP = {"name": "web", "entryRelativePath": ENTRY}
SESSIONS_PATH = "/v1/sessions"
APP_PATH = f"/v1/apps/{APP_NAME}/sessions"


@dataclass
class Asked:
    """A request, sound until faults are put into it."""

    path: str
    method: str = "POST"
    content_type: str = "application/json"
    accepted: str = VERSION
    body: dict[str, Any] = field(default_factory=dict)
    prefix: bytes = b""
    suffix: bytes = b""

    def content(self) -> bytes:
        return self.prefix + orjson.dumps(self.body) + self.suffix


@dataclass(frozen=True)
class Fault:
    """What is wrong, and how a request that has only this fault is answered."""

    code: str
    status: int
    inject: Callable[[Asked], object]

    def __str__(self) -> str:
        return self.code


def is_set(name: str, value: Any) -> Callable[[Asked], object]:
    return lambda asked: setattr(asked, name, value)


def of_body(code: str, **overrides: Any) -> Fault:
    return Fault(code, 400, lambda asked: asked.body.update(overrides))


# In the contract's order.
SHAPE = [
    Fault("method_not_allowed", 405, is_set("method", "PUT")),
    Fault("unsupported_media_type", 415, is_set("content_type", "text/x")),
    Fault("bundle_too_large", 413, is_set("prefix", b" " * LIMIT_BYTES)),
    Fault("invalid_json", 400, is_set("suffix", b",")),
    of_body("invalid_request", inspect="yes"),
]
TERMS = Fault("terms_required", 428, is_set("accepted", ""))
# It is no fault of the request.
NO_ROOM = Fault("too_many_sessions", 409, lambda _: None)
FAULTS = {
    SESSIONS_PATH: [
        *SHAPE,
        TERMS,
        of_body("invalid_bundle", bundle=make_bundle(entry="missing.yaml")),
        of_body("invalid_config", config={"image": "busybox", "pullPolicy": "missing"}),
        of_body("watch_disabled", mode="watch"),
        of_body("agent_requires_watch", agent="helper"),
        of_body("invalid_app_name", apps=[{**APP, "name": "Web"}]),
        of_body("reserved_app_name", apps=[{**APP, "name": "workspace"}]),
        NO_ROOM,
    ],
    APP_PATH: [
        *SHAPE,
        Fault("unknown_app", 404, is_set("path", "/v1/apps/nope/sessions")),
        TERMS,
        NO_ROOM,
    ],
}
# One app cannot have two names.
IMPOSSIBLE = {("invalid_app_name", "reserved_app_name")}
PAIRS = [
    (path, first, second)
    for path, faults in FAULTS.items()
    for first, second in combinations(faults, 2)
    if (first.code, second.code) not in IMPOSSIBLE
]


@pytest.fixture
def config() -> Settings:
    return make_settings(max_bundle_bytes=LIMIT_BYTES, max_sessions=1)


async def ask(client: httpx.AsyncClient, path: str, *faults: Fault) -> tuple[int, str]:
    asked = Asked(path, body=create_body() if path == SESSIONS_PATH else {})
    for fault in faults:
        fault.inject(asked)
    headers = {"content-type": asked.content_type, "x-telo-accepted-terms": asked.accepted}
    answer = await client.request(
        asked.method, asked.path, content=asked.content(), headers=headers
    )
    return answer.status_code, answer.json()["error"]


@pytest.mark.parametrize(("path", "first", "second"), PAIRS, ids=str)
async def test_the_first_of_two_faults_is_told(
    client: httpx.AsyncClient, path: str, first: Fault, second: Fault
) -> None:
    await offer_app()
    await publish_terms(VERSION)
    if second is NO_ROOM:
        await admit()
    assert await ask(client, path, second, first) == (first.status, first.code)
    assert await Session.objects.acount() == (1 if second is NO_ROOM else 0)


@pytest.mark.parametrize("path", FAULTS)
async def test_all_faults_at_once_are_told_by_the_first(
    client: httpx.AsyncClient, path: str
) -> None:
    await offer_app()
    await publish_terms(VERSION)
    await admit()
    left = FAULTS[path].copy()
    while left:
        assert await ask(client, path, *reversed(left)) == (left[0].status, left[0].code)
        left.pop(0)


@pytest.mark.parametrize(
    ("method", "path", "content_type", "status"),
    [
        ("POST", "/v1/nothing", "application/json", 404),
        ("PUT", "/v1/sessions", "application/json", 405),
        ("POST", "/v1/sessions/aaaaaaaaaaaa/events", "application/json", 405),
        ("POST", "/v1/sessions", "text/plain", 415),
        ("POST", "/v1/sessions", "application/json", 413),
        ("POST", "/v1/probe", "application/json", 413),
        ("DELETE", "/v1/sessions/aaaaaaaaaaaa", "application/json", 413),
        ("GET", "/v1/capabilities", "application/json", 413),
        ("POST", "/admin/login/", "application/json", 413),
        ("POST", "/elsewhere", "application/json", 413),
    ],
)
async def test_a_body_that_the_server_did_not_read_is_refused_in_its_turn(
    app: ASGIApp, running: Runtime, method: str, path: str, content_type: str, status: int
) -> None:
    async def unread(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, REFUSAL_KEY: too_large(LIMIT_BYTES)}, receive, send)

    transport = httpx.ASGITransport(app=unread)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        answer = await client.request(method, path, headers={"content-type": content_type})
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "message"}
    if status == 413:
        assert answer.json() == too_large(LIMIT_BYTES).body()


def invalid(path: str, message: str) -> dict[str, Any]:
    issues = [{"path": path, "message": message}]
    return {
        "error": "invalid_request",
        "message": "The request body is not valid.",
        "issues": issues,
    }


@pytest.mark.parametrize(
    ("overrides", "status", "body"),
    [
        ({"limits": {"cpu": "much"}}, 400,
         invalid("/limits/cpu", "not a Kubernetes quantity such as 500m, 1.5 or 512Mi")),
        ({"env": {"1A": "x"}}, 400,
         invalid("/env/1A", "1A: the name must match [-._a-zA-Z][-._a-zA-Z0-9]*")),
        ({"apps": [APP, {**APP, "name": "b"}]}, 400,
         invalid("/apps", "a run session has exactly one app")),
        ({"bundle": make_bundle({ENTRY: "", "a/../b": ""})}, 400,
         {"error": "invalid_bundle",
          "message": "/bundle/files/1/relativePath: a path cannot leave the bundle by '..'."}),
        ({"bundle": make_bundle(entry="x")}, 400,
         {"error": "invalid_bundle",
          "message": "/bundle/entryRelativePath: the entry is not among the bundle's files."}),
        ({"config": {"image": "busybox", "pullPolicy": "missing"}}, 400,
         {"error": "invalid_config", "message": f"This image is not offered. Allowed: {IMAGE}."}),
        ({"mode": "watch"}, 400,
         {"error": "watch_disabled", "message": "Watch sessions are not enabled on this runner."}),
        ({"agent": "helper"}, 400,
         {"error": "agent_requires_watch", "message": "An agent needs a watch session."}),
        ({"apps": [{**APP, "name": "Web"}]}, 400,
         {"error": "invalid_app_name",
          "message": "An app's name must be a lower-case DNS label of at most 59 characters."}),
        ({"apps": [{**APP, "name": "agent"}]}, 400,
         {"error": "reserved_app_name", "message": "An app cannot be called agent."}),
    ],
)  # fmt: skip
async def test_a_refusal_has_exactly_its_body(
    client: httpx.AsyncClient, overrides: dict[str, Any], status: int, body: dict[str, Any]
) -> None:
    answer = await client.post("/v1/sessions", json=create_body(**overrides))
    assert (answer.status_code, answer.json()) == (status, body)


async def test_a_full_runner_says_what_can_be_done(client: httpx.AsyncClient) -> None:
    await admit()
    answer = await client.post("/v1/sessions", json=create_body())
    assert (answer.status_code, answer.json()) == (
        409,
        {
            "error": "too_many_sessions",
            "message": "Every session the runner can keep is live. Stop one, or try again later.",
        },
    )
