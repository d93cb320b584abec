"""Writes a pod's status to the API, at once or as late as a kubelet does.

A kubelet looks at its containers once a second, so that what happens in between is never told.
The task of `run` belongs to the pod's runner; without delays it has nothing to do.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from telorunner.localcluster.node.status import PodView, State, build_status
from telorunner.localcluster.store import Store

# Source: the kubelet's period of listing its containers.
PERIOD_SECONDS = 1.0


class Reporter:
    """Reports one pod. `reported` is what the API was last told."""

    def __init__(self, store: Store, pod: Mapping[str, Any], *, has_delays: bool) -> None:
        self._store = store
        self._namespace = pod["metadata"]["namespace"]
        self._name = pod["metadata"]["name"]
        self._uid = pod["metadata"]["uid"]
        self._has_delays = has_delays
        self._accepted_at = asyncio.get_running_loop().time()
        self._latest: PodView | None = None
        self._is_due = asyncio.Event()
        self._is_settled = asyncio.Event()
        self.reported: PodView | None = None

    def show(self, view: PodView) -> None:
        """Report a pod as it is now. The first report is never late."""
        self._latest = view
        if self.reported is None or not self._has_delays:
            self._write()
        else:
            self._is_settled.clear()
            self._is_due.set()

    def acknowledge(self) -> None:
        """Report once more what the API was last told, of the pod's newest generation."""
        if self.reported is not None:
            self._store_status(self.reported)

    async def settled(self) -> None:
        """Wait until what was shown last has been reported."""
        await self._is_settled.wait()

    async def run(self) -> None:
        """Report in the kubelet's rhythm, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._is_due.wait()
            elapsed = (loop.time() - self._accepted_at) % PERIOD_SECONDS
            await asyncio.sleep(PERIOD_SECONDS - elapsed)
            self._write()

    def state_of(self, container: str) -> State | None:
        """Return a container's state as the API was last told, None where it was not."""
        if self.reported is not None:
            for view in (*self.reported.init_containers, *self.reported.containers):
                if view.name == container:
                    return view.state
        return None

    def _write(self) -> None:
        view = self._latest
        if view is not None:
            self._store_status(view)
        self.reported = view
        self._is_due.clear()
        self._is_settled.set()

    def _store_status(self, view: PodView) -> None:
        pod = self._store.find("pods", self._namespace, self._name)
        if pod is not None and pod["metadata"]["uid"] == self._uid:
            status = build_status(pod, view, time.time())
            self._store.replace("pods", {**pod, "status": status}, subresource="status")
