"""What a supervisor publishes of a session, and tells of it; in virtual time, on the fake API."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from routing.layer import Decision, RoutingSettings
from routing.router import Router, inactive_router, open_router
from routing.routes import Layer
from sessions.log import Starts
from sessions.log.memory import MemoryLog
from sessions.pods.run import INSPECT_PORT
from sessions.spec import App, Port
from sessions.states import Protocol, StatusKind
from sessions.supervisor.network import Network, open_network
from sessions.supervisor.ownership import Owner
from sessions.supervisor.routing import withdraw
from sessions.supervisor.session import Session, open_session
from telorunner import aio
from telorunner.errors import StaleFence
from telorunner.kube.client import Cluster
from telorunner.kube.informer import Subscription
from tests import fakes
from tests.builders import make_owned_session, make_runtime, make_spec
from tests.debug_servers import event, open_debug_server
from tests.engine.test_router import report
from tests.engine.test_supervisor_network import ADDRESS
from tests.engine.world import decode, held_lease, make_settings
from tests.fakes import FakeApi, cut, refuse
from tests.unit.pods import pod, running

pytestmark = pytest.mark.looptime

SESSION_ID = "abcdefghijkl"
NAME = f"telo-run-{SESSION_ID}"
HOST = f"8080-{SESSION_ID}.apps.test"
LABELS = {"app.kubernetes.io/managed-by": fakes.MANAGED_BY, "telo.run/session-id": SESSION_ID}
LIVE = {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}
FORBIDDEN = (
    "publish: could not publish the session's ports: the runner is not permitted to do this "
    "(Forbidden, HTTP 403). The cluster operator must check the runner's RBAC."
)
INGRESS = Decision(Layer.INGRESS, "why", ingress_class="nginx")

Event = dict[str, Any]


@dataclass
class Bench:
    """A session's network at work, on the fake API."""

    api: FakeApi
    session: Session
    network: Network
    log: MemoryLog

    async def events(self) -> list[Event]:
        async with self.log.read_events(SESSION_ID, 0) as reader:
            return [decode(data) for _, data in (await reader.next()).items]

    async def until(self, test: Callable[[Event], bool]) -> list[Event]:
        """Wait for an event that passes the test; return all up to it."""
        events = []
        async with self.log.read_events(SESSION_ID, 0) as reader:
            while True:
                for _, data in (await reader.next()).items:
                    events.append(decode(data))
                    if test(events[-1]):
                        return events

    def names(self) -> dict[str, list[str]]:
        """Return what the cluster has of the session, by kind."""
        kinds = ("services", "ingresses", "httproutes")
        return {kind: list(self.api.objects[kind]) for kind in kinds if self.api.objects[kind]}


@asynccontextmanager
async def open_ingress(cluster: Cluster) -> AsyncIterator[Router]:
    settings = RoutingSettings(base_domain="apps.test", ready_timeout_seconds=60)
    opened = open_router(cluster, settings, INGRESS, secret=b"secret", listen_port=None)
    async with opened as router:
        task = aio.start(router.run(), name="router")
        try:
            yield router
        finally:
            await aio.stop(task)


@asynccontextmanager
async def networking(
    fake: tuple[FakeApi, Cluster],
    tmp_path: Path,
    *ports: Port,
    status: StatusKind = StatusKind.RUNNING,
    is_inspected: bool = False,
    router: Router | None = None,
) -> AsyncIterator[Bench]:
    """Run what a supervisor does about the network of a session with these ports."""
    api, cluster = fake
    subscription = Subscription("pod", pod("Running", running(), podIP=ADDRESS), is_listed=True)

    def subscribe(name: str) -> AbstractContextManager[Subscription]:
        return nullcontext(subscription)

    async with nullcontext(router) if router else open_ingress(cluster) as publishing:
        pods = SimpleNamespace(subscribe=subscribe)
        config = make_settings(tmp_path)
        runtime = make_runtime(config, cluster=cluster, pods=pods, router=publishing)
        app = App("web", "telo.yaml", ports=ports)
        spec = make_spec(session_id=SESSION_ID, apps=(app,), is_inspected=is_inspected)
        owned = make_owned_session(spec=spec, status=status)
        session = await open_session(Owner(runtime, "engine", held_lease()), owned)
        await session.announce()
        async with open_network(session) as network:
            yield Bench(api, session, network, runtime.log)


