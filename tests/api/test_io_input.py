"""WS /v1/sessions/{id}/io towards the application: keystrokes in order, sizes, back-pressure."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.types import ASGIApp

from sessions.bus import MAX_PENDING_INPUT_BYTES, Inbox, Size
from sessions.consumers.terminal import MAX_HELD_INPUT_BYTES
from sessions.runtime import Runtime
from sessions.spec import App, exited
from sessions.states import IoMode
from telorunner.errors import OwnerUnreachable
from tests.builders import ENTRY, make_spec
from tests.connections import open_socket
from tests.owners import admit, own

pytestmark = pytest.mark.usefixtures("transactional_db")


async def take(inbox: Inbox, length: int) -> bytes:
    """Take exactly so many bytes as the owner would write them to the application."""
    taken = b""
    while len(taken) < length:
        pending = await inbox.peek()
        inbox.commit(pending)
        taken += pending.data
    assert len(taken) == length
    return taken


async def take_size(inbox: Inbox) -> Size:
    while (pending := await inbox.peek()).size is None:
        inbox.commit(pending)
    inbox.commit(pending)
    return pending.size


@asynccontextmanager
async def inbox_of(running: Runtime, session_id: str) -> AsyncIterator[Inbox]:
    async with running.bus.open_inbox(session_id, "app") as inbox:
        yield inbox


async def test_bytes_arrive_as_they_are_and_in_order(app: ASGIApp, running: Runtime) -> None:
    session_id = await admit()
    await own(session_id)
    pieces = [bytes([number % 256]) * (number % 50 + 1) for number in range(300)]
    async with open_socket(app, session_id) as socket, inbox_of(running, session_id) as inbox:
        for piece in pieces:
            socket.type(piece)
        expected = b"".join(pieces)
        assert await take(inbox, len(expected)) == expected


async def test_what_is_typed_before_the_terminal_exists_waits(
    app: ASGIApp, running: Runtime
) -> None:
    # Typed before the engine has taken the session up, by a client that has gone since.
    session_id = await admit()
    async with open_socket(app, session_id) as socket:
        socket.type(b"early ")
        socket.type(b"bird")
    await own(session_id)
    async with inbox_of(running, session_id) as inbox:
        assert await take(inbox, 10) == b"early bird"


async def test_input_is_held_to_a_bound_and_then_the_socket_is_paused(
    app: ASGIApp, running: Runtime
) -> None:
    session_id = await admit()
    await own(session_id)
    piece = 65_536
    count = (MAX_PENDING_INPUT_BYTES + MAX_HELD_INPUT_BYTES) // piece + 20
    data = [bytes([number]) * piece for number in range(count)]
    async with open_socket(app, session_id) as socket, inbox_of(running, session_id) as inbox:
        await socket.read_text()
        for each in data:
            socket.type(each)
        # Enough turns of the loop for everything that can be taken; the rest stays with the
        # server, which stops reading. Nothing is lost.
        for _ in range(count * 10):
            await asyncio.sleep(0)
        assert 10 < socket.incoming.qsize() <= 20
        assert await take(inbox, piece * count) == b"".join(data)


@pytest.mark.looptime
async def test_a_resize_is_seen_behind_a_paste_that_is_not_taken(
    app: ASGIApp, running: Runtime
) -> None:
    session_id = await admit()
    await own(session_id)
    async with open_socket(app, session_id) as socket, inbox_of(running, session_id) as inbox:
        socket.type(b"x" * (MAX_PENDING_INPUT_BYTES + 100_000))
        socket.resize(120, 40)
        # No byte of the paste is taken, only the size.
        for _ in range(100):
            await asyncio.sleep(0.01)
            pending = await inbox.peek()
        assert pending.size == Size(120, 40)


@pytest.mark.looptime
async def test_a_client_can_leave_while_its_input_is_not_taken(
    app: ASGIApp, running: Runtime
) -> None:
    session_id = await admit()
    await own(session_id)
    async with open_socket(app, session_id) as socket:
        socket.type(b"x" * (MAX_PENDING_INPUT_BYTES + 100_000))
    assert running.bus.attendance(session_id) == 0


async def test_the_end_of_the_session_frees_a_paused_socket(app: ASGIApp) -> None:
    session_id = await admit()
    owner = await own(session_id)
    async with open_socket(app, session_id) as socket:
        for _ in range(30):
            socket.type(b"x" * 100_000)
        await socket.read_text()
        await owner.become(exited(0))
        assert await socket.read_to_close() == 1000


async def test_input_of_an_ended_session_goes_nowhere(app: ASGIApp, running: Runtime) -> None:
    session_id = await admit()
    owner = await own(session_id)
    await owner.say(b"output")
    await owner.become(exited(0))
    async with open_socket(app, session_id) as socket:
        socket.type(b"too late")
        socket.resize(1, 1)
        assert await socket.read_to_close() == 1000


async def test_an_owner_that_cannot_be_reached_closes_1013(app: ASGIApp, running: Runtime) -> None:
    session_id = await admit()
    await own(session_id)

    async def unreachable(*args: object) -> None:
        raise OwnerUnreachable

    running.bus.push_input = unreachable  # type: ignore[method-assign] # no bus here loses its owner
    async with open_socket(app, session_id) as socket:
        socket.type(b"x")
        assert await socket.read_to_close() == 1013


@pytest.mark.parametrize(
    ("columns", "rows", "expected"),
    [
        (80, 24, Size(80, 24)),
        (0, -1, Size(1, 1)),
        (10_000, 10_001, Size(10_000, 10_000)),
        (10**18, 2**63, Size(10_000, 10_000)),
    ],
)
async def test_sizes_are_clamped(
    app: ASGIApp, running: Runtime, columns: int, rows: int, expected: Size
) -> None:
    session_id = await admit()
    await own(session_id)
    async with open_socket(app, session_id) as socket, inbox_of(running, session_id) as inbox:
        socket.resize(columns, rows)
        assert await take_size(inbox) == expected


async def test_other_text_is_ignored(app: ASGIApp, running: Runtime) -> None:
    session_id = await admit()
    await own(session_id)
    async with open_socket(app, session_id) as socket, inbox_of(running, session_id) as inbox:
        await socket.read_text()
        for columns in ("abc", True, None, 80.5, 1e9, [80], {}):
            socket.resize(columns, 24)
        for text in ("", "{", "[]", "null", '{"type":"resize"}', '{"type":"other"}', "\ud800"):
            socket.say(text)
        socket.say('{"type":"resize","cols":' + "1" * 1_000_000 + ',"rows":1}')
        socket.say("[" * 900)
        socket.resize(81, 25)
        assert await take_size(inbox) == Size(81, 25)
    assert socket.texts == [{"type": "seq", "seq": 0, "app": "app", "io": "tty"}]


async def test_sizes_are_coalesced_and_the_last_wins(app: ASGIApp, running: Runtime) -> None:
    session_id = await admit()
    await own(session_id)
    sizes: list[Size] = []
    async with open_socket(app, session_id) as socket, inbox_of(running, session_id) as inbox:
        began = asyncio.get_running_loop().time()
        for number in range(1, 1001):
            socket.resize(number, 24)
        while not sizes or sizes[-1] != Size(1000, 24):
            sizes.append(await take_size(inbox))
        took = asyncio.get_running_loop().time() - began
    assert len(sizes) <= took / 0.05 + 2


async def test_an_app_with_streams_has_no_size(app: ASGIApp) -> None:
    session_id = await admit(spec=make_spec(apps=(App("web", ENTRY, io=IoMode.STREAMS),)))
    await own(session_id)
    async with open_socket(app, session_id) as socket:
        await socket.read_text()
        socket.resize(80, 24)
        refusal = await socket.read_text()
        assert refusal == {"type": "error", "error": "resize_unsupported", "io": "streams"}
        socket.type(b"still open")
    assert not socket.close_code


async def test_two_viewers_type_once_each(app: ASGIApp, running: Runtime) -> None:
    session_id = await admit()
    await own(session_id)
    async with (
        open_socket(app, session_id) as first,
        open_socket(app, session_id) as second,
        inbox_of(running, session_id) as inbox,
    ):
        first.type(b"a")
        assert await take(inbox, 1) == b"a"
        second.type(b"b")
        assert await take(inbox, 1) == b"b"
