"""How long a session takes to start beside a bare client of the same cluster.

In turns, so that what else the machine does weighs on all: the bare client makes pods, then the
product makes sessions, by each delivery of the bundle that the cluster allows.
"""

import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench.child import Child, started
from bench.figures import NO_TARGET, Figure, Target, at_most, quantile
from bench.program import ENTRY, READY, program
from bench.scale import Scale
from tests.clusters import ClusterUnderTest, local_cluster, real_cluster
from tests.serving import Platform

AT_ONCE = (1, 4)
# Four at once, and what the cluster itself runs, fit on a node of two cores.
CPU = "400m"


@dataclass(frozen=True)
class _Targets:
    running: Target
    first: Target


@dataclass
class _Times:
    """Seconds from asking to running, and to the first byte of output."""

    running: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class _Product:
    """One runner, with its way to deliver bundles."""

    host: str
    port: int
    body: str
    starters: Child

    def start(self, count: int, times: _Times) -> None:
        """Start sessions at once, note how long they took, and stop them again."""
        came = self.starters.ask(
            "start", host=self.host, port=self.port, body=self.body, count=count, output=READY
        )
        times.running += came["running"]
        times.first += came["first"]
        self.starters.ask("stop", host=self.host, port=self.port, ids=came["ids"])


def measure_local(scale: Scale) -> list[Figure]:
    """Measure on the local cluster: told only, as a local pod has no image and no sandbox."""
    with (
        tempfile.TemporaryDirectory(prefix="telorunner-bench-") as folder,
        local_cluster(Path(folder)) as cluster,
    ):
        deliveries = {"inline": cluster.environment}
        targets = _Targets(NO_TARGET, NO_TARGET)
        return _measure(cluster, deliveries, starts=scale.rounds, targets=targets)


def measure_real(scale: Scale) -> list[Figure]:
    """Measure on the cluster that KUBECONFIG names; nothing where it names none."""
    if not is_real_cluster_named():
        return []
    namespace = f"bench-{secrets.token_hex(3)}"
    with (
        tempfile.TemporaryDirectory(prefix="telorunner-bench-") as folder,
        real_cluster(Path(folder), namespace) as cluster,
    ):
        deliveries = {"inline": cluster.environment}
        if cluster.fetching is not None:
            deliveries["fetched"] = {**cluster.fetching, "RUNNER_BUNDLE_DELIVERY": "fetch"}
        targets = _Targets(at_most(0.75), at_most(1.3))
        return _measure(cluster, deliveries, starts=scale.starts, targets=targets)


def _measure(
    cluster: ClusterUnderTest,
    deliveries: Mapping[str, Mapping[str, str]],
    *,
    starts: int,
    targets: _Targets,
) -> list[Figure]:
    figures = []
    with ExitStack() as stack:
        bare = stack.enter_context(started_bare(cluster))
        starters = stack.enter_context(started("bench.starters"))
        products = {
            name: stack.enter_context(_serving(cluster, name, environment, starters))
            for name, environment in deliveries.items()
        }
        # The first of each pays for what is looked up once.
        _take_turns(bare, products, 1, 1)
        for at_once in AT_ONCE:
            bare_times, times = _take_turns(bare, products, at_once, starts)
            for name in products:
                figures += _figures(f"{name}, {at_once} at once, {cluster.kind} cluster",
                                    times[name], bare_times, targets)  # fmt: skip
    return figures


def _take_turns(
    bare: Child, products: Mapping[str, _Product], at_once: int, starts: int
) -> tuple[_Times, dict[str, _Times]]:
    bare_times, times = _Times(), {name: _Times() for name in products}
    for _ in range(0, starts, at_once):
        for running, first in bare.ask("start", count=at_once):
            bare_times.running.append(running)
            bare_times.first.append(first)
        for name, product in products.items():
            product.start(at_once, times[name])
    return bare_times, times


def _figures(where: str, mine: _Times, bare: _Times, targets: _Targets) -> list[Figure]:
    return [
        Figure(
            f"POST to running / bare pod to phase Running, {where}",
            quantile(mine.running, 0.5) / quantile(bare.running, 0.5),
            targets.running,
            _seconds(mine.running, bare.running),
        ),
        Figure(
            f"POST to first byte / bare pod and early attach, {where}",
            quantile(mine.first, 0.5) / quantile(bare.first, 0.5),
            targets.first,
            _seconds(mine.first, bare.first),
        ),
    ]


def _seconds(mine: list[float], bare: list[float]) -> str:
    def both(values: list[float]) -> str:
        return f"{quantile(values, 0.5):.2f} / {quantile(values, 0.95):.2f} s"

    return f"p50 / p95 of {len(mine)}: {both(mine)} against {both(bare)}"


def is_real_cluster_named() -> bool:
    """Tell whether the environment names a real cluster, and an image for it."""
    return all(os.environ.get(name) for name in ("KUBECONFIG", "TELORUNNER_TEST_KERNEL_IMAGE"))


@contextmanager
def started_bare(cluster: ClusterUnderTest, flood_bytes: int = 0) -> Iterator[Child]:
    """Run the bare client of a cluster; its program pours so much at each flood key."""
    with started(
        "bench.attacher",
        BENCH_KUBECONFIG=str(cluster.kubeconfig),
        BENCH_NAMESPACE=cluster.namespace,
        BENCH_IMAGE=cluster.image,
        BENCH_FLOOD_BYTES=str(flood_bytes),
    ) as bare:
        yield bare


@contextmanager
def _serving(
    cluster: ClusterUnderTest, name: str, environment: Mapping[str, str], starters: Child
) -> Iterator[_Product]:
    """Serve on the cluster, beside others that do: each has its own database and its own label."""
    database = cluster.data_dir / f"{name}.sqlite3"
    own = {
        "DATABASE_URL": f"sqlite:///{database}",
        "RUNNER_MANAGED_BY": f"bench-{name}",
        "LOG_LEVEL": "warning",
    }
    data_dir = cluster.data_dir
    if cluster.process is None:
        data_dir = cluster.data_dir / name
        data_dir.mkdir()
    platform = Platform(data_dir, {**environment, **own})
    platform.start()
    try:
        at = urlsplit(platform.url)
        body = session_body(cluster.image, program(0))
        yield _Product(at.hostname or "", at.port or 0, body, starters)
    finally:
        platform.stop()


def session_body(image: str, text: str, ports: Sequence[int] = (), cpu: str = CPU) -> str:
    """Return the POST of a session of one of the bench's programs."""
    return json.dumps(
        {
            "bundle": {
                "entryRelativePath": ENTRY,
                "files": [{"relativePath": ENTRY, "contents": text}],
            },
            "env": {},
            "config": {"image": image, "pullPolicy": "missing"},
            "ports": [{"port": port, "protocol": "tcp"} for port in ports],
            "limits": {"cpu": cpu},
        }
    )
