"""GET /v1/sessions/{id}/events: replay, live events, gaps, heartbeats and ends."""

import asyncio
import json
from collections.abc import Callable

import pytest
from starlette.types import ASGIApp

from sessions import events
from sessions.log import Starts
from sessions.runtime import Runtime
from sessions.spec import exited
from sessions.states import Phase
from tests.connections import open_events
from tests.owners import admit, own

pytestmark = pytest.mark.usefixtures("transactional_db")


async def test_headers_are_the_contracts(app: ASGIApp) -> None:
    session_id = await admit()
    async with open_events(app, session_id, headers=[("accept-encoding", "gzip")]) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream"
        assert stream.headers["cache-control"] == "no-cache, no-transform"
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.headers["access-control-allow-origin"] == "*"
        assert "content-length" not in stream.headers
        # Compressed, events would wait for each other.
        assert "content-encoding" not in stream.headers


async def test_an_unknown_session_is_not_found_in_json(app: ASGIApp) -> None:
    for session_id in ("aaaaaaaaaaaa", "x", "A" * 3000):
        async with open_events(app, session_id) as stream:
            assert stream.status == 404
            assert json.loads(await stream.read_to_end())["error"] == "not_found"


async def test_frames_are_exact_and_the_stream_ends_after_the_terminal_status(
    app: ASGIApp,
) -> None:
    session_id = await admit()
    async with open_events(app, session_id) as stream:
        owner = await own(session_id)
        await owner.publish(events.progress(Phase.PROVISION, "Scheduling"))
        await owner.run()
        await owner.become(exited(0))
        text = await stream.read_to_end()
    assert text == (
        'id: 1\nevent: status\ndata: {"type":"status","status":{"kind":"starting"}}\n\n'
        'id: 2\nevent: progress\ndata: {"type":"progress","phase":"provision",'
        '"message":"Scheduling"}\n\n'
        'id: 3\nevent: status\ndata: {"type":"status","status":{"kind":"running"}}\n\n'
        'id: 4\nevent: status\ndata: {"type":"status","status":{"kind":"exited","code":0}}\n\n'
    )


async def test_a_client_that_comes_late_gets_the_replay_and_the_end(
    app: ASGIApp, times: Callable[[int, int], int]
) -> None:
    session_id = await admit()
    await (await own(session_id)).become(exited(0))
    for _ in range(times(100, 10)):
        async with open_events(app, session_id) as stream:
            await stream.read_to_end()
            assert [message.last_event_id for message in stream.messages()] == ["1", "2"]


@pytest.mark.parametrize(
    ("header", "query", "expected"),
    [
        (None, "", ["1", "2", "3"]),
        ("1", "", ["2", "3"]),
        ("2", "lastEventId=1", ["3"]),
        (None, "lastEventId=2", ["3"]),
        ("0", "", ["1", "2", "3"]),
        ("-1", "", ["1", "2", "3"]),
        ("1_0", "", ["1", "2", "3"]),
        (" 2", "", ["1", "2", "3"]),
        ("+2", "", ["1", "2", "3"]),
        ("x", "lastEventId=2", ["1", "2", "3"]),
        (None, "lastEventId=%D9%A2", ["1", "2", "3"]),
        ("0" * 5000 + "2", "", ["3"]),
    ],
)
async def test_a_client_goes_on_where_it_was(
    app: ASGIApp, header: str | None, query: str, expected: list[str]
) -> None:
    session_id = await admit()
    owner = await own(session_id)
    await owner.run()
    await owner.become(exited(0))
    headers = [("last-event-id", header)] if header is not None else []
    async with open_events(app, session_id, query=query, headers=headers) as stream:
        text = await stream.read_to_end()
    assert [message.last_event_id for message in stream.messages()] == expected
    assert "gap" not in text


@pytest.mark.parametrize("cursor", ["900", "9" * 5000])
async def test_a_number_beyond_the_newest_gets_a_gap_and_everything(
    app: ASGIApp, cursor: str
) -> None:
    session_id = await admit()
    await (await own(session_id)).become(exited(0))
    async with open_events(app, session_id, query=f"lastEventId={cursor}") as stream:
        text = await stream.read_to_end()
    assert text.startswith('event: gap\ndata: {"reason":"buffer_evicted"}\n\nid: 1\n')
    assert text.count("event: gap") == 1


