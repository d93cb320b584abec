"""What kubelets, schedulers and runtimes say, as clients may read it, and what to do then; pure.

Their sentences help whoever picks an image or a limit, but they may hold what is the operator's own
business: addresses and URLs (with whatever is in their queries), paths of a node, names of nodes
and namespaces, how full a node is, the image of a catalog app. That is taken out; the log of the
cluster has it all.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sessions.pods import reading
from sessions.pods.app import APP_LABEL
from sessions.pods.fetch import FETCH_CONTAINER
from sessions.pods.reading import Pod
from sessions.pods.run import SESSION_CONTAINER
from telorunner.values.image import DEFAULT_REGISTRY, ImageReference, parsed_or_none

AGAIN = "start the session again"

_NODES = "the cluster operator must check the cluster's nodes"
_REFERENCES = "the cluster operator must check what the pod refers to"
_INIT_IMAGE = "the cluster operator must check RUNNER_INIT_IMAGE"
_INJECTED = "the cluster operator must check the container that is added to the pod"

_PULL_REASONS = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable")


@dataclass(frozen=True)
class Advice:
    """What to do about each trouble, as far as it depends on who chose the image and the limits.

    `waits` has more of it by the reasons of containers that wait.
    """

    more_memory: str
    more_storage: str
    more_time: str
    less: str
    other_image: str
    image_or_operator: str
    user: str
    waits: Mapping[str, str]


# The client chose both.
_RUN = Advice(
    more_memory="ask for more memory (limits.memory)",
    more_storage="write less, or ask for more ephemeral storage (limits.ephemeralStorage)",
    more_time="ask for more time (limits.ttlSeconds)",
    less="ask for less (limits), or the cluster operator must add capacity",
    other_image="choose another image",
    image_or_operator="choose another image, or ask the cluster operator",
    user="choose an image that names a user by number, other than 0 (root)",
    waits={
        "ErrImageNeverPull": "choose pullPolicy missing or always, or an image that the node has",
        "InvalidImageName": "check the image's name",
        **dict.fromkeys(
            _PULL_REASONS,
            "check the image's name and tag; a private registry needs the operator's pull secret "
            "(RUNNER_IMAGE_PULL_SECRET)",
        ),
        "ImageInspectError": "choose another image",
    },
)
_APPS_IMAGE = "the cluster operator must check the app's image"
# The operator did.
_APP = Advice(
    more_memory="the cluster operator may allow apps more memory (RUNNER_APP_MAX_MEMORY)",
    more_storage=(
        "write less, or the cluster operator may allow apps more ephemeral storage "
        "(RUNNER_APP_MAX_EPHEMERAL_STORAGE)"
    ),
    more_time="the cluster operator may allow apps more time (RUNNER_APP_MAX_TTL_SECONDS)",
    less="the cluster operator must add capacity, or allow apps less (RUNNER_APP_MAX_*)",
    other_image=_APPS_IMAGE,
    image_or_operator=_APPS_IMAGE,
    user=(
        "the cluster operator must give the app an image that names a user by number, other than "
        "0 (root), or set its allow_root"
    ),
    waits={
        "ErrImageNeverPull": (
            "the cluster operator must set the app's pull policy to missing or always, or give it "
            "an image that the node has"
        ),
        "InvalidImageName": _APPS_IMAGE,
        **dict.fromkeys(
            _PULL_REASONS,
            f"{_APPS_IMAGE} and tag; a private registry needs the pull secret "
            "(RUNNER_IMAGE_PULL_SECRET)",
        ),
        "ImageInspectError": _APPS_IMAGE,
    },
)


def is_app(pod: Pod) -> bool:
    """Tell whether it is the pod of a catalog app, whose image and limits the operator chose."""
    return APP_LABEL in reading.section(pod, "metadata", "labels")


def advice(pod: Pod) -> Advice:
    """Return what to do about the troubles of a pod."""
    return _APP if is_app(pod) else _RUN


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


def advised(sentence: str, what_to_do: str) -> str:
    """Return a sentence with what to do about it."""
    return f"{sentence.rstrip('. ')}; {what_to_do}" if what_to_do else sentence


def wait_advice(pod: Pod, container: str, reason: str, message: str) -> str:
    """Return what to do about a container that waits."""
    if "run as root" in message or "non-root" in message:
        return advice(pod).user
    if container == FETCH_CONTAINER:
        return _INIT_IMAGE
    if container != SESSION_CONTAINER:
        return _INJECTED
    return advice(pod).waits.get(reason, _REFERENCES)


def scheduling_advice(pod: Pod, message: str) -> str:
    """Return what to do about a pod that no node takes."""
    is_full = "Insufficient" in message or "Too many pods" in message
    return advice(pod).less if is_full else _NODES


def pod_advice(pod: Pod, message: str) -> str:
    """Return what to do about a pod that was ended as a whole."""
    is_storage = "ephemeral" in message or "EmptyDir" in message
    return advice(pod).more_storage if is_storage else AGAIN


def _own_names(pod: Pod) -> list[tuple[re.Pattern[str], str]]:
    namespace = re.escape(reading.section(pod, "metadata").get("namespace") or "")
    node = re.escape(reading.section(pod, "spec").get("nodeName") or "")
    # NB: these first; an image's name may begin with the namespace's.
    names = [(pattern, _HIDDEN) for pattern in _image_patterns(pod)] if is_app(pod) else []
    if namespace:
        names += [
            (re.compile(rf"(?<![\w.-]){namespace}/"), ""),
            (re.compile(rf"(namespaces?) \"?{namespace}\"?(?![\w-])"), r"\1 " + _HIDDEN),
        ]
    if node:
        names.append((re.compile(rf"(?<![\w.-]){node}(?![\w-])"), _HIDDEN))
    return names


def _image_patterns(pod: Pod) -> Iterator[re.Pattern[str]]:
    """Yield what finds the image of an app, which clients are never told: the longest name first.

    A name without registry, path and tag may be any word: it is hidden only where a sentence quotes
    it, other than as a command that was to be run, or says that it must not be pulled.
    """
    names, hosts = set[str](), set[str]()
    for container in reading.section(pod, "spec").get("containers") or []:
        image = container.get("image") or ""
        names.add(image)
        if parsed := parsed_or_none(image):
            names |= _spellings(parsed)
            hosts |= _hosts(parsed)
    for name in sorted((names | hosts) - {""}, key=len, reverse=True):
        escaped = re.escape(name)
        if name in hosts or "/" in name or ":" in name:
            yield re.compile(rf"(?<![\w.-]){escaped}(?![\w-]|\.\w)")
        else:
            quoted = rf"(?<!exec: [\"'`])(?<=[\"'`]){escaped}(?=[\"'`])"
            yield re.compile(rf"{quoted}|(?<=denied for ){escaped}(?![\w-])")


def _spellings(image: ImageReference) -> set[str]:
    """Return how runtimes may write the name of an image."""
    path = f"{image.registry}/{image.repository}"
    names = {path, image.repository, image.repository.removeprefix("library/")}
    if image.tag:
        names.add(f"{path}:{image.tag}")
    if image.digest:
        names.add(f"{path}@{image.digest}")
    return names


def _hosts(image: ImageReference) -> set[str]:
    """Return the registry, also as a name server is asked for it: without its port."""
    if image.registry == DEFAULT_REGISTRY:
        return set()
    return {image.registry, re.sub(r":[0-9]+$", "", image.registry)}
