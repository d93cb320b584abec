"""Three quick recordings made again: what a newer Kubernetes says otherwise is to be seen."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.statuses.cases import CASES
from tests.statuses.record import World, open_world, record
from tests.statuses.recorded import RECORDED, Recording, load
from tests.statuses.verdicts import sentence, verdicts

pytestmark = pytest.mark.e2e


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with open_world() as world:
        yield world


def shape(value: Any) -> Any:
    """Return what a status is made of: its fields, and the states with their reasons."""
    if isinstance(value, dict):
        kept = ("phase", "reason", "exitCode", "type")
        return {name: entry if name in kept else shape(entry) for name, entry in value.items()}
    return [shape(entry) for entry in value] if isinstance(value, list) else type(value).__name__


@pytest.mark.parametrize("name", ["no-shell", "image-never-pulled", "exit-3"])
async def test_a_real_cluster_still_says_what_was_recorded(world: World, name: str) -> None:
    committed = load(RECORDED / f"{name}.json")
    again = Recording(name, await record(world, CASES[name]))
    assert shape(again.pods[-1]["status"]) == shape(committed.pods[-1]["status"])
    assert sentence(again) == sentence(committed)
    assert len(set(verdicts(again))) <= 1
