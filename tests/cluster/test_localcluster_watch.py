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

    async def has_ended(self) -> bool:
        async with asyncio.timeout(WAIT_SECONDS):
            return not await self.response.content.readline()


@asynccontextmanager
async def open_watch(api: Api, path: str, **query: str) -> AsyncIterator[Watch]:
    async with api.session.get(path, params={"watch": "1", **query}) as response:
        assert response.status == 200, await response.text()
        yield Watch(response)


async def test_a_watch_tells_what_comes_after_a_list(api: Api) -> None:
    await api.call("POST", CONFIGMAPS, make_configmap("before"))
    version = (await api.call("GET", CONFIGMAPS))["metadata"]["resourceVersion"]
    async with open_watch(api, CONFIGMAPS, resourceVersion=version) as watch:
        created = await api.call("POST", CONFIGMAPS, make_configmap())
        assert await watch.next() == ("ADDED", created)
        changed = await api.call("PUT", f"{CONFIGMAPS}/one", {**created, "data": {}})
        assert await watch.next() == ("MODIFIED", changed)
        await api.call("DELETE", f"{CONFIGMAPS}/one")
        type_, obj = await watch.next()
        assert type_ == "DELETED"
        assert int(obj["metadata"]["resourceVersion"]) > int(changed["metadata"]["resourceVersion"])


async def test_a_change_made_while_nobody_watched_is_told(api: Api) -> None:
    version = (await api.call("GET", CONFIGMAPS))["metadata"]["resourceVersion"]
    await api.call("POST", CONFIGMAPS, make_configmap())
    async with open_watch(api, CONFIGMAPS, resourceVersion=version) as watch:
        assert await watch.next_name() == ("ADDED", "one")


async def test_a_watch_without_a_version_begins_with_what_is_there(api: Api) -> None:
    query = {"labelSelector": "x", "allowWatchBookmarks": "true"}
    await api.call("POST", CONFIGMAPS, make_configmap("a", labels={"x": ""}))
    async with open_watch(api, CONFIGMAPS, **query) as watch:
        assert await watch.next_name() == ("ADDED", "a")
        type_, mark = await watch.next()
        assert type_ == "BOOKMARK"
        assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await api.call("POST", CONFIGMAPS, make_configmap("b", labels={"x": ""}))
        assert await watch.next_name() == ("ADDED", "b")


async def test_selected_objects_come_and_go_by_matching(api: Api) -> None:
    one = await api.call("POST", CONFIGMAPS, make_configmap())
    version = one["metadata"]["resourceVersion"]
    query = {"labelSelector": "x=1", "resourceVersion": version}

    async def label(**labels: str) -> None:
        nonlocal one
        metadata = {**one["metadata"], "labels": labels}
        one = await api.call("PUT", f"{CONFIGMAPS}/one", {**one, "metadata": metadata})

    async with open_watch(api, CONFIGMAPS, **query) as watch:
        await label(x="1")
        assert await watch.next() == ("ADDED", one)
        await label(x="1", y="2")
        assert await watch.next() == ("MODIFIED", one)
        await label(x="2")
        type_, gone = await watch.next()
        assert type_ == "DELETED"
        assert gone["metadata"]["labels"] == {"x": "1", "y": "2"}
        assert gone["metadata"]["resourceVersion"] == one["metadata"]["resourceVersion"]
        await label(x="1")
        assert (await watch.next())[0] == "ADDED"
        await api.call("DELETE", f"{CONFIGMAPS}/one")
        assert await watch.next_name() == ("DELETED", "one")


async def test_a_watch_keeps_to_its_namespace(api: Api) -> None:
    await api.make_namespace("other")
    version = str(api.cluster.store.revision)
    async with open_watch(api, CONFIGMAPS, resourceVersion=version) as watch:
        await api.call("POST", "/api/v1/namespaces/other/configmaps", make_configmap("elsewhere"))
        await api.call("POST", CONFIGMAPS, make_configmap("here"))
        assert await watch.next_name() == ("ADDED", "here")


async def test_a_watch_ends_in_time_with_a_bookmark_to_go_on_from(api: Api) -> None:
    query = {
        "resourceVersion": str(api.cluster.store.revision),
        "timeoutSeconds": "1",
        "allowWatchBookmarks": "true",
    }
    async with open_watch(api, CONFIGMAPS, **query) as watch:
        type_, mark = await watch.next()
        assert type_ == "BOOKMARK"
        assert mark["kind"] == "ConfigMap"
        assert mark["metadata"]["resourceVersion"] == str(api.cluster.store.revision)
        assert await watch.has_ended()


async def test_a_version_out_of_the_history_is_an_error_line(api: Api) -> None:
    version = str(api.cluster.store.revision)
    await api.call("POST", CONFIGMAPS, make_configmap())
    api.cluster.store.forget_history()
    async with open_watch(api, CONFIGMAPS, resourceVersion=version) as watch:
        type_, status = await watch.next()
        assert (type_, status["kind"], status["code"]) == ("ERROR", "Status", 410)
        assert status["reason"] == "Expired"
        assert await watch.has_ended()


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


async def test_dependents_go_with_their_owner(api: Api) -> None:
    pod = await api.call("POST", PODS, make_pod(schedulerName="none"))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": pod["metadata"]["uid"]}
    await api.call("POST", CONFIGMAPS, make_configmap("owned", ownerReferences=[owner]))
    kept = await api.call("POST", CONFIGMAPS, make_configmap("free"))
    await api.call("DELETE", f"{PODS}/one")
    await api.until_gone("configmaps", NAMESPACE, "owned")
    assert await api.call("GET", f"{CONFIGMAPS}/free") == kept


async def test_an_object_whose_owner_is_gone_already_goes_too(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": "gone"}
    await api.call("POST", CONFIGMAPS, make_configmap("late", ownerReferences=[owner]))
    await api.until_gone("configmaps", NAMESPACE, "late")


async def test_an_object_with_an_owner_left_stays(api: Api) -> None:
    owners = []
    for name in ("one", "two"):
        pod = await api.call("POST", PODS, make_pod(name, schedulerName="none"))
        uid = pod["metadata"]["uid"]
        owners.append({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid})
    await api.call("POST", CONFIGMAPS, make_configmap("owned", ownerReferences=owners))
    await api.call("DELETE", f"{PODS}/one")
    # The collector works in order: once this one is gone it has looked at the other.
    await api.call("POST", CONFIGMAPS, make_configmap("late", ownerReferences=[owners[0]]))
    await api.until_gone("configmaps", NAMESPACE, "late")
    await api.call("GET", f"{CONFIGMAPS}/owned")
    await api.call("DELETE", f"{PODS}/two")
    await api.until_gone("configmaps", NAMESPACE, "owned")


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
