"""A bare client of the cluster: makes the pod of a session by itself, and attaches to it.

The pod is the product's own manifest, without the product. It obeys `bench.pods`.
"""

import asyncio
import os
import secrets
import time
from contextlib import AsyncExitStack
from typing import Any

from bench.commands import obey
from bench.program import ENTRY, FLOOD_KEY, READY, program
from sessions import bundles
from sessions.pods.run import build_bundle_config_map, build_run_pod, object_name
from sessions.spec import App, Limits, RunPodSpec, SessionSpec
from sessions.states import Mode, PullPolicy
from telorunner import aio
from telorunner.conf import ClusterKind
from telorunner.errors import NotReady
from telorunner.kube import objects
from telorunner.kube.attach import AttachStream, open_attach
from telorunner.kube.client import Cluster, ClusterSettings, open_cluster
from telorunner.kube.informer import Informer

MANAGED_BY = "telorunner-bench"
CONTAINER = "session"
RETRY_SECONDS = 0.05
WAIT_SECONDS = 120.0
KEY_SECONDS = 0.02


class Attacher:
    """What can be asked of the bare client."""

    def __init__(self, cluster: Cluster, pods: Informer, stack: AsyncExitStack) -> None:
        self._cluster = cluster
        self._pods = pods
        self._stack = stack
        self._stream: AttachStream | None = None
        self._name = ""

    async def phase(self) -> float:
        """Return the seconds from creating a pod to seeing that it runs; remove it again."""
        manifest = await self._prepare()
        with self._pods.subscribe(self._name) as seen:
            began_at = time.perf_counter()
            await objects.create(self._cluster, "pods", manifest)
            async with asyncio.timeout(WAIT_SECONDS):
                while not seen.object or seen.object["status"].get("phase") != "Running":
                    await seen.changed()
            lasted = time.perf_counter() - began_at
        await self.remove()
        return lasted

    async def output(self) -> float:
        """Return the seconds from creating a pod to its first byte; it stays attached."""
        manifest = await self._prepare()
        began_at = time.perf_counter()
        await objects.create(self._cluster, "pods", manifest)
        async with asyncio.timeout(WAIT_SECONDS):
            self._stream = await self._attach()
            await self._stream.resize(80, 24)
            await self._read(len(READY))
        return time.perf_counter() - began_at

    async def flood(self, total_bytes: int) -> float:
        """Return the seconds that output takes."""
        began_at = time.perf_counter()
        await self._open_stream().write(FLOOD_KEY.encode())
        async with asyncio.timeout(WAIT_SECONDS):
            await self._read(total_bytes)
        return time.perf_counter() - began_at

    async def echo(self, count: int) -> list[float]:
        """Type letters one at a time; return how long each took to come back."""
        lasted, stream = [], self._open_stream()
        for _ in range(count):
            typed_at = time.perf_counter()
            await stream.write(b"k")
            await self._read(1)
            lasted.append(time.perf_counter() - typed_at)
            await asyncio.sleep(KEY_SECONDS)
        return lasted

    async def remove(self) -> None:
        """Let go of the pod and remove it, and wait until it is gone."""
        await self._stack.aclose()
        with self._pods.subscribe(self._name) as seen:
            await objects.delete_if_exists(self._cluster, "pods", self._name, grace_seconds=0)
            async with asyncio.timeout(WAIT_SECONDS):
                while seen.object is not None or not seen.is_listed:
                    await seen.changed()
        await objects.delete_if_exists(self._cluster, "configmaps", self._name)

    async def _prepare(self) -> dict[str, Any]:
        """Make a new pod's ConfigMap; return the pod's manifest."""
        session_id = secrets.token_hex(6)
        self._name = object_name(session_id)
        text = program(int(os.environ["BENCH_FLOOD_BYTES"]))
        archive = bundles.pack({ENTRY: text.encode()})
        await objects.create(
            self._cluster,
            "configmaps",
            build_bundle_config_map(session_id, self._cluster.namespace, MANAGED_BY, archive),
        )
        spec = SessionSpec(
            session_id=session_id,
            mode=Mode.RUN,
            image=os.environ["BENCH_IMAGE"],
            pull_policy=PullPolicy.MISSING,
            apps=(App("app", ENTRY),),
            limits=Limits(200, 512 * 2**20, 2**30, 3600),
        )
        return build_run_pod(
            RunPodSpec(
                session=spec, namespace=self._cluster.namespace, managed_by=MANAGED_BY, env={}
            )
        )

    async def _attach(self) -> AttachStream:
        while True:
            try:
                return await self._stack.enter_async_context(
                    open_attach(self._cluster, self._name, CONTAINER, tty=True)
                )
            except NotReady:
                await asyncio.sleep(RETRY_SECONDS)

    async def _read(self, count: int) -> None:
        stream, received = self._open_stream(), 0
        while received < count:
            frame = await stream.read()
            if frame is None:
                raise RuntimeError(f"the attach ended after {received:,} bytes")
            received += len(frame[1])

    def _open_stream(self) -> AttachStream:
        if self._stream is None:
            raise RuntimeError("nothing is attached")
        return self._stream


async def _run() -> None:
    settings = ClusterSettings(
        kind=ClusterKind.KUBECONFIG,
        kubeconfig=os.environ["BENCH_KUBECONFIG"],
        namespace=os.environ["BENCH_NAMESPACE"],
        managed_by=MANAGED_BY,
    )
    async with open_cluster(settings) as cluster:
        pods = Informer(cluster, selector=objects.managed_selector(MANAGED_BY))
        watching = aio.start(pods.run(), name="informer")
        try:
            await pods.wait_listed()
            async with AsyncExitStack() as stack:
                await obey(Attacher(cluster, pods, stack))
        finally:
            await aio.stop(watching)


if __name__ == "__main__":
    asyncio.run(_run())
