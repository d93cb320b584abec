"""The platform on each cluster: the local one always, a real one with --with-e2e."""

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.clients import Client
from tests.clusters import ClusterUnderTest, local_cluster, real_cluster
from tests.serving import Platform

# Of a platform of a test's own: the module's may live beside it in the cluster, and each deletes
# what carries its own label and belongs to no session of its database.
OWN_LABEL = "telo-k8s-runner-of-a-test"


@pytest.fixture(
    scope="module", params=["local", pytest.param("real", marks=pytest.mark.e2e)], name="cluster"
)
def cluster_under_test(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterUnderTest]:
    """A cluster that outlives the runner."""
    data_dir = tmp_path_factory.mktemp("platform")
    if request.param == "local":
        with local_cluster(data_dir) as cluster:
            yield cluster
        return
    if not os.environ.get("TELORUNNER_TEST_KERNEL_IMAGE"):
        pytest.skip("TELORUNNER_TEST_KERNEL_IMAGE names no image on the real cluster")
    with real_cluster(data_dir, f"telo-{uuid.uuid4().hex[:8]}") as cluster:
        yield cluster


@pytest.fixture(scope="module", name="serving")
def serving_platform(cluster: ClusterUnderTest) -> Iterator[Platform]:
    """One platform for all tests of a module that need nothing of their own."""
    platform = Platform(cluster.data_dir, cluster.environment)
    platform.start()
    yield platform
    assert platform.stop() == 0, "serve did not end cleanly"


@pytest.fixture
def platform(cluster: ClusterUnderTest, tmp_path: Path) -> Iterator[Platform]:
    """A platform of the test's own, to be stopped and started by it; its database is fresh."""
    own = {"DATABASE_URL": f"sqlite:///{tmp_path}/db.sqlite3", "RUNNER_MANAGED_BY": OWN_LABEL}
    platform = Platform(cluster.data_dir, {**cluster.environment, **own})
    yield platform
    if platform.process is not None:
        platform.stop()


@pytest.fixture
async def client(serving: Platform, cluster: ClusterUnderTest) -> AsyncIterator[Client]:
    """A client of the module's platform."""
    client = Client(serving.url, cluster.image)
    yield client
    await client.close()
