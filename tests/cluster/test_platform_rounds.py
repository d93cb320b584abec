"""Sessions made, stopped, killed and lost over and over: in the end nothing of them is left.

The runner is restarted in between.
"""

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clusters import local_cluster, real_cluster
from tests.rounds import opened_rounds, settled
from tests.serving import WATCHED

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

Times = Callable[[int, int], int]

# Two cores: more at once would only measure the machine.
LOCAL_AT_ONCE = 8
REAL_AT_ONCE = 6
RESTARTS_FULL = 6
# What allocators keep of a peak differs from look to look; a leak of one session's objects in
# each round would be ten times as much. The warm-up is as long as it takes to fill what the local
# cluster remembers at most: its watches' history and its events.
LEVEL_BYTES = 6 * 2**20


async def test_rounds_of_sessions_leave_nothing_behind(
    times: Times, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    count, warm_up = times(1_000, 20), times(400, 10)
    with local_cluster(tmp_path, WATCHED) as cluster:
        async with opened_rounds(cluster, LOCAL_AT_ONCE) as rounds:
            await rounds.run(warm_up // 2, restarts=times(RESTARTS_FULL, 1))
            await rounds.run(warm_up - warm_up // 2)
            before = await rounds.settle()
            levels = [before]
            for _ in range(times(3, 1)):
                await rounds.run((count - warm_up) // times(3, 1))
                levels.append(await settled(rounds, before))
    resident_bytes = [[held.resident_bytes for held in level] for level in levels]
    record_property("resident_bytes", resident_bytes)
    if count == 1_000:
        for process in range(2):
            grown = resident_bytes[-1][process] - resident_bytes[1][process]
            assert grown < LEVEL_BYTES, resident_bytes


@pytest.mark.e2e
async def test_sessions_on_a_real_cluster_leave_nothing_behind(
    times: Times, tmp_path: Path
) -> None:
    if not os.environ.get("TELORUNNER_TEST_KERNEL_IMAGE"):
        pytest.skip("TELORUNNER_TEST_KERNEL_IMAGE names no image on the real cluster")
    count, warm_up = times(100, 10), times(20, 4)
    with real_cluster(tmp_path, f"telo-{uuid.uuid4().hex[:8]}") as cluster:
        async with opened_rounds(cluster, REAL_AT_ONCE) as rounds:
            await rounds.run(warm_up, restarts=times(2, 1))
            before = await rounds.settle()
            await rounds.run(count - warm_up)
            await settled(rounds, before)
