"""A store with a node agent on it, without the API server, for the tests of the node."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from telorunner import aio
from telorunner.localcluster.node.agent import NodeAgent, NodeSettings
from telorunner.localcluster.node.container import Attachment, Container
from telorunner.localcluster.node.logs import LogRequest
from telorunner.localcluster.node.sweep import find_processes, node_marker
from telorunner.localcluster.store import Store

NAMESPACE = "telo-sessions"
WAIT_SECONDS = 30.0
TERMINAL = {"Succeeded", "Failed"}

Pod = dict[str, Any]


def make_pod(name: str = "one", *command: str, **container: Any) -> Pod:
    """Return a pod bound to the node, with one container; keys of the pod's spec go in `spec`."""
    spec = container.pop("spec", {})
    main = {"name": "session", "image": "busybox:stable", "command": list(command), **container}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "generation": 1},
        "spec": {"nodeName": "local", "restartPolicy": "Never", "containers": [main], **spec},
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }


class Node:
    """A running node, and what a test asks of it."""

    def __init__(self, store: Store, agent: NodeAgent, state_dir: Path) -> None:
        self.store = store
        self.agent = agent
        self.state_dir = state_dir

    def create(self, pod: Pod) -> Pod:
        return self.store.create("pods", pod)

    def status(self, name: str = "one") -> dict[str, Any]:
        status: dict[str, Any] = self.store.get("pods", NAMESPACE, name)["status"]
        return status

    def state(self, name: str = "one", index: int = 0) -> dict[str, Any]:
        state: dict[str, Any] = self.status(name)["containerStatuses"][index]["state"]
        return state

    def events(self, name: str = "one") -> list[tuple[str, str]]:
        events, _ = self.store.list("events", NAMESPACE)
        ours = [one for one in events if one["involvedObject"]["name"] == name]
        ours.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [(one["reason"], one["message"]) for one in ours]

    async def until(self, test: Callable[[Pod], bool], name: str = "one") -> Pod:
        """Wait until a version of the pod passes the test, and return that version."""
        pods, version = self.store.list("pods", NAMESPACE)
        for pod in pods:
            if pod["metadata"]["name"] == name and test(pod):
                return pod
        async with asyncio.timeout(WAIT_SECONDS):
            async for _, pod in self.store.watch("pods", NAMESPACE, version):
                if pod["metadata"]["name"] == name and test(pod):
                    return pod
        raise AssertionError("the watch ended")

    async def until_running(self, name: str = "one") -> Container:
        await self.until(lambda pod: "running" in _first_state(pod), name)
        return self.agent.container(NAMESPACE, name, None)

    async def until_ended(self, name: str = "one") -> Pod:
        return await self.until(lambda pod: pod["status"]["phase"] in TERMINAL, name)

    async def until_waiting(self, reason: str, name: str = "one") -> Pod:
        return await self.until(
            lambda pod: _first_state(pod).get("waiting", {}).get("reason") == reason, name
        )

    async def delete(self, name: str = "one", grace_seconds: int = 2) -> None:
        """Delete a pod as the API server does, and wait until it is gone."""
        pod = self.store.get("pods", NAMESPACE, name)
        metadata = {
            **pod["metadata"],
            "deletionTimestamp": "2030-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": grace_seconds,
        }
        version = int(
            self.store.replace("pods", {**pod, "metadata": metadata})["metadata"]["resourceVersion"]
        )
        async with asyncio.timeout(WAIT_SECONDS):
            async for type_, seen in self.store.watch("pods", NAMESPACE, version):
                if type_ == "DELETED" and seen["metadata"]["name"] == name:
                    return

    async def log(self, name: str = "one", **options: Any) -> bytes:
        request = LogRequest(NAMESPACE, name, **options)
        async with asyncio.timeout(WAIT_SECONDS):
            return b"".join([piece async for piece in self.agent.read_log(request)])

    async def until_logged(self, text: bytes, name: str = "one") -> None:
        """Wait until a running container has written a line that holds `text`."""
        request = LogRequest(NAMESPACE, name, follow=True)
        seen = b""
        async with asyncio.timeout(WAIT_SECONDS):
            async for piece in self.agent.read_log(request):
                seen += piece
                if text in seen:
                    return
        raise AssertionError(f"the log ended at {seen[-200:]!r}")

    def processes(self) -> list[int]:
        return processes_of(self.state_dir)


def processes_of(state_dir: Path) -> list[int]:
    """Return the processes of every container of a node."""
    return find_processes(node_marker(state_dir / "pods"))


async def until_true(test: Callable[[], object]) -> None:
    """Wait for something that nothing tells of."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not test():  # noqa: ASYNC110 - there is nothing else to wait on
            await asyncio.sleep(0)


def _first_state(pod: Pod) -> dict[str, Any]:
    statuses = pod["status"].get("containerStatuses") or [{}]
    state: dict[str, Any] = statuses[0].get("state", {})
    return state


@asynccontextmanager
async def open_node(state_dir: Path, **settings: Any) -> AsyncIterator[Node]:
    """Run a node agent on a store of its own."""
    store = Store()
    agent = NodeAgent(store, NodeSettings(state_dir, **settings))
    task = aio.start(agent.run(), name="node agent")
    try:
        yield Node(store, agent, state_dir)
    finally:
        await aio.stop(task)


async def read_all(attachment: Attachment) -> bytes:
    """Read an attachment's output to its end."""
    pieces = []
    async with asyncio.timeout(WAIT_SECONDS):
        while (piece := await attachment.read()) is not None:
            pieces.append(piece[1])
    return b"".join(pieces)


async def read_until(attachment: Attachment, wanted: bytes) -> bytes:
    """Read an attachment's output until it holds `wanted`."""
    seen = b""
    async with asyncio.timeout(WAIT_SECONDS):
        while wanted not in seen:
            piece = await attachment.read()
            assert piece is not None, f"output ended at {seen[-200:]!r}"
            seen += piece[1]
    return seen


def digest(data: bytes) -> str:
    """Return a short form of bytes, so that a difference is readable."""
    return f"{len(data)} bytes, {hashlib.sha256(data).hexdigest()[:16]}"
