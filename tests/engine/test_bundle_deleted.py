"""A ConfigMap that vanishes before the pod has mounted it is told soon; the API is the fake one."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sessions.pods.run import object_name
from sessions.states import Delivery, StatusKind
from sessions.supervisor.delivery import LOOK_SECONDS, watch_config_map
from sessions.supervisor.ownership import Lease, Owner
from sessions.supervisor.podview import PodView
from sessions.supervisor.session import Session, open_session
from telorunner import aio
from telorunner.errors import ClusterError, ClusterUnavailable, Forbidden, ObjectNotFound
from telorunner.kube.client import Call
from telorunner.kube.informer import Subscription
from tests.builders import make_owned_session, make_runtime, make_spec
from tests.engine.world import FakeWorld, make_settings
from tests.fakes import refuse
from tests.unit.pods import condition, pod, running, waiting

MESSAGE = (
    "the ConfigMap with the session's bundle was deleted before the pod had mounted it; start the "
    "session again"
)
MOUNTING = pod("Pending", waiting("ContainerCreating"))
MOUNTED = pod(
    "Pending",
    waiting("ContainerCreating"),
    conditions=[condition("PodReadyToStartContainers")],
    metadata={"resourceVersion": "2"},
)


class Bench:
    """The watch of one session's ConfigMap; `answers` are what is said of it, then that it is."""

    def __init__(self, session: Session, pods: SimpleNamespace) -> None:
        self.session = session
        self.pods = pods
        self.subscription = Subscription("pod", MOUNTING, is_listed=True)
        self.answers: list[ClusterError] = []
        self.asked = 0
        self.owned = asyncio.Event()


@asynccontextmanager
async def watching(tmp_path: Path, delivery: Delivery = Delivery.INLINE) -> AsyncIterator[Bench]:
    async def request(call: Call, **more: Any) -> dict[str, Any]:
        bench.asked += 1
        if bench.answers:
            raise bench.answers.pop(0)
        return {"metadata": {}}

    async def own() -> None:
        await bench.owned.wait()

    pods = SimpleNamespace(is_fresh=True, failure=None)
    settings = make_settings(tmp_path, RUNNER_REPLAY_BUFFER_BYTES="1000000")
    cluster = SimpleNamespace(namespace="sessions", request=request)
    runtime = make_runtime(settings, pods=pods, cluster=cluster)
    spec = make_spec(session_id="abcdefghijkl", delivery=delivery)
    session = await open_session(Owner(runtime, "engine", Lease(15)), make_owned_session(spec=spec))
    bench = Bench(session, pods)
    owned = aio.start(own(), name="own")
    view = PodView(bench.subscription, session.pod_uid)
    task = aio.start(watch_config_map(session, view, owned), name="bundle")
    try:
        yield bench
    finally:
        await aio.stop(task, owned)


@pytest.mark.looptime
async def test_a_config_map_that_is_gone_ends_the_start(tmp_path: Path, looptime: float) -> None:
    async with watching(tmp_path) as bench:
        bench.owned.set()
        bench.answers = [ClusterUnavailable(), Forbidden(status=403), ObjectNotFound(status=404)]
        await bench.session.wake.wait()
        assert bench.session.start_failure == MESSAGE
        assert looptime == 3 * LOOK_SECONDS
        assert bench.asked == 3


@pytest.mark.looptime
async def test_it_is_looked_at_once_in_a_while_and_only_while_it_may_be_missed(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path) as bench:
        await asyncio.sleep(60)
        # What the task that gives it its owner will make again is not gone yet.
        assert bench.asked == 0
        bench.owned.set()
        await asyncio.sleep(60.5)
        assert bench.asked == 60 / LOOK_SECONDS
        bench.pods.is_fresh = False
        await asyncio.sleep(60)
        bench.pods.is_fresh = True
        bench.subscription.take(MOUNTED)
        await asyncio.sleep(60)
        bench.subscription.take(pod("Running", running(), metadata={"resourceVersion": "3"}))
        await asyncio.sleep(60)
        bench.session.status = StatusKind.RUNNING
        bench.answers = [ObjectNotFound(status=404)]
        await asyncio.sleep(60)
        assert bench.asked == 60 / LOOK_SECONDS
        assert bench.session.start_failure == ""


@pytest.mark.looptime
@pytest.mark.parametrize("delivery", [Delivery.FETCH, Delivery.NONE])
async def test_a_session_without_one_is_not_asked_for_it(
    tmp_path: Path, delivery: Delivery
) -> None:
    async with watching(tmp_path, delivery) as bench:
        bench.owned.set()
        await asyncio.sleep(60)
        assert bench.asked == 0


async def test_a_config_map_that_vanishes_after_it_got_its_owner_is_told_in_words(
    world: FakeWorld,
) -> None:
    # Nothing to attach to: the container is never made.
    world.api._scripts["attach"].clear()
    world.api.script("attach", *[refuse(500)] * 1000)
    async with world.runner():
        session_id = await world.create("print(1)\n")
        name = object_name(session_id)
        await world.until_pod(session_id)
        world.set_status(session_id, "Pending", waiting("ContainerCreating"))
        await world.api.wait_for("patch")
        config_maps = world.api.objects["configmaps"]
        await world.api.wait_until(lambda: "ownerReferences" in config_maps[name]["metadata"])
        began_at = time.monotonic()
        world.api.remove(name, "configmaps")
        assert await world.last_status(session_id) == {"kind": "failed", "message": MESSAGE}
        assert time.monotonic() - began_at < 2 * LOOK_SECONDS + 5
        await world.until_nothing_is_left(session_id)
