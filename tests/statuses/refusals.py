"""What the API refuses of a session: the objects that make it refuse, and who asks."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.statuses.pods import PLAIN, Asked, Manifest, session_container

QUOTAS = "/api/v1/namespaces/{namespace}/resourcequotas"
LIMIT_RANGES = "/api/v1/namespaces/{namespace}/limitranges"


@dataclass(frozen=True)
class Refusal:
    """A pod that is not created; `prepared` are paths and manifests that are there before it.

    `account` asks instead of the administrator.
    """

    name: str
    about: str
    asked: Asked = PLAIN
    change: Callable[[Manifest], object] | None = None
    prepared: tuple[tuple[str, Manifest], ...] = ()
    account: str = ""


def _privileged(pod: Manifest) -> None:
    session_container(pod)["securityContext"] |= {"allowPrivilegeEscalation": True}
    pod["spec"]["hostNetwork"] = True


def _quota(**hard: str) -> tuple[tuple[str, Manifest], ...]:
    names = {name.replace("_", "."): value for name, value in hard.items()}
    return ((QUOTAS, {"metadata": {"name": "sessions"}, "spec": {"hard": names}}),)


def _limit_range(**limits: object) -> tuple[tuple[str, Manifest], ...]:
    spec = {"limits": [{"type": "Container", **limits}]}
    return ((LIMIT_RANGES, {"metadata": {"name": "sessions"}, "spec": spec}),)


REFUSALS = {
    refusal.name: refusal
    for refusal in (
        Refusal("refused-quota-pods", "no pod is left in the quota", prepared=_quota(pods="0")),
        Refusal(
            "refused-quota-memory",
            "the quota has less memory than is asked for",
            prepared=_quota(limits_memory="8Mi", limits_cpu="8"),
        ),
        Refusal(
            "refused-pod-security",
            "more than the namespace's Pod Security level admits",
            change=_privileged,
        ),
        Refusal(
            "refused-limit-range",
            "more memory than the namespace's limit range admits",
            prepared=_limit_range(max={"memory": "8Mi"}),
        ),
        Refusal(
            "refused-role",
            "the runner's account has no right to create pods",
            account="system:serviceaccount:{namespace}:default",
        ),
        Refusal(
            "refused-runtime-class",
            "a runtime class that does not exist",
            change=lambda pod: pod["spec"].update(runtimeClassName="none"),
        ),
    )
}
