import json
import os
import threading
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from telorunner.conf import ClusterKind
from telorunner.errors import (
    AlreadyExists,
    ClusterError,
    ClusterUnavailable,
    Conflict,
    NotReady,
    ObjectNotFound,
    ResourceExpired,
    Unauthorized,
)
from telorunner.kube import logs, objects
from telorunner.kube.attach import open_attach
from telorunner.kube.client import Call, Cluster, ClusterSettings, open_cluster, read_body
from tests.fakes import (
    MANAGED_BY,
    NAMESPACE,
    cut,
    hang,
    open_fake_api,
    open_fake_cluster,
    refuse,
    say,
)


async def test_an_object_is_created_read_changed_and_deleted_as_plain_json(tmp_path: Path) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        labels = objects.session_labels(cluster.managed_by, "s1")
        manifest = {"metadata": {"name": "a", "labels": labels}, "spec": {"x": [1, "ü"]}}
        made = await objects.create(cluster, "pods", manifest)
        assert made["spec"] == {"x": [1, "ü"]}
        assert await objects.get(cluster, "pods", "a") == made
        owner = {"ownerReferences": [objects.owner_reference(made)]}
        changed = await objects.patch(cluster, "pods", "a", {"metadata": owner})
        assert changed["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": made["metadata"]["uid"]}
        ]
        assert api.requests[-1].content_type == "application/merge-patch+json"
        assert await objects.delete_if_exists(cluster, "pods", "a", grace_seconds=2)
        assert api.requests[-1].body["gracePeriodSeconds"] == 2
        assert not await objects.delete_if_exists(cluster, "pods", "a")


async def test_another_object_of_the_same_name_is_not_deleted(tmp_path: Path) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.put("a")
        assert not await objects.delete_if_exists(cluster, "pods", "a", uid="somebody-else")
        assert "a" in api.objects["pods"]


async def test_an_object_that_changed_meanwhile_is_still_to_be_deleted(tmp_path: Path) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        uid = api.put("a")["metadata"]["uid"]
        api.script("delete", refuse(409, "Conflict"), refuse(409, "Conflict"))
        with pytest.raises(Conflict):
            await objects.delete_if_exists(cluster, "pods", "a", uid=uid)
        api.remove("a")
        assert not await objects.delete_if_exists(cluster, "pods", "a", uid=uid)


async def test_a_long_list_is_read_page_by_page(tmp_path: Path) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.page_objects = 3
        for number in range(8):
            api.put(f"pod-{number}")
        api.put("foreign", labels={})
        selector = objects.managed_selector(cluster.managed_by)
        found = await objects.list_objects(cluster, "pods", selector=selector)
        assert [thing["metadata"]["name"] for thing in found] == [f"pod-{n}" for n in range(8)]
        assert api.count("list") == 3


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (404, "NotFound", ObjectNotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", ResourceExpired),
        (422, "Invalid", ClusterError),
        (429, "TooManyRequests", ClusterUnavailable),
        (503, "ServiceUnavailable", ClusterUnavailable),
    ],
)
async def test_each_refusal_has_its_error(
    tmp_path: Path, code: int, reason: str, expected: type[ClusterError]
) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.script("get", refuse(code, reason, "the text of the Status"))
        with pytest.raises(ClusterError) as caught:
            await objects.get(cluster, "pods", "a")
        assert type(caught.value) is expected
        assert (caught.value.status, caught.value.reason) == (code, reason)
        assert "Status" not in str(caught.value)


@pytest.mark.parametrize(
    "handler",
    [cut, say("<html>502</html>", 502), say("<html>Log in</html>"), say("[]"), say("")],
)
async def test_what_is_no_answer_means_unavailable(tmp_path: Path, handler: object) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        # The client repeats a GET once on a connection that was closed under it.
        api.script("get", handler, handler)  # type: ignore[arg-type] # parametrized as object
        with pytest.raises(ClusterUnavailable):
            await objects.get(cluster, "pods", "a")


@pytest.mark.looptime
async def test_a_request_that_is_never_answered_ends(tmp_path: Path) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.script("get", hang)
        with pytest.raises(ClusterUnavailable) as caught:
            await cluster.request(Call("GET", "/version"), timeout_seconds=3)
        assert caught.value.status is None


