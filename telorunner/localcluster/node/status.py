"""The status of a pod as a kubelet reports it. Pure.

Fields, orders and wording are those of Kubernetes 1.34; what only its own parts read (node-side
user names) is left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from telorunner.localcluster.node.settings import HOST_IP
from telorunner.localcluster.quota import TERMINAL_PHASES

# What a container that never started says of its start.
NEVER_STARTED = 0.0
# How a kubelet reports a container that it was about to start when the pod ended.
LOST = "ContainerStatusUnknown"
LOST_CODE = 137


@dataclass(frozen=True)
class Waiting:
    """A container that does not run yet."""

    reason: str
    message: str = ""


@dataclass(frozen=True)
class Running:
    """A container that runs; the time in seconds since 1970."""

    started_at: float


@dataclass(frozen=True)
class Terminated:
    """A container that has ended; times in seconds since 1970, None where nobody knows them."""

    exit_code: int
    reason: str
    started_at: float | None
    finished_at: float | None
    message: str = ""


State = Waiting | Running | Terminated


@dataclass(frozen=True)
class ContainerView:
    """What a status says of one container. `container_id` is empty before it was made."""

    spec: Mapping[str, Any]
    state: State
    container_id: str = ""
    image_id: str = ""
    is_sidecar: bool = False

    @property
    def name(self) -> str:
        """The container's name."""
        return str(self.spec["name"])

    @property
    def is_ready(self) -> bool:
        """Whether it runs; there are no probes here."""
        return isinstance(self.state, Running)

    @property
    def has_succeeded(self) -> bool:
        """Whether it ended with exit code 0."""
        return isinstance(self.state, Terminated) and self.state.exit_code == 0

    @property
    def is_waiting(self) -> bool:
        """Whether it has not been started; one that the end of the pod forestalled is such."""
        is_lost = isinstance(self.state, Terminated) and self.state.reason == LOST
        return is_lost or isinstance(self.state, Waiting)

    @property
    def has_initialized(self) -> bool:
        """Whether the next container may start: this one has succeeded, or runs beside it."""
        return not self.is_waiting if self.is_sidecar else self.has_succeeded

    @property
    def has_failed(self) -> bool:
        """Whether it ended and its pod with it."""
        is_over = isinstance(self.state, Terminated) and not self.is_waiting
        return is_over and not self.is_sidecar and not self.has_succeeded


@dataclass(frozen=True)
class PodView:
    """What a status says of a pod.

    `reason` and `message` are of the pod itself (DeadlineExceeded, Evicted). `is_final` tells
    that nothing of it runs or will run, so that the phase may say so.
    """

    containers: tuple[ContainerView, ...]
    init_containers: tuple[ContainerView, ...] = ()
    started_at: float = 0.0
    pod_ip: str = ""
    has_sandbox: bool = False
    is_final: bool = False
    reason: str = ""
    message: str = ""


