"""Sessions made, stopped, killed and lost over and over: in the end nothing of them is left.

The runner is restarted in between. The local cluster only: a real one is not ours to look into.
"""

import asyncio
import random
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from sessions.pods.run import object_name
from telorunner.conf import ClusterKind
from telorunner.errors import ClusterError
from telorunner.kube import objects
from telorunner.kube.client import Cluster, ClusterSettings, open_cluster
from tests.clients import TERMINAL_KINDS, Client
from tests.clusters import MANAGED_BY, ClusterUnderTest, local_cluster
from tests.held import Held, look
from tests.serving import WATCHED, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

# Two cores: more at once would only measure the machine.
AT_ONCE = 8
KEPT_SESSIONS = 24
RESTARTS_FULL = 6
SETTLE_SECONDS = 30.0
# A runner that was killed before it noted the pod of a session that starts makes it another one.
DELETE_AGAIN_SECONDS = 0.5
# What allocators keep of a peak differs from look to look; a leak of one session's objects in
# each round would be ten times as much. The warm-up is as long as it takes to fill what the local
# cluster remembers at most: its watches' history and its events.
LEVEL_BYTES = 6 * 2**20
TRIES = 200
REFUSED = "Service Unavailable: /v1/sessions"

WAITS = 'import time\nprint("ready", flush=True)\ntime.sleep(600)\n'
EXITS = 'import sys\nprint("hello")\nsys.exit({code})\n'
DIES = """
import os, signal, time
print("ready", flush=True)
time.sleep({seconds})
os.kill(os.getpid(), signal.SIGKILL)
"""
# Leaves a child behind that would outlive it.
FORKS = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("parent ends")
"""

Times = Callable[[int, int], int]
Event = tuple[int, dict[str, Any]]


@dataclass
class Rounds:
    """A runner that goes down and up, and rounds of sessions that must not mind."""

    platform: Platform
    cluster: ClusterUnderTest
    kube: Cluster
    dice: random.Random
    kinds: dict[str, int] = field(default_factory=dict)
    # What each of its processes said: a session may fail by something that an earlier one met.
    outputs: list[list[str]] = field(default_factory=list)
    _client: Client | None = None
    _is_up: asyncio.Event = field(default_factory=asyncio.Event)
    _restarting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self) -> None:
        await asyncio.to_thread(self.platform.start)
        assert self.platform.process is not None
        self.outputs.append(self.platform.process.output)
        self._client = Client(self.platform.url, self.cluster.image)
        self._is_up.set()

    async def stop(self, sent: signal.Signals) -> None:
        self._is_up.clear()
        code = await asyncio.to_thread(self.platform.stop, sent)
        assert code == (0 if sent is signal.SIGTERM else -sent)
        assert self._client is not None
        await self._client.close()

    async def ask(self, action: Callable[[Client], Awaitable[Any]]) -> Any:
        """Ask the runner for something, again where it went down meanwhile."""
        for _ in range(TRIES):
            await self._is_up.wait()
            assert self._client is not None
            with suppress(httpx.HTTPError, RuntimeError):
                return await action(self._client)
            await asyncio.sleep(0.05)
        raise AssertionError("the runner does not come back")

    async def round(self) -> None:
        """Make a session of some kind, let happen to it what does, and look at its stream."""
        kind = self.dice.choice(["stopped", "exits", "fails", "dies", "forks", "deleted", "forced"])
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        programs = {
            "exits": EXITS.format(code=0),
            "fails": EXITS.format(code=3),
            "dies": DIES.format(seconds=self.dice.uniform(0, 0.3)),
            "forks": FORKS,
        }
        program = programs.get(kind, WAITS)
        session = await self.ask(lambda client: create(client, program))
        try:
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self.follow(session))
                if kind == "stopped":
                    await self._stop_somewhere(session)
                elif kind in {"deleted", "forced"}:
                    grace_seconds = 0 if kind == "forced" else None
                    while not following.done():
                        await self._delete_pod(session, grace_seconds)
                        await asyncio.wait({following}, timeout=DELETE_AGAIN_SECONDS)
            check(kind, following.result())
        except BaseException as exc:
            exc.add_note(f"session {session}, of those that are {kind}")
            raise

    async def follow(self, session: str) -> list[Event]:
        """Follow a stream to its last status, over every end of the runner; gaps are left out."""
        seen: list[Event] = []
        for _ in range(TRIES):
            await self.ask(lambda client: self._follow_once(client, session, seen))
            if seen and is_over(seen[-1]):
                return seen
        raise AssertionError(f"no end of {session} after {seen}")

    async def _follow_once(self, client: Client, session: str, seen: list[Event]) -> None:
        # A stream that was cut off behind the last status has told everything.
        if seen and is_over(seen[-1]):
            return
        async for event in client.follow(session, after=seen[-1][0] if seen else 0):
            if event[0]:
                seen.append(event)

    async def _stop_somewhere(self, session: str) -> None:
        await asyncio.sleep(self.dice.choice([0, self.dice.uniform(0, 0.3), self.dice.random()]))
        await self._stop(session)

    async def _stop(self, session: str) -> None:
        async def delete(client: Client) -> None:
            answer = await client.http.delete(f"/v1/sessions/{session}")
            answer.raise_for_status()

        await self.ask(delete)

    async def _delete_pod(self, session: str, grace_seconds: int | None) -> None:
        """Delete the pod behind the runner's back, if there is one, at some moment of its life."""
        name = object_name(session)
        with suppress(ClusterError):
            pod = await objects.get(self.kube, "pods", name)
            await asyncio.sleep(self.dice.uniform(0, 1.0))
            uid = pod["metadata"]["uid"]
            await objects.delete_if_exists(
                self.kube, "pods", name, grace_seconds=grace_seconds, uid=uid
            )

    async def run(self, count: int, restarts: int = 0) -> None:
        """Run rounds, a few at once, with restarts at random moments of them."""
        begins = iter(range(count))
        moments = dict.fromkeys(self.dice.sample(range(count), restarts))

        async def worker() -> None:
            for number in begins:
                if number in moments:
                    async with self._restarting:
                        await self.stop(self.dice.choice([signal.SIGTERM, signal.SIGKILL]))
                        await self.start()
                await self.round()

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(worker())

    async def settle(self) -> tuple[Held, Held]:
        """Wait until nothing of any session is left; return what both processes hold."""
        await self._stop_orphans()
        async with asyncio.timeout(SETTLE_SECONDS):
            while await self._left():  # noqa: ASYNC110 - two clusters and a folder have no event
                await asyncio.sleep(0.1)
        assert self.platform.process is not None
        assert self.cluster.process is not None
        return look(self.platform.process), look(self.cluster.process)

    async def _stop_orphans(self) -> None:
        """Stop sessions whose 201 was lost with the runner: no client knows of them."""
        for session in self.live_rows():
            await self._stop(session)
            assert is_over((await self.follow(session))[-1])

    async def _left(self) -> list[str]:
        pods_dir = self.cluster.data_dir / "localcluster" / "node" / "pods"
        kinds = ("pods", "configmaps")
        selector = objects.managed_selector(MANAGED_BY)
        found = [await objects.list_objects(self.kube, kind, selector=selector) for kind in kinds]
        names = [one["metadata"]["name"] for listed in found for one in listed]
        return [*names, *(entry.name for entry in pods_dir.iterdir())]

    def live_rows(self) -> list[str]:
        """Return the ids of the sessions that have not ended by their rows."""
        path = self.cluster.data_dir / "telorunner.sqlite3"
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT id, status FROM runner_sessions_session")
            return [session for session, status in rows if status not in TERMINAL_KINDS]


