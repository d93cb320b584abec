"""POST /v1/apps/{name}/sessions: what is accepted, what becomes of it, and what is refused."""

import asyncio
import logging
import re
import threading
import time
from typing import Any

import httpx
import pytest
from django.db import connection

from catalog.models import App as AppRow
from sessions import store
from sessions.models import Bundle, Session
from sessions.runtime import Runtime
from sessions.spec import STOPPED, App, Port, SessionSpec, Status, exited, failed
from sessions.states import Delivery, Mode, Protocol
from telorunner.values.pullpolicy import PullPolicy
from tests.builders import create_body, make_settings
from tests.looks import END_SECONDS
from tests.offered import APP_IMAGE, APP_NAME, offer_app
from tests.owners import admit, own
from tests.sessionrows import save_row

pytestmark = pytest.mark.usefixtures("transactional_db")

PATH = f"/v1/apps/{APP_NAME}/sessions"
MIB = 1_048_576


async def start(client: httpx.AsyncClient, **body: Any) -> str:
    answer = await client.post(PATH, json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["sessionId"])


async def row_of(session_id: str) -> Session:
    return await Session.objects.aget(id=session_id)


async def env_of(session_id: str) -> dict[str, str]:
    return store.open_env(bytes((await row_of(session_id)).env_sealed))


def until_somebody_waits() -> None:
    """Wait until PostgreSQL lets a transaction wait for another one's lock."""
    until = time.monotonic() + END_SECONDS
    waiting = 0
    while not waiting:
        assert time.monotonic() < until
        # Nothing else tells who waits.
        time.sleep(0.01)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            (waiting,) = cursor.fetchone()


async def test_a_session_is_registered_without_asking_the_cluster(
    client: httpx.AsyncClient,
) -> None:
    # The runtime of these tests has no cluster: asking it for anything would fail.
    await offer_app()
    answer = await client.post(PATH)
    assert answer.status_code == 201
    body = answer.json()
    assert set(body) == {"sessionId", "streamUrl", "createdAt"}
    assert re.fullmatch(r"[a-z2-7]{12}", body["sessionId"])
    assert body["streamUrl"] == f"/v1/sessions/{body['sessionId']}/events"


async def test_it_reads_like_a_run_session_with_one_app(client: httpx.AsyncClient) -> None:
    await offer_app()
    session_id = await start(client, ports=[{"port": 8080, "protocol": "tcp"}])
    document = (await client.get(f"/v1/sessions/{session_id}")).json()
    assert document.pop("createdAt")
    assert document == {
        "sessionId": session_id,
        "status": {"kind": "starting"},
        "mode": "run",
        "apps": [
            {
                "name": "app",
                "io": "tty",
                "generation": 0,
                "ports": [{"port": 8080, "protocol": "tcp"}],
            }
        ],
    }


async def test_the_owner_finds_what_the_operator_and_the_client_have_said(
    client: httpx.AsyncClient,
) -> None:
    app = await offer_app(
        env={"TOKEN": "operators"}, pull_policy=PullPolicy.ALWAYS, allow_root=True
    )
    ports = [{"port": 53, "protocol": "tcp"}, {"port": 53, "protocol": "udp"}]
    session_id = await start(client, env={"GREETING": "hi"}, ports=ports, inspect=True)
    owner = await own(session_id)
    loaded = await store.load(owner.engine_id, session_id)
    assert loaded is not None
    config = make_settings()
    assert loaded.spec == SessionSpec(
        session_id=session_id,
        mode=Mode.RUN,
        image=APP_IMAGE,
        pull_policy=PullPolicy.ALWAYS,
        apps=(App("app", "", (Port(53), Port(53, Protocol.UDP))),),
        limits=loaded.spec.limits,
        is_inspected=True,
        delivery=Delivery.NONE,
        app_name=APP_NAME,
        allow_root=True,
    )
    limits = loaded.spec.limits
    assert (limits.cpu_millis, limits.memory_bytes, limits.ttl_seconds) == (
        config.app_max_cpu_millis,
        config.app_max_memory_bytes,
        config.app_max_ttl_seconds,
    )
    assert limits.ephemeral_storage_bytes == config.app_max_ephemeral_storage_bytes
    assert loaded.env == {"GREETING": "hi", "TOKEN": "operators"}
    row = await row_of(session_id)
    assert (row.catalog_app_id, row.app_name, row.image) == (app.pk, APP_NAME, APP_IMAGE)
    assert row.terms_version == ""
    assert not await Bundle.objects.aexists()


