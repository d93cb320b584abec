"""Watches over real HTTPS, and what the controllers make of changes."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.cluster.localcluster_harness import (
    NAMESPACE,
    WAIT_SECONDS,
    Api,
    make_configmap,
    make_pod,
    open_api,
)

CONFIGMAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with open_api(tmp_path) as api:
        await api.make_namespace()
        yield api


class Watch:
    """The lines of a watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> tuple[str, dict[str, Any]]:
        async with asyncio.timeout(WAIT_SECONDS):
            line = await self.response.content.readline()
        assert line, "the watch has ended"
        event = orjson.loads(line)
        return event["type"], event["object"]

    async def next_name(self) -> tuple[str, str]:
        type_, obj = await self.next()
        return type_, obj["metadata"]["name"]


@asynccontextmanager
async def open_watch(api: Api, path: str, **query: str) -> AsyncIterator[Watch]:
    async with api.session.get(path, params={"watch": "1", **query}) as response:
        assert response.status == 200, await response.text()
        yield Watch(response)


async def test_an_event_arrives_within_milliseconds(api: Api) -> None:
    version = str(api.cluster.store.revision)
    async with open_watch(api, CONFIGMAPS, resourceVersion=version) as watch:
        spent = []
        for number in range(20):
            began = time.perf_counter()
            await api.call("POST", CONFIGMAPS, make_configmap(f"n{number}"))
            await watch.next()
            spent.append(time.perf_counter() - began)
    # Create and event together; a few milliseconds on an idle machine.
    assert sorted(spent)[len(spent) // 2] < 0.1


async def test_many_watchers_share_the_work(api: Api) -> None:
    version = str(api.cluster.store.revision)

    async def watch_one() -> None:
        async with open_watch(api, CONFIGMAPS, resourceVersion=version) as watch:
            ready.release()
            for number in range(20):
                assert await watch.next_name() == ("ADDED", f"n{number}")

    ready = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        for _ in range(30):
            group.create_task(watch_one())
        for _ in range(30):
            await ready.acquire()
        for number in range(20):
            await api.call("POST", CONFIGMAPS, make_configmap(f"n{number}"))


async def test_watches_end_when_the_cluster_stops(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await api.make_namespace()
        response = await api.session.get(CONFIGMAPS, params={"watch": "1"})
        await response.content.readline()
        began = time.perf_counter()
    assert time.perf_counter() - began < 2
    response.close()


async def test_a_pod_is_scheduled_and_the_event_says_so(api: Api) -> None:
    version = str(api.cluster.store.revision)
    async with open_watch(api, PODS, resourceVersion=version) as watch:
        created = await api.call("POST", PODS, make_pod())
        assert "nodeName" not in created["spec"]
        assert await watch.next_name() == ("ADDED", "one")
        type_, pod = await watch.next()
        assert (type_, pod["spec"]["nodeName"]) == ("MODIFIED", "local")
        assert pod["status"]["conditions"][0]["type"] == "PodScheduled"
    query = {"fieldSelector": "involvedObject.name=one"}
    events = await api.get(f"/api/v1/namespaces/{NAMESPACE}/events", query)
    assert [(event["reason"], event["message"]) for event in events["items"]] == [
        ("Scheduled", "Successfully assigned apps/one to local")
    ]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {
                "containers": [
                    {"name": "a", "image": "x", "resources": {"requests": {"cpu": "9000"}}}
                ]
            },
            "0/1 nodes are available: 1 Insufficient cpu.",
        ),
        (
            {"nodeSelector": {"disk": "ssd"}},
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
        ),
    ],
)
async def test_a_pod_that_fits_nowhere_says_why(api: Api, spec: dict[str, Any], said: str) -> None:
    version = str(api.cluster.store.revision)
    async with open_watch(api, PODS, resourceVersion=version) as watch:
        await api.call("POST", PODS, make_pod(**spec))
        await watch.next()
        _, pod = await watch.next()
    condition = pod["status"]["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"].startswith(said)


async def test_a_namespace_ends_with_its_content(api: Api) -> None:
    await api.run_pod(make_pod())
    await api.call("POST", CONFIGMAPS, make_configmap())
    namespace = await api.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
    assert namespace["status"] == {"phase": "Terminating"}
    await api.until_gone("configmaps", NAMESPACE, "one")
    # Its node has not stopped the pod yet, so the namespace stays and takes nothing new.
    refused = await api.call("POST", CONFIGMAPS, make_configmap("new"), expect=403)
    assert "because it is being terminated" in refused["message"]
    api.cluster.store.remove("pods", NAMESPACE, "one")
    await api.until_gone("namespaces", "", NAMESPACE)
    await api.make_namespace()


async def test_a_quota_tells_what_is_used(api: Api) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2", "count/configmaps": "9"}}}
    quotas = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
    await api.call("POST", quotas, body)
    version = str(api.cluster.store.revision)
    async with open_watch(api, quotas, resourceVersion=version) as watch:
        await api.call("POST", PODS, make_pod())
        while True:
            _, quota = await watch.next()
            if quota["status"].get("used", {}).get("pods") == "1":
                break
    assert quota["status"]["used"] == {"pods": "1", "count/configmaps": "1"}
