"""What lives as long as the process: cluster, router, informer, log, bus, engine, tag refresher.

`running()` opens them in the order in which they need each other and closes them in reverse. It
owns the tasks of the informer, the engine and the refresher; when one of them fails, the context is
cancelled and the failure raised, for a process without them must not go on.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from catalog.refresher import Refresher
from routing.layer import Offered, decide, needs_cluster, routing_settings
from routing.offered import discover
from routing.router import Router, open_router
from sessions.bus.memory import MemoryBus
from sessions.engine import Engine
from sessions.log.absent import AbsentLog
from sessions.log.memory import MemoryLog
from sessions.runtime import ListenPort, Runtime, SelfUrl, installed
from telorunner import sealing
from telorunner.conf import ClusterKind, Settings
from telorunner.database import access
from telorunner.kube.client import Cluster, ClusterSettings, open_cluster
from telorunner.kube.informer import Informer
from telorunner.kube.objects import managed_selector
from telorunner.localcluster.launch import ensure_cluster, find_cluster

logger = logging.getLogger(__name__)

# The whole stop must fit into 15 s: the server takes 5 s at most before this, and a local cluster
# of the runner's own ends after it.
ENGINE_STOP_SECONDS = 8.0

# What the keys are derived for that prove an answer to be this runner's.
_ROUTE_PROOFS = "telorunner.route-proofs.v1"


@asynccontextmanager
async def running(
    config: Settings, *, has_engine: bool = True, is_sole_engine: bool = False
) -> AsyncIterator[Runtime]:
    """Run everything but the web server for the length of the context.

    `is_sole_engine` says that no other process can be alive that uses the same database. Without an
    engine nobody watches the cluster here either: it is only asked, by probes, and no way of the
    data plane is led here; what comes to a public host's reserved path all the same is answered.
    Failures inside the block arrive in an ExceptionGroup.

    Raises:
        ConfigError: The cluster's credentials cannot be used, or what publishes sessions cannot be
            decided.
        ClusterUnavailable: The local cluster did not start.
    """
    listen_port = ListenPort()
    try:
        async with (
            opened_cluster(config, may_start=has_engine) as cluster,
            _opened_router(config, cluster, listen_port) as router,
            asyncio.TaskGroup() as tasks,
        ):
            runtime = _build_runtime(config, cluster, router, listen_port, has_engine=has_engine)
            refresher = tasks.create_task(Refresher(config).run(), name="tag refresher")
            with installed(runtime):
                async with AsyncExitStack() as stack:
                    stack.callback(refresher.cancel)
                    if has_engine:
                        engine = _engine(runtime, tasks, is_sole_engine=is_sole_engine)
                        await stack.enter_async_context(engine)
                    stack.callback(runtime.stopping.set)
                    yield runtime
    finally:
        await asyncio.to_thread(access.close)


@asynccontextmanager
async def _engine(
    runtime: Runtime, tasks: asyncio.TaskGroup, *, is_sole_engine: bool
) -> AsyncIterator[None]:
    """Watch the cluster and own sessions for the length of the context."""
    informer = tasks.create_task(runtime.pods.run(), name="pod informer")
    try:
        engine = runtime.engine = Engine(runtime, is_sole_engine=is_sole_engine)
        owner = tasks.create_task(engine.run(), name="engine")
        try:
            yield
        finally:
            await _stop(owner)
    finally:
        # NB: last, for what the engine still wants to know on its way out.
        informer.cancel()


@asynccontextmanager
async def opened_cluster(config: Settings, *, may_start: bool = True) -> AsyncIterator[Cluster]:
    """Open the client of the cluster to use.

    Where none runs, the local one is started, or, unless it `may_start`, waited for.
    """
    async with AsyncExitStack() as stack:
        kubeconfig = config.kubeconfig
        if config.cluster is ClusterKind.LOCAL and may_start:
            launched = await stack.enter_async_context(ensure_cluster(config.data_dir))
            kubeconfig = str(launched.kubeconfig)
        elif config.cluster is ClusterKind.LOCAL:
            kubeconfig = str(await find_cluster(config.data_dir))
        settings = _cluster_settings(config, kubeconfig)
        yield await stack.enter_async_context(open_cluster(settings))


@asynccontextmanager
async def _opened_router(
    config: Settings, cluster: Cluster, listen_port: ListenPort
) -> AsyncIterator[Router]:
    """Decide what publishes sessions, and open that."""
    wanted = routing_settings(config)
    offered = await discover(cluster, wanted) if needs_cluster(wanted) else Offered()
    decision = decide(wanted, offered)
    # Runners may share a secret key, but not a label in a namespace.
    of_runner = f"{_ROUTE_PROOFS} {config.session_namespace} {config.managed_by}"
    async with open_router(
        cluster,
        wanted,
        decision,
        secret=sealing.derive(of_runner),
        listen_port=listen_port.get,
        self_url=config.self_url,
    ) as router:
        yield router


def _cluster_settings(config: Settings, kubeconfig: str) -> ClusterSettings:
    return ClusterSettings(
        kind=config.cluster,
        kubeconfig=kubeconfig,
        namespace=config.session_namespace,
        managed_by=config.managed_by,
    )


def _build_runtime(
    config: Settings,
    cluster: Cluster,
    router: Router,
    listen_port: ListenPort,
    *,
    has_engine: bool,
) -> Runtime:
    return Runtime(
        config=config,
        # Each engine keeps what its sessions tell in its own memory.
        log=MemoryLog(config.replay_buffer_bytes) if has_engine else AbsentLog(),
        bus=MemoryBus(),
        cluster=cluster,
        pods=Informer(cluster, selector=managed_selector(config.managed_by)),
        loop=asyncio.get_running_loop(),
        router=router,
        self_url=SelfUrl(config.self_url),
        listen_port=listen_port,
    )


async def _stop(engine: "asyncio.Task[None]") -> None:
    """Let the engine hand its sessions over, within a bound."""
    engine.cancel()
    _, left = await asyncio.wait({engine}, timeout=ENGINE_STOP_SECONDS)
    if left:
        logger.error("The engine did not stop in time.", extra={"action": "stop"})
