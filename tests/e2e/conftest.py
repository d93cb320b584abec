"""Tests of what only a real cluster has: its permissions, its admission, its kubelet."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.clients import Client
from tests.clusters import ClusterUnderTest, real_cluster
from tests.e2e.entrances import Entrance, prepare
from tests.serving import Platform

# A context manager that serves with variables beside the cluster's own, and gives a client of it.
Serving = Callable[..., AbstractAsyncContextManager["Served"]]


def apart(folder: Path, name: str) -> dict[str, str]:
    """Return the variables of a runner beside another one in the same namespace."""
    return {
        "RUNNER_MANAGED_BY": name,
        "RUNNER_DATA_DIR": str(folder / name),
        "DATABASE_URL": f"sqlite:///{folder}/{name}.sqlite3",
    }


class Served(Client):
    """A client of a platform of its own, which knows what that has printed."""

    def __init__(self, platform: Platform, image: str) -> None:
        super().__init__(platform.url, image)
        assert platform.process is not None
        self.printed = platform.process.output


@pytest.fixture(scope="module", name="prepared")
def prepared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """A namespace as an operator prepares it, one a module; the runner has its narrow account."""
    if not os.environ.get("TELORUNNER_TEST_KERNEL_IMAGE"):
        pytest.skip("TELORUNNER_TEST_KERNEL_IMAGE names no image on the real cluster")
    folder = tmp_path_factory.mktemp("e2e")
    with real_cluster(folder, f"telo-{uuid.uuid4().hex[:8]}") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def entrance(prepared: ClusterUnderTest, tmp_path_factory: pytest.TempPathFactory) -> Entrance:
    """What leads visitors to the prepared namespace: the cluster's ingress controller."""
    return prepare(prepared, tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def serve(prepared: ClusterUnderTest, tmp_path: Path) -> Serving:
    """Return what serves in the prepared namespace; `fetching`: pods can reach the runner."""

    @asynccontextmanager
    async def serve(*, fetching: bool = False, **variables: str) -> AsyncIterator[Served]:
        environment = prepared.fetching if fetching else prepared.environment
        if environment is None:
            pytest.skip("TELORUNNER_TEST_SELF_HOST and _INIT_IMAGE do not say how to fetch there")
        database = {"DATABASE_URL": f"sqlite:///{tmp_path}/db.sqlite3"}
        platform = Platform(tmp_path, {**environment, **database, **variables})
        await asyncio.to_thread(platform.start)
        client = Served(platform, prepared.image)
        try:
            yield client
        finally:
            await client.close()
            code = await asyncio.to_thread(platform.stop)
        assert code == 0

    return serve
