"""A stop is over in its 15 s, whoever takes the session over meanwhile; the API is the fake one."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sessions.supervisor.ownership import Lease, Owner
from sessions.supervisor.session import LEAST_STOP_SECONDS, STOP_SECONDS, open_session
from tests.builders import make_owned_session, make_runtime, make_spec
from tests.engine.world import FakeWorld, make_settings
from tests.fakes import say

# What a busy machine takes beside the bound itself.
SLACK_SECONDS = 4.0
# An answer to a deletion that is never done, as where the node is lost.
ACCEPTED = say('{"metadata":{}}')


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("seconds", "left"),
    [
        (0, STOP_SECONDS),
        (6, STOP_SECONDS - 6),
        (14, LEAST_STOP_SECONDS),
        (86_400, LEAST_STOP_SECONDS),
        # The wish is of a machine whose clock is ahead.
        (-3600, STOP_SECONDS),
    ],
)
async def test_what_is_left_of_a_stop_is_counted_from_the_wish(
    tmp_path: Path, seconds: float, left: float
) -> None:
    runtime = make_runtime(make_settings(tmp_path, RUNNER_REPLAY_BUFFER_BYTES="1000000"))
    row = make_owned_session(spec=make_spec(session_id="abcdefghijkl"), fence=2)
    wished = make_owned_session(spec=row.spec, fence=2, stop_requested_at=ago(seconds))
    session = await open_session(Owner(runtime, "engine", Lease(15)), wished)
    now = asyncio.get_running_loop().time()
    assert session.stop_asked.is_set()
    assert session.stop_deadline == pytest.approx(now + left, abs=2)
    # The engine passes the wish on once more.
    await asyncio.sleep(1)
    session.ask_stop()
    assert session.stop_deadline == pytest.approx(now + left, abs=2)


async def test_a_restart_in_the_middle_of_a_stop_does_not_begin_it_anew(world: FakeWorld) -> None:
    world.api.script("delete", *[ACCEPTED] * 100)
    async with world.runner():
        session_id = await world.start()
        await world.stop(session_id)
        await world.api.wait_for("delete")
    assert (await world.row(session_id)).status == "running"
    # As if it had taken as long as that up to here.
    await world.change(session_id, stop_requested_at=ago(STOP_SECONDS - 5))
    began_at = time.monotonic()
    async with world.runner():
        assert await world.last_status(session_id) == {"kind": "stopped"}
        assert 3 < time.monotonic() - began_at < 5 + SLACK_SECONDS
        # It was asked for once more, and still the pod comes first where it goes.
        assert world.api.count("delete") >= 2
        assert "pods" in world.left_of(session_id)


async def test_a_stop_that_nobody_was_there_to_do_still_takes_the_pod_first(
    world: FakeWorld,
) -> None:
    async with world.runner():
        session_id = await world.start()
    await world.stop(session_id)
    await world.change(session_id, stop_requested_at=ago(3600))
    async with world.runner():
        assert await world.last_status(session_id) == {"kind": "stopped"}
        assert world.left_of(session_id) == []
