"""A session's network at work on the fake API: what is published of it, and told."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from routing.layer import Decision, RoutingSettings
from routing.router import Router, open_router
from sessions.log.memory import MemoryLog
from sessions.spec import App, Port
from sessions.states import StatusKind
from sessions.supervisor.network import Network, open_network
from sessions.supervisor.ownership import Owner
from sessions.supervisor.session import Session, open_session
from telorunner import aio
from telorunner.kube.client import Cluster
from telorunner.kube.informer import Subscription
from tests import fakes
from tests.builders import make_owned_session, make_runtime, make_spec
from tests.engine.gateways import BASE_DOMAIN, SESSION_ID
from tests.engine.routers import INGRESS, LIVE, NAME, report
from tests.engine.test_supervisor_network import ADDRESS
from tests.engine.world import LogReader, held_lease, make_settings
from tests.fakes import FakeApi
from tests.unit.pods import pod, running

LABELS = {"app.kubernetes.io/managed-by": fakes.MANAGED_BY, "telo.run/session-id": SESSION_ID}
FORBIDDEN = (
    "publish: could not publish the session's ports: the runner is not permitted to do this "
    "(Forbidden, HTTP 403). The cluster operator must check the runner's RBAC, and that the "
    "session namespace (RUNNER_SESSION_NAMESPACE) exists."
)
DELETED = "The route has been deleted in the cluster."
Event = dict[str, Any]


@dataclass
class Bench(LogReader):
    """A session's network at work, on the fake API."""

    api: FakeApi
    session: Session
    network: Network
    log: MemoryLog
    # What the watch of pods shows.
    subscription: Subscription

    async def until_live(self) -> None:
        """Wait for the Ingress, let its controller say that it works, and wait until that is told.

        By events that come from now on.
        """
        told = len(await self.events())
        await self.api.wait_until(lambda: NAME in self.api.objects["ingresses"])
        report(self.api, "ingresses", NAME, LIVE)
        numbers = iter(range(told + 1000))
        await self.until(lambda one: next(numbers) >= told and is_route("programmed")(one))

    def count_created(self, resource: str) -> int:
        made = (seen for seen in self.api.requests if seen.verb == "create")
        return sum(seen.resource == resource for seen in made)

    def names(self) -> dict[str, list[str]]:
        """Return what the cluster has of the session, by kind."""
        kinds = ("services", "ingresses", "httproutes")
        return {kind: list(self.api.objects[kind]) for kind in kinds if self.api.objects[kind]}


@asynccontextmanager
async def publishing_by(cluster: Cluster, decision: Decision) -> AsyncIterator[Router]:
    settings = RoutingSettings(
        base_domain=BASE_DOMAIN,
        ready_timeout_seconds=60,
        gateway_name="public",
        gateway_namespace="edge",
    )
    opened = open_router(cluster, settings, decision, secret=b"secret", listen_port=None)
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
    decision: Decision = INGRESS,
    router: Router | None = None,
    **row: Any,
) -> AsyncIterator[Bench]:
    """Run what a supervisor does about the network of a session with these ports."""
    api, cluster = fake
    put_pod(api)
    subscription = Subscription("pod", pod("Running", running(), podIP=ADDRESS), is_listed=True)

    def subscribe(name: str) -> AbstractContextManager[Subscription]:
        return nullcontext(subscription)

    opened = nullcontext(router) if router else publishing_by(cluster, decision)
    async with opened as publishing:
        pods = SimpleNamespace(subscribe=subscribe)
        config = make_settings(tmp_path)
        runtime = make_runtime(config, cluster=cluster, pods=pods, router=publishing)
        app = App("web", "telo.yaml", ports=ports)
        spec = make_spec(session_id=SESSION_ID, apps=(app,), is_inspected=is_inspected)
        owned = make_owned_session(spec=spec, status=status, **row)
        session = await open_session(Owner(runtime, "engine", held_lease()), owned)
        await session.announce()
        async with open_network(session) as network:
            yield Bench(api, session, network, runtime.log, subscription)


def put_pod(api: FakeApi, phase: str = "Running", **metadata: Any) -> None:
    """Let the API have the session's pod."""
    labels, metadata = dict(LABELS), {"uid": "1", **metadata}
    status = {"phase": phase, "containerStatuses": [running()]}
    api.put(NAME, labels=labels, metadata=metadata, spec={}, status=status)


def route(state: str, reason: str = "", port: int = 8080) -> Event:
    host = f"{port}-{SESSION_ID}.{BASE_DOMAIN}"
    told = {"type": "route", "app": "web", "host": host, "port": port, "state": state}
    return {**told, "reason": reason} if reason else told


def of_routes(events: list[Event]) -> list[Event]:
    return [one for one in events if one["type"] in ("route", "progress")]


def is_route(state: str) -> Callable[[Event], bool]:
    return lambda one: one["type"] == "route" and one["state"] == state