async def test_the_ceilings_are_those_of_apps(client: httpx.AsyncClient, settings: Any) -> None:
    settings.RUNNER = make_settings(
        app_max_cpu_millis=1, app_max_memory_bytes=2, app_max_ephemeral_storage_bytes=3,
        app_max_ttl_seconds=4, max_cpu_millis=9, max_ttl_seconds=9,
    )  # fmt: skip
    await offer_app()
    row = await row_of(await start(client))
    assert row.spec["limits"] == {
        "cpuMillis": 1,
        "memoryBytes": 2,
        "ephemeralStorageBytes": 3,
        "ttlSeconds": 4,
    }


@pytest.mark.parametrize(
    ("operators", "clients", "expected"),
    [
        ({"A": "o"}, {"A": "c", "B": "c"}, {"A": "o", "B": "c"}),
        # An empty value is one that the operator has set.
        ({"A": ""}, {"A": "c"}, {"A": ""}),
        ({}, {"TELO_CACHE_DIR": "/x", "B": "c"}, {"B": "c"}),
        ({"TELO_CACHE_DIR": "/o"}, {"TELO_CACHE_DIR": "/x"}, {"TELO_CACHE_DIR": "/o"}),
        # Names differ by case.
        ({"A": "o"}, {"a": "c"}, {"A": "o", "a": "c"}),
    ],
)
async def test_the_operators_values_win(
    client: httpx.AsyncClient,
    operators: dict[str, str],
    clients: dict[str, str],
    expected: dict[str, str],
) -> None:
    await offer_app(env=operators)
    assert await env_of(await start(client, env=clients)) == expected


@pytest.mark.parametrize(
    ("operators", "clients", "expected"),
    [
        ({}, {}, "https://default.example"),
        ({}, {"TELO_REGISTRY_URL": "https://c.example"}, "https://c.example"),
        ({}, {"TELO_REGISTRY_URL": ""}, ""),
        (
            {"TELO_REGISTRY_URL": "https://app.example"},
            {"TELO_REGISTRY_URL": "https://c.example"},
            "https://app.example",
        ),
    ],
)
async def test_the_registry_is_the_apps_then_the_clients_then_the_default(
    client: httpx.AsyncClient,
    settings: Any,
    operators: dict[str, str],
    clients: dict[str, str],
    expected: str,
) -> None:
    settings.RUNNER = make_settings(telo_registry_url="https://default.example")
    await offer_app(env=operators)
    env = await env_of(await start(client, env=clients))
    assert env == {"TELO_REGISTRY_URL": expected}


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"content": b""},
        {"content": b"", "headers": {"content-type": "application/json"}},
        {"content": b"", "headers": {"content-type": "application/x-www-form-urlencoded"}},
        {"content": b"{}", "headers": {"content-type": "application/json"}},
    ],
)
async def test_the_body_may_be_left_out(
    client: httpx.AsyncClient, request_: dict[str, Any]
) -> None:
    await offer_app()
    assert (await client.post(PATH, **request_)).status_code == 201