async def create(client: Client, program: str) -> str:
    answer = await client.ask_to_create(program)
    # A runner that is going down says so; any other refusal is a fault.
    assert answer.status_code in {201, 503}, answer.text
    answer.raise_for_status()
    return str(answer.json()["sessionId"])


def is_over(event: Event) -> bool:
    return event[1].get("status", {}).get("kind") in TERMINAL_KINDS


def check(kind: str, seen: list[Event]) -> None:
    """Assert what a follower of a session of some kind has seen."""
    numbers = [number for number, _ in seen]
    assert numbers == sorted(set(numbers)), f"numbers twice or out of order: {numbers}"
    assert [is_over(event) for event in seen] == [False] * (len(seen) - 1) + [True], seen
    status = seen[-1][1]["status"]
    expected = {
        "stopped": {"kind": "stopped"},
        "exits": {"kind": "exited", "code": 0},
        "forks": {"kind": "exited", "code": 0},
    }
    if kind in expected:
        assert status == expected[kind], (kind, seen)
    else:
        assert status["kind"] == "failed", (kind, seen)
        said = {"fails": "(exit code 3)", "dies": "(exit code 137)"}
        assert said.get(kind, "") in status["message"], (kind, seen)


async def settled(rounds: Rounds, before: tuple[Held, Held]) -> tuple[Held, Held]:
    """Wait until neither process holds more than before: kept-alive connections take a while."""
    for _ in range(TRIES):
        now = await rounds.settle()
        more = [one.beyond(other) for one, other in zip(now, before, strict=True)]
        if not any(more):
            return now
        await asyncio.sleep(SETTLE_SECONDS / TRIES)
    raise AssertionError(f"still held: {more}")


async def test_rounds_of_sessions_leave_nothing_behind(
    times: Times, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    count, warm_up = times(1_000, 20), times(400, 10)
    seed = random.SystemRandom().randrange(10**6)
    with local_cluster(tmp_path, WATCHED) as cluster:
        settings = ClusterSettings(
            kind=ClusterKind.KUBECONFIG,
            kubeconfig=str(cluster.kubeconfig),
            namespace=cluster.namespace,
            managed_by=MANAGED_BY,
        )
        environment = {**cluster.environment, "RUNNER_MAX_SESSIONS": str(KEPT_SESSIONS)}
        platform = Platform(tmp_path, environment, script=WATCHED)
        async with open_cluster(settings) as kube:
            rounds = Rounds(platform, cluster, kube, random.Random(seed))
            try:
                await rounds.start()
                await rounds.run(warm_up // 2, restarts=times(RESTARTS_FULL, 1))
                await rounds.run(warm_up - warm_up // 2)
                before = await rounds.settle()
                levels = [before]
                for _ in range(times(3, 1)):
                    await rounds.run((count - warm_up) // times(3, 1))
                    levels.append(await settled(rounds, before))
            except BaseException as exc:
                exc.add_note(f"seed {seed}, after {rounds.kinds}; the runner said:")
                exc.add_note("".join(line for output in rounds.outputs for line in output))
                raise
            finally:
                if platform.process is not None:
                    await rounds.stop(signal.SIGTERM)
    errors = [line for output in rounds.outputs for line in output if " ERROR " in line]
    # A runner that is going down says so to those who ask it for something.
    assert all(REFUSED in line for line in errors), errors
    resident_bytes = [[held.resident_bytes for held in level] for level in levels]
    record_property("resident_bytes", resident_bytes)
    if count == 1_000:
        for process in range(2):
            grown = resident_bytes[-1][process] - resident_bytes[1][process]
            assert grown < LEVEL_BYTES, resident_bytes