def route(state: str, reason: str = "", port: int = 8080) -> Event:
    host = f"{port}-{SESSION_ID}.apps.test"
    told = {"type": "route", "app": "web", "host": host, "port": port, "state": state}
    return {**told, "reason": reason} if reason else told


def of_routes(events: list[Event]) -> list[Event]:
    return [one for one in events if one["type"] in ("route", "progress")]


def is_route(state: str) -> Callable[[Event], bool]:
    return lambda one: one["type"] == "route" and one["state"] == state


async def test_two_tcp_ports_and_a_udp_port_are_two_hosts_and_one_service(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    ports = (Port(8080), Port(9090), Port(5353, Protocol.UDP))
    async with networking(fake, tmp_path, *ports) as bench:
        await bench.until(lambda one: one == route("pending", port=9090))
        await bench.api.wait_until(lambda: NAME in bench.api.objects["ingresses"])
        service = bench.api.objects["services"][NAME]
        told = [(one["port"], one["protocol"]) for one in service["spec"]["ports"]]
        assert told == [(8080, "TCP"), (9090, "TCP"), (5353, "UDP")]
        # Its labels are a session's, and it vanishes with the pod that the session has.
        assert service["metadata"]["labels"] == LABELS
        owner = {"apiVersion": "v1", "kind": "Pod", "name": NAME, "uid": "1"}
        assert service["metadata"]["ownerReferences"] == [owner]
        ingress = bench.api.objects["ingresses"][NAME]
        hosts = [rule["host"] for rule in ingress["spec"]["rules"]]
        assert hosts == [HOST, f"9090-{SESSION_ID}.apps.test"]
        report(bench.api, "ingresses", NAME, LIVE)
        events = await bench.until(lambda one: one == route("programmed", port=9090))
        assert of_routes(events) == [
            route("pending"),
            route("pending", port=9090),
            route("programmed"),
            route("programmed", port=9090),
        ]


async def test_endpoints_of_running_name_the_hosts(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    ports = (Port(8080), Port(8080, Protocol.UDP))
    async with networking(fake, tmp_path, *ports) as bench:
        # The row is of a runner that published nothing; what is so now is told, and noted.
        assert (await bench.events())[0]["status"]["endpoints"] == [
            {"host": HOST, "port": 8080, "protocol": "tcp", "url": f"https://{HOST}"},
            {"host": "", "port": 8080, "protocol": "udp"},
        ]


async def test_nothing_is_published_before_the_session_runs(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    async with networking(fake, tmp_path, Port(8080), status=StatusKind.STARTING) as bench:
        await asyncio.sleep(60)
        assert (bench.names(), len(await bench.events())) == ({}, 1)
        # Nor is there anything to withdraw.
        assert await withdraw(bench.session) is False
        bench.session.has_run.set()
        await bench.until(is_route("pending"))


async def test_a_session_without_ports_is_not_published(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    async with networking(fake, tmp_path) as bench:
        await asyncio.sleep(60)
        assert (bench.names(), await withdraw(bench.session)) == ({}, False)
        assert len(await bench.events()) == 1


async def test_without_a_layer_nothing_is_asked_or_told(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    inactive = inactive_router("why")
    async with networking(fake, tmp_path, Port(8080), router=inactive) as bench:
        await asyncio.sleep(10)
        assert not of_routes(await bench.events())
        assert await withdraw(bench.session) is False
        assert bench.api.requests == []


async def test_a_publish_that_fails_is_told_in_words_and_tried_again(
    fake: tuple[FakeApi, Cluster], tmp_path: Path, looptime: float
) -> None:
    api, _ = fake
    refusals = [refuse(403, "Forbidden"), refuse(403, "Forbidden"), cut]
    api.script("create", *refusals)
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await bench.api.wait_until(lambda: NAME in bench.api.objects["ingresses"])
        report(bench.api, "ingresses", NAME, LIVE)
        events = await bench.until(is_route("programmed"))
        away = (
            "publish: could not publish the session's ports: the Kubernetes API cannot be reached."
        )
        assert of_routes(events) == [
            route("pending"),
            {"type": "progress", "phase": "boot", "message": FORBIDDEN},
            # Once, however often.
            route("unprogrammed", FORBIDDEN),
            {"type": "progress", "phase": "boot", "message": away},
            route("unprogrammed", away),
            route("pending"),
            route("programmed"),
        ]
        assert looptime < 10


async def test_what_is_not_the_sessions_own_is_left_alone(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    api, _ = fake
    theirs = api.put(NAME, "services", labels={"app.kubernetes.io/managed-by": "helm"})
    async with networking(fake, tmp_path, Port(8080)) as bench:
        events = await bench.until(is_route("unprogrammed"))
        assert "not this session's" in events[-1]["reason"]
        await asyncio.sleep(300)
        assert api.objects["services"] == {NAME: theirs}
        # It is tried again, ever more seldom.
        assert 5 < api.count("create") < 20


async def test_a_port_that_somebody_takes_away_from_outside_is_told(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await bench.api.wait_until(lambda: NAME in bench.api.objects["ingresses"])
        report(bench.api, "ingresses", NAME, LIVE)
        await bench.until(is_route("programmed"))
        bench.api.remove(NAME, "ingresses")
        events = await bench.until(is_route("unprogrammed"))
        assert "deleted" in events[-1]["reason"]


async def test_nothing_is_told_after_the_drain_and_everything_is_withdrawn(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await bench.api.wait_until(lambda: NAME in bench.api.objects["ingresses"])
        await bench.network.drain()
        before = await bench.events()
        report(bench.api, "ingresses", NAME, LIVE)
        await asyncio.sleep(120)
        assert await bench.events() == before
        assert await withdraw(bench.session) is True
        assert bench.names() == {}


async def test_a_publish_without_end_does_not_hold_the_session_up(
    fake: tuple[FakeApi, Cluster], tmp_path: Path, looptime: float
) -> None:
    api, _ = fake
    api.script("create", fakes.hang)
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await api.wait_for("create")
        await bench.network.drain()
        assert looptime < 1


async def test_routes_are_told_again_before_frames_push_them_out(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    async with (
        open_debug_server(ADDRESS, INSPECT_PORT) as server,
        networking(fake, tmp_path, Port(8080), is_inspected=True) as bench,
    ):
        await bench.until(is_route("pending"))
        frames = bench.session.runtime.config.replay_buffer_bytes // 60_000
        server.emit(*(event("large", text="x" * 60_000) for _ in range(frames)), event("last"))
        events = await bench.until(
            lambda one: one["type"] == "debug" and one["frame"]["event"] == "last"
        )
        last_status = max(i for i, one in enumerate(events) if one["type"] == "status")
        assert last_status > 0
        assert route("pending") in events[last_status:]


async def test_an_owner_that_was_overtaken_publishes_nothing_more(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    async def overtaken() -> None:
        bench: Bench
        async with networking(fake, tmp_path, Port(8080), status=StatusKind.STARTING) as bench:
            await bench.log.open(SESSION_ID, fence=2, starts=Starts())
            bench.session.has_run.set()
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await overtaken()
    assert caught.value.subgroup(StaleFence) is not None
    assert fake[0].count("create") == 0


async def test_without_a_lease_nothing_is_published(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    async with networking(fake, tmp_path, Port(8080), status=StatusKind.STARTING) as bench:
        lease = bench.session.owner.lease
        lease.lost()
        bench.session.has_run.set()
        await asyncio.sleep(60)
        assert bench.names() == {}
        lease.renewed(lease.now())
        await bench.api.wait_until(lambda: NAME in bench.api.objects["ingresses"])
