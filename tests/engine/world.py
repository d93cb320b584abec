"""A local cluster and the engine side of the runner, in this process and on this loop."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    closing,
    contextmanager,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from django.db import connection

from routing.layer import Decision, routing_settings
from routing.router import Router, open_router
from routing.routes import Layer
from sessions import bundles, runtime, sse
from sessions.actions import create, stop
from sessions.admission import RequestedLimits
from sessions.bus import Bus
from sessions.bus.memory import MemoryBus
from sessions.engine import Engine
from sessions.log import SessionLog
from sessions.log.memory import MemoryLog
from sessions.models import Session
from sessions.pods.run import object_name
from sessions.runtime import ListenPort, Runtime, SelfUrl
from sessions.spec import App, Port
from sessions.states import IoMode
from sessions.store import LEASE_SECONDS, aread, awrite
from sessions.supervisor import Lease
from sessions.supervisor.session import Session as SupervisedSession
from telorunner import aio
from telorunner.conf import ClusterKind, Settings
from telorunner.kube.client import Cluster, ClusterSettings, open_cluster
from telorunner.kube.informer import Informer
from telorunner.kube.objects import managed_selector
from telorunner.localcluster.cluster import ClusterSettings as LocalSettings
from telorunner.localcluster.cluster import LocalCluster, open_local_cluster
from telorunner.localcluster.node.images import Images
from telorunner.values.pullpolicy import PullPolicy
from tests import fakes
from tests.fakes import FakeApi, open_fake_api
from tests.serving import KERNEL_DIR
from tests.unit.pods import running

NAMESPACE = "telo-sessions"
WAIT_SECONDS = 40.0
# Where a runner would answer.
PORT = 8062

Object = dict[str, Any]


def make_settings(data_dir: Path, **variables: str) -> Settings:
    return Settings(
        **{"RUNNER_DATA_DIR": str(data_dir), **variables}  # type: ignore[arg-type] # aliases
    )


@dataclass
class World:
    """A cluster that outlives any number of runners, and what a test asks of them."""

    config: Settings
    kubeconfig: Path
    namespace: str
    log: SessionLog | None = None
    bus: Bus | None = None
    engine: Engine | None = None
    running: Runtime | None = field(default=None)
    # What publishes sessions; None: nothing.
    decision: Decision | None = None

    @property
    def runtime(self) -> Runtime:
        assert self.running is not None
        return self.running

    @asynccontextmanager
    async def runner(
        self, *, is_sole_engine: bool = True, is_listening: bool = True
    ) -> AsyncIterator[Runtime]:
        """Run informer, log, bus and engine for the length of the block."""
        async with self.idle_runner(is_listening=is_listening) as running:
            self.engine = Engine(running, is_sole_engine=is_sole_engine)
            task = aio.start(self.engine.run(), name="engine")
            try:
                yield running
            finally:
                await aio.stop(task)

    @asynccontextmanager
    async def idle_runner(self, *, is_listening: bool = True) -> AsyncIterator[Runtime]:
        """Run everything but an engine for the length of the block.

        Nobody answers HTTP; `is_listening` says whether a port is known all the same.
        """
        settings = ClusterSettings(
            kind=ClusterKind.KUBECONFIG,
            kubeconfig=str(self.kubeconfig),
            namespace=self.namespace,
            managed_by=self.config.managed_by,
        )
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(open_cluster(settings))
            informer = Informer(cluster, selector=managed_selector(self.config.managed_by))
            listen_port = ListenPort()
            router = await stack.enter_async_context(self._router(cluster, listen_port))
            self.running = Runtime(
                config=self.config,
                log=self.log or MemoryLog(self.config.replay_buffer_bytes),
                bus=self.bus or MemoryBus(),
                cluster=cluster,
                pods=informer,
                loop=asyncio.get_running_loop(),
                router=router,
                self_url=SelfUrl(self.config.self_url),
                listen_port=listen_port,
            )
            if is_listening:
                listen_port.listening_at(PORT)
            stack.enter_context(runtime.installed(self.running))
            watch = aio.start(informer.run(), name="informer")
            stack.push_async_callback(aio.stop, watch)
            yield self.running

    def _router(
        self, cluster: Cluster, listen_port: ListenPort
    ) -> AbstractAsyncContextManager[Router]:
        return open_router(
            cluster,
            routing_settings(self.config),
            self.decision or Decision(Layer.NONE, "Nothing is published."),
            secret=b"the runner's secret",
            listen_port=listen_port.get,
        )

    async def create(
        self,
        program: str,
        *,
        entry: str = "main.py",
        io: IoMode = IoMode.TTY,
        env: dict[str, str] | None = None,
        image: str = "",
        pull_policy: PullPolicy = PullPolicy.MISSING,
        ports: Sequence[int] = (),
        inspect: bool = False,
        **limits: int,
    ) -> str:
        """Register a session whose entry is a Python program; return its id."""
        app = App("app", entry, ports=tuple(Port(port) for port in ports), io=io)
        wanted = create.Wanted(
            files=[bundles.File(entry, program.encode())],
            entry=entry,
            env=env or {},
            image=image or self.config.image,
            pull_policy=pull_policy,
            apps=(app,),
            limits=RequestedLimits(**limits),
            is_inspected=inspect,
        )
        created = await asyncio.to_thread(create.create, wanted, self.config)
        return created.session_id

    async def stop(self, session_id: str) -> None:
        await asyncio.to_thread(stop.stop, session_id)

    async def row(self, session_id: str) -> Session:
        return await aread(lambda: Session.objects.get(id=session_id))

    async def change(self, session_id: str, **fields: Any) -> None:
        await awrite(lambda: Session.objects.filter(id=session_id).update(**fields))

    async def events(self, session_id: str) -> list[tuple[int, Object]]:
        """Return every event of a session, once it has ended."""
        async with (
            asyncio.timeout(WAIT_SECONDS),
            self.runtime.log.read_events(session_id, 0) as reader,
        ):
            items = []
            while True:
                batch = await reader.next()
                items += [(number, decode(data)) for number, data in batch.items]
                if batch.is_end:
                    return items

    async def until_event(self, session_id: str, test: Callable[[Object], bool]) -> Object:
        """Wait for an event that passes the test."""
        async with (
            asyncio.timeout(WAIT_SECONDS),
            self.runtime.log.read_events(session_id, 0) as reader,
        ):
            while True:
                batch = await reader.next()
                for _, data in batch.items:
                    if test(decode(data)):
                        return decode(data)
                assert not batch.is_end, "the session ended without that event"

    async def until_running(self, session_id: str) -> None:
        await self.until_event(session_id, is_status("running"))

    async def last_status(self, session_id: str) -> Object:
        events = await self.events(session_id)
        status: Object = events[-1][1]["status"]
        return status

    async def output(self, session_id: str) -> bytes:
        """Return all output of a session, once it has ended."""
        text = bytearray()
        async with (
            asyncio.timeout(WAIT_SECONDS),
            self.runtime.log.read_output(session_id, "app", 0) as reader,
        ):
            while True:
                batch = await reader.next()
                for _, item in batch.items:
                    text += item[1:]
                if batch.is_end:
                    return bytes(text)

    async def until_output(self, session_id: str, wanted: bytes) -> bytes:
        text = bytearray()
        async with (
            asyncio.timeout(WAIT_SECONDS),
            self.runtime.log.read_output(session_id, "app", 0) as reader,
        ):
            while wanted not in text:
                batch = await reader.next()
                for _, item in batch.items:
                    text += item[1:]
                assert not batch.is_end, f"ended with {bytes(text)!r}"
        return bytes(text)


@dataclass
class LocalWorld(World):
    """A world on the local cluster: what runs in it are real processes."""

    cluster: LocalCluster = field(kw_only=True)
    runs: int = 1

    def objects(self, resource: str) -> dict[str, Object]:
        """Return the cluster's objects of one kind in the sessions' namespace, by name."""
        found, _ = self.cluster.store.list(resource, self.namespace)
        return {one["metadata"]["name"]: one for one in found}

    def left_of(self, session_id: str) -> list[str]:
        """Return what the cluster still has of a session."""
        name = object_name(session_id)
        return [kind for kind in ("pods", "configmaps") if name in self.objects(kind)]

    async def until_nothing_is_left(self, session_id: str) -> None:
        name = object_name(session_id)
        for kind in ("pods", "configmaps"):
            async with asyncio.timeout(WAIT_SECONDS):
                _, version = self.cluster.store.list(kind, self.namespace)
                changes = self.cluster.store.watch(kind, self.namespace, version)
                async with aclosing(changes):  # type: ignore[type-var] # it is a generator
                    while name in self.objects(kind):
                        await anext(changes)


@dataclass
class FakeWorld(World):
    """A world on the fake API: pods are what a test says they are."""

    api: FakeApi = field(kw_only=True)

    async def start(self) -> str:
        """Create a session, let its pod run, and return its id once the row says so."""
        session_id = await self.create("print(1)\n")
        await self.until_pod(session_id)
        self.set_status(session_id, "Running", running())
        await self.until_running(session_id)
        return session_id

    async def attach(self, request: web.Request) -> web.StreamResponse:
        """Say nothing, and end with the pod, as an attach does."""
        name = request.path.split("/")[-2]
        pods = self.api.objects["pods"]

        def has_ended() -> bool:
            phase = pods[name].get("status", {}).get("phase") if name in pods else None
            return phase not in (None, "Pending", "Running") or name not in pods

        if name not in pods:
            return fakes.status_answer(404, "NotFound")
        async with self.api.accept(request) as socket:
            await self.api.wait_until(has_ended)
        return socket

    async def until_pod(self, session_id: str) -> Object:
        """Wait until a session's pod was created."""
        pods, name = self.api.objects["pods"], object_name(session_id)
        async with asyncio.timeout(WAIT_SECONDS):
            await self.api.wait_until(lambda: name in pods)
        return pods[name]

    def set_status(self, session_id: str, phase: str, *containers: Object, **status: Any) -> None:
        """Change the status of a session's pod."""
        pod = self.api.objects["pods"][object_name(session_id)]
        metadata = {k: v for k, v in pod["metadata"].items() if k not in ("labels", "name", "uid")}
        metadata.pop("resourceVersion")
        self.api.put(
            object_name(session_id),
            labels=pod["metadata"]["labels"],
            metadata=metadata,
            spec=pod["spec"] | {"nodeName": "node-1"},
            status={"phase": phase, "containerStatuses": list(containers), **status},
        )

    def left_of(self, session_id: str) -> list[str]:
        """Return what the cluster still has of a session."""
        name = object_name(session_id)
        return [kind for kind in ("pods", "configmaps") if name in self.api.objects[kind]]

    async def until_nothing_is_left(self, session_id: str) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await self.api.wait_until(lambda: not self.left_of(session_id))


