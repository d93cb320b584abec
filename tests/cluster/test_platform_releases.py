"""Two runners that share a namespace, each with a label of its own, do not touch each other."""

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sessions.pods.run import build_run_pod, object_name
from sessions.spec import RunPodSpec
from telorunner.kube import objects
from telorunner.kube.client import Cluster
from tests.builders import make_spec
from tests.clients import Client
from tests.clusters import ClusterUnderTest
from tests.serving import Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

ECHO = """
import os, sys
os.write(1, b"ready\\n")
for line in sys.stdin:
    os.write(1, b"heard " + line.encode())
"""
REAPED_SECONDS = 45.0


@contextmanager
def release(name: str, cluster: ClusterUnderTest, folder: Path) -> Iterator[Platform]:
    """Run a runner with a label, a database and a data folder of its own."""
    data_dir = folder / name
    environment = {
        **cluster.environment,
        "RUNNER_CLUSTER": "kubeconfig",
        "KUBECONFIG": cluster.environment.get("KUBECONFIG", str(cluster.kubeconfig)),
        "RUNNER_SESSION_NAMESPACE": cluster.namespace,
        "RUNNER_MANAGED_BY": name,
        "RUNNER_DATA_DIR": str(data_dir),
        "RUNNER_BUNDLE_DELIVERY": "inline",
    }
    platform = Platform(data_dir, environment)
    platform.start()
    try:
        yield platform
    finally:
        if platform.process is not None:
            platform.stop()


@asynccontextmanager
async def opened(platform: Platform, cluster: ClusterUnderTest) -> AsyncIterator[Client]:
    client = Client(platform.url, cluster.image)
    try:
        yield client
    finally:
        await client.close()


async def hears(client: Client, session: str, word: str) -> None:
    """Assert that a session hears what is typed and tells it."""
    async with client.terminal(session) as terminal:
        await terminal.until(b"ready")
        await terminal.socket.send(f"{word}\r".encode())
        await terminal.until(f"heard {word}".encode())


async def put_orphan(kube: Cluster, managed_by: str) -> str:
    """Make a pod like one that a runner has lost; its ConfigMap is not there, so it never runs."""
    session_id = uuid.uuid4().hex[:12].translate(str.maketrans("0123456789", "ghijklmnop"))
    spec = RunPodSpec(
        session=make_spec(session_id=session_id, image="telo.test/nothing:1"),
        namespace=kube.namespace,
        managed_by=managed_by,
        env={},
    )
    pod = build_run_pod(spec)
    small = {"cpu": "10m", "memory": "16Mi"}
    pod["spec"]["containers"][0]["resources"] = {"requests": small, "limits": small}
    await objects.create(kube, "pods", pod)
    return object_name(session_id)


async def put_foreign(kube: Cluster, resource: str, **content: Any) -> str:
    """Make an object that a session's id is written on, but no runner's label."""
    name = f"foreign-{uuid.uuid4().hex[:8]}"
    labels = {objects.SESSION_ID_LABEL: "abcdefghijkl"}
    metadata = {"name": name, "namespace": kube.namespace, "labels": labels}
    kind = {"configmaps": "ConfigMap", "secrets": "Secret"}[resource]
    manifest = {"apiVersion": "v1", "kind": kind, "metadata": metadata, **content}
    await objects.create(kube, resource, manifest)
    return name


async def pods(kube: Cluster) -> set[str]:
    """Return the names of all pods of the namespace, whoever made them."""
    return {found["metadata"]["name"] for found in await objects.list_objects(kube, "pods")}


async def until_gone(kube: Cluster, pod: str) -> None:
    async with asyncio.timeout(REAPED_SECONDS):
        while pod in await pods(kube):  # noqa: ASYNC110 - a list has no event
            await asyncio.sleep(0.1)


async def test_two_releases_in_one_namespace_do_not_touch_each_other(
    cluster: ClusterUnderTest, tmp_path: Path, times: Callable[[int, int], int]
) -> None:
    with (
        release("one", cluster, tmp_path) as one,
        release("two", cluster, tmp_path) as two,
    ):
        async with opened(two, cluster) as theirs, cluster.opened() as kube:
            async with opened(one, cluster) as ours:
                our_session, their_session = await ours.create(ECHO), await theirs.create(ECHO)
                await hears(ours, our_session, "first")
                await hears(theirs, their_session, "first")
                # The sessions of one are unknown to the other.
                answer = await theirs.http.get(f"/v1/sessions/{our_session}")
                assert answer.status_code == 404
            foreign = await put_foreign(kube, "configmaps", data={"a": "b"})
            for sent in (signal.SIGKILL, signal.SIGTERM)[: times(2, 1)]:
                one.stop(sent)
                # What is lost meanwhile goes at boot; what the other has goes with the other.
                orphan, their_orphan = await put_orphan(kube, "one"), await put_orphan(kube, "none")
                one.start()
                await until_gone(kube, orphan)
                ours_and_theirs = {object_name(our_session), object_name(their_session)}
                assert await pods(kube) == {*ours_and_theirs, their_orphan}
                await objects.delete_if_exists(kube, "pods", their_orphan, grace_seconds=0)
                await hears(theirs, their_session, sent.name)
            async with opened(one, cluster) as ours:
                await hears(ours, our_session, "last")
                assert (await ours.http.delete(f"/v1/sessions/{our_session}")).status_code == 204
                assert await ours.status(our_session) == {"kind": "stopped"}
            await cluster.until_nothing_is_left("one")
            assert await cluster.objects("pods", "two") == [object_name(their_session)]
            assert await cluster.objects("configmaps", "two") == [object_name(their_session)]
            # No gap, no second status: the restarts of the other were no news to anybody here.
            assert (await theirs.http.delete(f"/v1/sessions/{their_session}")).status_code == 204
            events = await theirs.events(their_session)
            assert [number for number, _ in events] == list(range(1, len(events) + 1))
            kinds = [event["status"]["kind"] for _, event in events if "status" in event]
            assert kinds == ["starting", "running", "stopped"]
            await cluster.until_nothing_is_left("two")
            assert await objects.get(kube, "configmaps", foreign)
            await objects.delete_if_exists(kube, "configmaps", foreign)
