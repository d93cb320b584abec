"""Rounds of sessions that are made, stopped, killed and lost, on either cluster.

The runner is restarted in between; what it holds afterwards is looked at in `tests/held.py`.
"""

import asyncio
import random
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from sessions.pods.run import object_name
from telorunner.conf import ClusterKind
from telorunner.errors import ClusterError
from telorunner.kube import objects
from telorunner.kube.client import Cluster, ClusterSettings, open_cluster
from tests.clients import TERMINAL_KINDS, Client
from tests.clusters import MANAGED_BY, ClusterUnderTest
from tests.held import Held, look
from tests.serving import WATCHED, Platform

KEPT_SESSIONS = 24
SETTLE_SECONDS = 30.0
# A runner that was killed before it noted the pod of a session that starts makes it another one.
DELETE_AGAIN_SECONDS = 0.5
TRIES = 200
REFUSED = "Service Unavailable: /v1/sessions"

WAITS = 'import time\nprint("ready", flush=True)\ntime.sleep(600)\n'
EXITS = 'import sys\nprint("hello")\nsys.exit({code})\n'
# Killed by the kernel. No signal of its own does that to the first process of a real container.
DIES = """
import ctypes, time
print("ready", flush=True)
time.sleep({seconds})
ctypes.string_at(0)
"""
# Leaves a child behind that would outlive it.
FORKS = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("parent ends")
"""

Event = tuple[int, dict[str, Any]]


@dataclass
class Rounds:
    """A runner that goes down and up, and rounds of sessions that must not mind.

    `kube` is an administrator's way to the cluster, to look and to delete behind the runner's back.
    """

    platform: Platform
    cluster: ClusterUnderTest
    kube: Cluster
    dice: random.Random
    at_once: int
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

    @property
    def is_up(self) -> bool:
        """Whether the runner was started and not stopped since."""
        return self._is_up.is_set()

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
            for _ in range(self.at_once):
                group.create_task(worker())

    async def settle(self) -> list[Held]:
        """Wait until nothing of any session is left; return what the processes hold.

        The first one is the runner, the second one the local cluster where that is used.
        """
        await self._stop_orphans()
        async with asyncio.timeout(SETTLE_SECONDS):
            while await self._left():  # noqa: ASYNC110 - two clusters and a folder have no event
                await asyncio.sleep(0.1)
        assert self.platform.process is not None
        processes = [self.platform.process, *filter(None, [self.cluster.process])]
        return [look(process) for process in processes]

    async def _stop_orphans(self) -> None:
        """Stop sessions whose 201 was lost with the runner: no client knows of them."""
        for session in self.live_rows():
            await self._stop(session)
            assert is_over((await self.follow(session))[-1])

    async def _left(self) -> list[str]:
        kinds = ("pods", "configmaps")
        selector = objects.managed_selector(MANAGED_BY)
        found = [await objects.list_objects(self.kube, kind, selector=selector) for kind in kinds]
        names = [one["metadata"]["name"] for listed in found for one in listed]
        if self.cluster.process is None:
            return names
        pods_dir = self.cluster.data_dir / "localcluster" / "node" / "pods"
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
        said = {"fails": "(exit code 3)", "dies": "(exit code 139)"}
        assert said.get(kind, "") in status["message"], (kind, seen)


async def settled(rounds: Rounds, before: list[Held]) -> list[Held]:
    """Wait until neither process holds more than before: kept-alive connections take a while."""
    for _ in range(TRIES):
        now = await rounds.settle()
        more = [one.beyond(other) for one, other in zip(now, before, strict=True)]
        if not any(more):
            return now
        await asyncio.sleep(SETTLE_SECONDS / TRIES)
    raise AssertionError(f"still held: {more}")


@asynccontextmanager
async def opened_rounds(cluster: ClusterUnderTest, at_once: int) -> AsyncIterator[Rounds]:
    """Run a runner for rounds; at the end it must not have met anything unexpected."""
    settings = ClusterSettings(
        kind=ClusterKind.KUBECONFIG,
        kubeconfig=str(cluster.kubeconfig),
        namespace=cluster.namespace,
        managed_by=MANAGED_BY,
    )
    environment = {**cluster.environment, "RUNNER_MAX_SESSIONS": str(KEPT_SESSIONS)}
    platform = Platform(cluster.data_dir, environment, script=WATCHED)
    seed = random.SystemRandom().randrange(10**6)
    async with open_cluster(settings) as kube:
        rounds = Rounds(platform, cluster, kube, random.Random(seed), at_once)
        try:
            await rounds.start()
            yield rounds
        except BaseException as exc:
            exc.add_note(f"seed {seed}, after {rounds.kinds}; the runner said:")
            exc.add_note("".join(line for output in rounds.outputs for line in output))
            raise
        finally:
            if rounds.is_up:
                await rounds.stop(signal.SIGTERM)
    errors = [line for output in rounds.outputs for line in output if " ERROR " in line]
    # A runner that is going down says so to those who ask it for something.
    assert all(REFUSED in line for line in errors), errors
