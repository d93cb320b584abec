"""What public hosts cost: watches, and the time until clients are told that a host works.

Whole sessions, published once they run. From the moment that a route is there the product and a
bare client wait for the same: what its controller says of it, and with probes how the host answers.
What clients of the product are told later than the bare client sees it is the product's own.
"""

import os
import re
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.child import started
from bench.figures import NO_TARGET, BrokenMeasurement, Figure, at_most, quantile
from bench.processes import QUIET
from bench.published import LAYERS, PORTS, Case, Entrance, Layer, Times, open_product
from bench.scale import Scale
from bench.starts import is_real_cluster_named
from telorunner.localcluster.networkdefaults import LOCAL_CLASS
from tests.clusters import local_cluster, real_cluster
from tests.e2e.entrances import CLASS
from tests.realcluster import kubectl

# The quota of the namespace lets in no more with those that are started alone.
REAL_SESSIONS = 20
# So many sessions are started at once.
AT_ONCE, REAL_AT_ONCE = 10, 4
INGRESS_AT = re.compile(r"Its ingress is at (http://[0-9.]+:[0-9]+)")
# The API server's own count of watches in one namespace, of routes and Services, whoever asked.
# Source: https://kubernetes.io/docs/reference/instrumentation/metrics/
OPEN_WATCHES = (
    r'^apiserver_longrunning_requests{{.*resource="(?:{}|services)",scope="namespace",'
    r'.*verb="WATCH".*}} (\d+)'
)


def measure_local(scale: Scale) -> list[Figure]:
    """Count watches on a fake API, and time hosts on the local cluster and its ingress."""
    figures = [figure for layer in LAYERS for figure in _count_watches(layer, scale.published)]
    for layer, is_probing in _cases(scale):
        with (
            tempfile.TemporaryDirectory(prefix="telorunner-bench-") as folder,
            local_cluster(Path(folder), RUNNER_LOCAL_GATEWAY_API="true") as cluster,
        ):
            assert cluster.process is not None  # noqa: S101 - a local one is a process
            entrance = Entrance(LOCAL_CLASS, cluster.process.wait_for(INGRESS_AT)[1], 80)
            case = Case(cluster, entrance, layer, is_probing)
            figures += _measure(case, scale.published, AT_ONCE, scale.rounds)
    return figures


def measure_real(scale: Scale) -> list[Figure]:
    """Time hosts on the cluster that KUBECONFIG names; nothing without one and its controller."""
    at = os.environ.get("TELORUNNER_TEST_INGRESS")
    if not is_real_cluster_named() or not at:
        return []
    entrance = Entrance(CLASS, f"http://{at}", int(at.rpartition(":")[2]))
    figures = []
    for layer, is_probing in _cases(scale):
        with (
            tempfile.TemporaryDirectory(prefix="telorunner-bench-") as folder,
            real_cluster(Path(folder), f"bench-{secrets.token_hex(3)}") as cluster,
        ):
            if is_probing and cluster.fetching is None:
                continue
            case = Case(cluster, entrance, layer, is_probing)
            sessions = min(REAL_SESSIONS, scale.published)
            figures += _measure(case, sessions, REAL_AT_ONCE, 2 * scale.rounds)
    return figures


def _cases(scale: Scale) -> list[tuple[Layer, bool]]:
    """Return each layer without probes and with them; one of both is enough to see if it works."""
    cases = [(layer, is_probing) for layer in LAYERS for is_probing in (False, True)]
    return cases if scale.is_whole else cases[::3]


def _count_watches(layer: Layer, sessions: int) -> list[Figure]:
    # The Gateway is where the fake's statuses say that it is.
    routing = {"SESSION_ROUTING_BASE_DOMAIN": "apps.test", "SESSION_GATEWAY_NAMESPACE": "edge"}
    variables = {**QUIET, **routing, **layer.variables, "LOG_LEVEL": "error"}
    with (
        tempfile.TemporaryDirectory(prefix="telorunner-bench-") as folder,
        started("bench.crowd", **variables, RUNNER_DATA_DIR=folder) as crowd,
    ):
        crowd.ask("start", count=1, ports=PORTS)
        few = crowd.ask("watches")
        crowd.ask("start", count=sessions - 1, ports=PORTS)
        many = crowd.ask("watches")
    counts = f"{few['list']} and {many['list']} lists"
    published = f"published by {layer.name}"
    return [
        Figure(f"watches at 1 session {published}", few["watch"], at_most(4), counts),
        Figure(
            f"watches at {sessions} sessions {published}",
            many["watch"],
            at_most(few["watch"]),
            f"{counts}; {len(PORTS)} ports each",
        ),
    ]


def _measure(case: Case, sessions: int, at_once: int, alone: int) -> list[Figure]:
    crowded, single = Times(), Times()
    with open_product(case) as product:
        # The first pays for what is looked up once.
        product.publish(1, Times())
        few = _open_watches(case)
        if few == 0:
            raise BrokenMeasurement("the API server's metrics show no watch of a router at work")
        while len(product.ids) < sessions:
            product.publish(min(at_once, sessions - len(product.ids)), crowded)
        for _ in range(alone):
            product.publish(1, single)
        many = _open_watches(case)
        if case.cluster.process is None:
            # A local cluster ends with its pods, and these would be there for what comes next.
            product.stop()
    figures = [_figure(f"{at_once} at once", case, crowded), _figure("1 at once", case, single)]
    if few is not None and many is not None:
        name = f"watches at {sessions + alone} sessions beyond those at 1, {case.name}"
        told = f"by the API server's own count, which has {few} at 1"
        figures.append(Figure(name, many - few, at_most(0), told))
    return figures


def _figure(how: str, case: Case, times: Times) -> Figure:
    both = (
        f"p50 / p95 / longest of {len(times.product)}: {_shown(times.product)} against "
        f"{_shown(times.bare)}"
    )
    ratio = quantile(times.product, 0.5) / quantile(times.bare, 0.5)
    if case.is_probing:
        name = f"route made to `programmed` / to the host's own answer, {how}, {case.name}"
        return Figure(name, ratio, NO_TARGET, both)
    # A controller may have said so before anybody has read that the route is there: a ratio to
    # next to nothing says little.
    pairs = zip(times.product, times.bare, strict=True)
    later = quantile([product - bare for product, bare in pairs], 0.5) * 1000
    name = f"`programmed` after the controller's status, {how}, {case.name}"
    detail = f"{both} since the route was made, {ratio:.3g} times as long"
    return Figure(name, later, NO_TARGET, detail, unit=" ms")


def _open_watches(case: Case) -> int | None:
    """Return how many watches are open that a router could have; None: it does not tell."""
    if case.cluster.kind != "real":
        return None
    pattern = re.compile(OPEN_WATCHES.format(case.layer.resource), re.MULTILINE)
    return sum(int(one) for one in pattern.findall(kubectl("get", "--raw", "/metrics")))


def _shown(seconds: Sequence[float]) -> str:
    shown = (quantile(seconds, 0.5), quantile(seconds, 0.95), max(seconds))
    return " / ".join(f"{one * 1000:.0f}" for one in shown) + " ms"
