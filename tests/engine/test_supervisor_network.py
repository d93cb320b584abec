"""What a supervisor does over the pod's network, and when; in virtual time, without a cluster."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sessions.log import Starts
from sessions.log.memory import MemoryLog
from sessions.pods.run import INSPECT_PORT
from sessions.spec import App, Port
from sessions.states import Protocol, StatusKind
from sessions.supervisor.network import LOSS, Network, open_network
from sessions.supervisor.ownership import Lease, Owner
from sessions.supervisor.session import Session, open_session
from telorunner.errors import StaleFence
from telorunner.kube.informer import Subscription
from tests.builders import make_owned_session, make_runtime, make_spec
from tests.debug_servers import event, open_debug_server
from tests.engine.world import LogReader, make_settings
from tests.unit.pods import pod, running

pytestmark = pytest.mark.looptime

SESSION_ID = "abcdefghijkl"
# The inspect port is the same for all: an address of its own keeps test runs apart.
ADDRESS = f"127.77.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"


@dataclass
class Bench(LogReader):
    """A session's network at work, and what a test turns."""

    session: Session
    subscription: Subscription
    network: Network
    log: MemoryLog


@asynccontextmanager
async def networking(
    tmp_path: Path,
    *ports: Port,
    status: StatusKind = StatusKind.RUNNING,
    is_inspected: bool = False,
    address: str | None = ADDRESS,
) -> AsyncIterator[Bench]:
    known = pod("Running", running(), podIP=address)
    subscription = Subscription("pod", known, is_listed=True)

    def subscribe(name: str) -> AbstractContextManager[Subscription]:
        return nullcontext(subscription)

    runtime = make_runtime(make_settings(tmp_path), pods=SimpleNamespace(subscribe=subscribe))
    app = App("app", "telo.yaml", ports=ports)
    spec = make_spec(session_id=SESSION_ID, apps=(app,), is_inspected=is_inspected)
    owned = make_owned_session(spec=spec, status=status)
    session = await open_session(Owner(runtime, "engine", Lease(15)), owned)
    await session.announce()
    async with open_network(session) as network:
        yield Bench(session, subscription, network, runtime.log)


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [one["type"] for one in events]


async def test_nothing_is_dialled_or_told_before_the_session_runs(tmp_path: Path) -> None:
    async with (
        open_debug_server(ADDRESS, INSPECT_PORT) as server,
        networking(
            tmp_path, Port(INSPECT_PORT), status=StatusKind.STARTING, is_inspected=True
        ) as bench,
    ):
        server.emit(event("Kernel.Started"))
        await asyncio.sleep(60)
        assert kinds(await bench.events()) == ["status"]
        assert server.requests == []
        bench.session.has_run.set()
        events = await bench.until(lambda one: one["type"] == "debug")
        assert events[-1] == {
            "type": "debug",
            "app": "app",
            "frame": {"kind": "event", "event": "Kernel.Started"},
        }


async def test_ports_are_checked_before_the_pod_has_an_address(
    tmp_path: Path, looptime: float
) -> None:
    async with networking(tmp_path, Port(1), address=None) as bench:
        await asyncio.sleep(10)
        told = {"type": "reachability", "app": "app", "port": 1}
        assert (await bench.events())[1:] == [{**told, "state": "checking"}]
        bench.subscription.take(pod("Running", running(), podIP=ADDRESS))
        events = await bench.until(lambda one: one.get("state") == "unreachable")
        assert events[1:] == [{**told, "state": "checking"}, {**told, "state": "unreachable"}]
        assert looptime == 40


async def test_another_pod_of_the_name_is_never_dialled(tmp_path: Path) -> None:
    async with (
        open_debug_server(ADDRESS, INSPECT_PORT) as server,
        networking(tmp_path, Port(INSPECT_PORT), is_inspected=True, address=None) as bench,
    ):
        other = pod("Running", running(), podIP=ADDRESS, metadata={"uid": "2"})
        bench.subscription.take(other)
        await asyncio.sleep(60)
        assert server.requests == []
        assert kinds(await bench.events()) == ["status", "reachability"]


async def test_udp_ports_have_no_reachability(tmp_path: Path) -> None:
    ports = (Port(53, Protocol.UDP), Port(1), Port(1, Protocol.UDP))
    async with networking(tmp_path, *ports) as bench:
        await asyncio.sleep(31)
        events = (await bench.events())[1:]
        assert [(one["port"], one["state"]) for one in events] == [
            (1, "checking"),
            (1, "unreachable"),
        ]


async def test_nothing_is_told_after_the_drain(tmp_path: Path, looptime: float) -> None:
    async with (
        open_debug_server(ADDRESS, INSPECT_PORT) as server,
        networking(tmp_path, Port(1), is_inspected=True) as bench,
    ):
        server.emit(event("one"))
        await bench.until(lambda one: one["type"] == "debug")
        # A stream that stays open, as over a connection that is half dead.
        await bench.network.drain()
        assert looptime == pytest.approx(0.1, abs=0.01)
        before = await bench.events()
        server.emit(event("two"))
        await asyncio.sleep(60)
        assert await bench.events() == before
        assert len(server.requests) == 1


async def test_frames_that_are_left_out_are_said_once(tmp_path: Path) -> None:
    async with (
        open_debug_server(ADDRESS, INSPECT_PORT) as server,
        networking(tmp_path, is_inspected=True) as bench,
    ):
        server.emit(event("large", text="x" * 70_000))
        await bench.until(lambda one: one.get("message") == LOSS)
        await asyncio.sleep(120)
        server.emit(event("large", text="x" * 70_000), event("last"))
        events = await bench.until(lambda one: one["type"] == "debug")
        assert kinds(events) == ["status", "progress", "debug"]


async def test_a_helper_that_fails_leaves_the_session_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        async def publish_event(self, encoded: bytes) -> int:
            raise RuntimeError("a defect")

    async with networking(tmp_path, Port(1), status=StatusKind.STARTING) as bench:
        bench.session.writer = Broken()  # type: ignore[assignment] # all that is used here
        bench.session.has_run.set()
        await asyncio.sleep(60)
    assert "The helper reachability failed." in caplog.messages


async def test_an_owner_that_was_overtaken_learns_it_by_its_helpers(tmp_path: Path) -> None:
    async def overtaken() -> None:
        async with networking(tmp_path, Port(1), status=StatusKind.STARTING) as bench:
            await bench.log.open(SESSION_ID, fence=2, starts=Starts())
            bench.session.has_run.set()
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await overtaken()
    assert caught.value.subgroup(StaleFence) is not None


async def test_the_status_is_told_again_before_frames_push_it_out(tmp_path: Path) -> None:
    async with (
        open_debug_server(ADDRESS, INSPECT_PORT) as server,
        networking(tmp_path, Port(INSPECT_PORT), is_inspected=True) as bench,
    ):
        # The row is of an earlier time than what was told last.
        endpoint = {"host": "later.example", "port": INSPECT_PORT, "protocol": "tcp"}
        session = bench.session
        session._told = replace(session._told, endpoints=(endpoint,))
        frames = session.runtime.config.replay_buffer_bytes // 60_000
        server.emit(*(event("large", text="x" * 60_000) for _ in range(frames)), event("last"))
        events = await bench.until(
            lambda one: one["type"] == "debug" and one["frame"]["event"] == "last"
        )
        again = {"type": "status", "status": {"kind": "running", "endpoints": [endpoint]}}
        assert events.count(again) == 2
        assert events[events.index(again) + 1]["state"] == "reachable"
