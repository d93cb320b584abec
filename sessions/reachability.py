"""Whether the declared ports of a pod can be reached, told as it changes.

A port is dialled from the moment its session runs until it takes a connection for the first time;
that is the answer, and it is left alone from then on: dialling costs the application a connection
each time. `run()` owns a task for each port; nothing is ever sent to one.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address

# The contract's rhythm.
POLL_SECONDS = 1.0
CONNECT_SECONDS = 1.0
PATIENCE_SECONDS = 30.0
RECHECK_SECONDS = 5.0

# Sockets that dial at the same time, over all sessions of a process; the others wait their turn.
MAX_DIALS = 256


class Reachability(StrEnum):
    """The state of a port, as clients read it."""

    CHECKING = "checking"
    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class ReachabilityTarget:
    """The tcp ports of one session's pod; `locate` waits for the pod's IP address.

    `dials` is shared by all sessions and bounds how many sockets dial at once.
    """

    session_id: str
    ports: tuple[int, ...]
    locate: Callable[[], Awaitable[str]]
    dials: asyncio.Semaphore


Tell = Callable[[int, Reachability], Awaitable[None]]


async def run(target: ReachabilityTarget, tell: Tell) -> None:
    """Tell the state of each port until all are reachable, or until cancelled.

    It must not be called before clients know that the session runs.
    """
    for port in target.ports:
        await tell(port, Reachability.CHECKING)
    address = await target.locate()
    async with asyncio.TaskGroup() as group:
        for port in target.ports:
            group.create_task(
                _watch(target, address, port, tell),
                name=f"reachability-{target.session_id}-{port}",
            )


async def _watch(target: ReachabilityTarget, address: str, port: int, tell: Tell) -> None:
    """Dial one port in the contract's rhythm until it takes a connection."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_SECONDS
    is_told = False
    while True:
        began_at = loop.time()
        async with target.dials:
            is_taken = await accepts(address, port)
        if is_taken:
            await tell(port, Reachability.REACHABLE)
            return
        until = began_at + (RECHECK_SECONDS if is_told else POLL_SECONDS)
        if not is_told:
            until = min(until, deadline)
        await asyncio.sleep(until - loop.time())
        if not is_told and loop.time() >= deadline:
            is_told = True
            await tell(port, Reachability.UNREACHABLE)
            await asyncio.sleep(RECHECK_SECONDS)


async def accepts(address: str, port: int) -> bool:
    """Tell whether a port takes a connection; it is closed at once, and nothing is sent."""
    is_v6 = ip_address(address).version == 6
    family = socket.AF_INET6 if is_v6 else socket.AF_INET
    with suppress(OSError, TimeoutError), socket.socket(family, socket.SOCK_STREAM) as dialled:
        dialled.setblocking(False)
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(dialled, (address, port))
        # On loopback a socket may be given the very port that it dials, and so find itself.
        return bool(dialled.getsockname() != dialled.getpeername())
    return False
