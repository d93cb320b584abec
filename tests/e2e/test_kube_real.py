"""The Kubernetes client against a real cluster: what the fake can only claim."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from telorunner import aio
from telorunner.conf import ClusterKind
from telorunner.errors import AlreadyExists, NotReady, ObjectNotFound
from telorunner.kube import objects, preflight
from telorunner.kube.attach import AttachStream, open_attach
from telorunner.kube.client import Call, Cluster, ClusterSettings, open_cluster
from telorunner.kube.informer import Informer
from telorunner.kube.logs import ContainerLog, read_log

pytestmark = pytest.mark.e2e

IMAGE = "telo.test/busybox:1"
MANAGED_BY = "kube-real-test"
READY_SECONDS = 60


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    namespace = f"kube-real-{secrets.token_hex(4)}"
    settings = ClusterSettings(
        ClusterKind.KUBECONFIG, os.environ["KUBECONFIG"], namespace, MANAGED_BY
    )
    async with open_cluster(settings) as cluster:
        await objects.create(cluster, "namespaces", {"metadata": {"name": namespace}})
        try:
            await service_account(cluster)
            yield cluster
        finally:
            await objects.delete_if_exists(cluster, "namespaces", namespace)


async def service_account(cluster: Cluster) -> None:
    """Wait until the namespace admits pods."""
    path = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/default"
    async with asyncio.timeout(READY_SECONDS):
        while True:
            try:
                await cluster.request(Call("GET", path))
                return
            except ObjectNotFound:
                await asyncio.sleep(0.1)


def pod(name: str, script: str, *, tty: bool = True) -> dict[str, Any]:
    container = {
        "name": "session",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "stdin": True,
        "tty": tty,
    }
    labels = objects.session_labels(MANAGED_BY, name)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


async def attach(stack: AsyncExitStack, cluster: Cluster, name: str, *, tty: bool) -> AttachStream:
    """Attach as soon as the container runs."""
    async with asyncio.timeout(READY_SECONDS):
        while True:
            try:
                return await stack.enter_async_context(
                    open_attach(cluster, name, "session", tty=tty)
                )
            except NotReady:
                await asyncio.sleep(0.05)


async def output(stream: AttachStream, length: int | None = None) -> dict[int, bytes]:
    """Return what comes until that much has come, or to the end of the stream."""
    found = {1: b"", 2: b""}
    async with asyncio.timeout(READY_SECONDS):
        while length is None or sum(map(len, found.values())) < length:
            if (part := await stream.read()) is None:
                break
            found[part[0]] += part[1]
    return found


async def test_a_pod_is_watched_from_its_making_to_its_end(cluster: Cluster) -> None:
    informer = Informer(cluster, "pods", objects.managed_selector(MANAGED_BY))
    task = aio.start(informer.run(), name="informer")
    try:
        await informer.wait_listed()
        assert informer.is_fresh
        with informer.subscribe("a") as seen:
            made = await objects.create(cluster, "pods", pod("a", "read line; exit 3"))
            with pytest.raises(AlreadyExists):
                await objects.create(cluster, "pods", pod("a", "true"))
            async with AsyncExitStack() as stack:
                stream = await attach(stack, cluster, "a", tty=True)
                assert stream.is_proof
                await stream.write(b"go\n")
                await output(stream)
                assert stream.is_complete
            async with asyncio.timeout(READY_SECONDS):
                while not seen.object or seen.object["status"]["phase"] != "Failed":
                    await seen.changed()
            state = seen.object["status"]["containerStatuses"][0]["state"]
            assert state["terminated"]["exitCode"] == 3
            uid = made["metadata"]["uid"]
            assert not await objects.delete_if_exists(cluster, "pods", "a", uid="another")
            assert await objects.delete_if_exists(cluster, "pods", "a", grace_seconds=0, uid=uid)
            async with asyncio.timeout(READY_SECONDS):
                while seen.object is not None:
                    await seen.changed()
            assert seen.last is not None
            assert seen.last["metadata"]["uid"] == uid
    finally:
        await aio.stop(task)


async def test_a_terminal_has_its_size_its_bytes_and_its_end(cluster: Cluster) -> None:
    sized = "while [ \"`stty size`\" != '31 97' ]; do sleep 0.05; done; stty size"
    # It waits until all has come: a kubelet closes an attach though the end is still on its way.
    script = f"stty raw -echo; echo ready; read line; {sized}; head -c 262144; read line"
    await objects.create(cluster, "pods", pod("a", script))
    data = bytes(range(32, 127)) * (262_144 // 95) + b"x" * (262_144 % 95)
    async with AsyncExitStack() as stack:
        stream = await attach(stack, cluster, "a", tty=True)
        await stream.resize(97, 31)
        await stream.write(b"\n" + data)
        found = b""
        while not found.endswith(data):
            more = (await output(stream, 1))[1]
            assert more, f"the stream has ended after {len(found)} bytes"
            found += more
        assert b"31 97" in found
        await stream.write(b"\n")
        assert await output(stream) == {1: b"", 2: b""}
        assert stream.is_complete


async def test_streams_keep_output_and_errors_apart(cluster: Cluster) -> None:
    # It waits until all has come: a kubelet closes an attach though the end is still on its way.
    script = "read line; echo out; echo err >&2; printf '\\377\\000\\303'; read line"
    wanted = {1: b"out\n\xff\x00\xc3", 2: b"err\n"}
    await objects.create(cluster, "pods", pod("a", script, tty=False))
    async with AsyncExitStack() as stack:
        stream = await attach(stack, cluster, "a", tty=False)
        await stream.write(b"go\n")
        assert await output(stream, sum(map(len, wanted.values()))) == wanted
        await stream.write(b"over\n")
        assert await output(stream) == {1: b"", 2: b""}


async def test_a_log_is_read_once_there_is_one(cluster: Cluster) -> None:
    # What is in a runtime's pipe at the exit may be lost there.
    await objects.create(cluster, "pods", pod("a", "echo hello; sleep 1", tty=False))
    async with asyncio.timeout(READY_SECONDS):
        while True:
            try:
                if (log := await read_log(cluster, "a", "session", limit_bytes=1000)).data:
                    break
            except NotReady:
                pass
            await asyncio.sleep(0.05)
    assert log == ContainerLog(b"hello\n")
    cut = await read_log(cluster, "a", "session", limit_bytes=3)
    assert cut == ContainerLog(b"lo\n", 3)
    for read in (read_log(cluster, "gone", "session", limit_bytes=1),):
        with pytest.raises(ObjectNotFound):
            await read
    with pytest.raises(ObjectNotFound):
        async with open_attach(cluster, "gone", "session", tty=True):
            pass


async def test_preflight_names_what_is_missing(cluster: Cluster) -> None:
    assert await preflight.check(cluster) == []
    issues = await preflight.check(cluster, image_pull_secret="pull", runtime_class="none")
    assert [path for path, _ in issues] == ["/imagePullSecret", "/runtimeClass"]
