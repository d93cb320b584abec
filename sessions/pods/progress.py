"""Pod status → what a start is waiting for, in words; pure."""

from dataclasses import dataclass

from sessions.pods import reading, wording
from sessions.pods.reading import Pod

DELIVERING = "Delivering application"
SCHEDULING = "Scheduling"
SANDBOX = "Preparing the sandbox"
# A pod's status never says "pulling"; a container that is not there after this long says it all.
PULLING = "Pulling the image or creating the container"
PULLING_AFTER_SECONDS = 1.0

# Waiting reasons that only say "not yet".
ORDINARY_WAITS = frozenset({"", "ContainerCreating", "PodInitializing"})


@dataclass(frozen=True)
class Step:
    """What a pod is waiting for; to be said only when it lasts for `after_seconds`."""

    message: str
    after_seconds: float = 0.0


def step(pod: Pod) -> Step | None:
    """Return what a pod that does not run yet is waiting for; None: nothing to say."""
    if reading.phase(pod) != "Pending":
        return None
    if not reading.section(pod, "spec").get("nodeName"):
        return Step(_scheduling(pod))
    for name, reason, message in reading.waits(pod):
        if reason not in ORDINARY_WAITS:
            detail = f": {wording.told(pod, message)}" if message else ""
            return Step(reading.cut(f'Container "{name}" is waiting: {reason}{detail}'))
    if any(reading.state(status, "running") is not None for status in reading.init_statuses(pod)):
        return Step(DELIVERING)
    if reading.is_true(pod, "PodReadyToStartContainers"):
        return Step(PULLING, PULLING_AFTER_SECONDS)
    return Step(SANDBOX)


def is_mounting(pod: Pod) -> bool:
    """Tell whether a pod has a node, and its volumes may not be mounted there yet.

    A kubelet mounts all of them before it makes the sandbox, which the condition tells, and an
    older kubelet's status by the address.
    """
    if reading.phase(pod) != "Pending" or not reading.section(pod, "spec").get("nodeName"):
        return False
    if reading.is_true(pod, "PodReadyToStartContainers") or reading.address(pod):
        return False
    if reading.deletion_asked_at(pod) is not None:
        return False
    return all(reason in ORDINARY_WAITS for _, reason, _ in reading.waits(pod))


def _scheduling(pod: Pod) -> str:
    scheduled = reading.condition(pod, "PodScheduled")
    if scheduled.get("status") != "False" or not scheduled.get("reason"):
        return SCHEDULING
    message = scheduled.get("message") or "the scheduler finds no node for the pod"
    sentence = f"{scheduled['reason']}: {wording.told(pod, message)}"
    return wording.advised(sentence, wording.scheduling_advice(pod, message))