async def test_numbers_of_an_earlier_life_are_a_gap(app: ASGIApp, running: Runtime) -> None:
    # After a restart numbering goes on above what was reserved before, and the log is new.
    session_id = await admit()
    owner = await own(session_id)
    await running.log.drop(session_id)
    starts = Starts(events=100, output={"app": 100})
    owner.log = await running.log.open(session_id, fence=owner.fence, starts=starts)
    await owner.run()
    await owner.become(exited(0))
    for cursor in ("3", "900"):
        async with open_events(app, session_id, query=f"lastEventId={cursor}") as stream:
            await stream.read_to_end()
            assert [message.event for message in stream.messages()] == ["gap", "status", "status"]
            assert stream.messages()[-1].last_event_id == "102"


async def test_nothing_is_lost_or_doubled_between_replay_and_live(app: ASGIApp) -> None:
    session_id = await admit()
    owner = await own(session_id)
    seen = [0]

    async def produce() -> None:
        while True:
            await owner.publish(events.progress(Phase.BOOT, "x"))
            await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as group:
        producer = group.create_task(produce())
        for _ in range(30):
            async with open_events(app, session_id, query=f"lastEventId={seen[-1]}") as stream:
                await stream.read_until("\n\n")
            seen += [int(message.last_event_id) for message in stream.messages()]
        producer.cancel()
    assert seen == list(range(len(seen)))


async def test_values_cannot_forge_an_event(app: ASGIApp) -> None:
    session_id = await admit()
    owner = await own(session_id)
    nasty = "a\nid: 99\r\rdata: x\r\nevent: status\n\n\u2028é😀"
    await owner.publish(events.progress(Phase.BOOT, nasty))
    await owner.become(exited(0))
    async with open_events(app, session_id) as stream:
        await stream.read_to_end()
    messages = stream.messages()
    assert [message.last_event_id for message in messages] == ["1", "2", "3"]
    assert json.loads(messages[1].data)["message"] == nasty


@pytest.mark.looptime
async def test_a_silent_stream_has_a_heartbeat_every_20_seconds(
    running: Runtime, looptime: object
) -> None:
    from sessions.consumers.events import EventStream

    reader_context = running.log.read_events("a" * 12, 0)
    async with reader_context as reader:
        sent: list[bytes] = []
        consumer = EventStream()

        async def send(message: dict[str, bytes]) -> None:
            sent.append(message["body"])

        consumer.base_send = send
        async with asyncio.TaskGroup() as group:
            relay = group.create_task(consumer._relay_until_stopping(reader))
            await asyncio.sleep(61)
            relay.cancel()
    assert sent == [b": heartbeat\n\n"] * 3


async def test_a_client_that_goes_leaves_nothing_behind(app: ASGIApp, running: Runtime) -> None:
    session_id = await admit()
    await own(session_id)
    for _ in range(20):
        async with open_events(app, session_id) as stream:
            await stream.read_until("starting")
            assert running.bus.attendance(session_id) == 1
        assert running.bus.attendance(session_id) == 0


async def test_a_stream_ends_cleanly_when_the_process_goes_down(
    app: ASGIApp, running: Runtime
) -> None:
    session_id = await admit()
    await own(session_id)
    async with open_events(app, session_id) as stream:
        await stream.read_until("starting")
        running.stopping.set()
        await stream.read_to_end()
        await asyncio.sleep(0)
        assert running.bus.attendance(session_id) == 0
    async with open_events(app, session_id) as stream:
        assert stream.status == 503
        assert json.loads(await stream.read_to_end())["error"] == "stopping"
        assert int(stream.headers["retry-after"]) > 0


async def test_a_slow_client_is_told_of_a_gap(app: ASGIApp, running: Runtime) -> None:
    session_id = await admit()
    owner = await own(session_id)
    async with open_events(app, session_id) as stream:
        await stream.read_until("starting")
        stream.hold()
        # Far more than the ring keeps, while the client takes nothing.
        for number in range(60):
            await owner.publish(events.progress(Phase.BOOT, f"{number} " + "x" * 100_000))
        await owner.become(exited(0))
        stream.let_go()
        text = await stream.read_to_end()
    assert text.count("event: gap") == 1
    assert text.endswith('"status":{"kind":"exited","code":0}}\n\n')
    assert len(text) < 60 * 100_000


async def test_an_evicted_session_ends_its_streams(app: ASGIApp, running: Runtime) -> None:
    session_id = await admit()
    await own(session_id)
    async with open_events(app, session_id) as stream:
        await stream.read_until("starting")
        await running.log.drop(session_id)
        await stream.read_to_end()


async def test_other_methods_are_not_allowed(client: object) -> None:
    answer = await client.post("/v1/sessions/aaaaaaaaaaaa/events")  # type: ignore[attr-defined] # httpx's
    assert (answer.status_code, answer.json()["error"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET"
