"""The worlds that tests of the engine side run in."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engine.world import FakeWorld, open_fake_world


@pytest.fixture
async def world(tmp_path: Path, transactional_db: None) -> AsyncIterator[FakeWorld]:
    async with open_fake_world(tmp_path) as world:
        yield world
