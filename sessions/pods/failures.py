"""Pod status → how a session ended, and waits that end it; sentences a person can act on; pure.

The pod's phase decides whether a session has ended; container states only explain how. Containers
that have ended are no end of their own, though the phase follows them by a second: at a time limit
or an eviction a kubelet shows them ended before it says why. Verdicts:

    Succeeded                          exited with the container's code (0 where none is told)
    Succeeded, but disrupted/deleted   failed: what ended it
    Failed                             failed: init container, else container, else the pod's words
    Unknown                            failed: the node is lost
    Pending, Running                   not ended
"""

import re
from dataclasses import dataclass
from typing import Any

from sessions.pods import reading
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

POD_DISAPPEARED = "pod disappeared"
NODE_LOST = "the node that ran the session is lost"
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


def outcome(pod: Pod) -> Status | None:
    """Return how the session's pod ended, None while it has not."""
    phase = reading.phase(pod)
    if phase == "Succeeded":
        cause = _disruption(pod) or _deletion(pod)
        return failed(cause) if cause else exited(_exit_code(pod))
    if phase == "Failed":
        return failed(_failure(pod))
    if phase == "Unknown":
        return failed(NODE_LOST)
    return None


def block(pod: Pod) -> Block | None:
    """Return the wait that keeps a pod from ever starting, None if there is none."""
    for name, reason, message in reading.waits(pod):
        if reason in _HOPELESS or reason in _PATIENT:
            detail = _no_shell(name) if _lacks_shell(message) else reading.cut(message)
            sentence = f'container "{name}" cannot start: {reason}'
            return Block(_joined(sentence, detail), reason in _HOPELESS)
    return None


def is_running(pod: Pod) -> bool:
    """Tell whether the status says that the session's container runs."""
    status = _session_status(pod)
    return status is not None and reading.state(status, "running") is not None


def has_terminated(pod: Pod) -> bool:
    """Tell whether the session's container has ended, whatever the phase says so far."""
    status = _session_status(pod)
    return status is not None and reading.state(status, "terminated") is not None


def disappeared(last_seen: Pod | None) -> Status:
    """Return the status of a session whose pod is gone, from the pod as it was last seen."""
    if last_seen is None:
        return failed(POD_DISAPPEARED)
    return outcome(last_seen) or failed(
        _joined(POD_DISAPPEARED, _disruption(last_seen) or _deletion(last_seen))
    )


def remark(pod: Pod) -> str | None:
    """Return what an application that ended well should still be told, None: nothing.

    The kernel may have killed a child of it for memory, which its exit code does not show.
    """
    status = _session_status(pod)
    ended = reading.state(status, "terminated") if status is not None else None
    if status is None or ended is None or ended.get("reason") != "OOMKilled":
        return None
    return f"A process of the session was killed: {_memory_limit(pod, status)}"


def _session_status(pod: Pod) -> Container | None:
    statuses = reading.main_statuses(pod)
    return next((status for status in statuses if status.get("name") == SESSION_CONTAINER), None)


def _exit_code(pod: Pod) -> int:
    status = _session_status(pod)
    ended = reading.state(status, "terminated") if status is not None else None
    code = (ended or {}).get("exitCode")
    return code if isinstance(code, int) else 0


def _failure(pod: Pod) -> str:
    for status in reading.init_statuses(pod):
        if sentence := _container_failure(pod, status, "init container"):
            return sentence
    # The session's own container explains before any other does.
    own_first = sorted(
        reading.main_statuses(pod), key=lambda status: status.get("name") != SESSION_CONTAINER
    )
    for status in own_first:
        if sentence := _container_failure(pod, status, "container"):
            return sentence
    return _pod_cause(pod) or "pod failed"


def _container_failure(pod: Pod, status: Container, kind: str) -> str:
    """Return the sentence about a container that ended badly, empty if it did not."""
    ended = reading.state(status, "terminated")
    if ended is None:
        return ""
    code, reason = ended.get("exitCode") or 0, ended.get("reason") or "Error"
    if code == 0 and reason != "OOMKilled":
        return ""
    sentence = f'{kind} "{status.get("name")}" failed: {reason} (exit code {code})'
    return _joined(sentence, _detail(pod, status, ended))


def _detail(pod: Pod, status: Container, ended: Container) -> str:
    message = ended.get("message") or ""
    if _lacks_shell(message):
        return _no_shell(status.get("name") or "")
    if ended.get("reason") == "OOMKilled":
        return _memory_limit(pod, status)
    if message:
        return reading.cut(message)
    cause = _pod_cause(pod) or _deletion(pod)
    # 137 alone is a kill, by whomever; only the reason OOMKilled is about memory.
    return cause or ("the container was killed" if ended.get("exitCode") == 137 else "")


def _memory_limit(pod: Pod, status: Container) -> str:
    for container in reading.section(pod, "spec").get("containers") or []:
        limit = reading.section(container, "resources", "limits").get("memory")
        if container.get("name") == status.get("name") and limit:
            return f"the memory limit of {limit} was reached"
    return "the memory limit was reached"


def _pod_cause(pod: Pod) -> str:
    """Return what ended the pod as a whole: its time limit, an eviction, a lost node."""
    status = reading.section(pod, "status")
    reason, message = status.get("reason") or "", status.get("message") or ""
    if reason == "DeadlineExceeded":
        seconds = reading.section(pod, "spec").get("activeDeadlineSeconds")
        limit = f" of {seconds} s" if seconds else ""
        return f"the session reached its time limit{limit} (DeadlineExceeded)"
    if reason == "NodeLost":
        return _joined(NODE_LOST, reading.cut(message))
    if reason or message:
        return reading.cut(f"{reason}: {message}" if reason and message else reason or message)
    return _disruption(pod)


def _disruption(pod: Pod) -> str:
    if not reading.is_true(pod, "DisruptionTarget"):
        return ""
    target = reading.condition(pod, "DisruptionTarget")
    reason, message = target.get("reason") or "DisruptionTarget", target.get("message") or ""
    return reading.cut(f"the pod was disrupted: {reason}{': ' if message else ''}{message}")


def _deletion(pod: Pod) -> str:
    """Return that somebody deleted the pod, empty if its container had ended by itself before."""
    asked_at = reading.deletion_asked_at(pod)
    if asked_at is None:
        return ""
    status = _session_status(pod)
    ended: Any = reading.state(status, "terminated") if status is not None else None
    ended_at = reading.time((ended or {}).get("finishedAt"))
    if ended_at is not None and ended_at < asked_at:
        return ""
    return "the pod was deleted"


def _lacks_shell(message: str) -> bool:
    return _SH_NOT_FOUND.search(message) is not None


def _no_shell(container: str) -> str:
    return _NO_INIT_SHELL if container == FETCH_CONTAINER else _NO_SHELL


def _joined(sentence: str, detail: str) -> str:
    return f"{sentence}: {detail}" if detail else sentence
