"""What kubelets, schedulers and runtimes say, as clients may read it, and what to do then; pure.

Their sentences help whoever picks an image or a limit, but they may hold what is the operator's own
business: addresses and URLs (with whatever is in their queries), paths of a node, names of nodes
and namespaces, how full a node is. That is taken out; the log of the cluster has it all.
"""

import re

from sessions.pods import reading
from sessions.pods.fetch import FETCH_CONTAINER
from sessions.pods.reading import Pod
from sessions.pods.run import SESSION_CONTAINER

AGAIN = "start the session again"
MORE_MEMORY = "ask for more memory (limits.memory)"
MORE_STORAGE = "write less, or ask for more ephemeral storage (limits.ephemeralStorage)"
MORE_TIME = "ask for more time (limits.ttlSeconds)"
OTHER_IMAGE = "choose another image"
IMAGE_OR_OPERATOR = f"{OTHER_IMAGE}, or ask the cluster operator"

_LESS = "ask for less (limits), or the cluster operator must add capacity"
_NODES = "the cluster operator must check the cluster's nodes"
_ROOT = "choose an image that names a user by number, other than 0 (root)"
_PULL = (
    "check the image's name and tag; a private registry needs the operator's pull secret "
    "(RUNNER_IMAGE_PULL_SECRET)"
)
_REFERENCES = "the cluster operator must check what the pod refers to"
_INIT_IMAGE = "the cluster operator must check RUNNER_INIT_IMAGE"
_INJECTED = "the cluster operator must check the container that is added to the pod"

_WAITS = {
    "ErrImageNeverPull": "choose pullPolicy missing or always, or an image that the node has",
    "InvalidImageName": "check the image's name",
    "ErrImagePull": _PULL,
    "ImagePullBackOff": _PULL,
    "RegistryUnavailable": _PULL,
    "ImageInspectError": OTHER_IMAGE,
}

_HIDDEN = "…"
# What is looked at of a foreign sentence: far more than a client sees in the end, and no more than
# takes a moment however it is made up.
_READ_CHARACTERS = 4096
# What is hidden wherever it stands, in this order: a path may be part of a URL.
_INTERNAL = (
    (re.compile(r"(?<![a-z0-9+.-])[a-z0-9+.-]+://[^\s\"'<>]+", re.IGNORECASE), _HIDDEN),
    (re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?![\w.]*\w)"), _HIDDEN),
    (re.compile(r"\[[0-9a-f]*:[0-9a-f:.]+\](?::\d+)?", re.IGNORECASE), _HIDDEN),
    # The kubelet's way to name a container.
    (re.compile(r"\s*\(pod: \"[^\"]*\", container: [^)]*\)"), ""),
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE), _HIDDEN),
    (re.compile(r"(?<![\w.:/~-])/(?:[^\s/:\"']+/){2,}[^\s/:\"',]*"), _HIDDEN),
    # Taints of the operator's; those of Kubernetes itself say what a node lacks.
    (re.compile(r"(taints?) \{(?!node\.kubernetes\.io/)[^}]*\}"), r"\1"),
    # How full the node is, and what the scheduler tried besides.
    (re.compile(r", requested: \S+, used: .*"), ""),
    (re.compile(r" Threshold quantity: \S+, available: \S+"), ""),
    (re.compile(r",? *(?:no new claims to deallocate|preemption:).*"), ""),
    # Which part of a runtime failed is no news to a client.
    (
        re.compile(
            r"^(?:failed to (?:create|start) (?:containerd|shim) task: |OCI runtime create failed: "
            r"|runc create failed: |unable to start container process: )+"
        ),
        "",
    ),
)


def told(pod: Pod, text: str) -> str:
    """Return a foreign sentence about a pod without what is internal, cut for clients."""
    text = " ".join(text[:_READ_CHARACTERS].split())
    for pattern, stand_in in _own_names(pod):
        text = pattern.sub(stand_in, text)
    for pattern, stand_in in _INTERNAL:
        text = pattern.sub(stand_in, text)
    return reading.cut(text)


def advised(sentence: str, advice: str) -> str:
    """Return a sentence with what to do about it."""
    return f"{sentence.rstrip('. ')}; {advice}" if advice else sentence


def wait_advice(container: str, reason: str, message: str) -> str:
    """Return what to do about a container that waits."""
    if "run as root" in message or "non-root" in message:
        return _ROOT
    if container == FETCH_CONTAINER:
        return _INIT_IMAGE
    if container != SESSION_CONTAINER:
        return _INJECTED
    return _WAITS.get(reason, _REFERENCES)


def scheduling_advice(message: str) -> str:
    """Return what to do about a pod that no node takes."""
    return _LESS if "Insufficient" in message or "Too many pods" in message else _NODES


def pod_advice(message: str) -> str:
    """Return what to do about a pod that was ended as a whole."""
    is_storage = "ephemeral" in message or "EmptyDir" in message
    return MORE_STORAGE if is_storage else AGAIN


def _own_names(pod: Pod) -> list[tuple[re.Pattern[str], str]]:
    namespace = re.escape(reading.section(pod, "metadata").get("namespace") or "")
    node = re.escape(reading.section(pod, "spec").get("nodeName") or "")
    names: list[tuple[re.Pattern[str], str]] = []
    if namespace:
        names += [
            (re.compile(rf"(?<![\w.-]){namespace}/"), ""),
            (re.compile(rf"(namespaces?) \"?{namespace}\"?(?![\w-])"), r"\1 " + _HIDDEN),
        ]
    if node:
        names.append((re.compile(rf"(?<![\w.-]){node}(?![\w-])"), _HIDDEN))
    return names
