"""A container that an injector puts beside the session's; the API is the fake one."""

from sessions.pods.run import object_name
from tests.engine.world import FakeWorld
from tests.unit.pods import running, terminated


async def test_a_finished_session_is_not_kept_by_a_container_that_goes_on(
    world: FakeWorld,
) -> None:
    async with world.runner():
        session_id = await world.start()
        injected = {"name": "proxy", "image": "mesh/proxy:1"}
        world.api.objects["pods"][object_name(session_id)]["spec"]["containers"].append(injected)
        world.set_status(session_id, "Running", terminated(3), running("proxy"))
        assert await world.last_status(session_id) == {
            "kind": "failed",
            "message": 'container "session" failed: Error (exit code 3)',
        }
        await world.until_nothing_is_left(session_id)
