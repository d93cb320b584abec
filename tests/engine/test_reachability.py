"""Whether ports can be reached: the contract's rhythm in virtual time, on real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import pytest

from sessions import reachability
from sessions.reachability import Reachability, ReachabilityTarget
from telorunner import aio

pytestmark = pytest.mark.looptime

CHECKING, REACHABLE, UNREACHABLE = Reachability


@dataclass
class Told:
    """What was told, and when."""

    said: list[tuple[float, int, Reachability]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def tell(self, port: int, state: Reachability) -> None:
        now = asyncio.get_running_loop().time()
        self.said.append((round(now, 1), port, state))
        self._changed.set()

    async def until(self, count: int) -> list[tuple[float, int, Reachability]]:
        while len(self.said) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.said


@asynccontextmanager
async def looking_at(
    *ports: int, address: str = "127.0.0.1", located_after: float = 0.0, dials: int = 256
) -> AsyncIterator[tuple[Told, "asyncio.Task[None]"]]:
    async def locate() -> str:
        await asyncio.sleep(located_after)
        return address

    told = Told()
    target = ReachabilityTarget("abcdefghijkl", ports, locate, asyncio.Semaphore(dials))
    task = aio.start(reachability.run(target, told.tell), name="reachability")
    try:
        yield told, task
    finally:
        await aio.stop(task)


@contextmanager
def closed_ports(count: int = 1, address: str = "127.0.0.1") -> Iterator[list[int]]:
    """Take ports that refuse connections: bound, so that nobody else gets them, not listening."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((address, 0))
        yield [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@dataclass
class Listener:
    """A server that counts its connections and what was sent to it."""

    port: int = 0
    connections: int = 0
    received: bytes = b""
    ended: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.received += await reader.read()
        self.ended += 1
        writer.close()


@asynccontextmanager
async def listening(port: int = 0, address: str = "127.0.0.1") -> AsyncIterator[Listener]:
    listener = Listener()
    server = await asyncio.start_server(listener.serve, address, port, reuse_port=port > 0)
    listener.port = server.sockets[0].getsockname()[1]
    async with server:
        yield listener


async def test_a_port_that_listens_is_reachable_at_once_and_left_alone(looptime: float) -> None:
    async with listening() as listener, looking_at(listener.port) as (told, task):
        assert await told.until(2) == [(0, listener.port, CHECKING), (0, listener.port, REACHABLE)]
        await task
        await asyncio.sleep(100)
        assert len(told.said) == 2
        # Nothing is sent, and the connection is closed at once.
        assert listener == Listener(listener.port, connections=1, received=b"", ended=1)


async def test_the_rhythm_of_a_port_that_listens_late_is_a_second() -> None:
    with closed_ports() as (port,):
        pass
    async with looking_at(port) as (told, _):
        await asyncio.sleep(7.5)
        async with listening(port):
            assert await told.until(2) == [(0, port, CHECKING), (8, port, REACHABLE)]


async def test_nobody_listens_for_thirty_seconds_then_every_five_are_looked_at() -> None:
    with closed_ports() as (port,):
        pass
    async with looking_at(port) as (told, _):
        assert await told.until(2) == [(0, port, CHECKING), (30, port, UNREACHABLE)]
        await asyncio.sleep(33.5)
        assert len(told.said) == 2
        async with listening(port):
            # Looked at at 35, 40 ... 60 and so at 65.
            assert (await told.until(3))[2] == (65, port, REACHABLE)


async def test_it_is_checking_before_the_pod_has_an_address() -> None:
    async with (
        listening() as listener,
        looking_at(listener.port, located_after=4) as (told, _),
    ):
        assert await told.until(1) == [(0, listener.port, CHECKING)]
        assert (await told.until(2))[1] == (4, listener.port, REACHABLE)


async def test_a_port_that_does_not_answer_costs_a_second_each_time() -> None:
    """What a network policy drops has no refusal: the connect itself hangs."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        # The queue of connections that nobody accepts is full with these.
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        async with looking_at(address[1]) as (told, _):
            assert await told.until(2) == [
                (0, address[1], CHECKING),
                (30, address[1], UNREACHABLE),
            ]
        for one in waiting:
            one.close()


@pytest.mark.parametrize("dials", [256, 3])
async def test_sixty_four_ports_are_looked_at_together(dials: int) -> None:
    with closed_ports(63) as closed:
        async with (
            listening() as listener,
            looking_at(*closed, listener.port, dials=dials) as (told, _),
        ):
            said = await told.until(65)
            assert {(when, state) for when, _, state in said[:64]} == {(0, CHECKING)}
            assert said[64] == (0, listener.port, REACHABLE)
            said = await told.until(128)
            assert {(when, state) for when, _, state in said[65:]} == {(30, UNREACHABLE)}


async def test_an_address_of_version_six_is_dialled_too() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 loopback here")
    async with (
        listening(address="::1") as listener,
        looking_at(listener.port, address="::1") as (told, _),
    ):
        assert (await told.until(2))[1] == (0, listener.port, REACHABLE)


async def test_a_socket_that_finds_itself_is_no_answer() -> None:
    """On loopback a dialling socket can be given the very port that it dials."""
    with closed_ports() as (port,):
        pass
    low, high = (int(n) for n in _range().split())
    if not low <= port <= high:
        pytest.skip("port 0 gives no port of the range that is dialled from")
    for _ in range(20):
        assert not await reachability.accepts("127.0.0.1", port)


def _range() -> str:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        return file.read()


async def test_no_descriptor_is_left_behind() -> None:
    import os

    with closed_ports(20) as closed:
        before = len(os.listdir("/proc/self/fd"))
        async with looking_at(*closed) as (told, _):
            await told.until(40)
        assert len(os.listdir("/proc/self/fd")) <= before
