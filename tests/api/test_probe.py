"""POST /v1/probe: ready, needs-setup or unavailable, inside 3 s whatever the cluster does.

Nor does it take longer whatever the database does.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.db import OperationalError

from catalog import cache
from catalog.models import BaseImage
from sessions.runtime import Runtime
from telorunner.conf import Settings
from telorunner.database.access import awrite
from tests.builders import IMAGE, make_settings
from tests.fakes import NAMESPACE, FakeApi, Handler, cut, hang, open_fake_cluster, refuse
from tests.looks import END_SECONDS, Held, ask_here, until_waiting

pytestmark = pytest.mark.usefixtures("transactional_db")

CONFIG = {"image": IMAGE, "pullPolicy": "missing"}
# What clients are promised.
PATIENCE_SECONDS = 3.0
CROWD = 10


@pytest.fixture
async def api(running: Runtime, tmp_path: Path) -> AsyncIterator[FakeApi]:
    """A cluster that answers, with the session namespace in it."""
    async with open_fake_cluster(tmp_path) as (api, cluster):
        running.cluster = cluster
        api.put(NAMESPACE, "namespaces")
        yield api


async def probe(client: httpx.AsyncClient, **config: Any) -> dict[str, Any]:
    answer = await client.post("/v1/probe", json={"config": {**CONFIG, **config}})
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


async def test_a_cluster_with_everything_is_ready(api: FakeApi, client: httpx.AsyncClient) -> None:
    assert await probe(client, leftOver=1) == {"status": "ready"}


async def test_a_missing_namespace_needs_setup(api: FakeApi, client: httpx.AsyncClient) -> None:
    api.remove(NAMESPACE, "namespaces")
    body = await probe(client)
    assert body["status"] == "needs-setup"
    assert [issue["path"] for issue in body["issues"]] == ["/namespace"]
    assert NAMESPACE in body["issues"][0]["message"]


class TestEverySetting:
    """A pull secret and a runtime class that the operator has named."""

    @pytest.fixture
    def config(self) -> Settings:
        return make_settings(image_pull_secret="pull", runtime_class="gvisor")

    async def test_what_is_there_is_ready(self, api: FakeApi, client: httpx.AsyncClient) -> None:
        api.put("pull", "secrets")
        api.put("gvisor", "runtimeclasses")
        assert await probe(client) == {"status": "ready"}

    async def test_all_that_is_missing_is_named(
        self, api: FakeApi, client: httpx.AsyncClient
    ) -> None:
        api.remove(NAMESPACE, "namespaces")
        assert await probe(client) == {
            "status": "needs-setup",
            "issues": [
                {"path": "/namespace", "message": f'The namespace "{NAMESPACE}" does not exist.'},
                {
                    "path": "/imagePullSecret",
                    "message": 'The image pull secret "pull" does not exist.',
                },
                {"path": "/runtimeClass", "message": 'The runtime class "gvisor" does not exist.'},
            ],
        }

    async def test_what_the_runner_may_not_read_is_no_issue(
        self, api: FakeApi, client: httpx.AsyncClient
    ) -> None:
        api.script("get", *[refuse(403, "Forbidden")] * 3)
        assert await probe(client) == {"status": "ready"}

    @pytest.mark.parametrize("answered", [0, 1, 2])
    @pytest.mark.parametrize("trouble", [refuse(401, "Unauthorized"), refuse(500), cut])
    async def test_trouble_at_any_question_is_unavailable(
        self, api: FakeApi, client: httpx.AsyncClient, answered: int, trouble: Handler
    ) -> None:
        fine = [refuse(403, "Forbidden")] * answered
        api.script("get", *fine, *[trouble] * 10)
        body = await probe(client)
        assert set(body) == {"status", "message", "remediation"}
        assert body["status"] == "unavailable"

    async def test_a_cluster_that_hangs_at_the_last_question_is_unavailable_in_time(
        self, api: FakeApi, client: httpx.AsyncClient
    ) -> None:
        api.script("get", *[refuse(403, "Forbidden")] * 2, hang)
        began = time.monotonic()
        assert (await probe(client))["status"] == "unavailable"
        assert time.monotonic() - began < PATIENCE_SECONDS


async def test_an_image_that_is_not_offered_needs_setup_before_the_cluster_is_asked(
    api: FakeApi, client: httpx.AsyncClient
) -> None:
    body = await probe(client, image="busybox")
    assert body["status"] == "needs-setup"
    assert [issue["path"] for issue in body["issues"]] == ["/config/image"]
    assert IMAGE in body["issues"][0]["message"]
    assert not api.requests


async def test_an_operators_image_is_ready_from_the_next_probe_on(
    api: FakeApi, client: httpx.AsyncClient
) -> None:
    assert (await probe(client, image="own.example/a:1"))["status"] == "needs-setup"
    await awrite(BaseImage.objects.create, reference="own.example/a:1")
    assert await probe(client, image="own.example/a:1") == {"status": "ready"}
    # The same image in other words, and one whose name only begins like it.
    assert (await probe(client, image="own.example/a:latest"))["status"] == "needs-setup"
    assert await probe(client, image="docker.io/telorun/node:latest-slim") == {"status": "ready"}


def assert_unavailable(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0


async def test_a_database_that_hangs_is_unavailable_in_time(
    api: FakeApi, client: httpx.AsyncClient, config: Settings
) -> None:
    held = Held()
    with ThreadPoolExecutor(1) as thread:
        looking = thread.submit(ask_here, lambda: cache.current_offer(config), held)
        try:
            assert await asyncio.to_thread(held.begun.wait, END_SECONDS)
            began = time.monotonic()
            async with asyncio.TaskGroup() as group:
                asked = [
                    group.create_task(client.post("/v1/probe", json={"config": CONFIG}))
                    for _ in range(CROWD)
                ]
            # However many ask.
            assert time.monotonic() - began < PATIENCE_SECONDS
        finally:
            held.may_end.set()
        looking.result(END_SECONDS)
    for one in asked:
        assert_unavailable(one.result())
    assert not api.requests
    assert await probe(client) == {"status": "ready"}


async def test_a_database_that_is_away_is_unavailable(
    api: FakeApi, client: httpx.AsyncClient, config: Settings
) -> None:
    held = Held(failure=OperationalError("away"))
    with ThreadPoolExecutor(1) as thread:
        looking = thread.submit(ask_here, lambda: cache.current_offer(config), held)
        try:
            assert await asyncio.to_thread(held.begun.wait, END_SECONDS)
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(client.post("/v1/probe", json={"config": CONFIG}))
                await asyncio.to_thread(until_waiting, 1)
                held.may_end.set()
        finally:
            held.may_end.set()
        assert looking.exception(END_SECONDS) is not None
    assert_unavailable(asked.result())


async def test_a_cluster_that_hangs_up_is_unavailable(
    api: FakeApi, client: httpx.AsyncClient
) -> None:
    api.script("get", *[cut] * 10)
    body = await probe(client)
    assert body["status"] == "unavailable"
    assert body["message"]
    assert body["remediation"]


async def test_a_cluster_that_refuses_the_credentials_is_unavailable(
    api: FakeApi, client: httpx.AsyncClient
) -> None:
    api.script("get", *[refuse(401, "Unauthorized")] * 10)
    assert (await probe(client))["status"] == "unavailable"


async def test_a_cluster_that_never_answers_is_unavailable_in_time(
    api: FakeApi, client: httpx.AsyncClient
) -> None:
    api.script("get", hang)
    began = time.monotonic()
    assert (await probe(client))["status"] == "unavailable"
    assert time.monotonic() - began < PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "/config"),
        ({"config": {}}, "/config/image"),
        ({"config": CONFIG, "extra": 1}, "/extra"),
        ({"config": {"image": "", "pullPolicy": "missing"}}, "/config/image"),
        ({"config": {**CONFIG, "pullPolicy": "IfNotPresent"}}, "/config/pullPolicy"),
    ],
)
async def test_a_probe_of_the_wrong_shape_is_refused(
    client: httpx.AsyncClient, body: dict[str, Any], path: str
) -> None:
    answer = await client.post("/v1/probe", json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert answer.json()["issues"][0]["path"] == path