def held_lease() -> Lease:
    """Return a lease that was renewed just now."""
    lease = Lease(LEASE_SECONDS)
    lease.renewed(lease.now())
    return lease


@contextmanager
def database_away() -> Iterator[None]:
    """Let every access to the engine's tables fail at once for the length of the block."""
    _rename("runner_sessions_session", "away_session")
    _rename("runner_sessions_engine", "away_engine")
    try:
        yield
    finally:
        _rename("away_engine", "runner_sessions_engine")
        _rename("away_session", "runner_sessions_session")


def _rename(table: str, name: str) -> None:
    database = connection.settings_dict["NAME"]
    with closing(sqlite3.connect(database, uri=True, isolation_level=None)) as other:
        # References of other tables stay as they are.
        other.execute("PRAGMA legacy_alter_table=ON")
        other.execute(f"ALTER TABLE {table} RENAME TO {name}")


def decode(encoded: bytes) -> Object:
    (message,) = sse.parse(encoded.decode())
    event: Object = orjson.loads(message.data)
    assert event["type"] == message.event
    return event


class LogReader:
    """Reads what is told of a session."""

    session: SupervisedSession
    log: SessionLog

    async def events(self) -> list[Object]:
        """Return what has been told by now."""
        async with self.log.read_events(self.session.session_id, 0) as reader:
            return [decode(data) for _, data in (await reader.next()).items]

    async def until(self, test: Callable[[Object], bool]) -> list[Object]:
        """Wait for an event that passes the test; return all up to it."""
        events = []
        async with self.log.read_events(self.session.session_id, 0) as reader:
            while True:
                for _, data in (await reader.next()).items:
                    events.append(decode(data))
                    if test(events[-1]):
                        return events


