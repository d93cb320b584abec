"""What a helper may know of the session's pod: a subscription of its own, read for one container.

No tasks are owned here.
"""

from sessions.pods import failures, reading
from sessions.pods.progress import ORDINARY_WAITS, is_mounting
from sessions.pods.reading import Pod
from telorunner.kube.informer import Subscription


class PodView:
    """One pod, told apart by its uid from any other of its name."""

    def __init__(self, subscription: Subscription, uid: str) -> None:
        self._subscription = subscription
        self._uid = uid

    @property
    def is_running(self) -> bool:
        """Whether the pod's status says that the container runs."""
        pod = self._own(self._subscription.object)
        return pod is not None and failures.is_running(pod)

    @property
    def is_terminated(self) -> bool:
        """Whether the container has ended for good, or the pod is gone."""
        pod = self._own(self._subscription.object)
        if pod is None:
            return self._own(self._subscription.last) is not None
        return failures.has_terminated(pod) or failures.outcome(pod) is not None

    @property
    def is_ending(self) -> bool:
        """Whether the container has ended, or the pod is gone or about to go."""
        pod = self._own(self._subscription.object)
        return self.is_terminated or (pod is not None and is_ending(pod))

    @property
    def is_attach_worth_trying(self) -> bool:
        """Whether the container may run before the pod's status says so."""
        pod = self._own(self._subscription.object)
        if pod is None or not reading.section(pod, "spec").get("nodeName"):
            return False
        return all(reason in ORDINARY_WAITS for _, reason, _ in reading.waits(pod))

    @property
    def is_mounting(self) -> bool:
        """Whether the pod has a node, and its volumes may not be mounted there yet."""
        pod = self._own(self._subscription.object)
        return pod is not None and is_mounting(pod)

    @property
    def address(self) -> str:
        """The pod's IP address, empty while it has none."""
        pod = self._own(self._subscription.object)
        return reading.address(pod) if pod is not None else ""

    async def changed(self) -> None:
        """Wait for anything newer than at the last return."""
        await self._subscription.changed()

    def _own(self, pod: Pod | None) -> Pod | None:
        return pod if pod is not None and pod["metadata"].get("uid") == self._uid else None


def is_ending(pod: Pod) -> bool:
    """Tell whether a pod's container has ended, or somebody has deleted the pod."""
    has_ended = failures.has_terminated(pod) or failures.outcome(pod) is not None
    return has_ended or reading.deletion_asked_at(pod) is not None
