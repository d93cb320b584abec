"""The terms gate of both routes that create sessions: 428 until the current version is accepted."""

from typing import Any

import httpx
import pytest

from catalog.models import Terms
from sessions import store
from sessions.models import Session
from telorunner.conf import Settings
from tests.builders import create_body, make_settings
from tests.offered import APP_NAME, offer_app, publish_terms
from tests.owners import admit

pytestmark = pytest.mark.usefixtures("transactional_db")

HEADER = "x-telo-accepted-terms"
VERSION = "Rev-2a"
APP_PATH = f"/v1/apps/{APP_NAME}/sessions"
SENTENCE = "The usage terms must be accepted: send their version in x-telo-accepted-terms."
LIMIT_BYTES = 5000

Headers = list[tuple[str, bytes]]


@pytest.fixture
def config() -> Settings:
    return make_settings(max_bundle_bytes=LIMIT_BYTES, max_sessions=2)


@pytest.fixture(params=["/v1/sessions", APP_PATH])
def path(request: pytest.FixtureRequest) -> str:
    """Each of the two routes."""
    return str(request.param)


@pytest.fixture(autouse=True)
async def _offered(transactional_db: None) -> None:
    await offer_app()


def body_of(path: str) -> dict[str, Any]:
    return {} if path == APP_PATH else create_body()


async def create(client: httpx.AsyncClient, path: str, *accepted: str) -> httpx.Response:
    headers: Headers = [(HEADER, version.encode()) for version in accepted]
    return await client.post(path, json=body_of(path), headers=headers)  # type: ignore[arg-type] # bytes are fine


async def accepted_count(version: str) -> int:
    return (await Terms.objects.aget(version=version)).accepted_count


async def test_without_terms_nothing_is_asked_for(client: httpx.AsyncClient, path: str) -> None:
    for accepted in ((), ("whatever",)):
        answer = await create(client, path, *accepted)
        assert answer.status_code == 201
        row = await Session.objects.aget(id=answer.json()["sessionId"])
        assert row.terms_version == ""


async def test_the_refusal_has_the_terms(client: httpx.AsyncClient, path: str) -> None:
    await publish_terms(VERSION, title="House rules", body="# Be *kind*\n")
    answer = await create(client, path)
    assert (answer.status_code, answer.json()) == (
        428,
        {
            "error": "terms_required",
            "message": SENTENCE,
            "terms": {"version": VERSION, "title": "House rules", "body": "# Be *kind*\n"},
        },
    )
    assert not await Session.objects.aexists()
    assert await accepted_count(VERSION) == 0


@pytest.mark.parametrize(
    "accepted",
    [
        (),
        ("",),
        ("Rev-1",),
        ("rev-2a",),
        ("REV-2A",),
        ("Rev-2",),
        ("Rev-2a0",),
        (f"{VERSION} ",),
        (f" {VERSION}",),
        (f'"{VERSION}"',),
        (f"{VERSION},{VERSION}",),
        (f"{VERSION}, Rev-1",),
        (VERSION, VERSION),
        (VERSION, "Rev-1"),
        ("Rev-1", VERSION),
        (VERSION, ""),
        ("Rev-2а",),  # noqa: RUF001 - a Cyrillic letter that looks the same
        ("Rév-2a",),
        ("Rev\N{NON-BREAKING HYPHEN}2a",),
        ("*",),
        ("true",),
    ],
)
async def test_anything_but_the_current_version_is_refused(
    client: httpx.AsyncClient, path: str, accepted: tuple[str, ...]
) -> None:
    await publish_terms("Rev-1")
    await publish_terms(VERSION)
    answer = await create(client, path, *accepted)
    assert (answer.status_code, answer.json()["error"]) == (428, "terms_required")
    assert answer.json()["terms"]["version"] == VERSION
    assert not await Session.objects.aexists()


async def test_latin_1_in_the_header_is_refused(client: httpx.AsyncClient, path: str) -> None:
    await publish_terms(VERSION)
    headers: Headers = [(HEADER, b"Rev-2\xe9")]
    answer = await client.post(path, json=body_of(path), headers=headers)  # type: ignore[arg-type] # bytes are fine
    assert answer.status_code == 428


async def test_the_version_that_was_accepted_is_kept_and_counted(
    client: httpx.AsyncClient, path: str
) -> None:
    await publish_terms("Rev-1")
    await publish_terms(VERSION)
    for count in (1, 2):
        answer = await create(client, path, VERSION)
        assert answer.status_code == 201
        row = await Session.objects.aget(id=answer.json()["sessionId"])
        assert row.terms_version == VERSION
        assert await accepted_count(VERSION) == count
    assert await accepted_count("Rev-1") == 0


async def test_a_session_that_is_not_admitted_is_not_counted(
    client: httpx.AsyncClient, path: str
) -> None:
    await publish_terms(VERSION)
    await admit()
    await admit()
    answer = await create(client, path, VERSION)
    assert (answer.status_code, answer.json()["error"]) == (409, "too_many_sessions")
    assert await accepted_count(VERSION) == 0


async def test_new_terms_count_at_the_next_request(client: httpx.AsyncClient, path: str) -> None:
    assert (await create(client, path)).status_code == 201
    await publish_terms("Rev-1")
    assert (await create(client, path)).status_code == 428
    await publish_terms(VERSION)
    answer = await create(client, path, "Rev-1")
    assert (answer.status_code, answer.json()["terms"]["version"]) == (428, VERSION)
    assert (await create(client, path, VERSION)).status_code == 201
    await store.awrite(lambda: Terms.objects.update(is_current=False))
    assert (await create(client, path)).status_code in {201, 409}


async def test_what_runs_is_not_asked_again(client: httpx.AsyncClient) -> None:
    session_id = (await create(client, "/v1/sessions")).json()["sessionId"]
    await publish_terms(VERSION)
    assert (await client.get(f"/v1/sessions/{session_id}")).status_code == 200
    assert (await client.delete(f"/v1/sessions/{session_id}")).status_code == 204
    assert (await client.get("/v1/capabilities")).status_code == 200
    probed = await client.post("/v1/probe", json={"config": {"image": "x", "pullPolicy": "never"}})
    assert probed.json()["status"] == "needs-setup"


async def test_an_env_that_is_too_large_only_with_the_apps_own_is_told_after_the_terms(
    client: httpx.AsyncClient,
) -> None:
    await publish_terms(VERSION)
    # They leave less than this module's limit of a body.
    operators = {f"O{number}": "o" * 130_000 for number in range(8)} | {"LAST": "o" * 6000}
    await offer_app("large", env=operators)
    body = {"env": {f"C{number}": "c" * 100 for number in range(30)}}
    for accepted, code in (("", "terms_required"), (VERSION, "invalid_request")):
        answer = await client.post("/v1/apps/large/sessions", json=body, headers={HEADER: accepted})
        assert answer.json()["error"] == code
