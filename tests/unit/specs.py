"""Specs of sessions' pods, and what the whole manifests of run pods have in common."""

from typing import Any

from sessions.spec import App, Limits, RunPodSpec, SessionSpec
from sessions.states import Delivery, Mode
from telorunner.values.pullpolicy import PullPolicy

SESSION_ID = "abcdefghijkl"
LABELS = {
    "app.kubernetes.io/managed-by": "telo-k8s-runner",
    "telo.run/session-id": SESSION_ID,
}

# What the pod of `run_spec` has to look like, however its bundle gets there.
POD = {
    "restartPolicy": "Never",
    "activeDeadlineSeconds": 3600,
    "terminationGracePeriodSeconds": 2,
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "fsGroup": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
VARIABLES = [
    {"name": "GREETING", "value": "hello"},
    {"name": "TELO_CACHE_DIR", "value": "/telo-cache"},
    {"name": "HOME", "value": "/home/telo"},
    {"name": "npm_config_cache", "value": "/home/telo/.npm"},
    {"name": "CLICOLOR_FORCE", "value": "1"},
    {"name": "FORCE_COLOR", "value": "1"},
]
RESOURCES = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi", "ephemeral-storage": "1Gi"},
}
HARDENED = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
MOUNTS = [
    {"name": "app", "mountPath": "/app"},
    {"name": "work", "mountPath": "/work"},
    {"name": "home", "mountPath": "/home/telo"},
    {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own emptyDir
    {"name": "telo-cache", "mountPath": "/telo-cache"},
]
VOLUMES = [
    {"name": "app", "emptyDir": {}},
    {"name": "work", "emptyDir": {}},
    {"name": "home", "emptyDir": {}},
    {"name": "tmp", "emptyDir": {}},
    {"name": "telo-cache", "emptyDir": {}},
]


def run_spec(
    *,
    app: App | None = None,
    env: dict[str, str] | None = None,
    pull_policy: PullPolicy = PullPolicy.MISSING,
    is_inspected: bool = False,
    delivery: Delivery = Delivery.INLINE,
    **pod: Any,
) -> RunPodSpec:
    """Return what a run session's pod is built of; what is not given is asked for by nobody."""
    session = SessionSpec(
        session_id=SESSION_ID,
        mode=Mode.RUN,
        image="telorun/node:latest-slim",
        pull_policy=pull_policy,
        apps=(app or App("app", "telo.yaml"),),
        limits=Limits(500, 512 * 2**20, 2**30, 3600),
        is_inspected=is_inspected,
        delivery=delivery,
    )
    return _pod_spec(session, env, pod)


def app_spec(
    *,
    app: App | None = None,
    env: dict[str, str] | None = None,
    pull_policy: PullPolicy = PullPolicy.MISSING,
    is_inspected: bool = False,
    allow_root: bool = False,
    **pod: Any,
) -> RunPodSpec:
    """Return what an app session's pod is built of; what is not given is asked for by nobody."""
    session = SessionSpec(
        session_id=SESSION_ID,
        mode=Mode.RUN,
        image="registry.example/team/code-helper:1.2",
        pull_policy=pull_policy,
        apps=(app or App("app", ""),),
        limits=Limits(250, 256 * 2**20, 2**30, 21_600),
        is_inspected=is_inspected,
        delivery=Delivery.NONE,
        app_name="code-helper",
        allow_root=allow_root,
    )
    return _pod_spec(session, env, pod)


def _pod_spec(session: SessionSpec, env: dict[str, str] | None, pod: dict[str, Any]) -> RunPodSpec:
    return RunPodSpec(
        session=session,
        namespace="telo-sessions",
        managed_by="telo-k8s-runner",
        env=env or {},
        **pod,
    )


def container(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the one container of a pod."""
    only: dict[str, Any]
    (only,) = pod["spec"]["containers"]
    return only
