"""The node agent: runs the pods that are bound to the node and answers for their containers.

It watches the store, keeps a `PodRunner` for every pod, and owns their tasks. It reports to the
store and decides nothing that is the scheduler's or the API's.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from telorunner.localcluster.node import limits, logs
from telorunner.localcluster.node.addresses import AddressPool
from telorunner.localcluster.node.container import Container, ContainerUnavailable
from telorunner.localcluster.node.images import Images
from telorunner.localcluster.node.logs import LogRequest
from telorunner.localcluster.node.pod import PodRunner
from telorunner.localcluster.node.run import ContainerRun
from telorunner.localcluster.node.settings import NODE_NAME, NodeSettings
from telorunner.localcluster.node.status import State, Waiting
from telorunner.localcluster.node.sweep import PODS_FOLDER, kill_leftovers
from telorunner.localcluster.node.volumes import remove_tree
from telorunner.localcluster.quota import TERMINAL_PHASES
from telorunner.localcluster.store import Store, StoreError

__all__ = [
    "NODE_NAME",
    "ContainerUnavailable",
    "Images",
    "LogRequest",
    "NodeAgent",
    "NodeSettings",
]

logger = logging.getLogger(__name__)

GONE = 410


class NodeAgent:
    """The one node of a local cluster. `run` belongs on the main thread; see `process`."""

    def __init__(self, store: Store, settings: NodeSettings) -> None:
        self._store = store
        # Processes are known by this path, so it must not depend on the working directory.
        self._settings = replace(settings, state_dir=settings.state_dir.resolve())
        self._addresses = AddressPool(settings.address_range)
        self._runners: dict[str, PodRunner] = {}

    async def run(self) -> None:
        """Run pods until cancelled; every container that was started is then killed."""
        await asyncio.to_thread(self._clear_leftovers)
        async with asyncio.TaskGroup() as group:
            group.create_task(limits.watch_memory(self._runners.values), name="memory limits")
            period = self._settings.storage_period_seconds
            storage = limits.watch_storage(self._live_runners, period)
            group.create_task(storage, name="storage limits")
            await self._watch(group)

    def container(self, namespace: str, pod: str, container: str | None) -> Container:
        """Return a running container to attach to; None names the only one.

        Raises:
            ContainerUnavailable: There is none, or it does not run.
        """
        run = self._find_run(self._find_runner(namespace, pod), container)
        if run.container is None and isinstance(run.state, Waiting):
            raise ContainerUnavailable(400, _waiting_message(run.name, pod, run.state))
        if run.container is None or not run.container.is_running:
            raise ContainerUnavailable(500, f'container "{run.name}" in pod "{pod}" is not running')
        return run.container

    def read_log(self, request: LogRequest) -> AsyncIterator[bytes]:
        """Return a container's log in pieces; following ends with the container.

        Raises:
            ContainerUnavailable: There is no such log, or not yet; a moment is malformed.
        """
        runner = self._find_runner(request.namespace, request.pod)
        run = self._find_run(runner, request.container)
        if request.previous:
            what = f'previous terminated container "{run.name}" in pod "{request.pod}" not found'
            raise ContainerUnavailable(400, what)
        # What the API was told counts, as on a real cluster, where it knows no better.
        state = runner.reporter.state_of(run.name)
        if state is None or isinstance(state, Waiting):
            raise ContainerUnavailable(400, _waiting_message(run.name, request.pod, state))
        try:
            logs.read_since(request, time.time_ns())
        except ValueError as exc:
            raise ContainerUnavailable(400, f"sinceTime: {exc}") from exc
        return logs.read_log(run.log, request)

    async def _watch(self, group: asyncio.TaskGroup) -> None:
        while True:
            pods, version = self._store.list("pods")
            listed = {pod["metadata"]["uid"] for pod in pods}
            for uid, runner in self._runners.items():
                if uid not in listed:
                    runner.mark_removed()
            for pod in pods:
                self._apply(pod, group)
            try:
                async for type_, pod in self._store.watch("pods", None, version):
                    if type_ == "DELETED":
                        gone = self._runners.get(pod["metadata"]["uid"])
                        if gone is not None:
                            gone.mark_removed()
                    else:
                        self._apply(pod, group)
            except StoreError as exc:
                if exc.status_code != GONE:
                    raise

    def _apply(self, pod: Mapping[str, Any], group: asyncio.TaskGroup) -> None:
        if pod["spec"].get("nodeName") != NODE_NAME:
            return
        uid = pod["metadata"]["uid"]
        runner = self._runners.get(uid)
        if runner is None:
            metadata = pod["metadata"]
            current = self._store.find("pods", metadata["namespace"], metadata["name"])
            if current is None or current["metadata"]["uid"] != uid:
                return  # An old change of a pod that is gone already.
            if (current.get("status") or {}).get("phase") in TERMINAL_PHASES:
                return  # It has run; a finalizer keeps it in the API.
            runner = PodRunner(pod, self._store, self._settings, self._addresses)
            self._runners[uid] = runner
            group.create_task(self._run_pod(runner), name=f"pod {runner.name}")
        runner.update(pod)

    async def _run_pod(self, runner: PodRunner) -> None:
        try:
            await runner.run()
        except Exception:
            # One pod's trouble is not another's. Nothing of it runs any more, so it goes.
            logger.exception("Pod %s/%s cannot be run.", runner.namespace, runner.name)
            runner.remove_from_api()
        finally:
            self._runners.pop(runner.uid, None)

    def _live_runners(self) -> list[PodRunner]:
        return list(self._runners.values())

    def _find_runner(self, namespace: str, name: str) -> PodRunner:
        # The newest of that name: one that was removed by force may still be ending.
        for runner in reversed(self._runners.values()):
            if (runner.namespace, runner.name) == (namespace, name):
                return runner
        if self._store.find("pods", namespace, name) is not None:
            raise ContainerUnavailable(400, f"pod {name} does not have a host assigned")
        raise ContainerUnavailable(404, f'pods "{name}" not found')

    def _find_run(self, runner: PodRunner, name: str | None) -> ContainerRun:
        if name is None and len(runner.runs) == 1:
            return runner.runs[0]
        if name is None:
            names = " ".join(run.name for run in runner.runs)
            message = (
                f"a container name must be specified for pod {runner.name},"
                f" choose one of: [{names}]"
            )
            raise ContainerUnavailable(400, message)
        for run in runner.all_runs:
            if run.name == name:
                return run
        raise ContainerUnavailable(400, f"container {name} is not valid for pod {runner.name}")

    def _clear_leftovers(self) -> None:
        pods_dir = self._settings.state_dir / PODS_FOLDER
        killed = kill_leftovers(pods_dir)
        if killed:
            logger.warning("Killed %d processes that an earlier local cluster left.", killed)
        remove_tree(pods_dir)
        pods_dir.mkdir(parents=True)


def _waiting_message(container: str, pod: str, state: State | None) -> str:
    reason = state.reason if isinstance(state, Waiting) else "ContainerCreating"
    # Source: kubernetes/pkg/kubelet/kubelet_pods.go, validateContainerLogStatus
    said = {
        "ErrImagePull": "image can't be pulled",
        "ImagePullBackOff": "trying and failing to pull image",
    }
    return f'container "{container}" in pod "{pod}" is waiting to start: {said.get(reason, reason)}'
