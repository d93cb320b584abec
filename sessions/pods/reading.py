"""Reading a pod's JSON: every field may be missing or null; pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any

Pod = Mapping[str, Any]
Container = Mapping[str, Any]

# Foreign sentences (a kubelet's, a scheduler's, an image's) are cut here before clients see them.
MAX_DETAIL_CHARACTERS = 500
# How long a busy kubelet takes, beyond the grace, to see that what it was asked to kill has ended.
KUBELET_REACTION_SECONDS = 10


def section(value: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return a nested object, empty where any part of the way is missing or null."""
    for name in path:
        value = value.get(name) or {}
    return value


def phase(pod: Pod) -> str:
    """Return the pod's phase; a pod without one is still Pending."""
    return section(pod, "status").get("phase") or "Pending"


def main_statuses(pod: Pod) -> list[Container]:
    """Return the statuses of the pod's containers."""
    return section(pod, "status").get("containerStatuses") or []


def init_statuses(pod: Pod) -> list[Container]:
    """Return the statuses of the init containers that run to their end, so no side-cars."""
    side_cars = {
        container.get("name")
        for container in section(pod, "spec").get("initContainers") or []
        if container.get("restartPolicy") == "Always"
    }
    return [status for status in _all_init_statuses(pod) if status.get("name") not in side_cars]


def _all_init_statuses(pod: Pod) -> list[Container]:
    return section(pod, "status").get("initContainerStatuses") or []


def main_container_names(pod: Pod) -> list[str]:
    """Return the names of the pod's containers, those included that have no status yet."""
    return [entry.get("name") or "" for entry in section(pod, "spec").get("containers") or []]


def state(status: Container, kind: str) -> Mapping[str, Any] | None:
    """Return a container's `waiting`, `running` or `terminated` state, None if in another.

    Only the present state counts: `lastState` tells of a run that is over.
    """
    states = section(status, "state")
    return (states[kind] or {}) if kind in states else None


def waits(pod: Pod) -> Iterator[tuple[str, str, str]]:
    """Yield name, reason and message of each waiting container, init containers first.

    Native side-cars are among them, for nothing starts before they do.
    """
    for status in [*_all_init_statuses(pod), *main_statuses(pod)]:
        waiting = state(status, "waiting")
        if waiting is not None:
            yield (
                status.get("name") or "",
                waiting.get("reason") or "",
                waiting.get("message") or "",
            )


def condition(pod: Pod, kind: str) -> Mapping[str, Any]:
    """Return one of the pod's conditions, empty where the pod has none of that type."""
    for entry in section(pod, "status").get("conditions") or []:
        if entry.get("type") == kind:
            return entry  # type: ignore[no-any-return] # JSON out of the API
    return {}


def is_true(pod: Pod, kind: str) -> bool:
    """Tell whether a condition is there and holds."""
    return condition(pod, kind).get("status") == "True"


def address(pod: Pod) -> str:
    """Return the pod's IP address, empty while it has none that can be dialled."""
    value = section(pod, "status").get("podIP")
    try:
        parsed = ip_address(value if isinstance(value, str) else "")
    except ValueError:
        return ""
    # NB: the unspecified address would be the runner's own machine.
    return "" if parsed.is_unspecified or parsed.is_multicast else str(parsed)


def time(value: Any) -> datetime | None:
    """Return a timestamp of the API, None where there is none that can be read."""
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None


def deletion_asked_at(pod: Pod) -> datetime | None:
    """Return when somebody asked to delete the pod, at the earliest; None if nobody has.

    The object only tells when its grace runs out. Once the containers have ended the kubelet sets
    the grace to 0 and that time to now: then it only tells that the pod was asked for no longer ago
    than its own grace and the kubelet's reaction.
    """
    ends_at = time(section(pod, "metadata").get("deletionTimestamp"))
    if ends_at is None:
        return None
    grace = deletion_grace(pod)
    if grace == 0:
        own_grace = section(pod, "spec").get("terminationGracePeriodSeconds") or 0
        grace = own_grace + KUBELET_REACTION_SECONDS
    return ends_at - timedelta(seconds=grace)


def deletion_grace(pod: Pod) -> int:
    """Return how many seconds a pod that is to be deleted was given to end."""
    return section(pod, "metadata").get("deletionGracePeriodSeconds") or 0


def cut(text: str) -> str:
    """Return a foreign sentence on one line, at most 500 characters long.

    Control and formatting characters are left out: whoever wrote the sentence (an application may)
    must not steer the terminal that it is shown on.
    """
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())[:MAX_DETAIL_CHARACTERS]