def is_status(kind: str) -> Callable[[Object], bool]:
    return lambda event: event["type"] == "status" and event["status"]["kind"] == kind


@asynccontextmanager
async def open_local_world(
    data_dir: Path, *, delays: bool = False, **variables: str
) -> AsyncIterator[LocalWorld]:
    settings = LocalSettings(
        data_dir=data_dir,
        images=Images(kernel_command=(str(KERNEL_DIR / "telo"),)),
        kubelet_delays=delays,
    )
    async with open_local_cluster(settings) as cluster:
        config = make_settings(data_dir, RUNNER_CLUSTER="local", **variables)
        yield LocalWorld(config, cluster.kubeconfig, NAMESPACE, cluster=cluster)


@asynccontextmanager
async def open_fake_world(data_dir: Path, **variables: str) -> AsyncIterator[FakeWorld]:
    async with open_fake_api() as api:
        kubeconfig = api.kubeconfig(data_dir)
        config = make_settings(
            data_dir,
            RUNNER_CLUSTER="kubeconfig",
            KUBECONFIG=str(kubeconfig),
            RUNNER_MANAGED_BY=fakes.MANAGED_BY,
            RUNNER_SESSION_NAMESPACE=fakes.NAMESPACE,
            **variables,
        )
        world = FakeWorld(config, kubeconfig, fakes.NAMESPACE, api=api)
        api.script("attach", *[world.attach] * 1000)
        yield world