def format_moment(seconds: float) -> str:
    """Return a moment, in seconds since 1970, as the API writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def phase_of(view: PodView) -> str:
    """Return the phase that the containers stand for, under restartPolicy Never.

    Source: kubernetes/pkg/kubelet/kubelet_pods.go, getPhase
    """
    if view.reason:
        return "Failed"
    if any(container.has_failed for container in view.init_containers):
        return "Failed"
    if not all(container.has_initialized for container in view.init_containers):
        return "Pending"
    if any(container.is_waiting for container in view.containers):
        return "Pending"
    # Only a sidecar can still run among the init containers here.
    if any(isinstance(one.state, Running) for one in (*view.init_containers, *view.containers)):
        return "Running"
    return "Succeeded" if all(c.has_succeeded for c in view.containers) else "Failed"


def build_status(pod: Mapping[str, Any], view: PodView, now: float) -> dict[str, Any]:
    """Return the whole status of a pod; `pod` is the object with its last status.

    A condition that stays as it was keeps its lastTransitionTime.
    """
    old = pod.get("status") or {}
    generation = pod["metadata"].get("generation")
    phase = phase_of(view)
    status: dict[str, Any] = {
        key: value for key, value in old.items() if key in {"qosClass", "nominatedNodeName"}
    }
    status["phase"] = phase
    if view.is_final and phase not in TERMINAL_PHASES:
        status["phase"] = "Failed"
    if phase in TERMINAL_PHASES and not view.is_final:
        status["phase"] = old.get("phase", "Pending")
    elif view.reason:
        status |= {"reason": view.reason, "message": view.message}
    if generation is not None:
        status["observedGeneration"] = generation
    status["conditions"] = _conditions(view, phase, old, format_moment(now), generation)
    status |= {"hostIP": HOST_IP, "hostIPs": [{"ip": HOST_IP}]}
    status["startTime"] = format_moment(view.started_at)
    if view.pod_ip:
        status |= {"podIP": view.pod_ip, "podIPs": [{"ip": view.pod_ip}]}
    if view.init_containers:
        status["initContainerStatuses"] = [
            build_container_status(one, is_init=True) for one in view.init_containers
        ]
    status["containerStatuses"] = [
        build_container_status(one) for one in sorted(view.containers, key=lambda one: one.name)
    ]
    return status


def build_container_status(view: ContainerView, *, is_init: bool = False) -> dict[str, Any]:
    """Return one entry of containerStatuses; an init container is ready once it has succeeded."""
    status: dict[str, Any] = {
        "name": view.name,
        "state": _state(view),
        "lastState": {},
        "ready": view.has_succeeded if is_init and not view.is_sidecar else view.is_ready,
        "restartCount": 0,
        "image": view.spec["image"],
        "imageID": view.image_id,
        "started": isinstance(view.state, Running),
    }
    if view.container_id:
        resources = view.spec.get("resources") or {}
        status["containerID"] = view.container_id
        if resources.get("requests"):
            status["allocatedResources"] = resources["requests"]
        status["resources"] = resources
    mounts = view.spec.get("volumeMounts")
    if mounts:
        status["volumeMounts"] = [_mount(mount) for mount in mounts]
    return status


def _mount(mount: Mapping[str, Any]) -> dict[str, Any]:
    seen = {"name": mount["name"], "mountPath": mount["mountPath"]}
    if mount.get("readOnly"):
        seen |= {"readOnly": True, "recursiveReadOnly": "Disabled"}
    return seen


def _state(view: ContainerView) -> dict[str, Any]:
    state = view.state
    if isinstance(state, Waiting):
        waiting = {"reason": state.reason}
        if state.message:
            waiting["message"] = state.message
        return {"waiting": waiting}
    if isinstance(state, Running):
        return {"running": {"startedAt": format_moment(state.started_at)}}
    terminated: dict[str, Any] = {
        "exitCode": state.exit_code,
        "reason": state.reason,
        "startedAt": None if state.started_at is None else format_moment(state.started_at),
        "finishedAt": None if state.finished_at is None else format_moment(state.finished_at),
    }
    if view.container_id:
        terminated["containerID"] = view.container_id
    if state.message:
        terminated["message"] = state.message
    return {"terminated": terminated}


@dataclass(frozen=True)
class _Condition:
    type: str
    is_true: bool
    reason: str = ""
    message: str = ""


def _conditions(
    view: PodView, phase: str, old: Mapping[str, Any], now: str, generation: int | None
) -> list[dict[str, Any]]:
    before = {one["type"]: one for one in old.get("conditions", [])}
    conditions = []
    for condition in _facts(view, phase):
        status = "True" if condition.is_true else "False"
        last = before.get(condition.type, {})
        built: dict[str, Any] = {
            "type": condition.type,
            "status": status,
            "lastProbeTime": None,
            "lastTransitionTime": last["lastTransitionTime"]
            if last.get("status") == status
            else now,
        }
        if generation is not None:
            built["observedGeneration"] = generation
        if condition.reason:
            built["reason"] = condition.reason
        if condition.message:
            built["message"] = condition.message
        conditions.append(built)
    return conditions


def _facts(view: PodView, phase: str) -> Iterable[_Condition]:
    yield _Condition("PodReadyToStartContainers", view.has_sandbox)
    incomplete = [one.name for one in view.init_containers if not one.has_initialized]
    if incomplete:
        message = f"containers with incomplete status: [{' '.join(incomplete)}]"
        yield _Condition("Initialized", False, "ContainersNotInitialized", message)
    else:
        done = "PodCompleted" if phase == "Succeeded" else ""
        yield _Condition("Initialized", True, done)
    sidecars = [one for one in view.init_containers if one.is_sidecar]
    unready = [one.name for one in (*sidecars, *view.containers) if not one.is_ready]
    for type_ in ("Ready", "ContainersReady"):
        if phase in TERMINAL_PHASES:
            yield _Condition(type_, False, "PodCompleted" if phase == "Succeeded" else "PodFailed")
        elif unready:
            message = f"containers with unready status: [{' '.join(unready)}]"
            yield _Condition(type_, False, "ContainersNotReady", message)
        else:
            yield _Condition(type_, True)
    yield _Condition("PodScheduled", True)
