"""From a pod to how the session ended: progress, the proof that it runs, and every way to an end.

What the pod's status means is decided in `sessions.pods`; here is when it is looked at and what
time does to it. No tasks are owned here.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field

from sessions.pods import causes, failures, progress
from sessions.pods.hardening import GRACE_SECONDS
from sessions.pods.progress import Step
from sessions.pods.reading import Pod, deletion_asked_at, deletion_grace
from sessions.pods.run import object_name
from sessions.spec import STOPPED, Status, failed
from sessions.states import Phase, StatusKind
from sessions.supervisor.endpoints import build_endpoints
from sessions.supervisor.session import Session
from sessions.supervisor.start import START_SECONDS
from telorunner.errors import ClusterError, ObjectNotFound
from telorunner.kube import objects
from telorunner.kube.errors import describe
from telorunner.kube.informer import Subscription

logger = logging.getLogger(__name__)

# A pod that the informer does not show by then is asked for by name.
UNSEEN_SECONDS = 10.0
# A pod that is to be deleted and stays for longer than its grace and this has lost its node.
LOST_NODE_SECONDS = 30.0
# The kubelet ends a pod at its time limit; a node that is lost does not, and then this does.
OVERTIME_SECONDS = 60.0


_LATE = f"the session did not start within {START_SECONDS:.0f} s"


@dataclass
class Watch:
    """One session's pod as time goes by; `run()` returns how it ended.

    `proved` is set when the terminal has proved that the container runs, often before the pod's
    status says so. `start_deadline` is a time of the event loop.
    """

    session: Session
    subscription: Subscription
    proved: asyncio.Event
    start_deadline: float
    _unseen_deadline: float = field(init=False)
    _overtime_deadline: float = field(init=False)
    _seen: Pod | None = field(default=None, init=False)
    _step: Step | None = field(default=None, init=False)
    _step_due_at: float = field(default=0.0, init=False)
    _blocked: str = field(default="", init=False)
    _blocked_since: float | None = field(default=None, init=False)
    _deleted_since: float | None = field(default=None, init=False)
    _own_end_since: float | None = field(default=None, init=False)
    _grace_seconds: int = field(default=GRACE_SECONDS, init=False)

    def __post_init__(self) -> None:
        now = _now()
        limits = self.session.row.spec.limits
        self._unseen_deadline = now + UNSEEN_SECONDS
        self._overtime_deadline = now + limits.ttl_seconds + START_SECONDS + OVERTIME_SECONDS

    async def run(self) -> Status:
        """Follow the pod until the session has ended or is asked to stop.

        The row and the log say `running` from the first proof on. Cancelling leaves everything as
        it is.

        Raises:
            StaleFence: Another engine owns the session by now.
        """
        session = self.session
        while True:
            session.wake.clear()
            if session.stop_asked.is_set():
                return STOPPED
            pod = self._own(self.subscription.object)
            self._seen = self._own(self.subscription.last) or self._seen
            status = self._verdict(pod) if pod is not None else await self._missing()
            if status is not None:
                return status
            await self._tell(pod)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_look()):
                    await session.wake.wait()

    def _own(self, pod: Pod | None) -> Pod | None:
        is_own = pod is not None and pod["metadata"].get("uid") == self.session.pod_uid
        return pod if is_own else None

    def _verdict(self, pod: Pod) -> Status | None:
        """Return how the session ended, as far as the pod and the time say so."""
        ended = failures.outcome(pod) or self._own_end(pod)
        if ended is not None:
            return ended
        now = _now()
        if deletion_asked_at(pod) is not None:
            grace_seconds = deletion_grace(pod)
            # Whoever gives it less time meanwhile, gives that from now on.
            if self._deleted_since is None or grace_seconds < self._grace_seconds:
                self._deleted_since = now
            self._grace_seconds = grace_seconds
        if self._is_over(self._lost_at()):
            return failed(causes.NODE_LOST)
        if self._is_over(self._overtime_deadline):
            return failed(causes.time_limit(pod, self.session.row.spec.limits.ttl_seconds))
        if self.session.status is StatusKind.STARTING and not self._is_proved(pod):
            return self._start_verdict(pod)
        return None

    def _own_end(self, pod: Pod) -> Status | None:
        """Return how the session's container ended, once others have gone on for a while."""
        ended = failures.own_end(pod)
        if ended is None:
            self._own_end_since = None
        elif self._own_end_since is None:
            self._own_end_since = _now()
        return ended if self._is_over(self._own_end_at()) else None

    def _start_verdict(self, pod: Pod) -> Status | None:
        if self.session.start_failure:
            return failed(self.session.start_failure)
        block = failures.block(pod)
        if block is not None:
            # Each container's image has a grace of its own.
            if self._blocked_since is None or block.container != self._blocked:
                self._blocked, self._blocked_since = block.container, _now()
            if block.is_hopeless or self._is_over(self._patience_ends_at()):
                return failed(block.message)
        if not self._is_over(self.start_deadline):
            return None
        pods = self.session.runtime.pods
        if not pods.is_fresh:
            return failed(_late_for(pods.failure))
        waited_for = self._step or progress.step(pod)
        detail = f": last waiting for: {waited_for.message}" if waited_for else ""
        return failed(_LATE + detail)

    async def _missing(self) -> Status | None:
        """Return the end of a session whose pod is gone, None while that is not certain."""
        if self._seen is not None:
            return failures.disappeared(self._seen)
        if not self._is_over(self._unseen_deadline):
            return None
        session = self.session
        try:
            found = await objects.get(
                session.runtime.cluster, "pods", object_name(session.session_id)
            )
        except ObjectNotFound:
            return failures.disappeared(None)
        except ClusterError as exc:
            logger.info("The pod cannot be read.", extra=session.log_extra, exc_info=exc)
            return self._unanswered(exc)
        finally:
            # NB: from the end of the call on, which may take longer than this.
            self._unseen_deadline = _now() + UNSEEN_SECONDS
        if self._own(found) is None:
            return failures.disappeared(None)
        # The informer is behind; what the API says now is as good, for the terminal too.
        session.runtime.pods.learn(found)
        return self._verdict(found)

    def _unanswered(self, failure: ClusterError) -> Status | None:
        is_late = self._is_over(self.start_deadline)
        if self.session.status is not StatusKind.STARTING or not is_late:
            return None
        return failed(_late_for(failure))

    async def _tell(self, pod: Pod | None) -> None:
        """Publish what is new: that the session runs, else what it waits for."""
        session = self.session
        if self._grace_seconds > GRACE_SECONDS:
            # Whoever deleted it gave it more time than a stop does; nobody should wait to be told.
            await session.say(failures.deletion_notice(self._grace_seconds), Phase.BOOT)
        if session.status is not StatusKind.STARTING:
            return
        if self._is_proved(pod):
            endpoints = build_endpoints(session.row.spec, session.runtime.router)
            await session.advance(Status(StatusKind.RUNNING, endpoints=endpoints))
            return
        step = progress.step(pod) if pod is not None else None
        if step != self._step:
            self._step = step
            self._step_due_at = _now() + (step.after_seconds if step else 0.0)
        if step is not None and self._is_over(self._step_due_at):
            await session.say(step.message)

    def _is_proved(self, pod: Pod | None) -> bool:
        return self.proved.is_set() or (pod is not None and failures.is_running(pod))

    def _patience_ends_at(self) -> float | None:
        if self._blocked_since is None:
            return None
        return self._blocked_since + self.session.runtime.config.image_pull_grace_seconds

    def _own_end_at(self) -> float | None:
        if self._own_end_since is None:
            return None
        return self._own_end_since + failures.OWN_END_SECONDS

    def _lost_at(self) -> float | None:
        if self._deleted_since is None:
            return None
        return self._deleted_since + self._grace_seconds + LOST_NODE_SECONDS

    @staticmethod
    def _is_over(deadline: float | None) -> bool:
        return deadline is not None and _now() >= deadline

    def _next_look(self) -> float:
        """Return when time alone may change the verdict."""
        times: list[float | None] = [
            self._overtime_deadline,
            self._lost_at(),
            self._own_end_at(),
        ]
        if self._seen is None:
            times.append(self._unseen_deadline)
        if self.session.status is StatusKind.STARTING:
            times += [self.start_deadline, self._patience_ends_at()]
            if self._step is not None:
                times.append(self._step_due_at)
        now = _now()
        return min(time for time in times if time is not None and time > now)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _late_for(failure: ClusterError | None) -> str:
    """Return what is said of a start of which the API told nothing up to the deadline."""
    if failure is None or failure.status is None:
        return f"{_LATE}: the Kubernetes API cannot be reached"
    return describe(failure, _LATE)
