"""What a pod's terminal costs beside a bare client of the same cluster.

The local cluster always; the one that KUBECONFIG names where there is one.
"""

import json
import secrets
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench.child import Child, started
from bench.figures import Figure, at_least, at_most, median_ratio, quantile
from bench.program import FLOOD_KEY, READY, program
from bench.scale import Scale
from bench.starts import is_real_cluster_named, session_body, started_bare
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

    def start(self) -> None:
        """Start a session, and open its terminal."""
        body = session_body(self._image, program(self._flood_bytes)).encode()
        self._session = json.loads(self._ask("POST", "/v1/sessions", body))["sessionId"]
        path = f"/v1/sessions/{self._session}/io"
        self._readers.ask("open", group="output", port=self._port, path=path, count=1, kind="ws")
        self._readers.ask("read_until", group="output", text=READY)

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
        self._readers.ask("close", group="output")
        path = f"/v1/sessions/{self._session}"
        self._ask("DELETE", path)
        self._readers.ask(
            "open", group="end", port=self._port, path=f"{path}/events", count=1, kind="http"
        )
        self._readers.ask("drain", group="end")
        self._readers.ask("close", group="end")

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(  # noqa: S310 - the bench's own server
            self._url + path,
            method=method,
            data=body,
            headers={"content-type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=ANSWER_SECONDS) as answer:
            content: bytes = answer.read()
        return content


def measure_local(scale: Scale) -> list[Figure]:
    """Measure the terminal on the local cluster."""
    with (
        tempfile.TemporaryDirectory(prefix="telorunner-bench-") as folder,
        local_cluster(Path(folder)) as cluster,
    ):
        return _measure(cluster, scale)


def measure_real(scale: Scale) -> list[Figure]:
    """Measure it on the cluster that KUBECONFIG names; nothing where it names none."""
    if not is_real_cluster_named():
        return []
    with (
        tempfile.TemporaryDirectory(prefix="telorunner-bench-") as folder,
        real_cluster(Path(folder), f"bench-{secrets.token_hex(3)}") as cluster,
    ):
        return _measure(cluster, scale)


def _measure(cluster: ClusterUnderTest, scale: Scale) -> list[Figure]:
    with _both(cluster, scale) as (product, bare):
        bare.ask("open")
        product.start()
        mine, theirs, keys, bare_keys = [], [], [], []
        for _ in range(scale.rounds):
            theirs.append(bare.ask("flood", total_bytes=scale.pod_bytes))
            mine.append(product.flood())
            bare_keys += bare.ask("echo", count=scale.keys)
            keys += product.echo(scale.keys)
        bare.ask("close")
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
    ]


@contextmanager
def _both(cluster: ClusterUnderTest, scale: Scale) -> Iterator[tuple[Product, Child]]:
    # A reader that the machine holds up for a moment would miss what it does not have any more.
    buffer = {"RUNNER_REPLAY_BUFFER_BYTES": str(2 * scale.pod_bytes)}
    platform = Platform(cluster.data_dir, {**cluster.environment, **buffer, "LOG_LEVEL": "warning"})
    platform.start()
    try:
        with (
            started("bench.readers") as readers,
            started_bare(cluster, scale.pod_bytes) as bare,
        ):
            yield Product(platform.url, cluster.image, scale.pod_bytes, readers), bare
    finally:
        platform.stop()
