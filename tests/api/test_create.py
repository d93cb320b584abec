"""POST /v1/sessions: what is accepted, and what becomes of it."""

import re

import httpx
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from catalog import cache
from catalog.models import Revision
from sessions import store
from sessions.actions.create import create
from sessions.models import Session
from sessions.requests import parse_create
from sessions.runtime import Runtime
from tests.builders import create_body, make_bundle, make_settings
from tests.owners import own

pytestmark = pytest.mark.usefixtures("transactional_db")


async def stored_env(session_id: str) -> dict[str, str]:
    row = await Session.objects.aget(id=session_id)
    return store.open_env(bytes(row.env_sealed))


async def test_a_session_is_registered_without_asking_the_cluster(
    client: httpx.AsyncClient, running: Runtime
) -> None:
    # The runtime of these tests has no cluster: asking it for anything would fail.
    answer = await client.post("/v1/sessions", json=create_body())
    assert answer.status_code == 201
    body = answer.json()
    assert set(body) == {"sessionId", "streamUrl", "createdAt"}
    assert re.fullmatch(r"[a-z2-7]{12}", body["sessionId"])
    assert body["streamUrl"] == f"/v1/sessions/{body['sessionId']}/events"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", body["createdAt"])


async def test_creating_wakes_the_engines(client: httpx.AsyncClient, running: Runtime) -> None:
    wakes = running.bus.wakes()
    first = anext(wakes)
    # The listener registers at its first step, which the request's first await lets happen.
    import asyncio

    async with asyncio.TaskGroup() as group:
        woken = group.create_task(_next(first))
        answer = await client.post("/v1/sessions", json=create_body())
    assert woken.result() == answer.json()["sessionId"]
    await wakes.aclose()  # type: ignore[attr-defined] # it is an async generator


async def _next(awaitable: object) -> object:
    return await awaitable  # type: ignore[misc]


async def test_the_owner_finds_everything_that_was_asked_for(client: httpx.AsyncClient) -> None:
    body = create_body(
        bundle=make_bundle({"/a/./main.yaml": "x: é\r\n", "b.bin": b"\0\xff"}, entry="a/main.yaml"),
        env={"GREETING": "hi"},
        ports=[{"port": 53, "protocol": "tcp"}, {"port": 53, "protocol": "udp"}],
        inspect=True,
        limits={"cpu": "0.25", "memory": "100Mi", "ephemeralStorage": "1e8", "ttlSeconds": 60},
    )
    answer = await client.post("/v1/sessions", json=body)
    assert answer.status_code == 201
    session_id = answer.json()["sessionId"]
    owner = await own(session_id)
    loaded = await store.load(owner.engine_id, session_id)
    assert loaded is not None
    spec = loaded.spec
    assert (spec.apps[0].name, spec.apps[0].entry) == ("app", "a/main.yaml")
    assert [port.to_json() for port in spec.apps[0].ports] == body["ports"]
    assert spec.is_inspected
    limits = spec.limits
    assert (limits.cpu_millis, limits.memory_bytes) == (250, 100 * 2**20)
    assert (limits.ephemeral_storage_bytes, limits.ttl_seconds) == (100_000_000, 60)
    assert loaded.env == {"GREETING": "hi"}


async def test_limits_are_cut_to_the_ceilings(client: httpx.AsyncClient) -> None:
    limits = {"cpu": "64", "memory": "1Ti", "ephemeralStorage": "1Ti", "ttlSeconds": 10**10}
    answer = await client.post("/v1/sessions", json=create_body(limits=limits))
    row = await Session.objects.aget(id=answer.json()["sessionId"])
    config = make_settings()
    assert row.spec["limits"] == {
        "cpuMillis": config.max_cpu_millis,
        "memoryBytes": config.max_memory_bytes,
        "ephemeralStorageBytes": config.max_ephemeral_storage_bytes,
        "ttlSeconds": config.max_ttl_seconds,
    }


async def test_one_declared_app_has_its_own_name_entry_ports_and_io(
    client: httpx.AsyncClient,
) -> None:
    apps = [
        {
            "name": "web",
            "entryRelativePath": "./telo.yaml",
            "ports": [{"port": 8080, "protocol": "tcp"}],
            "io": "streams",
        }
    ]
    answer = await client.post("/v1/sessions", json=create_body(apps=apps))
    document = (await client.get(f"/v1/sessions/{answer.json()['sessionId']}")).json()
    assert document["apps"] == [
        {
            "name": "web",
            "io": "streams",
            "generation": 0,
            "ports": [{"port": 8080, "protocol": "tcp"}],
        }
    ]


@pytest.mark.parametrize(
    ("env", "registry_url", "expected"),
    [
        ({}, None, "https://operator.example"),
        ({}, "  https://client.example ", "https://client.example"),
        ({}, "   ", "https://operator.example"),
        ({"TELO_REGISTRY_URL": "https://env.example"}, "https://c.example", "https://env.example"),
        # Explicitly none is explicit too.
        ({"TELO_REGISTRY_URL": ""}, "https://c.example", ""),
    ],
)
async def test_the_registry_is_the_clients_env_then_its_config_then_the_operators(
    client: httpx.AsyncClient,
    settings: object,
    env: dict[str, str],
    registry_url: str | None,
    expected: str,
) -> None:
    settings.RUNNER = make_settings(telo_registry_url="https://operator.example")  # type: ignore[attr-defined] # pytest-django's wrapper
    body = create_body(env=env)
    if registry_url is not None:
        body["config"]["registryUrl"] = registry_url
    answer = await client.post("/v1/sessions", json=body)
    assert await stored_env(answer.json()["sessionId"]) == {"TELO_REGISTRY_URL": expected}


async def test_a_clients_cache_folder_is_dropped(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/v1/sessions", json=create_body(env={"TELO_CACHE_DIR": "/x", "A": "1"})
    )
    assert await stored_env(answer.json()["sessionId"]) == {"A": "1"}


async def test_env_is_sealed_in_the_row(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/sessions", json=create_body(env={"TOKEN": "s3cret-value"}))
    row = await Session.objects.aget(id=answer.json()["sessionId"])
    assert b"s3cret-value" not in bytes(row.env_sealed)
    assert "s3cret-value" not in str(row.spec)


async def test_unknown_keys_of_config_are_ignored(client: httpx.AsyncClient) -> None:
    body = create_body()
    body["config"]["leftOver"] = {"from": ["a", "form"]}
    assert (await client.post("/v1/sessions", json=body)).status_code == 201


async def test_any_spelling_of_the_default_image_is_it(client: httpx.AsyncClient) -> None:
    body = create_body()
    body["config"]["image"] = "docker.io/telorun/node:latest-slim"
    answer = await client.post("/v1/sessions", json=body)
    row = await Session.objects.aget(id=answer.json()["sessionId"])
    assert row.image == "telorun/node:latest-slim"


async def test_nothing_is_created_while_the_process_goes_down(
    client: httpx.AsyncClient, running: Runtime
) -> None:
    running.stopping.set()
    answer = await client.post("/v1/sessions", json=create_body())
    assert (answer.status_code, answer.json()["error"]) == (503, "stopping")
    assert not await Session.objects.aexists()


async def test_what_is_offered_is_looked_at_once(
    running: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each look is too old for whoever comes next.
    monkeypatch.setattr(cache, "LOOK_SECONDS", 0.0)
    wanted = parse_create(create_body())

    def looks() -> int:
        with CaptureQueriesContext(connection) as asked:
            create(wanted, running.config)
        return sum(Revision._meta.db_table in one["sql"] for one in asked.captured_queries)

    assert await store.aread(looks) == 1
