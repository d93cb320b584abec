"""More of what nobody claims than a page holds; on the local cluster, in this process."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from sessions.pods.run import build_bundle_config_map, build_run_pod
from sessions.spec import RunPodSpec
from telorunner.kube import objects
from telorunner.kube.client import Cluster
from tests.builders import make_spec
from tests.engine.world import open_local_world

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

AT_ONCE = 16
KINDS = ("pods", "configmaps")
# The letters that ids of sessions are made of have no digits among them.
DIGITS = str.maketrans("0123456789", "abcdefghij")
PROGRAM = "import time\ntime.sleep(600)\n"


async def put_orphans(cluster: Cluster, prefix: str, count: int, managed_by: str) -> None:
    """Make pods that no scheduler takes, each with a ConfigMap that is to go with it."""
    numbers = iter(range(count))

    async def put() -> None:
        for number in numbers:
            session_id = f"{prefix}{number:06}".translate(DIGITS)
            spec = make_spec(session_id=session_id)
            pod = build_run_pod(RunPodSpec(spec, cluster.namespace, managed_by, env={}))
            pod["spec"]["schedulerName"] = "nobody"
            made = await objects.create(cluster, "pods", pod)
            config_map = build_bundle_config_map(session_id, cluster.namespace, managed_by, b"x")
            config_map["metadata"]["ownerReferences"] = [objects.owner_reference(made)]
            await objects.create(cluster, "configmaps", config_map)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(put())


async def test_more_than_a_page_of_orphans_goes_and_nothing_else(
    tmp_path: Path, transactional_db: None, times: Callable[[int, int], int]
) -> None:
    if not (count := times(1_200, 0)):
        pytest.skip("takes half a minute; runs with --full-counts")
    async with open_local_world(tmp_path) as world:
        async with world.runner() as runtime:
            session_id = await world.create(PROGRAM)
            await world.until_running(session_id)
        async with world.idle_runner() as runtime:
            await put_orphans(runtime.cluster, "theirs", 3, "another-release")
            theirs = {kind: set(world.objects(kind)) for kind in KINDS}
            ours = world.config.managed_by
            await put_orphans(runtime.cluster, "orphan", count, ours)
            assert len(world.objects("pods")) == count + 4
        async with world.runner() as runtime:
            async with asyncio.timeout(120):
                for kind in KINDS:
                    _, version = world.cluster.store.list(kind, world.namespace)
                    changes = world.cluster.store.watch(kind, world.namespace, version)
                    async with aclosing(changes):  # type: ignore[type-var] # it is a generator
                        while set(world.objects(kind)) != theirs[kind]:
                            await anext(changes)
            await world.until_running(session_id)
            await world.stop(session_id)
            assert await world.last_status(session_id) == {"kind": "stopped"}
