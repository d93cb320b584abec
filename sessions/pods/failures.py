"""Pod status → how a session ended, and waits that end it; sentences a person can act on; pure.

The pod's phase decides whether a session has ended; container states only explain how. Containers
that have ended are no end of their own, though the phase follows them by a second: at a time limit
or an eviction a kubelet may show them ended before it says why. Verdicts of `outcome()`:

    Succeeded                          exited with the container's code (0 where none is told)
    Succeeded, but disrupted/deleted   failed: what ended it
    Failed                             failed: init container, else container, else the pod's words
    Failed, as an injected container   exited: the session's own container ended well, and nothing
    did                                ended the pod as a whole
    Unknown                            failed: the node is lost
    Pending, Running                   not ended

A container that something has put beside the session's may keep a pod in its phase for ever, the
session's having ended. Then `own_end()` tells how, and it holds when it has lasted: a kubelet that
ends the pod as a whole has said so by then.
"""

import re
from dataclasses import dataclass, field

from sessions.pods import causes, reading, wording
from sessions.pods.fetch import FETCH_CONTAINER
from sessions.pods.reading import Container, Pod
from sessions.pods.run import SESSION_CONTAINER
from sessions.spec import Status, exited, failed

# Waits that no patience mends.
_HOPELESS = frozenset(
    {"ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError"}
)
# Waits that may mend: a registry that is away, credentials that arrive late.
_PATIENT = frozenset(
    {"ImagePullBackOff", "ErrImagePull", "RegistryUnavailable", "ImageInspectError"}
)

# The words of runc, and those of crun.
_SH_NOT_FOUND = re.compile(r"""exec: "sh": executable file not found|file [`'"]sh[`'"] not found""")

_NOT_FOUND = re.compile(r"""exec: "([^"/]+)": executable file not found""")
# The fixed texts' words for what an image lacks.
_IS_IMAGE = re.compile(r"the image has no \w+")
# A termination log's own words are the container's, whatever it wrote; others are a runtime's.
_OWN_WORDS = frozenset({"Error", "Completed"})
# What a kubelet makes up for a container that it does not find any more.
_MADE_UP = "ContainerStatusUnknown"
# The reasons of a Ready condition from when the kubelet has decided how the pod ends.
_DECIDED = frozenset({"PodFailed", "PodCompleted"})

POD_DISAPPEARED = "pod disappeared"
BUNDLE_DELETED = wording.advised(
    "the ConfigMap with the session's bundle was deleted before the pod had mounted it",
    wording.AGAIN,
)
# From when the session's own container is seen ended beside others, until that is the verdict: a
# kubelet that kills them all takes the grace of 2 s and then some.
OWN_END_SECONDS = 4.0
_NO_SHELL = (
    "the image has no shell: inline delivery of the bundle (RUNNER_BUNDLE_DELIVERY) needs sh and "
    "tar in the image"
)
_NO_INIT_SHELL = "the image has no shell: RUNNER_INIT_IMAGE needs sh, wget and tar"


@dataclass(frozen=True)
class Block:
    """A wait that ends the start: at once when hopeless, else after the grace for image pulls."""

    message: str
    is_hopeless: bool
    container: str = field(default="", compare=False)


def outcome(pod: Pod) -> Status | None:
    """Return how the session's pod ended, None while it has not."""
    phase = reading.phase(pod)
    if phase == "Succeeded":
        cause = causes.disruption(pod) or causes.deletion(pod)
        return failed(cause) if cause else exited(_exit_code(pod))
    if phase == "Failed":
        return exited(0) if _others_failed(pod) else failed(_failure(pod))
    if phase == "Unknown":
        return failed(causes.NODE_LOST)
    return None


def own_end(pod: Pod) -> Status | None:
    """Return how the session's own container ended while others keep its pod from ending.

    None: it has not, or there are no others, or the pod is being ended as a whole. It is a verdict
    only once it has been so for `OWN_END_SECONDS`.
    """
    status = causes.session_status(pod)
    if status is None or not has_terminated(pod) or not _others_go_on(pod):
        return None
    is_decided = reading.condition(pod, "Ready").get("reason") in _DECIDED
    if is_decided or reading.deletion_asked_at(pod) is not None or causes.pod_cause(pod):
        return None
    if _exit_code(pod) == 0:
        return exited(0)
    return failed(_container_failure(pod, status, "container"))


def block(pod: Pod) -> Block | None:
    """Return the wait that keeps the session from ever starting, None if there is none."""
    beside = set(reading.main_container_names(pod)) - {SESSION_CONTAINER}
    for name, reason, message in reading.waits(pod):
        # What was put beside the session's container does not keep that from running.
        if name not in beside and (reason in _HOPELESS or reason in _PATIENT):
            return Block(_blocked(pod, name, reason, message), reason in _HOPELESS, name)
    return None


def is_running(pod: Pod) -> bool:
    """Tell whether the status says that the session's container runs."""
    status = causes.session_status(pod)
    return status is not None and reading.state(status, "running") is not None


def has_terminated(pod: Pod) -> bool:
    """Tell whether the session's container has ended, whatever the phase says so far."""
    status = causes.session_status(pod)
    return status is not None and reading.state(status, "terminated") is not None


