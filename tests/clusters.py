"""The clusters that the platform's tests run against, and a look at what is left in them."""

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from telorunner.conf import ClusterKind
from telorunner.kube.client import Cluster, ClusterSettings, open_cluster
from telorunner.kube.objects import MANAGED_BY_LABEL, list_objects
from tests.realcluster import session_namespace
from tests.serving import KERNEL_DIR, MANAGE, Process

LOCAL_IMAGE = "telorun/node:latest-slim"
MANAGED_BY = "telo-k8s-runner"
# Twice the reaper's interval.
LEFT_SECONDS = 60.0


@dataclass(frozen=True)
class ClusterUnderTest:
    """Where the platform's pods run: its data folder, environment and image.

    `kubeconfig` is an administrator's, to look at what is there.
    """

    kind: str
    data_dir: Path
    environment: Mapping[str, str]
    image: str
    kubeconfig: Path
    namespace: str
    process: Process | None = None
    # The delivery of bundles by URL; None: nothing says how pods reach this machine.
    fetching: Mapping[str, str] | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Cluster]:
        """Open the product's client with an administrator's credentials."""
        settings = ClusterSettings(
            kind=ClusterKind.KUBECONFIG,
            kubeconfig=str(self.kubeconfig),
            namespace=self.namespace,
            managed_by=MANAGED_BY,
        )
        async with open_cluster(settings) as cluster:
            yield cluster

    async def objects(self, resource: str, managed_by: str = MANAGED_BY) -> list[str]:
        """Return the names of a runner's objects of one kind."""
        async with self.opened() as cluster:
            selector = f"{MANAGED_BY_LABEL}={managed_by}"
            found = await list_objects(cluster, resource, selector=selector)
        return sorted(one["metadata"]["name"] for one in found)

    async def until_nothing_is_left(self, managed_by: str = MANAGED_BY) -> None:
        """Wait until a runner has no object in the cluster any more."""
        async with asyncio.timeout(LEFT_SECONDS):
            while await self._left(managed_by):  # noqa: ASYNC110 - two lists have no one event
                await asyncio.sleep(0.1)

    async def _left(self, managed_by: str) -> list[str]:
        return [
            *await self.objects("pods", managed_by),
            *await self.objects("configmaps", managed_by),
        ]


@contextmanager
def local_cluster(
    data_dir: Path, script: Path = MANAGE, **variables: str
) -> Iterator[ClusterUnderTest]:
    """Run the local cluster in a process of its own, as late as a kubelet with what it reports.

    `variables` are more of its environment.
    """
    environment = {
        "RUNNER_CLUSTER": "local",
        "RUNNER_DATA_DIR": str(data_dir),
        "RUNNER_LOCAL_KUBELET_DELAYS": "true",
        **variables,
        "PATH": f"{KERNEL_DIR}:{os.environ['PATH']}",
    }
    process = Process("runcluster", environment=environment, script=script)
    try:
        process.wait_for(re.compile(r"kubeconfig"))
        yield ClusterUnderTest(
            kind="local",
            data_dir=data_dir,
            environment=environment,
            image=LOCAL_IMAGE,
            kubeconfig=data_dir / "localcluster" / "kubeconfig",
            namespace="telo-sessions",
            process=process,
            fetching=environment,
        )
    finally:
        process.stop()


@contextmanager
def real_cluster(data_dir: Path, namespace: str) -> Iterator[ClusterUnderTest]:
    """Prepare a namespace in the cluster that KUBECONFIG names; the runner is no administrator."""
    image = os.environ["TELORUNNER_TEST_KERNEL_IMAGE"]
    with session_namespace(namespace, data_dir) as prepared:
        environment = {
            "RUNNER_CLUSTER": "kubeconfig",
            "KUBECONFIG": str(prepared.kubeconfig),
            "RUNNER_SESSION_NAMESPACE": namespace,
            "RUNNER_IMAGE": image,
        }
        yield ClusterUnderTest(
            kind="real",
            data_dir=data_dir,
            # Inline, pods need no way to the runner.
            environment={
                **environment,
                "RUNNER_HOST": "127.0.0.1",
                "RUNNER_BUNDLE_DELIVERY": "inline",
            },
            image=image,
            kubeconfig=Path(os.environ["KUBECONFIG"]),
            namespace=namespace,
            fetching=_fetching(environment),
        )


def _fetching(environment: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return the environment of a runner that pods reach at an address of this machine."""
    host = os.environ.get("TELORUNNER_TEST_SELF_HOST")
    image = os.environ.get("TELORUNNER_TEST_INIT_IMAGE")
    if not host or not image:
        return None
    with socket.create_server((host, 0)) as taken:
        port = taken.getsockname()[1]
    return {
        **environment,
        "RUNNER_HOST": host,
        "PORT": str(port),
        "RUNNER_SELF_URL": f"http://{host}:{port}",
        "RUNNER_INIT_IMAGE": image,
    }
