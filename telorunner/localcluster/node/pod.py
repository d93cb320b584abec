"""One pod on the node, from its volumes to its removal.

`PodRunner.run` owns every task of its pod; the agent owns the task that runs it. Whatever ends
it, no process of the pod is left.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from telorunner import aio
from telorunner.localcluster import deletion
from telorunner.localcluster.defaulting import DEFAULT_GRACE_SECONDS
from telorunner.localcluster.node.addresses import AddressPool
from telorunner.localcluster.node.reporter import Reporter
from telorunner.localcluster.node.run import ContainerRun, PodContext
from telorunner.localcluster.node.settings import NODE_NAME, NodeSettings
from telorunner.localcluster.node.status import PodView
from telorunner.localcluster.node.sweep import PODS_FOLDER
from telorunner.localcluster.node.volumes import VolumeTrouble, make_volumes, remove_tree
from telorunner.localcluster.recorder import WARNING, EventRecorder
from telorunner.localcluster.statuses import kind_of
from telorunner.localcluster.store import Store, StoreError

logger = logging.getLogger(__name__)

# A real node needs as long for the sandbox and its network.
SANDBOX_SECONDS = 0.4
MOUNT_RETRY_SECONDS = 1.0
CLEANUP_SECONDS = 10.0
# The shortest time that a kubelet gives a container between asking and killing.
# Source: kubernetes/pkg/kubelet/kuberuntime/kuberuntime_container.go, minimumGracePeriodInSeconds
MIN_GRACE_SECONDS = 2
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


class PodRunner:
    """Runs one pod. `update` and `mark_removed` are told what happens to it in the API."""

    def __init__(
        self,
        pod: Mapping[str, Any],
        store: Store,
        settings: NodeSettings,
        addresses: AddressPool,
    ) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        self.pod = pod
        self.uid: str = metadata["uid"]
        self.namespace: str = metadata["namespace"]
        self.name: str = metadata["name"]
        self._store = store
        self._addresses = addresses
        self._loop = asyncio.get_running_loop()
        self._started_at = time.time()
        self._has_delays = settings.kubelet_delays
        self.reporter = Reporter(store, pod, has_delays=settings.kubelet_delays)
        folder = settings.state_dir / PODS_FOLDER / self.uid
        events = EventRecorder(store, pod, "kubelet", host=NODE_NAME)
        self._context = PodContext(pod, folder, settings, events, self._lookup, self._show)
        init = spec.get("initContainers", [])
        make_run = partial(self._make_run, waits_for_init=bool(init))
        self.init_runs = [make_run(one, is_init=True) for one in init]
        self.runs = [make_run(one, is_init=False) for one in spec["containers"]]
        self._has_sandbox = False
        self._is_final = False
        self._reason = self._message = ""
        self._halted = asyncio.Event()
        self._deleted = asyncio.Event()
        self._kill_at = float("inf")
        self._kill_timer: asyncio.TimerHandle | None = None

    def _make_run(
        self, spec: Mapping[str, Any], *, is_init: bool, waits_for_init: bool
    ) -> ContainerRun:
        folder = self._context.folder / "containers" / spec["name"]
        return ContainerRun(spec, folder, is_init=is_init, waits_for_init=waits_for_init)

    @property
    def all_runs(self) -> list[ContainerRun]:
        """Every container, init containers first."""
        return [*self.init_runs, *self.runs]

    @property
    def folder(self) -> Path:
        """Where the pod keeps its files on this machine."""
        return self._context.folder

    def update(self, pod: Mapping[str, Any]) -> None:
        """Take note of the pod's newest version: its deletion, above all."""
        self.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            if not self._deleted.is_set():
                self.reporter.acknowledge()
            self._deleted.set()
            self.halt(pod["metadata"].get("deletionGracePeriodSeconds", DEFAULT_GRACE_SECONDS))

    def mark_removed(self) -> None:
        """Take note that the pod is gone from the API: what is left of it has its own time to end.

        How long whoever removed it wanted to wait is nowhere to be read any more.
        """
        self._deleted.set()
        self.halt(self._grace_seconds())

    def halt(self, grace_seconds: float, reason: str = "", message: str = "") -> None:
        """Stop the containers; the first reason stays, the shortest grace period counts."""
        if not self._halted.is_set():
            self._reason, self._message = reason, message
            self._halted.set()
            if reason and not self._is_final:
                self._show()
        self._limit_end(grace_seconds)

    def _limit_end(self, grace_seconds: float) -> None:
        """Have the containers killed after a time, unless that is to be earlier already."""
        kill_at = self._loop.time() + max(grace_seconds, MIN_GRACE_SECONDS)
        if kill_at < self._kill_at:
            self._kill_at = kill_at
            if self._kill_timer is not None:
                self._kill_timer.cancel()
            self._kill_timer = self._loop.call_at(kill_at, self._kill)

    def evict(self, message: str) -> None:
        """Stop the containers at once, because the pod uses more of the node than it may."""
        if not self._is_final and not self._halted.is_set():
            self._context.events.record("Evicted", message, type_=WARNING)
            self.halt(0, "Evicted", message)

    def remove_from_api(self) -> None:
        """Take the pod out of the API, if it is still this one and nobody's finalizer holds it."""
        current = self._store.find("pods", self.namespace, self.name)
        if current is not None:
            options = deletion.DeleteOptions(grace_seconds=0, uid=self.uid)
            with suppress(StoreError):
                deletion.delete(self._store, kind_of("pods"), current, options)

    async def run(self) -> None:
        """Run the pod until it has been removed; being cancelled kills its containers."""
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [
                    group.create_task(self.reporter.run(), name=f"status of {self.name}"),
                    group.create_task(self._keep_deadline(), name=f"deadline of {self.name}"),
                ]
                await self._run_to_end()
                await self._conclude()
                await self._deleted.wait()
                for helper in helpers:
                    helper.cancel()
        finally:
            await aio.finish(
                self._clean_up(), name=f"clean-up of {self.name}", timeout_seconds=CLEANUP_SECONDS
            )
        # Last, as a kubelet does: who sees the pod gone finds nothing of it left.
        self.remove_from_api()

    async def _run_to_end(self) -> None:
        """Run the containers until all have ended or the pod is to stop."""
        async with asyncio.TaskGroup() as group:
            sidecars: list[asyncio.Task[bool]] = []
            lead = group.create_task(self._live(group, sidecars), name=f"containers of {self.name}")
            halted = group.create_task(self._halted.wait(), name=f"halt of {self.name}")
            await asyncio.wait({lead, halted}, return_when=asyncio.FIRST_COMPLETED)
            halted.cancel()
            left = {task for task in (lead, *sidecars) if not task.done()}
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)
        await self._stop_containers()

    async def _live(self, group: asyncio.TaskGroup, sidecars: list[asyncio.Task[bool]]) -> None:
        try:
            await self._start_and_wait(group, sidecars)
        except Exception:
            # The session's owner must hear of it; an agent that dies of one pod helps nobody.
            logger.exception("Pod %s/%s cannot be run.", self.namespace, self.name)
            self.halt(0, "NodeError", "the local cluster's node agent failed; see its log")

    async def _start_and_wait(
        self, sidecar_group: asyncio.TaskGroup, sidecars: list[asyncio.Task[bool]]
    ) -> None:
        self._show()
        policy = self.pod["spec"].get("restartPolicy", "Always")
        if policy != "Never":
            message = f"restartPolicy {policy} is treated as Never: no container starts again"
            self._context.events.record("RestartPolicyIgnored", message, type_=WARNING)
        await self._make_volumes()
        if self._has_delays:
            await asyncio.sleep(SANDBOX_SECONDS)
        self._context = replace(self._context, pod_ip=await self._addresses.take())
        self._has_sandbox = True
        self._show()
        for run in self.init_runs:
            if run.is_sidecar:
                living = run.live(self._context)
                sidecars.append(
                    sidecar_group.create_task(living, name=f"{run.name} of {self.name}")
                )
                await run.has_started.wait()
            elif not await run.live(self._context):
                return
            if self._has_delays:
                # A kubelet learns of it by looking, and reports it before it goes on.
                await self.reporter.settled()
        async with asyncio.TaskGroup() as group:
            for run in self.runs:
                group.create_task(run.live(self._context), name=f"{run.name} of {self.name}")

    async def _make_volumes(self) -> None:
        told = ""
        for run in self.all_runs:
            run.folder.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                make_volumes(self.pod, self._context.volumes_dir, self._lookup)
            except VolumeTrouble as exc:
                if exc.message != told:
                    self._context.events.record("FailedMount", exc.message, type_=WARNING)
                told = exc.message
            else:
                return
            await asyncio.sleep(MOUNT_RETRY_SECONDS)

    async def _stop_containers(self) -> None:
        """Ask the containers to end and wait until they have: the sidecars last, latest first."""
        sidecars = [run for run in reversed(self.init_runs) if run.is_sidecar]
        others = [run for run in self.all_runs if not run.is_sidecar]
        if any(run.is_running for run in sidecars):
            self._limit_end(self._grace_seconds())
        for runs in (others, *([run] for run in sidecars)):
            for run in runs:
                self._ask_to_end(run)
            await self._wait_ends(runs)

    def _ask_to_end(self, run: ContainerRun) -> None:
        if not run.is_running or run.container is None:
            return
        self._context.events.record(
            "Killing", f"Stopping container {run.name}", field_path=run.field_path
        )
        run.container.terminate()
        if self._loop.time() >= self._kill_at:
            run.container.kill()

    async def _wait_ends(self, runs: Iterable[ContainerRun]) -> None:
        for run in runs:
            if run.is_running and run.container is not None:
                await run.container.wait()
                run.note_end(self._context)

    def _grace_seconds(self) -> float:
        seconds: float = self.pod["spec"].get(
            "terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS
        )
        return seconds

    def _kill(self) -> None:
        for run in self.all_runs:
            if run.container is not None:
                run.container.kill()

    async def _conclude(self) -> None:
        """Report the end; a kubelet tells the containers' ends before the pod's phase."""
        if self._has_delays and not self._halted.is_set():
            self._show()
            await self.reporter.settled()
        self._lose_unstarted()
        self._has_sandbox = False
        self._is_final = True
        self._show()
        await self.reporter.settled()

    def _lose_unstarted(self) -> None:
        """Give up the containers whose turn it was, but not those that wait for others.

        Source: kubernetes/pkg/kubelet/status/status_manager.go, TerminatePod
        """
        init = [run.view() for run in self.init_runs]
        reached = max((index for index, view in enumerate(init) if not view.is_waiting), default=0)
        for run in self.init_runs[: reached + 1]:
            run.lose()
        if all(view.has_initialized for view in init):
            for run in self.runs:
                run.lose()

    async def _keep_deadline(self) -> None:
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        if seconds is None:
            return
        await asyncio.sleep(self._started_at + seconds - time.time())
        if not self._is_final and not self._halted.is_set():
            self._context.events.record("DeadlineExceeded", DEADLINE_MESSAGE)
            self.halt(self._grace_seconds(), "DeadlineExceeded", DEADLINE_MESSAGE)

    def _show(self) -> None:
        self.reporter.show(
            PodView(
                containers=tuple(run.view() for run in self.runs),
                init_containers=tuple(run.view() for run in self.init_runs),
                started_at=self._started_at,
                pod_ip=self._context.pod_ip,
                has_sandbox=self._has_sandbox,
                is_final=self._is_final,
                reason=self._reason,
                message=self._message,
            )
        )

    def _lookup(self, resource: str, name: str) -> dict[str, Any] | None:
        return self._store.find(resource, self.namespace, name)

    async def _clean_up(self) -> None:
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        try:
            self._kill()
            await self._wait_ends(self.all_runs)
            await asyncio.to_thread(remove_tree, self._context.folder)
        finally:
            if self._context.pod_ip:
                self._addresses.give_back(self._context.pod_ip)
