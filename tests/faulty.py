"""The platform behind a proxy that misbehaves: `manage.py serve` as a process of its own."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from telorunner.conf import ClusterKind
from telorunner.kube.client import Cluster, ClusterSettings, open_cluster
from telorunner.kube.objects import list_objects, managed_selector
from tests.clusters import MANAGED_BY, ClusterUnderTest
from tests.faultproxy import FaultProxy, fault_proxy
from tests.serving import Platform

logger = logging.getLogger(__name__)

# The reaper looks every 30 s at what could not be deleted in time.
GONE_SECONDS = 45.0
LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Faulty:
    """A platform whose only way to its cluster is the proxy."""

    cluster: ClusterUnderTest
    proxy: FaultProxy
    platform: Platform

    async def readiness(self) -> dict[str, str]:
        """Return what /readyz says of each part."""
        async with httpx.AsyncClient(trust_env=False) as http:
            answer = await http.get(f"{self.platform.url}/readyz")
        checks: dict[str, str] = answer.json()["checks"]
        assert answer.status_code == (200 if set(checks.values()) == {"ok"} else 503)
        return checks

    @asynccontextmanager
    async def open_admin(self) -> AsyncIterator[Cluster]:
        """Open an administrator's client that knows nothing of the proxy."""
        settings = ClusterSettings(
            kind=ClusterKind.KUBECONFIG,
            kubeconfig=str(self.cluster.kubeconfig),
            namespace=self.cluster.namespace,
            managed_by=MANAGED_BY,
        )
        async with open_cluster(settings) as cluster:
            yield cluster

    async def until_nothing_is_left(self) -> None:
        """Wait until the cluster has none of the runner's objects."""
        async with asyncio.timeout(GONE_SECONDS), self.open_admin() as admin:
            while left := await _left(admin):
                logger.info("Still there: %s.", left)
                await asyncio.sleep(LOOK_SECONDS)


def pod_name(session: str) -> str:
    """Return the name of a session's pod and ConfigMap."""
    return f"telo-run-{session}"


async def _left(admin: Cluster) -> list[str]:
    selector = managed_selector(MANAGED_BY)
    return [
        f"{resource}/{found['metadata']['name']}"
        for resource in ("pods", "configmaps")
        for found in await list_objects(admin, resource, selector=selector)
    ]


@contextmanager
def faulty_platform(cluster: ClusterUnderTest, folder: Path, **variables: str) -> Iterator[Faulty]:
    """Serve with a fresh data folder, and end cleanly."""
    with fault_proxy(runner_kubeconfig(cluster), folder) as proxy:
        environment = {
            **cluster.environment,
            "RUNNER_CLUSTER": "kubeconfig",
            "RUNNER_HOST": "127.0.0.1",
            "RUNNER_BUNDLE_DELIVERY": "inline",
            "KUBECONFIG": str(proxy.kubeconfig),
            "RUNNER_SESSION_NAMESPACE": cluster.namespace,
            "RUNNER_DATA_DIR": str(folder / "data"),
            "LOG_LEVEL": "debug",
            **variables,
        }
        platform = Platform(folder / "data", environment)
        platform.start()
        try:
            yield Faulty(cluster, proxy, platform)
        finally:
            process = platform.process
            code = platform.stop()
            if process is not None:
                # Shown where a test fails.
                logger.info("The platform said:\n%s", "".join(process.output))
        assert code == 0, "serve did not end cleanly"


def runner_kubeconfig(cluster: ClusterUnderTest) -> Path:
    """Return the runner's own kubeconfig, which is no administrator's on a real cluster."""
    return Path(cluster.environment.get("KUBECONFIG", cluster.kubeconfig))
