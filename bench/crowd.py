"""An engine with many live sessions on a fake API in this process.

What publishes its sessions is what its environment says. It obeys `bench.watches` and
`bench.routes`.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "telorunner.settings")

import django

django.setup()

from aiohttp import web  # noqa: E402 - Django first
from django.core.management import call_command  # noqa: E402 - Django first

from bench.commands import obey  # noqa: E402 - Django first
from routing.layer import Offered, decide, routing_settings  # noqa: E402 - Django first
from routing.routes import Layer, object_name, route_name  # noqa: E402 - Django first
from telorunner.database import access  # noqa: E402 - Django first
from tests.engine.routers import ACCEPTED, LIVE, report  # noqa: E402 - Django first
from tests.engine.world import (  # noqa: E402 - Django first
    WAIT_SECONDS,
    FakeWorld,
    open_fake_world,
)
from tests.unit.pods import running  # noqa: E402 - Django first

# So many sessions are started side by side: as many as a client would wait for.
TOGETHER = 20


class Crowd:
    """One engine and its sessions."""

    def __init__(self, world: FakeWorld) -> None:
        self._world = world
        # NB: the world's own attach reads nothing, and so answers no ping.
        world.api._scripts["attach"].clear()
        world.api.script("attach", *[self._attach] * 10_000)

    async def start(self, count: int, ports: Sequence[int] = ()) -> None:
        """Create sessions and let them run until they are published."""
        for begin in range(0, count, TOGETHER):
            async with asyncio.TaskGroup() as group:
                for _ in range(min(TOGETHER, count - begin)):
                    group.create_task(self._start(ports))
        # What the fake remembers for late watches is searched at each change.
        self._world.api._history.clear()

    async def watches(self) -> dict[str, int]:
        """Return how many watches and lists were asked for so far."""
        return {verb: self._world.api.count(verb) for verb in ("watch", "list")}

    async def _start(self, ports: Sequence[int]) -> None:
        world = self._world
        session_id = await world.create("print(1)\n", ports=ports)
        await world.until_pod(session_id)
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)
        if ports:
            await self._program(session_id, ports)

    async def _program(self, session_id: str, ports: Sequence[int]) -> None:
        """Say of a session's routes what a controller would, and wait until that is told."""
        world = self._world
        resource, names, status = "ingresses", {object_name(session_id)}, LIVE
        if world.runtime.router.layer is Layer.GATEWAY:
            names = {route_name(session_id, port) for port in ports}
            resource, status = "httproutes", ACCEPTED
        async with asyncio.timeout(WAIT_SECONDS):
            await world.api.wait_until(lambda: names <= world.api.objects[resource].keys())
        for name in names:
            report(world.api, resource, name, status)
        for port in ports:
            await world.until_event(session_id, _is_programmed(port))

    async def change(self) -> float:
        """Start one more; return the seconds from the pod's change to the event in the log."""
        world = self._world
        session_id = await world.create("print(1)\n")
        await world.until_pod(session_id)
        changed_at = time.perf_counter()
        world.set_status(session_id, "Running", running())
        await world.until_running(session_id)
        lasted = time.perf_counter() - changed_at
        row = await world.row(session_id)
        if row.status != "running":
            raise RuntimeError(f"the stream says running and the row {row.status}")
        return lasted

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        """Say nothing for as long as the client is there."""
        if request.path.split("/")[-2] not in self._world.api.objects["pods"]:
            return web.Response(status=404)
        async with self._world.api.accept(request) as socket:
            async for _ in socket:
                pass
        return socket


def _is_programmed(port: int) -> Callable[[dict[str, Any]], bool]:
    told = {"type": "route", "port": port, "state": "programmed"}
    return lambda event: told.items() <= event.items()


async def _run() -> None:
    with tempfile.TemporaryDirectory(prefix="telorunner-bench-") as folder:
        async with open_fake_world(Path(folder), RUNNER_MAX_SESSIONS="100000") as world:
            offered = Offered(gateway_versions=("v1",))
            world.decision = decide(routing_settings(world.config), offered)
            async with world.runner():
                await obey(Crowd(world))


def main() -> None:
    """Run until the input ends."""
    call_command("migrate", interactive=False, verbosity=0)
    try:
        asyncio.run(_run())
    finally:
        access.close()
        sys.stdout.flush()


if __name__ == "__main__":
    main()
