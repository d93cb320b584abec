"""What a supervisor makes of a pod as time goes by; in virtual time, without any cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sessions.pods.causes import NODE_LOST, time_limit
from sessions.spec import STOPPED, Status, exited, failed
from sessions.states import StatusKind
from sessions.supervisor.ownership import Lease, Owner
from sessions.supervisor.running import UNSEEN_SECONDS, Watch
from sessions.supervisor.session import Session, open_session
from telorunner import aio
from telorunner.errors import ClusterUnavailable, Forbidden
from telorunner.kube.client import REQUEST_SECONDS, Call
from telorunner.kube.informer import Subscription
from tests.builders import LIMITS, make_owned_session, make_runtime, make_spec
from tests.engine.world import decode, make_settings
from tests.unit.pods import condition, pod, running, terminated, waiting

pytestmark = pytest.mark.looptime

SESSION_ID = "abcdefghijkl"
TTL_SECONDS = 60
READY = condition("PodReadyToStartContainers")


@dataclass
class Bench:
    """A watch at work, and what a test turns."""

    session: Session
    subscription: Subscription
    proved: asyncio.Event
    task: "asyncio.Task[Status]"
    pods: SimpleNamespace

    def show(self, state: dict[str, Any] | None) -> None:
        """Let the informer show a state of the pod."""
        self.subscription.take(state)
        self.session.wake.set()

    async def said(self) -> list[str]:
        """Return the messages of all progress events so far."""
        async with self.session.runtime.log.read_events(SESSION_ID, 0) as reader:
            batch = await reader.next()
        return [decode(data)["message"] for _, data in batch.items]


@asynccontextmanager
async def watching(
    tmp_path: Path,
    status: StatusKind = StatusKind.STARTING,
    start_seconds: float = 180.0,
    cluster: Any = None,
) -> AsyncIterator[Bench]:
    pods = SimpleNamespace(is_fresh=True, failure=None)
    settings = make_settings(tmp_path, RUNNER_REPLAY_BUFFER_BYTES="1000000")
    runtime = make_runtime(settings, pods=pods, cluster=cluster)
    spec = make_spec(session_id=SESSION_ID, limits=replace(LIMITS, ttl_seconds=TTL_SECONDS))
    owned = make_owned_session(spec=spec, status=status)
    session = await open_session(Owner(runtime, "engine", Lease(15)), owned)
    subscription = Subscription("pod", None, is_listed=True)
    proved = asyncio.Event()
    deadline = asyncio.get_running_loop().time() + start_seconds
    task = aio.start(Watch(session, subscription, proved, deadline).run(), name="watch")
    try:
        yield Bench(session, subscription, proved, task, pods)
    finally:
        await aio.stop(task)


async def test_each_step_is_said_once(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        for state in (
            pod("Pending", node=""),
            pod("Pending", waiting("ContainerCreating")),
            pod("Pending", node=""),
            pod("Pending", waiting("ContainerCreating"), conditions=[READY]),
            pod("Pending", waiting("ErrImagePull", "no such host")),
            pod("Pending", waiting("ImagePullBackOff")),
            pod("Pending", waiting("ErrImagePull", "no such host")),
        ):
            bench.show(state)
            await asyncio.sleep(0.1)
        assert await bench.said() == [
            "Scheduling",
            "Preparing the sandbox",
            'Container "session" is waiting: ErrImagePull: no such host',
            'Container "session" is waiting: ImagePullBackOff',
        ]


async def test_a_container_that_is_not_there_after_a_second_is_said(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        bench.show(pod("Pending", node=""))
        await asyncio.sleep(0.1)
        bench.show(pod("Pending", waiting("ContainerCreating"), conditions=[READY]))
        await asyncio.sleep(0.9)
        assert await bench.said() == ["Scheduling"]
        await asyncio.sleep(0.2)
        assert (await bench.said())[1:] == ["Pulling the image or creating the container"]


async def test_an_unschedulable_pod_fails_at_the_deadline_in_the_schedulers_words(
    tmp_path: Path, looptime: float
) -> None:
    words = "0/1 nodes are available: 1 Insufficient cpu"
    refused = condition("PodScheduled", "False", reason="Unschedulable", message=f"{words}.")
    words += "; ask for less (limits), or the cluster operator must add capacity"
    async with watching(tmp_path) as bench:
        bench.show(pod("Pending", node="", conditions=[refused]))
        assert await bench.task == failed(
            "the session did not start within 180 s: last waiting for: Unschedulable: " + words
        )
        assert looptime == 180
        assert await bench.said() == ["Unschedulable: " + words]


async def test_a_start_deadline_without_the_api_says_so(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        bench.show(pod("Pending", node=""))
        bench.pods.is_fresh = False
        assert await bench.task == failed(
            "the session did not start within 180 s: the Kubernetes API cannot be reached"
        )


async def test_a_start_deadline_without_the_permission_to_look_says_so(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        bench.show(pod("Pending", node=""))
        bench.pods.is_fresh = False
        bench.pods.failure = Forbidden(status=403, reason="Forbidden")
        assert await bench.task == failed(
            "the session did not start within 180 s: the runner is not permitted to do this "
            "(Forbidden, HTTP 403). The cluster operator must check the runner's RBAC, and that "
            "the session namespace (RUNNER_SESSION_NAMESPACE) exists."
        )


async def test_image_pulls_have_their_grace_whatever_they_are_called_meanwhile(
    tmp_path: Path, looptime: float
) -> None:
    async with watching(tmp_path) as bench:
        bench.show(pod("Pending", waiting("ErrImagePull", "no such host")))
        for _ in range(5):
            await asyncio.sleep(10)
            bench.show(pod("Pending", waiting("ContainerCreating")))
            await asyncio.sleep(1)
            bench.show(pod("Pending", waiting("ImagePullBackOff", "back-off")))
        assert await bench.task == failed(
            'container "session" cannot start: ImagePullBackOff: back-off; check the image\'s name '
            "and tag; a private registry needs the operator's pull secret "
            "(RUNNER_IMAGE_PULL_SECRET)"
        )
        assert looptime == 60


async def test_the_image_of_each_container_has_a_grace_of_its_own(
    tmp_path: Path, looptime: float
) -> None:
    fetching = waiting("ErrImagePull", "no such host") | {"name": "body-fetch"}
    async with watching(tmp_path) as bench:
        bench.show(pod("Pending", waiting("PodInitializing"), initContainerStatuses=[fetching]))
        await asyncio.sleep(50)
        fetched = terminated(0, "Completed", name="body-fetch")
        bench.show(pod("Pending", waiting("ErrImagePull", "EOF"), initContainerStatuses=[fetched]))
        assert (await bench.task).kind is StatusKind.FAILED
        assert looptime == 50 + 60


async def test_a_stop_is_seen_at_once_and_wins(tmp_path: Path, looptime: float) -> None:
    async with watching(tmp_path) as bench:
        bench.show(pod("Pending", node=""))
        await asyncio.sleep(5)
        bench.subscription.take(pod("Failed", terminated(3)))
        bench.session.ask_stop()
        assert await bench.task == STOPPED
        assert looptime == 5


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (pod("Running", running()), failed("pod disappeared")),
        (pod("Succeeded", terminated(0, "Completed")), exited(0)),
        (pod("Failed", terminated(2)), failed('container "session" failed: Error (exit code 2)')),
    ],
)
async def test_a_pod_that_vanishes_ends_the_session(
    tmp_path: Path, last: dict[str, Any], status: Status
) -> None:
    async with watching(tmp_path, StatusKind.RUNNING) as bench:
        bench.show(pod("Running", running()))
        await asyncio.sleep(1)
        # The informer may merge the last state and the deletion into one.
        bench.subscription.take(last)
        bench.show(None)
        assert await bench.task == status


async def test_a_pod_that_stays_long_after_its_deletion_has_lost_its_node(
    tmp_path: Path, looptime: float
) -> None:
    deleted = {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}
    async with watching(tmp_path, StatusKind.RUNNING) as bench:
        bench.show(pod("Running", running(), metadata=deleted))
        assert await bench.task == failed(NODE_LOST)
        # What it was given to end, and then as long as a kubelet may take.
        assert looptime == 60


async def test_a_deletion_with_a_grace_of_its_own_is_told_at_once(tmp_path: Path) -> None:
    deleted = {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 60}
    async with watching(tmp_path, StatusKind.RUNNING) as bench:
        bench.show(pod("Running", running()))
        await asyncio.sleep(1)
        bench.show(pod("Running", running(), metadata=deleted))
        await asyncio.sleep(1)
        assert await bench.said() == ["Somebody deleted the session's pod; it has 60 s to end."]
        bench.show(pod("Running", running(), metadata={**deleted, "resourceVersion": "2"}))
        await asyncio.sleep(61)
        assert len(await bench.said()) == 1
        assert not bench.task.done()


async def test_a_grace_that_is_cut_short_late_is_no_lost_node(
    tmp_path: Path, looptime: float
) -> None:
    deleted = {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 60}
    cut_short = {**deleted, "deletionGracePeriodSeconds": 1, "resourceVersion": "2"}
    async with watching(tmp_path, StatusKind.RUNNING) as bench:
        bench.show(pod("Running", running(), metadata=deleted))
        await asyncio.sleep(50)
        bench.show(pod("Running", running(), metadata=cut_short))
        await asyncio.sleep(30)
        assert not bench.task.done()
        assert await bench.task == failed(NODE_LOST)
        assert looptime == 50 + 1 + 30


async def test_a_node_that_does_not_end_a_pod_at_its_limit_is_not_waited_for(
    tmp_path: Path, looptime: float
) -> None:
    async with watching(tmp_path, StatusKind.RUNNING) as bench:
        bench.show(pod("Running", running()))
        status = await bench.task
        assert status == failed(time_limit({}, TTL_SECONDS))
        assert looptime == TTL_SECONDS + 180 + 60


async def test_another_pod_of_the_name_is_not_the_sessions(tmp_path: Path) -> None:
    async with watching(tmp_path, StatusKind.RUNNING) as bench:
        bench.show(pod("Running", running()))
        await asyncio.sleep(1)
        bench.show(pod("Running", running(), metadata={"uid": "2"}))
        assert await bench.task == failed("pod disappeared")


async def test_a_running_session_outlives_any_wait(tmp_path: Path) -> None:
    async with watching(tmp_path, StatusKind.RUNNING, start_seconds=1) as bench:
        bench.show(pod("Running", running()))
        await asyncio.sleep(100)
        # A container status that the kubelet takes back for a moment, as at its restart.
        bench.show(pod("Running", waiting("ContainerCreating")))
        await asyncio.sleep(100)
        assert not bench.task.done()


async def test_an_api_that_hangs_while_the_pod_is_unseen_ends_no_running_session(
    tmp_path: Path,
) -> None:
    """Each call hangs for longer than the next one is put off, and past every other deadline."""
    calls = []

    async def hang(call: Call) -> dict[str, Any]:
        calls.append(call.operation)
        await asyncio.sleep(REQUEST_SECONDS)
        raise ClusterUnavailable

    cluster = SimpleNamespace(namespace="sessions", request=hang)
    async with watching(tmp_path, StatusKind.RUNNING, cluster=cluster) as bench:
        await asyncio.sleep(TTL_SECONDS + 180 + 60 + 100)
        assert not bench.task.done()
        assert len(calls) == 400 // (UNSEEN_SECONDS + REQUEST_SECONDS)
