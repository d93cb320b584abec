"""Binds pods to the one node of the local cluster, or says why it cannot; and that node itself.

The node promises far more than most machines have: what runs here is for trying out, and the
quota and the product's own limits are what should be felt first.
"""

import os
import platform
from decimal import Decimal
from typing import Any

from telorunner.localcluster.node.settings import HOST_IP, NODE_NAME
from telorunner.localcluster.quota import TERMINAL_PHASES, usage
from telorunner.localcluster.recorder import WARNING, EventRecorder
from telorunner.localcluster.statuses import kind_of
from telorunner.localcluster.store import Change, Store, StoreError, timestamp
from telorunner.values.quantity import parse_quantity

SERVER_VERSION = "v1.34.4"
_SCHEDULER = "default-scheduler"
ALLOCATABLE = {"cpu": "1024", "memory": "4Ti", "ephemeral-storage": "64Ti", "pods": "2000"}
_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_NOT_HELPFUL = (
    "no new claims to deallocate, preemption: 0/1 nodes are available:"
    " 1 Preemption is not helpful for scheduling."
)


def ensure_node(store: Store) -> None:
    """Create the node, ready, unless it is there."""
    if store.find("nodes", "", NODE_NAME) is not None:
        return
    labels = {
        "kubernetes.io/arch": _architecture(),
        "kubernetes.io/hostname": NODE_NAME,
        "kubernetes.io/os": "linux",
    }
    metadata = {"name": NODE_NAME, "labels": labels}
    store.create("nodes", {"metadata": metadata, "spec": {}, "status": _node_status()})


def _node_status() -> dict[str, Any]:
    now = timestamp()
    ready = {
        "type": "Ready",
        "status": "True",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
        "reason": "KubeletReady",
        "message": "the node runs pods as local processes; it is no sandbox",
    }
    info = {
        "kernelVersion": os.uname().release,
        "osImage": "local processes, no sandbox",
        "containerRuntimeVersion": "telorunner-local://1",
        "kubeletVersion": SERVER_VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": _architecture(),
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
    }
    return {
        "capacity": ALLOCATABLE,
        "allocatable": ALLOCATABLE,
        "conditions": [ready],
        "addresses": [
            {"type": "InternalIP", "address": HOST_IP},
            {"type": "Hostname", "address": NODE_NAME},
        ],
        "nodeInfo": info,
    }


class Scheduler:
    """Binds the pods of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # What each pod on the node asks for, by uid, and all of them together: adding it up anew
        # for every pod would make a thousand of them slow.
        self._asked: dict[str, tuple[Decimal, ...]] = {}
        self._taken = [Decimal(0)] * len(_RESOURCES)

    def note(self, change: Change) -> None:
        """Keep account of what the pods on the node ask for."""
        pod = change.obj
        uid = pod["metadata"]["uid"]
        is_running = (
            change.type != "DELETED"
            and "nodeName" in pod["spec"]
            and (pod.get("status") or {}).get("phase") not in TERMINAL_PHASES
        )
        if is_running and uid not in self._asked:
            self._asked[uid] = _requests(pod)
            self._take(self._asked[uid], 1)
        elif not is_running and uid in self._asked:
            self._take(self._asked.pop(uid), -1)

    def _take(self, amounts: tuple[Decimal, ...], sign: int) -> None:
        for index, amount in enumerate(amounts):
            self._taken[index] += sign * amount

    def schedule(self, namespace: str, name: str) -> None:
        """Bind a pod that waits for a node, or note on it why there is none for it."""
        pod = self._store.find("pods", namespace, name)
        if pod is None or "nodeName" in pod["spec"] or "deletionTimestamp" in pod["metadata"]:
            return
        if pod["spec"]["schedulerName"] != _SCHEDULER or pod["spec"].get("schedulingGates"):
            return
        obstacles = self._obstacles(pod)
        if not obstacles:
            bind(self._store, pod, NODE_NAME)
            message = f"Successfully assigned {namespace}/{name} to {NODE_NAME}"
            self._record(pod, "Scheduled", message, action="Binding")
        else:
            found = ", ".join(sorted(f"1 {obstacle}" for obstacle in obstacles))
            self._note_obstacle(pod, f"0/1 nodes are available: {found}. {_NOT_HELPFUL}")

    def _record(self, pod: dict[str, Any], reason: str, message: str, **fields: str) -> None:
        events = EventRecorder(self._store, pod, _SCHEDULER, host=f"{_SCHEDULER}-{NODE_NAME}")
        events.record(reason, message, **fields)

    def _note_obstacle(self, pod: dict[str, Any], message: str) -> None:
        conditions = (pod.get("status") or {}).get("conditions") or []
        if any(condition.get("message") == message for condition in conditions):
            return
        condition = {
            "observedGeneration": pod["metadata"].get("generation", 1),
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
        }
        status = _with_condition(pod, condition)
        self._store.replace("pods", {**pod, "status": status}, subresource="status")
        self._record(pod, "FailedScheduling", message, type_=WARNING, action="Scheduling")

    def _obstacles(self, pod: dict[str, Any]) -> list[str]:
        """Return why the node does not do for a pod; nothing where it does."""
        node = self._store.get("nodes", "", NODE_NAME)
        labels = node["metadata"].get("labels") or {}
        wanted = pod["spec"].get("nodeSelector") or {}
        if not wanted.items() <= labels.items():
            return ["node(s) didn't match Pod's node affinity/selector"]
        if node["spec"].get("unschedulable"):
            return ["node(s) were unschedulable"]
        obstacles = [
            f"Insufficient {resource}"
            for resource, taken, amount in zip(_RESOURCES, self._taken, _requests(pod), strict=True)
            if taken + amount > parse_quantity(ALLOCATABLE[resource])
        ]
        if len(self._asked) >= int(ALLOCATABLE["pods"]):
            obstacles.append("Too many pods")
        return obstacles


def bind(store: Store, pod: dict[str, Any], node: str) -> None:
    """Bind a pod to a node.

    Raises:
        StoreError: 409, it is bound already or was changed meanwhile.
    """
    if "nodeName" in pod["spec"]:
        message = (
            f'pod {pod["metadata"]["name"]} is already assigned to node "{pod["spec"]["nodeName"]}"'
        )
        raise StoreError(409, "Conflict", message)
    status = _with_condition(pod, {"status": "True"})
    store.replace("pods", {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status})


def _with_condition(pod: dict[str, Any], condition: dict[str, Any]) -> dict[str, Any]:
    """Return a pod's status with the condition PodScheduled in it."""
    status = pod.get("status") or {}
    others = [
        found for found in status.get("conditions") or [] if found.get("type") != "PodScheduled"
    ]
    scheduled = {
        "type": "PodScheduled",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(),
        **condition,
    }
    return {**status, "conditions": [*others, scheduled]}


def _requests(pod: dict[str, Any]) -> tuple[Decimal, ...]:
    kind = kind_of("pods")
    return tuple(parse_quantity(usage(kind, pod, f"requests.{name}")) for name in _RESOURCES)


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
