"""One runner that publishes its sessions, and a bare client of the same cluster beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bench.child import Child, started
from bench.program import listener
from bench.routewatcher import GATEWAY
from bench.starts import session_body
from routing.routes import hostname
from tests.clusters import MANAGED_BY, ClusterUnderTest
from tests.serving import Platform

PORTS = (8080, 9090)
# Pods that do nothing: a node of two cores has room for all of them.
CPU = "40m"


@dataclass(frozen=True)
class Layer:
    """One of the two ways to publish."""

    name: str
    resource: str
    variables: dict[str, str]


LAYERS = (
    Layer("Ingress", "ingresses", {"SESSION_ROUTING_MODE": "ingress"}),
    Layer(
        "HTTPRoute",
        "httproutes",
        {"SESSION_ROUTING_MODE": "gateway", "SESSION_GATEWAY_NAME": GATEWAY},
    ),
)


@dataclass(frozen=True)
class Entrance:
    """What takes requests for public hosts: its class, where it is asked, a listener's port."""

    class_name: str
    url: str
    listener_port: int


@dataclass(frozen=True)
class Case:
    """What is measured: a layer, with probes or without, and where."""

    cluster: ClusterUnderTest
    entrance: Entrance
    layer: Layer
    is_probing: bool

    @property
    def domain(self) -> str:
        """Of its own: what was measured before may still be on its way out of the controller."""
        return f"{self.cluster.namespace}.test"

    @property
    def name(self) -> str:
        """What figures call it."""
        probes = "with probes" if self.is_probing else "without probes"
        return f"{self.layer.name}, {probes}, {self.cluster.kind} cluster"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a runner."""
        variables = {**self.cluster.environment, **self.layer.variables}
        variables["SESSION_ROUTING_BASE_DOMAIN"] = self.domain
        if self.layer.resource == "ingresses":
            variables["SESSION_INGRESS_CLASS"] = self.entrance.class_name
        if self.is_probing:
            # What carries requests must reach the runner, which is all that this is for.
            variables |= {**(self.cluster.fetching or {}), "RUNNER_BUNDLE_DELIVERY": "inline"}
            variables["SESSION_ROUTE_PROBE_ADDRESS"] = self.entrance.url
        return {**variables, "RUNNER_MAX_SESSIONS": "1000", "LOG_LEVEL": "warning"}


@dataclass
class Times:
    """Of each host the seconds from when its route was there, to the product and a bare client."""

    product: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Product:
    """One runner, and a bare client that watches beside it."""

    case: Case
    url: str
    starters: Child
    watcher: Child
    ids: list[str] = field(default_factory=list)

    def publish(self, count: int, times: Times) -> None:
        """Start sessions at once, and note how long their hosts took."""
        case, at = self.case, urlsplit(self.url)
        programmed = self.starters.ask(
            "publish",
            host=at.hostname,
            port=at.port,
            body=session_body(case.cluster.image, listener(PORTS), PORTS, CPU),
            count=count,
            ports=PORTS,
        )
        self.ids.extend(programmed)
        hosts = [hostname(port, one, case.domain) for one in programmed for port in PORTS]
        told = [at for one in programmed.values() for at in one]
        seen = self.watcher.ask("times", hosts=hosts)
        for programmed_at, (created_at, claimed_at, answered_at) in zip(told, seen, strict=True):
            times.product.append(programmed_at - created_at)
            times.bare.append((answered_at or claimed_at) - created_at)

    def stop(self) -> None:
        """Stop all sessions."""
        at = urlsplit(self.url)
        self.starters.ask("stop", host=at.hostname, port=at.port, ids=self.ids)


@contextmanager
def open_product(case: Case) -> Iterator[Product]:
    """Run the bare client, and then the product."""
    platform = Platform(case.cluster.data_dir, case.variables)
    with (
        started("bench.starters") as starters,
        started(
            "bench.routewatcher",
            BENCH_KUBECONFIG=str(case.cluster.kubeconfig),
            BENCH_NAMESPACE=case.cluster.namespace,
            BENCH_MANAGED_BY=MANAGED_BY,
            BENCH_RESOURCE=case.layer.resource,
            BENCH_ASKED_URL=case.entrance.url if case.is_probing else "",
        ) as watcher,
    ):
        if case.layer.resource == "httproutes":
            entrance = case.entrance
            watcher.ask(
                "make_gateway", gateway_class=entrance.class_name, port=entrance.listener_port
            )
        platform.start()
        try:
            yield Product(case, platform.url, starters, watcher)
        finally:
            platform.stop()
