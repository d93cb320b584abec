"""POST /v1/sessions: what is refused, with which code, and in which order."""

import json
from typing import Any

import httpx
import orjson
import pytest

from sessions import bundles, store
from sessions.models import Session
from sessions.spec import Status, exited
from sessions.states import StatusKind
from tests.builders import IMAGE, create_body, make_bundle, make_settings
from tests.owners import own

pytestmark = pytest.mark.usefixtures("transactional_db")


async def refusal(client: httpx.AsyncClient, **overrides: Any) -> tuple[int, str, dict[str, Any]]:
    answer = await client.post("/v1/sessions", json=create_body(**overrides))
    body = answer.json()
    assert not await Session.objects.aexists()
    return answer.status_code, body["error"], body


@pytest.mark.parametrize(
    ("content", "content_type", "status", "error"),
    [
        (b"{}", "text/plain", 415, "unsupported_media_type"),
        (b"{", "text/plain", 415, "unsupported_media_type"),
        (b"{", "application/json", 400, "invalid_json"),
        (b"\xff", "application/json", 400, "invalid_json"),
        (b"[" * 100_000, "application/json", 400, "invalid_json"),
        (b"", "application/json", 400, "invalid_json"),
        (b"[]", "application/json", 400, "invalid_request"),
        (b"null", "application/json", 400, "invalid_request"),
        (b"{}", "application/json", 400, "invalid_request"),
    ],
)
async def test_what_is_no_object_in_json_is_refused_first(
    client: httpx.AsyncClient, content: bytes, content_type: str, status: int, error: str
) -> None:
    answer = await client.post(
        "/v1/sessions", content=content, headers={"content-type": content_type}
    )
    assert (answer.status_code, answer.json()["error"]) == (status, error)


async def test_a_body_that_is_no_object_is_named_by_the_empty_pointer(
    client: httpx.AsyncClient,
) -> None:
    for body in ([], None):
        answer = await client.post("/v1/sessions", json=body)
        if body is None:
            answer = await client.post(
                "/v1/sessions", content=b"null", headers={"content-type": "application/json"}
            )
        assert answer.json()["issues"] == [{"path": "", "message": "must be an object"}]


async def test_half_a_surrogate_pair_is_refused_where_it_is(client: httpx.AsyncClient) -> None:
    json_type = {"content-type": "application/json"}
    body = orjson.dumps(create_body(env={"A": "PLACE"})).replace(b"PLACE", b"\\ud800")
    answer = await client.post("/v1/sessions", content=body, headers=json_type)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert [issue["path"] for issue in answer.json()["issues"]] == ["/env/A"]
    for broken in (body[:-1], body.replace(b'"run"', b"NaN") + b"x", b'["\\ud800", NaN]'):
        answer = await client.post("/v1/sessions", content=broken, headers=json_type)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_json")


