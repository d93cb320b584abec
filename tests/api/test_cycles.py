"""Clients that come and go by the thousand leave nothing, and those that stay hold no database."""

import gc
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from sessions import store
from tests.api import frames
from tests.api.hostile import UNTOUCHED, World, open_world, request
from tests.api.reactor import running_reactor
from tests.builders import make_settings
from tests.held import resident_bytes

__all__ = ["running_reactor"]

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.timeout(600)]

WARM_UP_CYCLES = 20
GROWTH = 0.1
GROWTH_BYTES = 10 * 2**20
MESSAGE_ROUNDS = 10
AT_ONCE = 50
# Streams wait on the log in memory; what else uses the database is the pool of its threads.
MAX_DATABASE_CONNECTIONS = 20
RESET = b"\1\0\0\0\0\0\0\0"

Times = Callable[[int, int], int]


@pytest.fixture
def world(reactor: None, tmp_path: Path, settings: Any) -> Iterator[World]:
    """A server of the whole application with a silent session."""
    settings.RUNNER = make_settings()
    # Streams that are idle stay: these limits are for requests.
    with open_world(settings.RUNNER, tmp_path) as opened:
        yield opened


def read_until(client: socket.socket, wanted: bytes) -> None:
    received = b""
    while wanted not in received:
        data = client.recv(65_536)
        assert data, received
        received += data


def open_stream(world: World) -> socket.socket:
    """Open an event stream and read what there is of it."""
    client = world.dial()
    target = f"/v1/sessions/{world.session_id}/events".encode()
    client.sendall(request(target, method=b"GET"))
    read_until(client, b'"running"')
    return client


def open_terminal(world: World) -> socket.socket:
    """Open a terminal and read what there is of it."""
    client = world.dial()
    client.sendall(frames.handshake(f"/v1/sessions/{world.session_id}/io"))
    read_until(client, UNTOUCHED)
    return client


def kill(client: socket.socket) -> None:
    """Be gone at once, by a reset."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()


def say_goodbye(client: socket.socket) -> None:
    """Close in order, where there is an order."""
    client.sendall(frames.frame(frames.CLOSE))
    client.close()


@pytest.mark.parametrize("opened", [open_stream, open_terminal])
def test_connections_that_come_and_go_cost_nothing(
    world: World, times: Times, opened: Callable[[World], socket.socket]
) -> None:
    def cycle(count: int) -> None:
        for number in range(count):
            (kill if number % 2 else say_goodbye)(opened(world))

    before = world.count()
    cycle(WARM_UP_CYCLES)
    world.settle(at_most=before)
    gc.collect()
    memory = resident_bytes(os.getpid())
    cycle(times(1000, 30))
    world.settle(at_most=before)
    assert resident_bytes(os.getpid()) < memory * (1 + GROWTH)
    assert world.runtime.bus.attendance(world.session_id) == 0


def test_streams_killed_on_a_silent_session_are_noticed(world: World) -> None:
    before = world.count()
    with ExitStack() as stack:
        clients = [stack.enter_context(open_stream(world)) for _ in range(AT_ONCE)]
        assert world.runtime.bus.attendance(world.session_id) == AT_ONCE
        for client in clients:
            kill(client)
        # Silence: nothing is sent that could fail.
        world.settle(at_most=before)
    assert world.runtime.bus.attendance(world.session_id) == 0


def test_streams_and_terminals_that_are_idle_hold_no_database_connection(world: World) -> None:
    def count() -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            )
            return int(cursor.fetchone()[0])

    if connection.vendor != "postgresql":
        pytest.skip("needs PostgreSQL")
    with ExitStack() as stack:
        for _ in range(AT_ONCE):
            stack.enter_context(open_stream(world))
            stack.enter_context(open_terminal(world))
        assert world.runtime.bus.attendance(world.session_id) == 2 * AT_ONCE
        assert store.read(count) <= MAX_DATABASE_CONNECTIONS
        answers = world.talk(request(b"/v1/health", method=b"GET"))
        assert answers[0].status == 200


def test_frames_without_an_end_close_1009_and_the_session_goes_on(world: World) -> None:
    path = f"/v1/sessions/{world.session_id}/io"
    too_large = frames.frame(frames.BINARY, b"x" * 2**21)
    begun = frames.frame(frames.BINARY, b"x" * 2048, first=0)
    endless = [begun, *[frames.frame(0, b"x" * 2048, first=0)] * 1000]

    # By its length it is more than any machine has; it is refused before any of it is there.
    announced = frames.frame(frames.BINARY, b"x" * 2048, size=2**40)

    def send_all() -> None:
        for sent in ([too_large], endless, [announced]):
            closed = world.upgrade(path, *sent)[-1]
            assert (closed.opcode, closed.payload[:2]) == (frames.CLOSE, (1009).to_bytes(2, "big"))

    # The first ones make the buffers that the others find made.
    for _ in range(MESSAGE_ROUNDS):
        send_all()
    gc.collect()
    memory = resident_bytes(os.getpid())
    # A mebibyte that each of them left behind would be twice the bound.
    for _ in range(MESSAGE_ROUNDS):
        send_all()
    gc.collect()
    assert resident_bytes(os.getpid()) - memory < GROWTH_BYTES
    shown = world.upgrade(path)
    assert any(one.payload.endswith(UNTOUCHED) for one in shown)
