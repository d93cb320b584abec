"""Pods that somebody deletes behind the runner's back: told soon, in words, and nothing stays."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sessions.pods.run import object_name
from telorunner.kube import objects
from tests.clients import Client
from tests.clusters import ClusterUnderTest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# The promise; what is measured begins before the deletion is asked for.
TOLD_SECONDS = 5.0
LONG_GRACE_SECONDS = 25
# The bound of a stop, and what a busy machine takes for the rest.
STOPPED_SECONDS = 15.0 + 5.0
# A process that ends by itself at SIGTERM, and one that does not, as the first one of a container.
WAITS = 'import time\nprint("ready", flush=True)\ntime.sleep(600)\n'
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS
DELETED = "the pod was deleted"

Event = dict[str, Any]


class Told:
    """A follower of a stream that notes when an event came."""

    def __init__(self, client: Client, session: str) -> None:
        self._client = client
        self._session = session
        self.runs = asyncio.Event()
        self.is_told = asyncio.Event()
        self.told_at = 0.0
        self.events: list[Event] = []

    async def follow(self) -> None:
        """Follow to the end; what speaks of a deletion, or is the end, counts as told."""
        async for _, event in self._client.follow(self._session):
            self.events.append(event)
            kind = event.get("status", {}).get("kind")
            if kind == "running":
                self.runs.set()
            # What ends before that has nothing to be waited for.
            assert self.runs.is_set() or kind in {None, "starting"}, self.events
            if kind in {"failed", "stopped"} or "deleted" in event.get("message", ""):
                self.told_at = self.told_at or time.monotonic()
                self.is_told.set()


@asynccontextmanager
async def following(client: Client, program: str) -> AsyncIterator[tuple[str, Told]]:
    """Start a session that is followed to its end; give it once it runs."""
    session = await client.create(program)
    told = Told(client, session)
    async with asyncio.TaskGroup() as group:
        group.create_task(told.follow())
        await told.runs.wait()
        yield session, told


async def delete(cluster: ClusterUnderTest, session: str, grace_seconds: int | None) -> None:
    """Delete a session's pod as `kubectl delete pod` does."""
    async with cluster.opened() as kube:
        name = object_name(session)
        assert await objects.delete_if_exists(kube, "pods", name, grace_seconds=grace_seconds)


async def is_told(
    client: Client, cluster: ClusterUnderTest, program: str, grace_seconds: int | None
) -> None:
    """Delete the pod of a session that runs, and look at when and how that is told."""
    async with following(client, program) as (session, told):
        asked_at = time.monotonic()
        await delete(cluster, session, grace_seconds)
    took_seconds = told.told_at - asked_at
    assert took_seconds < TOLD_SECONDS, (grace_seconds, took_seconds)
    status = told.events[-1]["status"]
    assert status["kind"] == "failed"
    assert DELETED in status["message"], status


@pytest.mark.parametrize("program", [WAITS, STUBBORN], ids=["ends", "stubborn"])
async def test_a_deleted_pod_is_told_within_five_seconds(
    client: Client, cluster: ClusterUnderTest, program: str
) -> None:
    async with asyncio.TaskGroup() as group:
        # As `kubectl delete pod` does it by itself, with --now, and with --force.
        for grace_seconds in (None, 1, 0):
            group.create_task(is_told(client, cluster, program, grace_seconds))
    await cluster.until_nothing_is_left()


async def test_a_pod_with_a_long_grace_is_told_at_once_and_can_be_stopped(
    client: Client, cluster: ClusterUnderTest
) -> None:
    async with following(client, STUBBORN) as (session, told):
        asked_at = time.monotonic()
        await delete(cluster, session, LONG_GRACE_SECONDS)
        await told.is_told.wait()
        assert told.told_at - asked_at < TOLD_SECONDS
        assert told.events[-1] == {
            "type": "progress",
            "phase": "boot",
            "message": f"Somebody deleted the session's pod; it has {LONG_GRACE_SECONDS} s to end.",
        }
        stopped_at = time.monotonic()
        assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
    assert told.events[-1]["status"] == {"kind": "stopped"}
    # A stop shortens the grace that somebody else has given; a kubelet that does not mind it has
    # no say in how long a stop lasts.
    assert time.monotonic() - stopped_at < STOPPED_SECONDS
    await cluster.until_nothing_is_left()


async def test_a_pod_that_is_deleted_before_it_runs_is_told(
    client: Client, cluster: ClusterUnderTest
) -> None:
    session = await client.create(WAITS)
    async with asyncio.timeout(TOLD_SECONDS):
        while not await cluster.objects("pods"):  # noqa: ASYNC110 - it is to be met in mid-start
            await asyncio.sleep(0.01)
    asked_at = time.monotonic()
    await delete(cluster, session, None)
    status = await client.status(session)
    assert time.monotonic() - asked_at < TOLD_SECONDS
    assert status["kind"] == "failed"
    assert DELETED in status["message"], status
    await cluster.until_nothing_is_left()