def disappeared(last_seen: Pod | None) -> Status:
    """Return the status of a session whose pod is gone, from the pod as it was last seen."""
    if last_seen is None:
        return failed(POD_DISAPPEARED)
    return outcome(last_seen) or failed(_joined(POD_DISAPPEARED, causes.cause(last_seen)))


def deletion_notice(grace_seconds: int) -> str:
    """Return what is said while a pod that somebody deleted still has time to end."""
    return f"Somebody deleted the session's pod; it has {grace_seconds} s to end."


def remark(pod: Pod) -> str | None:
    """Return what an application that ended well should still be told, None: nothing.

    The kernel may have killed a child of it for memory, which its exit code does not show.
    """
    status = causes.session_status(pod)
    ended = reading.state(status, "terminated") if status is not None else None
    if status is None or ended is None or ended.get("reason") != "OOMKilled":
        return None
    return f"A process of the session was killed: {_memory_limit(pod, status)}"


def _exit_code(pod: Pod) -> int:
    status = causes.session_status(pod)
    ended = reading.state(status, "terminated") if status is not None else None
    code = (ended or {}).get("exitCode")
    return code if isinstance(code, int) else 0


def _others_go_on(pod: Pod) -> bool:
    """Tell whether containers beside the session's have not ended, so that the pod cannot."""
    ended = {
        status.get("name")
        for status in reading.main_statuses(pod)
        if reading.state(status, "terminated") is not None
    }
    return any(name not in ended for name in reading.main_container_names(pod))


def _others_failed(pod: Pod) -> bool:
    """Tell whether a pod failed by other containers alone, the session's having ended well."""
    others = set(reading.main_container_names(pod)) - {SESSION_CONTAINER}
    if not others or not has_terminated(pod) or _exit_code(pod) != 0:
        return False
    return not causes.cause(pod)


def _failure(pod: Pod) -> str:
    for status in reading.init_statuses(pod):
        if sentence := _container_failure(pod, status, "init container"):
            return sentence
    own = causes.session_status(pod)
    if own is not None and (sentence := _container_failure(pod, own, "container")):
        return sentence
    # What ended the pod as a whole explains more than a container beside the session's does.
    if cause := causes.cause(pod):
        return cause
    for status in reading.main_statuses(pod):
        if sentence := _container_failure(pod, status, "container"):
            return sentence
    return "pod failed"


def _container_failure(pod: Pod, status: Container, kind: str) -> str:
    """Return the sentence about a container that ended badly, empty if it did not."""
    ended = reading.state(status, "terminated")
    if ended is None:
        return ""
    code, reason = ended.get("exitCode") or 0, ended.get("reason") or "Error"
    if code == 0 and reason != "OOMKilled":
        return ""
    if reason == _MADE_UP and causes.cause(pod):
        return ""
    sentence = f'{kind} "{status.get("name")}" failed: {reason} (exit code {code})'
    return _joined(sentence, _detail(pod, status, ended))


def _detail(pod: Pod, status: Container, ended: Container) -> str:
    name, message = status.get("name") or "", ended.get("message") or ""
    advice = wording.advice(pod)
    if ended.get("reason") == "OOMKilled":
        return _memory_limit(pod, status)
    # NB: before the words of runtimes are looked for, which a container may imitate.
    if (ended.get("reason") or "Error") in _OWN_WORDS and message:
        words = reading.cut(message)
        # Only the fixed texts' words are about the image; an app's container starts with none.
        is_ours = _IS_IMAGE.match(words) and not wording.is_app(pod)
        return wording.advised(words, advice.other_image) if is_ours else words
    if _lacks_shell(pod, message):
        return _no_shell(name)
    if missing := _NOT_FOUND.search(message):
        return wording.advised(f"the image has no {missing[1]} command", advice.other_image)
    if message:
        return wording.advised(wording.told(pod, message), advice.image_or_operator)
    if cause := causes.cause(pod):
        return cause
    # 137 alone is a kill, by whomever; only the reason OOMKilled is about memory.
    killed = wording.advised("the container was killed", wording.AGAIN)
    return killed if ended.get("exitCode") == 137 else ""


def _blocked(pod: Pod, name: str, reason: str, message: str) -> str:
    sentence = f'container "{name}" cannot start: {reason}'
    if _lacks_shell(pod, message):
        return _joined(sentence, _no_shell(name))
    advice = wording.wait_advice(pod, name, reason, message)
    return wording.advised(_joined(sentence, wording.told(pod, message)), advice)


def _memory_limit(pod: Pod, status: Container) -> str:
    spec = reading.section(pod, "spec")
    sentence = "the memory limit was reached"
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        limit = reading.section(container, "resources", "limits").get("memory")
        if container.get("name") == status.get("name") and limit:
            sentence = f"the memory limit of {limit} was reached"
    is_asked_for = status.get("name") in (SESSION_CONTAINER, FETCH_CONTAINER)
    return wording.advised(sentence, wording.advice(pod).more_memory if is_asked_for else "")


def _lacks_shell(pod: Pod, message: str) -> bool:
    """Tell whether a fixed text had no shell to run it; an app's container starts with none."""
    return not wording.is_app(pod) and _SH_NOT_FOUND.search(message) is not None


def _no_shell(container: str) -> str:
    return _NO_INIT_SHELL if container == FETCH_CONTAINER else _NO_SHELL


def _joined(sentence: str, detail: str) -> str:
    return f"{sentence}: {detail}" if detail else sentence
