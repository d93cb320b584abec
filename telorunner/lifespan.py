"""What lives as long as the process: cluster client, informer, log, bus and engine.

`running()` opens them in the order in which they need each other and closes them in reverse. It
owns the informer's and the engine's task; when one of them fails, the context is cancelled and the
failure raised, for a process without them must not go on.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sessions import store
from sessions.bus.memory import MemoryBus
from sessions.engine import Engine
from sessions.log.memory import MemoryLog
from sessions.runtime import Runtime, SelfUrl, installed
from telorunner.conf import ClusterKind, Settings
from telorunner.kube.client import Cluster, ClusterSettings, open_cluster
from telorunner.kube.informer import Informer
from telorunner.kube.objects import managed_selector
from telorunner.localcluster.launch import ensure_cluster

logger = logging.getLogger(__name__)

# The whole stop must fit into 15 s: the server takes 5 s at most before this, and a local cluster
# of the runner's own ends after it.
ENGINE_STOP_SECONDS = 8.0


@asynccontextmanager
async def running(config: Settings, *, is_sole_engine: bool) -> AsyncIterator[Runtime]:
    """Run everything but the web server for the length of the context.

    `is_sole_engine` says that no other process can be alive that uses the same database. Failures
    inside the block arrive in an ExceptionGroup.

    Raises:
        ConfigError: The cluster's credentials cannot be used.
        ClusterUnavailable: The local cluster did not start.
    """
    try:
        async with opened_cluster(config) as cluster, asyncio.TaskGroup() as tasks:
            runtime = _build_runtime(config, cluster)
            informer = tasks.create_task(runtime.pods.run(), name="pod informer")
            with installed(runtime):
                try:
                    engine = runtime.engine = Engine(runtime, is_sole_engine=is_sole_engine)
                    owner = tasks.create_task(engine.run(), name="engine")
                    try:
                        yield runtime
                    finally:
                        runtime.stopping.set()
                        await _stop(owner)
                finally:
                    # NB: last, for what the engine still wants to know on its way out.
                    informer.cancel()
    finally:
        await asyncio.to_thread(store.close)


@asynccontextmanager
async def opened_cluster(config: Settings) -> AsyncIterator[Cluster]:
    """Open the client of the cluster to use; the local one is started where none runs."""
    if config.cluster is not ClusterKind.LOCAL:
        async with open_cluster(_cluster_settings(config, config.kubeconfig)) as cluster:
            yield cluster
        return
    async with (
        ensure_cluster(config.data_dir) as launched,
        open_cluster(_cluster_settings(config, str(launched.kubeconfig))) as cluster,
    ):
        yield cluster


def _cluster_settings(config: Settings, kubeconfig: str) -> ClusterSettings:
    return ClusterSettings(
        kind=config.cluster,
        kubeconfig=kubeconfig,
        namespace=config.session_namespace,
        managed_by=config.managed_by,
    )


def _build_runtime(config: Settings, cluster: Cluster) -> Runtime:
    return Runtime(
        config=config,
        log=MemoryLog(config.replay_buffer_bytes),
        bus=MemoryBus(),
        cluster=cluster,
        pods=Informer(cluster, selector=managed_selector(config.managed_by)),
        loop=asyncio.get_running_loop(),
        self_url=SelfUrl(config.self_url),
    )


async def _stop(engine: "asyncio.Task[None]") -> None:
    """Let the engine hand its sessions over, within a bound."""
    engine.cancel()
    _, left = await asyncio.wait({engine}, timeout=ENGINE_STOP_SECONDS)
    if left:
        logger.error("The engine did not stop in time.", extra={"action": "stop"})
