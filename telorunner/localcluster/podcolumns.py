"""What kubectl shows of a pod's state: ready containers, status in a word, restarts. Pure.

Source: printPod in pkg/printers/internalversion of Kubernetes, which this follows step by step.
"""

from typing import Any


def pod_cells(pod: dict[str, Any]) -> tuple[str, str, str]:
    """Return (ready, status, restarts), e.g. ("0/1", "ImagePullBackOff", "0")."""
    status = pod.get("status") or {}
    statuses = status.get("containerStatuses") or []
    ready = sum(1 for found in statuses if found.get("ready") and "running" in _state(found))
    restarts = sum(found.get("restartCount", 0) for found in statuses)
    word = status.get("reason") or status.get("phase", "")
    if _is_gated(status):
        word = "SchedulingGated"
    word = _initialising(pod) or _running(statuses, word)
    if "deletionTimestamp" in pod["metadata"]:
        word = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
        if status.get("phase") in ("Succeeded", "Failed"):
            word = _running(statuses, status["phase"])
    return f"{ready}/{len(pod['spec']['containers'])}", word, str(restarts)


def _state(found: dict[str, Any]) -> dict[str, Any]:
    return found.get("state") or {}


def _is_gated(status: dict[str, Any]) -> bool:
    return any(
        condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated"
        for condition in status.get("conditions") or []
    )


def _initialising(pod: dict[str, Any]) -> str | None:
    """Return what an init container holds the pod up with, None where all of them are done."""
    found = (pod.get("status") or {}).get("initContainerStatuses") or []
    total = len(pod["spec"].get("initContainers") or [])
    for index, container in enumerate(found):
        state = _state(container)
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if terminated is not None:
            return f"Init:{_ended(terminated)}"
        if waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{total}"
    return None


def _running(statuses: list[dict[str, Any]], word: str) -> str:
    """Return the word for the containers; the first decides, as the printer goes backwards."""
    has_running = False
    for container in reversed(statuses):
        state = _state(container)
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            word = waiting["reason"]
        elif terminated is not None:
            word = _ended(terminated)
        elif container.get("ready") and "running" in state:
            has_running = True
    if word == "Completed" and has_running:
        return "Running"
    return word


def _ended(terminated: dict[str, Any]) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode')}"
