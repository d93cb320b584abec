"""What a real pod's terminal and start cost beside a bare client of the same cluster.

The local cluster always; the one that KUBECONFIG names where there is one.
"""

import json
import os
import secrets
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench.child import Child, started
from bench.figures import NO_TARGET, Figure, Target, at_least, at_most, median_ratio, quantile
from bench.program import ENTRY, FLOOD_KEY, READY, program
from bench.scale import Scale
from tests.clusters import ClusterUnderTest, local_cluster, real_cluster
from tests.serving import Platform

ANSWER_SECONDS = 60.0


class Product:
    """The product as a client has it: sessions by HTTP, streams on raw sockets."""

    def __init__(self, url: str, image: str, flood_bytes: int, readers: Child) -> None:
        self._url = url
        self._port = urlsplit(url).port
        self._image = image
        self._flood_bytes = flood_bytes
        self._readers = readers
        self._session = ""

    def start(self, kind: str) -> float:
        """Return the seconds from the POST to what tells: `running`, or the first `output`."""
        began_at = time.monotonic()
        body = {
            "bundle": {
                "entryRelativePath": ENTRY,
                "files": [{"relativePath": ENTRY, "contents": program(self._flood_bytes)}],
            },
            "env": {},
            "config": {"image": self._image, "pullPolicy": "missing"},
            "limits": {"cpu": "200m"},
        }
        self._session = json.loads(self._ask("POST", "/v1/sessions", body))["sessionId"]
        what, protocol, text = {
            "running": ("events", "http", '"kind":"running"'),
            "output": ("io", "ws", READY),
        }[kind]
        path = f"/v1/sessions/{self._session}/{what}"
        self._readers.ask("open", group=kind, port=self._port, path=path, count=1, kind=protocol)
        ended_at: float = self._readers.ask("read_until", group=kind, text=text)
        return ended_at - began_at

    def flood(self) -> float:
        """Return the seconds that output takes to a terminal that is open."""
        began_at = time.monotonic()
        self._readers.ask("type", group="output", text=FLOOD_KEY)
        drained = self._readers.ask("drain_payload", group="output", count=self._flood_bytes)
        ended_at: float = drained
        return ended_at - began_at

    def echo(self, count: int) -> list[float]:
        """Return how long each keystroke took to come back."""
        lasted: list[float] = self._readers.ask("echo", group="output", count=count)
        return lasted

    def stop(self) -> None:
        """Stop the session, and wait until its stream has ended."""
        for group in ("running", "output"):
            self._readers.ask("close", group=group)
        path = f"/v1/sessions/{self._session}"
        self._ask("DELETE", path)
        self._readers.ask(
            "open", group="end", port=self._port, path=f"{path}/events", count=1, kind="http"
        )
        self._readers.ask("drain", group="end")
        self._readers.ask("close", group="end")

    def _ask(self, method: str, path: str, body: object = None) -> bytes:
        request = urllib.request.Request(  # noqa: S310 - the bench's own server
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=ANSWER_SECONDS) as answer:
            content: bytes = answer.read()
        return content


def measure_local(scale: Scale) -> list[Figure]:
    """Measure the terminal and the start on the local cluster."""
    with (
        tempfile.TemporaryDirectory(prefix="telorunner-bench-") as folder,
        local_cluster(Path(folder)) as cluster,
    ):
        return _measure(cluster, scale, starts=scale.rounds, targets=(NO_TARGET, NO_TARGET))


def measure_real(scale: Scale) -> list[Figure]:
    """Measure both on the cluster that KUBECONFIG names; nothing where it names none."""
    if not os.environ.get("KUBECONFIG") or not os.environ.get("TELORUNNER_TEST_KERNEL_IMAGE"):
        return []
    namespace = f"bench-{secrets.token_hex(3)}"
    with (
        tempfile.TemporaryDirectory(prefix="telorunner-bench-") as folder,
        real_cluster(Path(folder), namespace) as cluster,
    ):
        targets = (at_most(0.75), at_most(1.3))
        return _measure(cluster, scale, starts=scale.starts, targets=targets)


def _measure(
    cluster: ClusterUnderTest, scale: Scale, *, starts: int, targets: tuple[Target, Target]
) -> list[Figure]:
    with _both(cluster, scale) as (product, bare):
        running, phase, output, first = [], [], [], []
        for _ in range(starts):
            phase.append(bare.ask("phase"))
            running.append(product.start("running"))
            product.stop()
            first.append(bare.ask("output"))
            bare.ask("remove")
            output.append(product.start("output"))
            product.stop()
        bare.ask("output")
        product.start("output")
        mine, theirs, keys, bare_keys = [], [], [], []
        for _ in range(scale.rounds):
            theirs.append(bare.ask("flood", total_bytes=scale.pod_bytes))
            mine.append(product.flood())
            bare_keys += bare.ask("echo", count=scale.keys)
            keys += product.echo(scale.keys)
        bare.ask("remove")
        product.stop()
    where = f"{cluster.kind} cluster"
    cost = (quantile(keys, 0.5) - quantile(bare_keys, 0.5)) * 1000
    rate = scale.pod_bytes / min(mine) / 1e6
    return [
        Figure(
            f"/io: {scale.pod_bytes // 1_000_000} MB from a pod / bare attach, {where}",
            median_ratio(theirs, mine),
            at_least(0.8),
            f"{rate:.1f} MB/s at best",
        ),
        Figure(
            f"/io: a keystroke's echo beyond a bare attach, {where}",
            cost,
            at_most(5),
            f"p50 of {len(keys)}: {quantile(keys, 0.5) * 1000:.1f} ms against "
            f"{quantile(bare_keys, 0.5) * 1000:.1f} ms",
            unit=" ms",
        ),
        Figure(
            f"POST to running / bare pod to phase Running, {where}",
            quantile(running, 0.5) / quantile(phase, 0.5),
            targets[0],
            _seconds(running, phase),
        ),
        Figure(
            f"POST to first byte / bare pod and early attach, {where}",
            quantile(output, 0.5) / quantile(first, 0.5),
            targets[1],
            _seconds(output, first),
        ),
    ]


def _seconds(mine: list[float], bare: list[float]) -> str:
    def both(values: list[float]) -> str:
        return f"{quantile(values, 0.5):.2f} / {quantile(values, 0.95):.2f} s"

    return f"p50 / p95 of {len(mine)}: {both(mine)} against {both(bare)}"


@contextmanager
def _both(cluster: ClusterUnderTest, scale: Scale) -> Iterator[tuple[Product, Child]]:
    platform = Platform(cluster.data_dir, {**cluster.environment, "LOG_LEVEL": "warning"})
    platform.start()
    try:
        with (
            started("bench.readers") as readers,
            started(
                "bench.attacher",
                BENCH_KUBECONFIG=str(cluster.kubeconfig),
                BENCH_NAMESPACE=cluster.namespace,
                BENCH_IMAGE=cluster.image,
                BENCH_FLOOD_BYTES=str(scale.pod_bytes),
            ) as bare,
        ):
            yield Product(platform.url, cluster.image, scale.pod_bytes, readers), bare
    finally:
        platform.stop()
