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
from sessions.pods.run import build_bundle_config_map, build_run_pod
from sessions.pods.script import START_MARK
from sessions.spec import App, Limits, RunPodSpec, SessionSpec
from sessions.states import Mode
from telorunner import aio
from telorunner.conf import ClusterKind
from telorunner.errors import NotReady
from telorunner.kube import objects
from telorunner.kube.attach import AttachStream, open_attach
from telorunner.kube.client import Cluster, ClusterSettings, open_cluster
from telorunner.kube.informer import Informer, Subscription
from telorunner.values.pullpolicy import PullPolicy

MANAGED_BY = "telorunner-bench"
CONTAINER = "session"
RETRY_SECONDS = 0.05
WAIT_SECONDS = 120.0
KEY_SECONDS = 0.02


class BarePod:
    """One pod with its terminal; whoever starts it must remove it."""

    def __init__(self, cluster: Cluster, pods: Informer, manifest: dict[str, Any]) -> None:
        self.stream: AttachStream | None = None
        self._cluster = cluster
        self._pods = pods
        self._manifest = manifest
        self._stack = AsyncExitStack()

    @property
    def name(self) -> str:
        """The pod's name."""
        name: str = self._manifest["metadata"]["name"]
        return name

    async def start(self) -> tuple[float, float]:
        """Create the pod; return the seconds to seeing that it runs, and to its first byte."""
        with self._pods.subscribe(self.name) as seen:
            began_at = time.perf_counter()
            await objects.create(self._cluster, "pods", self._manifest)
            async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
                running = group.create_task(_run_time(seen, began_at))
                first = group.create_task(self._output_time(began_at))
        return running.result(), first.result()

    async def read(self, count: int) -> None:
        """Read so much output."""
        received = 0
        while received < count:
            frame = await self.opened().read()
            if frame is None:
                raise RuntimeError(f"the attach ended after {received:,} bytes")
            received += len(frame[1])

    def opened(self) -> AttachStream:
        """Return the terminal."""
        if self.stream is None:
            raise RuntimeError("nothing is attached")
        return self.stream

    async def remove(self) -> None:
        """Let go of the pod and remove it, and wait until it is gone."""
        await self._stack.aclose()
        with self._pods.subscribe(self.name) as seen:
            await objects.delete_if_exists(self._cluster, "pods", self.name, grace_seconds=0)
            async with asyncio.timeout(WAIT_SECONDS):
                while seen.object is not None or not seen.is_listed:
                    await seen.changed()
        await objects.delete_if_exists(self._cluster, "configmaps", self.name)

    async def _output_time(self, began_at: float) -> float:
        while self.stream is None:
            try:
                self.stream = await self._stack.enter_async_context(
                    open_attach(self._cluster, self.name, CONTAINER, tty=True)
                )
            except NotReady:
                await asyncio.sleep(RETRY_SECONDS)
        await self.stream.resize(80, 24)
        # The start text's own mark comes first; who runs the program waits for its output.
        await self.read(len(START_MARK) + len(READY))
        return time.perf_counter() - began_at


async def _run_time(seen: Subscription, began_at: float) -> float:
    while not seen.object or seen.object["status"].get("phase") != "Running":
        await seen.changed()
    return time.perf_counter() - began_at


class Attacher:
    """What can be asked of the bare client."""

    def __init__(self, cluster: Cluster, pods: Informer) -> None:
        self._cluster = cluster
        self._pods = pods
        self._open: BarePod | None = None

    async def start(self, count: int) -> list[tuple[float, float]]:
        """Start pods at once, and remove them again.

        Returns:
            Of each the seconds from creating it to seeing that it runs, and to its first byte.
        """
        pods = [await self._prepare() for _ in range(count)]
        async with asyncio.TaskGroup() as group:
            started = [group.create_task(pod.start()) for pod in pods]
        for pod in pods:
            await pod.remove()
        return [task.result() for task in started]

    async def open(self) -> None:
        """Start a pod whose terminal stays open."""
        self._open = await self._prepare()
        await self._open.start()

    async def flood(self, total_bytes: int) -> float:
        """Return the seconds that output takes."""
        pod = self._opened()
        began_at = time.perf_counter()
        await pod.opened().write(FLOOD_KEY.encode())
        async with asyncio.timeout(WAIT_SECONDS):
            await pod.read(total_bytes)
        return time.perf_counter() - began_at

    async def echo(self, count: int) -> list[float]:
        """Type letters one at a time; return how long each took to come back."""
        lasted, pod = [], self._opened()
        for _ in range(count):
            typed_at = time.perf_counter()
            await pod.opened().write(b"k")
            await pod.read(1)
            lasted.append(time.perf_counter() - typed_at)
            await asyncio.sleep(KEY_SECONDS)
        return lasted

    async def close(self) -> None:
        """Remove the pod whose terminal is open."""
        await self._opened().remove()
        self._open = None

    def _opened(self) -> BarePod:
        if self._open is None:
            raise RuntimeError("no terminal is open")
        return self._open

    async def _prepare(self) -> BarePod:
        """Make a new pod's ConfigMap."""
        session_id = secrets.token_hex(6)
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
            limits=Limits(400, 512 * 2**20, 2**30, 3600),
        )
        manifest = build_run_pod(
            RunPodSpec(
                session=spec, namespace=self._cluster.namespace, managed_by=MANAGED_BY, env={}
            )
        )
        return BarePod(self._cluster, self._pods, manifest)


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
            await obey(Attacher(cluster, pods))
        finally:
            await aio.stop(watching)


if __name__ == "__main__":
    asyncio.run(_run())
