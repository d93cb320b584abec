"""The platform behind a proxy that misbehaves: the local cluster, the central tests a real one."""

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.clients import Client
from tests.clusters import ClusterUnderTest, local_cluster, real_cluster
from tests.faulty import Faulty, faulty_platform


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """One local cluster for all tests about faults."""
    with local_cluster(tmp_path_factory.mktemp("local")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """One namespace of the real cluster for all tests about faults."""
    if not os.environ.get("TELORUNNER_TEST_KERNEL_IMAGE"):
        pytest.skip("TELORUNNER_TEST_KERNEL_IMAGE names no image on the real cluster")
    namespace = f"telo-{uuid.uuid4().hex[:8]}"
    with real_cluster(tmp_path_factory.mktemp("real"), namespace) as cluster:
        yield cluster


@pytest.fixture(scope="session", params=["local"])
def behind(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Faulty]:
    """One platform behind a proxy; what runs on the real cluster too parametrizes this."""
    cluster: ClusterUnderTest = request.getfixturevalue(request.param)
    with faulty_platform(cluster, tmp_path_factory.mktemp("behind")) as faulty:
        yield faulty


@pytest.fixture
def faulty(behind: Faulty) -> Iterator[Faulty]:
    """The platform; the proxy works when a test begins, and counts from zero."""
    # What the test before did to the watch is over.
    behind.proxy.wait(lambda: behind.proxy.live("watch") == 1)
    behind.proxy.forget()
    yield behind
    behind.proxy.clear()
    behind.proxy.work()


class TidyClient(Client):
    """A client that stops at the end what a failed test has left running."""

    def __init__(self, url: str, image: str) -> None:
        super().__init__(url, image)
        self.sessions: list[str] = []

    async def create(self, program: str, **fields: Any) -> str:
        session = await super().create(program, **fields)
        self.sessions.append(session)
        return session

    async def close(self) -> None:
        for session in self.sessions:
            await self.http.delete(f"/v1/sessions/{session}")
        await super().close()


@pytest.fixture
async def client(faulty: Faulty) -> AsyncIterator[Client]:
    """A client of the platform."""
    client = TidyClient(faulty.platform.url, faulty.cluster.image)
    yield client
    await client.close()
