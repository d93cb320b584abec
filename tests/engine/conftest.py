"""The worlds that tests of the engine side run in."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from telorunner.kube.client import Cluster
from tests.engine.world import FakeWorld, open_fake_world
from tests.fakes import FakeApi, open_fake_cluster


@pytest.fixture
async def world(tmp_path: Path, transactional_db: None) -> AsyncIterator[FakeWorld]:
    async with open_fake_world(tmp_path) as world:
        yield world


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[tuple[FakeApi, Cluster]]:
    async with open_fake_cluster(tmp_path) as pair:
        yield pair