@pytest.mark.parametrize(
    ("content", "content_type", "status", "code"),
    [
        (b"{}", "text/plain", 415, "unsupported_media_type"),
        (b"{}", None, 415, "unsupported_media_type"),
        (b" ", "application/json", 400, "invalid_json"),
        (b"{", "application/json", 400, "invalid_json"),
        (b"null", "application/json", 400, "invalid_request"),
        (b"[]", "application/json", 400, "invalid_request"),
    ],
)
async def test_a_body_that_is_there_must_be_a_json_object(
    client: httpx.AsyncClient, content: bytes, content_type: str | None, status: int, code: str
) -> None:
    await offer_app()
    headers = {"content-type": content_type} if content_type else {}
    answer = await client.post(PATH, content=content, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (status, code)
    assert not await Session.objects.aexists()


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        ({"bundle": {}}, "/bundle", "is no key of this object"),
        ({"config": {}}, "/config", "is no key of this object"),
        ({"limits": {}}, "/limits", "is no key of this object"),
        ({"image": "x"}, "/image", "is no key of this object"),
        ({"resourses": 1}, "/resourses", "is no key of this object"),
        ({"env": None}, "/env", "must be an object"),
        ({"env": {"A": 1}}, "/env/A", "A: must be a string"),
        ({"env": {"A": "\0"}}, "/env/A", "A: the value holds a NUL"),
        ({"inspect": 1}, "/inspect", "must be true or false"),
        ({"ports": [{"port": 0, "protocol": "tcp"}]}, "/ports/0/port", "must be at least 1"),
        (
            {"ports": [{"port": 1, "protocol": "tcp"}] * 2},
            "/ports/1",
            "1/tcp is declared twice",
        ),
        (
            {"env": {"A": "x" * 131_072}},
            "/env/A",
            "A: name and value together must be under 128 KiB",
        ),
    ],
)
async def test_the_body_is_strict(
    client: httpx.AsyncClient, body: dict[str, Any], path: str, message: str
) -> None:
    await offer_app()
    answer = await client.post(PATH, json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert answer.json()["issues"] == [{"path": path, "message": message}]


async def test_an_app_of_the_other_endpoint_is_refused(client: httpx.AsyncClient) -> None:
    await offer_app()
    answer = await client.post("/v1/sessions", json=create_body(app=APP_NAME))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert answer.json()["issues"] == [{"path": "/app", "message": "is no key of this object"}]


@pytest.mark.parametrize("name", ["nope", "CODE-HELPER", "code-helper%20", "é", "*"])
async def test_an_unknown_app_is_404_and_the_others_are_listed(
    client: httpx.AsyncClient, name: str
) -> None:
    await offer_app(position=2)
    await offer_app("first", position=1)
    await offer_app("off", enabled=False)
    for asked in (name, "off"):
        answer = await client.post(f"/v1/apps/{asked}/sessions")
        assert (answer.status_code, answer.json()) == (
            404,
            {
                "error": "unknown_app",
                "message": "The catalog has no such app. Offered: first, code-helper.",
            },
        )
    assert not await Session.objects.aexists()


async def test_with_an_empty_catalog_none_is_offered(client: httpx.AsyncClient) -> None:
    answer = await client.post(PATH)
    assert answer.status_code == 404
    assert answer.json()["message"] == "The catalog has no such app. None is offered."


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_other_methods_are_405(client: httpx.AsyncClient, method: str) -> None:
    answer = await client.request(method, PATH)
    assert (answer.status_code, answer.json()["error"]) == (405, "method_not_allowed")
    assert "POST" in answer.headers["allow"]


async def test_a_disabled_app_is_unknown_at_the_next_request_and_its_sessions_stay(
    client: httpx.AsyncClient,
) -> None:
    app = await offer_app()
    session_id = await start(client)
    await store.awrite(lambda: AppRow.objects.filter(id=app.pk).update(enabled=False))
    assert (await client.post(PATH)).status_code == 404
    assert (await client.get(f"/v1/sessions/{session_id}")).status_code == 200
    await store.awrite(lambda: AppRow.objects.filter(id=app.pk).update(enabled=True))
    assert (await client.post(PATH)).status_code == 201


async def test_what_another_process_disabled_since_the_last_look_is_refused_all_the_same(
    client: httpx.AsyncClient,
) -> None:
    app = await offer_app()
    await start(client)

    def elsewhere() -> None:
        """Change the row without what makes this process read the catalog anew."""
        from django.db.models import QuerySet

        QuerySet(AppRow).filter(id=app.pk).update(enabled=False)

    await store.awrite(elsewhere)
    answer = await client.post(PATH)
    assert (answer.status_code, answer.json()["error"]) == (404, "unknown_app")
    assert answer.json()["message"] == "The catalog has no such app. None is offered."
    assert await Session.objects.acount() == 1


async def test_deleting_an_app_leaves_its_sessions_whole(client: httpx.AsyncClient) -> None:
    app = await offer_app(env={"A": "1"})
    session_id = await start(client)
    owner = await own(session_id)
    before = (await client.get(f"/v1/sessions/{session_id}")).json()
    await store.awrite(lambda: AppRow.objects.get(id=app.pk).delete())
    assert (await client.get(f"/v1/sessions/{session_id}")).json() == before
    row = await row_of(session_id)
    assert (row.catalog_app_id, row.app_name) == (None, APP_NAME)
    loaded = await store.load(owner.engine_id, session_id)
    assert loaded is not None
    assert loaded.spec.app_name == APP_NAME
    assert loaded.env == {"A": "1"}


async def test_what_is_changed_later_does_not_reach_a_session(client: httpx.AsyncClient) -> None:
    app = await offer_app(env={"A": "1"})
    session_id = await start(client)
    await store.awrite(lambda: AppRow.objects.filter(id=app.pk).update(image="other:1", env={}))
    assert (await row_of(session_id)).spec["image"] == APP_IMAGE
    assert await env_of(session_id) == {"A": "1"}
    assert (await row_of(await start(client))).spec["image"] == "other:1"


@pytest.mark.skipif(connection.vendor != "postgresql", reason="elsewhere writers take turns")
async def test_a_create_waits_for_a_deletion_of_its_app_and_is_refused(
    client: httpx.AsyncClient, settings: Any
) -> None:
    settings.RUNNER = make_settings(max_sessions=1)
    app = await offer_app()
    # What the create evicts refers to the app, so that both want rows of the other's.
    ended = await store.awrite(save_row, "exited", catalog_app=app, app_name=APP_NAME)

    has_locked, may_go_on = threading.Event(), threading.Event()

    def delete() -> None:
        """Delete the app in the action's order, and wait in between."""
        row = AppRow.objects.select_for_update().get(id=app.pk)
        has_locked.set()
        assert may_go_on.wait(END_SECONDS)
        row.delete()

    async with asyncio.timeout(END_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(store.awrite(delete))
        assert await asyncio.to_thread(has_locked.wait, END_SECONDS)
        creation = group.create_task(client.post(PATH))
        try:
            await store.aread(until_somebody_waits)
        finally:
            may_go_on.set()
    answer = creation.result()
    assert (answer.status_code, answer.json()["error"]) == (404, "unknown_app")
    row = await row_of(ended.pk)
    assert (row.catalog_app_id, row.evicted_at) == (None, None)
    assert await Session.objects.acount() == 1


@pytest.mark.parametrize("status", [exited(0), failed("because"), STOPPED])
async def test_an_ended_session_has_the_apps_name_and_refers_to_it_no_more(
    client: httpx.AsyncClient, status: Status
) -> None:
    app = await offer_app()
    session_id = await start(client)
    owner = await own(session_id)
    await owner.run()
    assert (await row_of(session_id)).catalog_app_id == app.pk
    await owner.become(status)
    row = await row_of(session_id)
    assert (row.status, row.catalog_app_id, row.app_name) == (status.kind, None, APP_NAME)


async def test_a_session_that_cannot_be_supervised_refers_to_its_app_no_more(
    client: httpx.AsyncClient,
) -> None:
    await offer_app()
    session_id = await start(client)
    owner = await own(session_id)
    assert await store.fail(owner.engine_id, session_id, "it broke")
    row = await row_of(session_id)
    assert (row.catalog_app_id, row.app_name) == (None, APP_NAME)


async def test_a_full_runner_refuses_an_app_too(client: httpx.AsyncClient, settings: Any) -> None:
    settings.RUNNER = make_settings(max_sessions=1)
    await offer_app()
    await admit()
    answer = await client.post(PATH)
    assert (answer.status_code, answer.json()["error"]) == (409, "too_many_sessions")


async def test_nothing_is_created_while_the_process_goes_down(
    client: httpx.AsyncClient, running: Runtime
) -> None:
    await offer_app()
    running.stopping.set()
    answer = await client.post(PATH)
    assert (answer.status_code, answer.json()["error"]) == (503, "stopping")


async def test_an_env_that_no_key_opens_starts_nothing_and_names_the_app_in_the_log(
    client: httpx.AsyncClient, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await offer_app(env={"TOKEN": "needle"})
    settings.SECRET_KEY = "another"
    settings.SECRET_KEY_FALLBACKS = []
    with caplog.at_level(logging.ERROR):
        answer = await client.post(PATH)
    assert (answer.status_code, answer.json()) == (
        500,
        {
            "error": "internal_error",
            "message": "The app's variables cannot be opened; the operator must set them again.",
        },
    )
    assert f"The variables of the app {APP_NAME} cannot be opened" in caplog.text
    assert "needle" not in caplog.text
    assert not await Session.objects.aexists()


async def test_a_fallback_key_still_opens_it(client: httpx.AsyncClient, settings: Any) -> None:
    await offer_app(env={"TOKEN": "value"})
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another"
    assert await env_of(await start(client)) == {"TOKEN": "value"}


class TestSize:
    """The operator's variables and the client's have to fit into one pod."""

    OPERATORS = {f"O{number}": "o" * 100_000 for number in range(6)}

    async def test_both_together_are_too_large(self, client: httpx.AsyncClient) -> None:
        await offer_app(env=self.OPERATORS)
        clients = {f"C{number}": "c" * 100_000 for number in range(5)} | {"BIG": "c" * 110_000}
        assert sum(map(len, clients.values())) < MIB
        answer = await client.post(PATH, json={"env": clients})
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
        assert answer.json()["issues"] == [
            {
                "path": "/env",
                "message": "too large together with the app's own variables; BIG is the largest",
            }
        ]
        assert not await Session.objects.aexists()

    async def test_what_the_operator_overrides_does_not_count(
        self, client: httpx.AsyncClient
    ) -> None:
        await offer_app(env=self.OPERATORS)
        same = dict.fromkeys(self.OPERATORS, "c" * 110000)
        assert await env_of(await start(client, env=same)) == self.OPERATORS

    async def test_what_only_grows_in_the_manifest_counts_too(
        self, client: httpx.AsyncClient
    ) -> None:
        await offer_app(env={f"O{number}": "$(" * 50_000 for number in range(8)})
        answer = await client.post(PATH, json={"env": {"C": "$(" * 40_000, "D": "$(" * 45_000}})
        assert answer.json()["issues"][0]["message"].endswith("D is the largest")

    async def test_too_much_of_the_operators_own_is_no_fault_of_the_client(
        self, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        await offer_app(env={f"O{number}": "o" * 130_000 for number in range(9)})
        answer = await client.post(PATH, json={"env": {"A": "1"}})
        assert (answer.status_code, answer.json()["error"]) == (500, "internal_error")
        assert APP_NAME in caplog.text
        assert not await Session.objects.aexists()