async def test_an_answer_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.script("get", say("x" * 2000), say("x" * 2000))
        call = Call("GET", "/version")
        async with cluster.open_response(call, aiohttp.ClientTimeout(total=5)) as response:
            assert await read_body(response, 2000) == b"x" * 2000
        with pytest.raises(ClusterUnavailable):
            async with cluster.open_response(call, aiohttp.ClientTimeout(total=5)) as response:
                await read_body(response, 1999)


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    async def elsewhere(request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "/api/v1/namespaces/x/pods/a"})

    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.put("a")
        api.script("get", elsewhere)
        with pytest.raises(ClusterError):
            await objects.get(cluster, "pods", "a")
        assert api.count("get") == 1


async def test_proxies_of_the_environment_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.put("a")
        assert (await objects.get(cluster, "pods", "a"))["metadata"]["name"] == "a"


async def test_the_proxy_that_the_kubeconfig_names_is_used(tmp_path: Path) -> None:
    async with open_fake_api() as proxy:
        proxy.put("a")
        # What an HTTP proxy gets is the whole URL; the fake answers it by its path.
        path = proxy.kubeconfig(tmp_path)
        config = json.loads(path.read_text())
        reached_by = {"server": "http://cluster.invalid", "proxy-url": proxy.url}
        config["clusters"][0]["cluster"] = reached_by
        path.write_text(json.dumps(config))
        settings = ClusterSettings(ClusterKind.KUBECONFIG, str(path), NAMESPACE, MANAGED_BY)
        async with open_cluster(settings) as cluster:
            assert (await objects.get(cluster, "pods", "a"))["metadata"]["name"] == "a"
            async with open_attach(cluster, "a", "app", tty=True) as stream:
                await stream.write(b"typed")
                assert await stream.read() == (1, b"typed")


async def test_cycles_of_create_attach_and_delete_leave_no_descriptor_and_no_thread(
    tmp_path: Path,
) -> None:
    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    async def cycle(cluster: Cluster) -> None:
        manifest = {"metadata": {"name": "a", "labels": {}}}
        await objects.create(cluster, "pods", manifest)
        async with open_attach(cluster, "a", "app", tty=True) as stream:
            await stream.write(b"typed")
            assert await stream.read() == (1, b"typed")
        assert await objects.delete_if_exists(cluster, "pods", "a")

    async with open_fake_cluster(tmp_path) as (api, cluster):
        await cycle(cluster)
        await api.wait_until(lambda: not api.open_attaches)
        descriptors, threads = held()
        for _ in range(50):
            await cycle(cluster)
        await api.wait_until(lambda: not api.open_attaches)
        now_descriptors, now_threads = held()
    # The newest attach may be about to close at either end.
    assert now_descriptors <= descriptors + 2
    assert now_threads == threads


async def test_credentials_that_are_refused_twice_are_an_error(tmp_path: Path) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.token, api.may_refuse = "another", True
        with pytest.raises(Unauthorized):
            await objects.get(cluster, "pods", "a")


async def test_a_log_is_cut_to_its_end(tmp_path: Path) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.put("a")
        api.logs["a"] = bytes(range(256)) * 4096
        whole = await logs.read_log(cluster, "a", "session", limit_bytes=10_000_000)
        assert whole == logs.ContainerLog(api.logs["a"])
        tail = await logs.read_log(cluster, "a", "session", limit_bytes=1000)
        assert tail.data == api.logs["a"][-1000:]
        # What came before is counted, without any CR.
        assert tail.skipped_bytes == len(api.logs["a"][:-1000].replace(b"\r", b""))
        nothing = await logs.read_log(cluster, "a", "session", limit_bytes=0)
        assert nothing == logs.ContainerLog(b"", 255 * 4096)


async def test_a_log_that_is_not_there_yet_is_told_from_a_pod_that_is_gone(tmp_path: Path) -> None:
    async with open_fake_cluster(tmp_path) as (api, cluster):
        api.put("a")
        api.script("log", say(b"", 204))
        for _ in range(2):
            with pytest.raises(NotReady):
                await logs.read_log(cluster, "a", "session", limit_bytes=1000)
        with pytest.raises(ObjectNotFound):
            await logs.read_log(cluster, "gone", "session", limit_bytes=1000)
