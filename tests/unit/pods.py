"""Pods as the API tells them, for tests of what is read off them."""

from typing import Any


def waiting(reason: str, message: str = "", *, name: str = "session") -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


def running(name: str = "session") -> dict[str, Any]:
    return {"name": name, "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}}


def terminated(
    code: int | None, reason: str = "Error", *, name: str = "session", **more: Any
) -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, "reason": reason, **more}}}


def condition(kind: str, status: str = "True", **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, **more}


def pod(
    phase: str | None = "Pending",
    *containers: dict[str, Any],
    node: str = "node-1",
    spec: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    return {
        "metadata": {"name": "telo-run-abcdefghijkl", "uid": "1", **(metadata or {})},
        "spec": {
            "nodeName": node,
            "activeDeadlineSeconds": 60,
            "containers": [
                {"name": "session", "resources": {"limits": {"memory": "512Mi"}}},
            ],
            **(spec or {}),
        },
        "status": {"phase": phase, "containerStatuses": list(containers), **status},
    }
