"""Runs a local cluster: state folder, store, controllers, node agent and HTTPS server.

It owns the tasks of the controllers and of the node agent and ends them in reverse. Whoever opens a
cluster decides for how long it lives.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from telorunner import aio
from telorunner.localcluster import scheduling, statefolder, tls
from telorunner.localcluster.apiserver import ApiServer
from telorunner.localcluster.controllers import Controllers
from telorunner.localcluster.ingress.server import (
    Ingress,
    IngressPorts,
    Listeners,
    open_listeners,
)
from telorunner.localcluster.kubelet import Node
from telorunner.localcluster.networkdefaults import add_local_classes
from telorunner.localcluster.node.agent import NodeAgent
from telorunner.localcluster.node.images import Images
from telorunner.localcluster.node.settings import NodeSettings
from telorunner.localcluster.resources import served_kinds
from telorunner.localcluster.store import Store

logger = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 2.0
_NAMESPACES = ("default", "kube-system", "kube-public")
_RESTRICTED = {
    f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")
}
NO_SANDBOX = (
    "The local cluster is NO SANDBOX: what runs in it are ordinary processes of this user on this"
    " machine, with this user's files and network. Use it for code that you trust."
)

NodeFactory = Callable[[Store, NodeSettings], Node]


@dataclass(frozen=True)
class ClusterSettings:
    """What a local cluster is told.

    `port` 0 means the last one used, else a free one. `gateway_versions` are those of the Gateway
    API that are served, of v1 and v1beta1. `ingress` is where the cluster's own ingress listens,
    if it has one; its class is there then, and is the default. `kubelet_delays` makes the node as
    slow as a real one.
    """

    data_dir: Path
    session_namespace: str = "telo-sessions"
    images: Images = field(default_factory=Images)
    kubelet_delays: bool = False
    gateway_versions: tuple[str, ...] = ()
    ingress: IngressPorts | None = None
    port: int = 0
    node_factory: NodeFactory = NodeAgent


@dataclass(frozen=True)
class LocalCluster:
    """A running local cluster; `ingress_urls` are where its ingress is, if it has one."""

    kubeconfig: Path
    url: str
    token: str = field(repr=False)
    ca_path: Path
    store: Store
    agent: Node
    tasks: tuple[asyncio.Task[None], ...]
    ingress_urls: tuple[str, ...] = ()


@dataclass(frozen=True)
class _State:
    """What the state folder and this machine give to a cluster."""

    folder: Path
    address_range: str
    listener: socket.socket
    authority: tls.Authority
    context: ssl.SSLContext
    token: str = field(repr=False)
    ingress: Listeners | None

    @property
    def address(self) -> str:
        return f"{statefolder.HOST}:{self.listener.getsockname()[1]}"


@asynccontextmanager
async def open_local_cluster(settings: ClusterSettings) -> AsyncIterator[LocalCluster]:
    """Run a local cluster while the block runs; its pods end with it.

    Raises:
        ConfigError: One runs for the data folder already, or the folder cannot be written.
    """
    with _opened_state(settings) as state:
        logger.warning(NO_SANDBOX)
        store = Store()
        controllers = Controllers(store, ca_certificate=state.authority.pem.decode())
        _add_basics(store, settings.session_namespace)
        if state.ingress:
            add_local_classes(store, has_gateways=bool(settings.gateway_versions))
        node_settings = NodeSettings(
            state_dir=state.folder / "node",
            images=settings.images,
            kubelet_delays=settings.kubelet_delays,
            address_range=state.address_range,
        )
        agent = settings.node_factory(store, node_settings)
        parts = {"controllers": controllers.run(), "node": agent.run()}
        if state.ingress:
            parts["ingress"] = _ingress(store, state, state.ingress).run()
        tasks = tuple(aio.start(part, name=f"local cluster {name}") for name, part in parts.items())
        try:
            kinds = served_kinds(settings.gateway_versions)
            server = ApiServer(store, agent, kinds, state.token, state.address)
            async with _serving(server, state):
                yield LocalCluster(
                    kubeconfig=_write_kubeconfig(settings, state),
                    url=f"https://{state.address}",
                    token=state.token,
                    ca_path=state.folder / "ca.crt",
                    store=store,
                    agent=agent,
                    tasks=tasks,
                    ingress_urls=state.ingress.urls if state.ingress else (),
                )
        finally:
            await aio.stop(*reversed(tasks))


@contextmanager
def _opened_state(settings: ClusterSettings) -> Iterator[_State]:
    """Hold what a cluster needs of its folder and of the machine."""
    with ExitStack() as stack:
        folder = statefolder.prepare(settings.data_dir)
        stack.enter_context(statefolder.locked(folder))
        authority = tls.load_authority(folder, statefolder.write_file)
        yield _State(
            folder=folder,
            address_range=stack.enter_context(statefolder.reserved_address_range()),
            listener=stack.enter_context(statefolder.open_listener(folder, settings.port)),
            authority=authority,
            context=tls.server_context(authority, folder, statefolder.write_file),
            token=statefolder.load_token(folder),
            ingress=stack.enter_context(open_listeners(folder, settings.ingress)),
        )


def _ingress(store: Store, state: _State, listeners: Listeners) -> Ingress:
    write = statefolder.write_file
    context = tls.server_context(state.authority, state.folder, write, name="ingress")
    return Ingress(store, listeners, context)


@asynccontextmanager
async def _serving(server: ApiServer, state: _State) -> AsyncIterator[None]:
    """Answer requests while the block runs."""
    # NB: cancelling handlers is what ends a watch or a log once its client has gone.
    runner = web.AppRunner(
        server.build_app(),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    await runner.setup()
    try:
        await web.SockSite(runner, state.listener, ssl_context=state.context).start()
        yield
    finally:
        await runner.cleanup()


def _write_kubeconfig(settings: ClusterSettings, state: _State) -> Path:
    path = state.folder / statefolder.KUBECONFIG
    access = statefolder.Access(
        url=f"https://{state.address}",
        token=state.token,
        ca_pem=state.authority.pem,
        namespace=settings.session_namespace,
    )
    statefolder.write_kubeconfig(path, access)
    return path


def _add_basics(store: Store, session_namespace: str) -> None:
    """Create the node and the namespaces; that of the sessions enforces *restricted*."""
    scheduling.ensure_node(store)
    for name in dict.fromkeys((*_NAMESPACES, session_namespace)):
        labels: dict[str, Any] = {"kubernetes.io/metadata.name": name}
        if name == session_namespace:
            labels |= _RESTRICTED
        store.create(
            "namespaces",
            {
                "metadata": {"name": name, "labels": labels},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            },
        )


async def run_local_cluster(
    settings: ClusterSettings, signals: Iterable[int], *, report: Callable[[str], object]
) -> None:
    """Run a local cluster until one of the signals comes or a part of it fails.

    `report` is told where its kubeconfig is once it can be used.

    Raises:
        ConfigError: As `open_local_cluster`.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    async with open_local_cluster(settings) as cluster:
        report(f"The local cluster is at {cluster.url}: export KUBECONFIG={cluster.kubeconfig}")
        if cluster.ingress_urls:
            report(f"Its ingress is at {' and '.join(cluster.ingress_urls)}.")
        asked = aio.start(stop.wait(), name="local cluster stop")
        try:
            await asyncio.wait((asked, *cluster.tasks), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await aio.stop(asked)
        for task in cluster.tasks:
            if task.done():
                task.result()