async def test_emoji_are_taken_byte_for_byte(client: httpx.AsyncClient) -> None:
    body = create_body(
        bundle=make_bundle({"telo.yaml": "😀", "😀.yaml": ""}), env={"A": "\U0001f600"}
    )
    answer = await client.post(
        "/v1/sessions",
        content=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 201
    row = await Session.objects.aget(id=answer.json()["sessionId"])
    assert store.open_env(bytes(row.env_sealed)) == {"A": "😀"}


async def test_another_method_is_refused_with_what_is_allowed(client: httpx.AsyncClient) -> None:
    answer = await client.put("/v1/sessions", content=b"{", headers={"content-type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "POST, OPTIONS"


@pytest.mark.parametrize("bundle", [
    make_bundle({}),
    make_bundle({"Telo.yaml": ""}),
    make_bundle({"telo.yaml/main.yaml": ""}),
    make_bundle({"../telo.yaml": ""}),
    make_bundle({"telo.yaml": "", "./telo.yaml": ""}),
    make_bundle({"telo.yaml": "", "telo.yaml/x": ""}),
])  # fmt: skip
async def test_a_bundle_that_cannot_be_used_is_refused(
    client: httpx.AsyncClient, bundle: dict[str, Any]
) -> None:
    assert (await refusal(client, bundle=bundle))[:2] == (400, "invalid_bundle")


async def test_an_image_that_is_not_offered_is_refused_with_the_list(
    client: httpx.AsyncClient,
) -> None:
    for image in ("busybox", "telorun/node", "telorun/node:latest-slim@sha256:0", "not an image"):
        config = {"image": image, "pullPolicy": "missing"}
        status, error, body = await refusal(client, config=config)
        assert (status, error) == (400, "invalid_config")
        assert IMAGE in body["message"]


async def test_config_of_the_wrong_types_is_no_request(client: httpx.AsyncClient) -> None:
    config = {"image": 42, "pullPolicy": "sometimes"}
    status, error, body = await refusal(client, config=config)
    assert (status, error) == (400, "invalid_request")
    assert {issue["path"] for issue in body["issues"]} == {"/config/image", "/config/pullPolicy"}


async def test_refusals_come_in_the_contracts_order(client: httpx.AsyncClient) -> None:
    """Each step repairs what the last answer named; the codes must come in this order."""
    app = {"name": "Bad Name", "entryRelativePath": "telo.yaml"}
    overrides: dict[str, Any] = {
        "bundle": make_bundle(entry="missing.yaml"),
        "config": {"image": "busybox", "pullPolicy": "missing"},
        "mode": "watch",
        "agent": "helper",
        "apps": [app],
        "inspect": "yes",
    }
    repairs: list[tuple[str, dict[str, Any]]] = [
        ("invalid_request", {"inspect": True}),
        ("invalid_bundle", {"bundle": make_bundle()}),
        ("invalid_config", {"config": {"image": IMAGE, "pullPolicy": "missing"}}),
        ("watch_disabled", {"mode": "run"}),
        ("agent_requires_watch", {"agent": None}),
        ("invalid_app_name", {"apps": [{**app, "name": "agent"}]}),
        ("reserved_app_name", {"apps": [{**app, "name": "web"}]}),
    ]
    for expected, repair in repairs:
        status, error, _ = await refusal(client, **overrides)
        assert (status, error) == (400, expected)
        overrides |= repair
        overrides = {key: value for key, value in overrides.items() if value is not None}
    answer = await client.post("/v1/sessions", json=create_body(**overrides))
    assert answer.status_code == 201


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a" * 60, "é", "a\0"])
async def test_an_app_name_must_fit_a_container(client: httpx.AsyncClient, name: str) -> None:
    apps = [{"name": name, "entryRelativePath": "telo.yaml"}]
    assert (await refusal(client, apps=apps))[:2] == (400, "invalid_app_name")


async def test_an_app_name_of_59_characters_fits(client: httpx.AsyncClient) -> None:
    apps = [{"name": "a" * 59, "entryRelativePath": "telo.yaml"}]
    answer = await client.post("/v1/sessions", json=create_body(apps=apps))
    assert answer.status_code == 201


async def test_a_run_session_has_one_app(client: httpx.AsyncClient) -> None:
    app = {"name": "web", "entryRelativePath": "telo.yaml"}
    for apps in ([], [app, {**app, "name": "api"}]):
        status, error, body = await refusal(client, apps=apps)
        assert (status, error, body["issues"][0]["path"]) == (400, "invalid_request", "/apps")


async def test_an_apps_entry_must_be_in_the_bundle(client: httpx.AsyncClient) -> None:
    apps = [{"name": "web", "entryRelativePath": "other.yaml"}]
    status, error, body = await refusal(client, apps=apps)
    assert (status, error) == (400, "invalid_bundle")
    assert "/apps/0/entryRelativePath" in body["message"]


async def test_a_bundle_that_does_not_fit_inline_is_refused_with_the_limit(
    client: httpx.AsyncClient, settings: Any
) -> None:
    import random

    settings.RUNNER = make_settings(bundle_delivery="inline")
    noise = random.Random(1).randbytes(bundles.INLINE_MAX_BYTES + 1)
    status, error, body = await refusal(
        client, bundle=make_bundle({"telo.yaml": "", "noise.bin": noise})
    )
    assert (status, error) == (413, "bundle_too_large")
    assert "716,800" in body["message"]


async def test_a_body_over_the_limit_is_refused(client: httpx.AsyncClient, settings: Any) -> None:
    settings.RUNNER = make_settings(max_bundle_bytes=2000)
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 2001
    status, error, _ = await refusal(client, bundle=make_bundle({"telo.yaml": "x" * 2000}))
    assert (status, error) == (413, "bundle_too_large")


class TestCapacity:
    async def test_live_sessions_are_never_evicted(
        self, client: httpx.AsyncClient, settings: Any
    ) -> None:
        settings.RUNNER = make_settings(max_sessions=2)
        ids = [(await client.post("/v1/sessions", json=create_body())).json()["sessionId"]]
        ids += [(await client.post("/v1/sessions", json=create_body())).json()["sessionId"]]
        answer = await client.post("/v1/sessions", json=create_body())
        assert (answer.status_code, answer.json()["error"]) == (409, "too_many_sessions")
        for session_id in ids:
            assert (await client.get(f"/v1/sessions/{session_id}")).status_code == 200

    async def test_the_session_that_ended_first_makes_room(
        self, client: httpx.AsyncClient, settings: Any
    ) -> None:
        settings.RUNNER = make_settings(max_sessions=2)
        ids = [(await client.post("/v1/sessions", json=create_body())).json()["sessionId"]]
        ids += [(await client.post("/v1/sessions", json=create_body())).json()["sessionId"]]
        # The second one ends first, so it is what goes first.
        for session_id in reversed(ids):
            owner = await own(session_id)
            await owner.become(Status(StatusKind.RUNNING))
            await owner.become(exited(0))
        assert (await client.post("/v1/sessions", json=create_body())).status_code == 201
        assert (await client.get(f"/v1/sessions/{ids[1]}")).status_code == 404
        assert (await client.get(f"/v1/sessions/{ids[0]}")).status_code == 200


@pytest.mark.parametrize("is_offering", [True, False])
async def test_config_is_checked_whether_images_are_offered_or_locked(
    client: httpx.AsyncClient, settings: Any, is_offering: bool
) -> None:
    settings.RUNNER = make_settings(base_image_catalog_enabled=is_offering)
    config = {"image": 42, "pullPolicy": "sometimes"}
    status, error, body = await refusal(client, config=config)
    assert (status, error) == (400, "invalid_request")
    assert [issue["path"] for issue in body["issues"]] == ["/config/image", "/config/pullPolicy"]
