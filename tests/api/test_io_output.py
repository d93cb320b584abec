"""WS /v1/sessions/{id}/io towards the client: frames, replay, gaps and close codes."""

import asyncio

import pytest
from starlette.types import ASGIApp

from sessions.log import Starts
from sessions.runtime import Runtime
from sessions.spec import App, exited
from sessions.states import IoMode
from telorunner.conf import Settings
from telorunner.errors import Unavailable
from tests.builders import ENTRY, make_settings, make_spec
from tests.connections import open_socket
from tests.owners import admit, own

pytestmark = pytest.mark.usefixtures("transactional_db")


async def test_the_number_comes_first_then_frames(app: ASGIApp) -> None:
    session_id = await admit()
    owner = await own(session_id)
    await owner.say(b"hello\xff")
    async with open_socket(app, session_id) as socket:
        await socket.read_until(b"hello")
        await owner.say(b"", stream=0)
        await owner.say(b"more")
        await socket.read_until(b"more")
    assert socket.texts == [{"type": "seq", "seq": 0, "app": "app", "io": "tty"}]
    assert socket.frames == [(1, 0, b"hello\xff"), (2, 0, b"more")]


async def test_streams_carry_their_stream_byte(app: ASGIApp) -> None:
    spec = make_spec(apps=(App("web", ENTRY, io=IoMode.STREAMS),))
    session_id = await admit(spec=spec)
    owner = await own(session_id)
    await owner.say(b"out", app="web", stream=1)
    await owner.say(b"err", app="web", stream=2)
    async with open_socket(app, session_id, query="app=web") as socket:
        await socket.read_until(b"err")
    assert socket.texts[0] == {"type": "seq", "seq": 0, "app": "web", "io": "streams"}
    assert socket.frames == [(1, 1, b"out"), (2, 2, b"err")]


async def test_chunks_are_at_most_64_kib(app: ASGIApp) -> None:
    session_id = await admit()
    owner = await own(session_id)
    data = bytes(range(256)) * 1024
    await owner.say(data + b"the end")
    async with open_socket(app, session_id) as socket:
        await socket.read_until(b"the end")
    assert socket.output() == data + b"the end"
    assert [len(payload) for _, _, payload in socket.frames] == [65536] * 4 + [7]


async def test_a_viewer_goes_on_where_it_was(app: ASGIApp) -> None:
    session_id = await admit()
    owner = await own(session_id)
    for piece in (b"one", b"two", b"three"):
        await owner.say(piece)
    async with open_socket(app, session_id, query="lastSeq=2") as socket:
        await socket.read_until(b"three")
    assert socket.texts == [{"type": "seq", "seq": 2, "app": "app", "io": "tty"}]
    assert socket.frames == [(3, 0, b"three")]


@pytest.mark.parametrize("last_seq", ["", "none", "-1", "1.0", "0x1", "٢"])
async def test_anything_but_digits_means_from_the_beginning(app: ASGIApp, last_seq: str) -> None:
    session_id = await admit()
    await (await own(session_id)).say(b"one")
    async with open_socket(app, session_id, query=f"lastSeq={last_seq}") as socket:
        await socket.read_until(b"one")
    assert socket.texts == [{"type": "seq", "seq": 0, "app": "app", "io": "tty"}]


@pytest.mark.parametrize("last_seq", ["900", "9" * 100_000])
async def test_a_number_beyond_the_newest_gets_a_gap_and_everything(
    app: ASGIApp, last_seq: str
) -> None:
    session_id = await admit()
    await (await own(session_id)).say(b"one")
    async with open_socket(app, session_id, query=f"lastSeq={last_seq}") as socket:
        await socket.read_until(b"one")
    assert [text["type"] for text in socket.texts] == ["seq", "gap"]
    assert socket.texts[1] == {"type": "gap", "reason": "buffer_evicted"}


async def test_numbers_above_32_bits_wrap(app: ASGIApp, running: Runtime) -> None:
    session_id = await admit()
    owner = await own(session_id)
    await running.log.drop(session_id)
    starts = Starts(output={"app": 2**32 - 2})
    owner.log = await running.log.open(session_id, fence=owner.fence, starts=starts)
    await owner.say(b"a")
    await owner.say(b"b")
    async with open_socket(app, session_id) as socket:
        await socket.read_until(b"b")
    assert [number for number, _, _ in socket.frames] == [2**32 - 1, 0]


async def test_the_socket_drains_and_closes_1000_after_the_end(app: ASGIApp) -> None:
    session_id = await admit()
    owner = await own(session_id)
    async with open_socket(app, session_id) as socket:
        await owner.say(b"last words")
        await owner.become(exited(0))
        assert await socket.read_to_close() == 1000
    assert socket.output() == b"last words"


async def test_an_ended_session_is_replayed_and_closed(app: ASGIApp) -> None:
    session_id = await admit()
    owner = await own(session_id)
    await owner.say(b"all of it")
    await owner.become(exited(0))
    async with open_socket(app, session_id) as socket:
        assert await socket.read_to_close() == 1000
    assert socket.output() == b"all of it"
    async with open_socket(app, session_id, query="lastSeq=1") as socket:
        assert await socket.read_to_close() == 1000
    assert socket.frames == []


async def test_an_ended_session_without_output_closes_4410(app: ASGIApp) -> None:
    session_id = await admit()
    await (await own(session_id)).become(exited(0))
    async with open_socket(app, session_id) as socket:
        assert await socket.read_to_close() == 4410
    assert socket.texts == []


