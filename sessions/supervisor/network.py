"""What the runner does about the network of a session's pod: debug relay, and all about its ports.

`open_network()` owns the tasks. They begin once clients know that the session runs, and end before
they learn how it ended. Each is a helper that may fail: then it says nothing more, and the session
goes on. Only the address in the pod's own status is ever dialled.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sessions import events, reachability, sse
from sessions.debug_relay import DebugRelay, DebugTarget, Frame
from sessions.pods.run import INSPECT_PORT, object_name
from sessions.reachability import Reachability, ReachabilityTarget
from sessions.states import Phase
from sessions.supervisor.endpoints import tcp_ports
from sessions.supervisor.podview import PodView
from sessions.supervisor.routing import Routing, is_routed, was_routed
from sessions.supervisor.session import Session
from telorunner import aio
from telorunner.errors import StaleFence

logger = logging.getLogger(__name__)

Helper = Callable[[], Awaitable[None]]

LOSS = "Debug frames that are larger than 64 KiB or nested too deeply are left out"


class Network:
    """The helpers of one session; `open_network()` makes it."""

    def __init__(self, session: Session, view: PodView) -> None:
        self._session = session
        self._view = view
        self._app = session.app.name
        self._ports = tcp_ports(session.row.spec)
        self._routing = Routing(session, view)
        self._routing_task: asyncio.Task[None] | None = None
        self._located = asyncio.Event()
        self._pod_address = ""
        self._states: dict[int, Reachability] = {}
        self._relay: DebugRelay | None = None
        self._tasks: list[asyncio.Task[None]] = []
        # What debug frames take in the log since it was told how the session stands.
        self._debug_bytes = 0

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start what this session needs; nothing where it has neither ports nor a debug stream."""
        helpers: dict[str, Helper] = {}
        if self._ports:
            helpers["reachability"] = self._look_at_ports
        if self._session.row.spec.is_inspected:
            helpers["debug"] = self._relay_debug
        if helpers:
            helpers["address"] = self._find_address
        for name, helper in helpers.items():
            self._tasks.append(self._start(group, name, helper))
        if is_routed(self._session) or was_routed(self._session):
            self._routing_task = self._start(group, "routing", self._routing.run)
            self._tasks.append(self._routing_task)

    def _start(self, group: asyncio.TaskGroup, name: str, helper: Helper) -> "asyncio.Task[None]":
        guarded = self._guard(name, helper)
        return group.create_task(guarded, name=f"{name}-{self._session.session_id}")

    async def end_routes(self) -> None:
        """Publish nothing more, and tell nothing more of public routes."""
        self._routing.close()
        if self._routing_task is not None:
            await aio.stop(self._routing_task)

    async def drain(self) -> None:
        """Take in the last debug frames, within a bound, and end: nothing more is told."""
        if self._relay is not None:
            await self._relay.drain()
        await self.stop()

    async def stop(self) -> None:
        """End at once."""
        await aio.stop(*self._tasks)

    async def _guard(self, name: str, helper: Helper) -> None:
        try:
            await helper()
        except* StaleFence:
            raise
        except* Exception:
            logger.exception("The helper %s failed.", name, extra=self._session.log_extra)

    async def _find_address(self) -> None:
        while not self._view.address:
            await self._view.changed()
        # It is the pod's for its whole life.
        self._pod_address = self._view.address
        self._located.set()

    async def _address(self) -> str:
        await self._located.wait()
        return self._pod_address

    async def _look_at_ports(self) -> None:
        await self._session.has_run.wait()
        target = ReachabilityTarget(
            session_id=self._session.session_id,
            ports=self._ports,
            locate=self._address,
            dials=self._session.runtime.dials,
        )
        await reachability.run(target, self._tell_port)

    async def _relay_debug(self) -> None:
        await self._session.has_run.wait()
        address = await self._address()
        target = DebugTarget(self._session.session_id, address, INSPECT_PORT)
        self._relay = DebugRelay(target, self._tell_frame, self._tell_loss)
        await self._relay.run()

    async def _tell_port(self, port: int, state: Reachability) -> None:
        self._states[port] = state
        await self._session.publish(events.reachability(self._app, port, state))

    async def _tell_frame(self, frame: Frame) -> None:
        encoded = sse.encode(events.debug(self._app, frame))
        self._debug_bytes += len(encoded)
        if self._debug_bytes > self._session.runtime.config.replay_buffer_bytes // 2:
            await self._tell_again(len(encoded))
        await self._session.writer.publish_event(encoded)

    async def _tell_again(self, next_bytes: int) -> None:
        """Tell how the session stands, before frames push that out of the log's ring."""
        self._debug_bytes = next_bytes
        await self._session.tell_again()
        # News may come meanwhile: what is told is the newest.
        for port in list(self._states):
            state = self._states[port]
            await self._session.publish(events.reachability(self._app, port, state))
        await self._routing.tell_again()

    async def _tell_loss(self) -> None:
        await self._session.say(LOSS, Phase.BOOT)


@asynccontextmanager
async def open_network(session: Session) -> AsyncIterator[Network]:
    """Run the helpers of the session's pod for the length of the context.

    Raises:
        ExceptionGroup: With a StaleFence in it: another engine owns the session by now.
    """
    with session.runtime.pods.subscribe(object_name(session.session_id)) as subscription:
        network = Network(session, PodView(subscription, session.pod_uid))
        async with asyncio.TaskGroup() as group:
            network.start(group)
            yield network
            await network.stop()
