"""A supervisor's watch over recorded pods of a real cluster, as they went by; in virtual time."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sessions.pods import failures, progress
from sessions.spec import exited, failed
from sessions.states import StatusKind
from tests.engine.test_supervisor_running import Bench, watching
from tests.statuses.recorded import RECORDED, Recording, load, recordings
from tests.statuses.verdicts import sentence
from tests.unit.pods import condition, pod

pytestmark = pytest.mark.looptime

UID = "1"


def shown(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "metadata": {**state["metadata"], "uid": UID}}


async def play(bench: Bench, recording: Recording) -> None:
    """Show a recording in its own time."""
    began = asyncio.get_running_loop().time()
    for at, event, state in recording:
        await asyncio.sleep(max(0.0, began + at - asyncio.get_running_loop().time()))
        bench.show(shown(state))
        if event == "DELETED":
            bench.show(None)


@pytest.mark.parametrize(
    "recording", [pytest.param(recording, id=recording.name) for recording in recordings()]
)
async def test_a_recorded_pod_ends_as_it_should(tmp_path: Path, recording: Recording) -> None:
    # What is said of a start belongs to pods that never run.
    ran = any(failures.is_running(state) for state in recording.pods)
    is_first = StatusKind.RUNNING if ran else StatusKind.STARTING
    async with watching(tmp_path, is_first) as bench:
        await play(bench, recording)
        status = await bench.task
    told = sentence(recording)
    if told.startswith("progress: "):
        told = "the session did not start within 180 s: last waiting for: " + told[10:]
    code = told.removeprefix("exited ")
    assert status == (exited(int(code)) if code != told else failed(told))


async def test_a_session_beside_a_container_that_goes_on_ends_soon_after_its_own(
    tmp_path: Path, looptime: float
) -> None:
    recording = load(RECORDED / "car-after-stays.json")
    async with watching(tmp_path, StatusKind.RUNNING) as bench:
        await play(bench, recording)
        seen_at = float(looptime)
        assert not bench.task.done()
        assert await bench.task == exited(0)
        assert looptime - seen_at == pytest.approx(failures.OWN_END_SECONDS)


async def test_a_kubelet_that_ends_the_pod_meanwhile_has_the_last_word(tmp_path: Path) -> None:
    stays = load(RECORDED / "car-after-stays.json").pods[-1]
    deadline = load(RECORDED / "car-stays-at-deadline.json").pods[-1]
    async with watching(tmp_path, StatusKind.RUNNING) as bench:
        bench.show(shown(stays))
        await asyncio.sleep(failures.OWN_END_SECONDS - 0.5)
        bench.show(shown(deadline))
        assert await bench.task == failures.outcome(deadline)


async def test_a_refusal_of_the_scheduler_is_told_at_once_and_mends(tmp_path: Path) -> None:
    refused = load(RECORDED / "no-cpu.json").pods[-1]
    async with watching(tmp_path) as bench:
        bench.show(shown(refused))
        await asyncio.sleep(0.1)
        assert await bench.said() == [
            "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu; ask for less (limits), or "
            "the cluster operator must add capacity"
        ]
        bench.show(pod("Pending", conditions=[condition("PodScheduled")]))
        await asyncio.sleep(0.1)
        assert (await bench.said())[-1] == progress.SANDBOX
        assert not bench.task.done()
