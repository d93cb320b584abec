"""What every pod of the runner has in common, and the containers' security contexts; pure.

A namespace that enforces the *restricted* Pod Security Standard admits what is built from these,
but for an image that an operator lets run as root.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
"""

from typing import Any

from sessions.spec import Limits
from telorunner.values.quantity import format_bytes, format_cpu

# The user and group of everything that runs in a hardened container.
SANDBOX_ID = 1000

# How long a container may take to end after SIGTERM: on a stop, at its time limit, on an eviction.
# NB: 0 would free the pod's name while the container still runs.
GRACE_SECONDS = 2

SECCOMP = {"type": "RuntimeDefault"}


def pod_defaults(ttl_seconds: int, *, image_pull_secret: str, runtime_class: str) -> dict[str, Any]:
    """Return the part of a pod spec that is the same for all kinds of sessions.

    An empty secret or runtime class means that none is configured.
    """
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": ttl_seconds,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }
    if image_pull_secret:
        spec["imagePullSecrets"] = [{"name": image_pull_secret}]
    if runtime_class:
        spec["runtimeClassName"] = runtime_class
    return spec


def hardened_pod_context() -> dict[str, Any]:
    """Return the pod's securityContext; volumes belong to the sandbox's group."""
    return {
        "runAsNonRoot": True,
        "runAsUser": SANDBOX_ID,
        "runAsGroup": SANDBOX_ID,
        "fsGroup": SANDBOX_ID,
        "seccompProfile": dict(SECCOMP),
    }


def hardened_container_context() -> dict[str, Any]:
    """Return the securityContext of a hardened container."""
    return {
        "runAsNonRoot": True,
        "runAsUser": SANDBOX_ID,
        "runAsGroup": SANDBOX_ID,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": dict(SECCOMP),
    }


def operator_pod_context(*, allow_root: bool) -> dict[str, Any]:
    """Return the securityContext of a pod whose image is an operator's: its own user applies.

    Without a `runAsUser` the kubelet looks at the image's user, which must not be root.
    """
    own: dict[str, Any] = {} if allow_root else {"runAsNonRoot": True}
    return {**own, "seccompProfile": dict(SECCOMP)}


def operator_container_context(*, allow_root: bool) -> dict[str, Any]:
    """Return the securityContext of an operator's image: its own user and filesystem apply."""
    return {
        **operator_pod_context(allow_root=allow_root),
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def resources(limits: Limits) -> dict[str, Any]:
    """Return a container's resources: CPU and memory are guaranteed, storage is only bounded."""
    guaranteed = {
        "cpu": format_cpu(limits.cpu_millis),
        "memory": format_bytes(limits.memory_bytes),
    }
    storage = format_bytes(limits.ephemeral_storage_bytes)
    return {"requests": guaranteed, "limits": {**guaranteed, "ephemeral-storage": storage}}