async def test_what_is_unknown_closes_4404(app: ASGIApp) -> None:
    session_id = await admit()
    for address, query in (
        ("aaaaaaaaaaaa", ""),
        ("x", ""),
        (session_id, "app=web"),
        (session_id, "app="),
        (session_id, "app=%00"),
    ):
        async with open_socket(app, address, query=query) as socket:
            assert await socket.read_to_close() == 4404


async def test_an_app_must_be_named_where_there_are_several(app: ASGIApp) -> None:
    session_id = await admit(spec=make_spec(apps=(App("web", ENTRY), App("api", ENTRY))))
    await own(session_id)
    async with open_socket(app, session_id) as socket:
        assert await socket.read_to_close() == 4404
    async with open_socket(app, session_id, query="app=api") as socket:
        assert (await socket.read_text())["app"] == "api"


async def test_a_viewer_that_comes_before_the_engine_waits(app: ASGIApp) -> None:
    session_id = await admit()
    async with open_socket(app, session_id) as socket:
        await socket.read_text()
        owner = await own(session_id)
        await owner.say(b"first")
        await socket.read_until(b"first")
    assert [text["type"] for text in socket.texts] == ["seq"]


async def test_a_slow_viewer_is_told_of_a_gap_and_slows_nobody(app: ASGIApp) -> None:
    session_id = await admit()
    owner = await own(session_id)
    async with open_socket(app, session_id) as slow, open_socket(app, session_id) as quick:
        await slow.read_text()
        slow.hold()
        for _ in range(200):
            await owner.say(b"x" * 65536)
            while len(quick.output()) < 65536:
                await quick.read()
            quick.frames.clear()
        await owner.say(b"the end")
        await quick.read_until(b"the end")
        assert [text["type"] for text in quick.texts] == ["seq"]
        slow.let_go()
        await slow.read_until(b"the end")
    assert [text["type"] for text in slow.texts] == ["seq", "gap"]
    numbers = [number for number, _, _ in slow.frames]
    assert numbers[-1] == 201
    assert len(numbers) < 120


@pytest.mark.looptime
async def test_a_viewer_that_takes_nothing_is_let_go_after_the_end(
    app: ASGIApp, running: Runtime
) -> None:
    session_id = await admit()
    owner = await own(session_id)
    async with open_socket(app, session_id) as socket:
        await socket.read_text()
        socket.hold()
        await owner.say(b"x" * 65536)
        await owner.say(b"x" * 65536)
        await owner.become(exited(0))
        ended = asyncio.get_running_loop().time()
        assert await socket.read_to_close() == 1000
        assert asyncio.get_running_loop().time() - ended == pytest.approx(2.0, abs=0.5)
        assert len(socket.frames) == 1
        assert running.bus.attendance(session_id) == 0


async def test_sockets_close_1012_when_the_process_goes_down(
    app: ASGIApp, running: Runtime
) -> None:
    session_id = await admit()
    await own(session_id)
    async with open_socket(app, session_id) as socket:
        await socket.read_text()
        running.stopping.set()
        assert await socket.read_to_close() == 1012
    async with open_socket(app, session_id) as socket:
        assert await socket.read_to_close() == 1012


@pytest.mark.parametrize(
    ("failure", "code"), [(RuntimeError("broken"), 1011), (Unavailable(), 1013)]
)
async def test_a_failure_closes_1011_and_an_outage_1013(
    app: ASGIApp, running: Runtime, failure: Exception, code: int
) -> None:
    session_id = await admit()
    await own(session_id)

    class Broken:
        def read_output(self, *args: object) -> None:
            raise failure

    running.log = Broken()  # type: ignore[assignment] # it stands for any failure
    async with open_socket(app, session_id) as socket:
        assert await socket.read_to_close() == code


async def test_viewers_leave_nothing_behind(app: ASGIApp, running: Runtime) -> None:
    session_id = await admit()
    await own(session_id)
    for _ in range(20):
        async with open_socket(app, session_id) as socket:
            await socket.read_text()
            assert running.bus.attendance(session_id) == 1
        assert running.bus.attendance(session_id) == 0


async def test_nothing_is_lost_or_doubled_between_replay_and_live(app: ASGIApp) -> None:
    session_id = await admit()
    owner = await own(session_id)
    numbers = [0]

    async def produce() -> None:
        while True:
            await owner.say(b"x")
            await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as group:
        producer = group.create_task(produce())
        for _ in range(30):
            async with open_socket(app, session_id, query=f"lastSeq={numbers[-1]}") as socket:
                while not socket.frames or not socket.outgoing.empty():
                    await socket.read()
            numbers += [number for number, _, _ in socket.frames]
        producer.cancel()
    assert numbers == list(range(len(numbers)))


class TestOrigins:
    @pytest.fixture
    def config(self) -> Settings:
        return make_settings(cors_origins=("https://a.example", "http://localhost:3000"))

    @pytest.mark.parametrize(
        "origins", [[], ["https://b.example"], ["null"], [""], ["https://a.example.evil"],
                    ["https://a.example", "https://b.example"]],
    )  # fmt: skip
    async def test_a_foreign_origin_closes_4403(self, app: ASGIApp, origins: list[str]) -> None:
        session_id = await admit()
        headers = [("origin", origin) for origin in origins]
        async with open_socket(app, session_id, headers=headers) as socket:
            closed = await socket.read()
            assert (closed["code"], closed["reason"]) == (4403, "forbidden_origin")
        async with open_socket(app, "aaaaaaaaaaaa", headers=headers) as socket:
            assert await socket.read_to_close() == 4403

    async def test_an_origin_on_the_list_stays_open(self, app: ASGIApp) -> None:
        session_id = await admit()
        headers = [("origin", "https://a.example")]
        async with open_socket(app, session_id, headers=headers) as socket:
            assert (await socket.read_text())["type"] == "seq"
