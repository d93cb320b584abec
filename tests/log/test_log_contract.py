"""The contract of the session log, for every implementation."""

import asyncio
import random

import pytest

from sessions.log import MAX_CHUNK_BYTES, Reader, SessionLog, Starts
from sessions.log.memory import MemoryLog
from telorunner import aio
from telorunner.errors import StaleFence

RING_BYTES = 200_000
MIB = 1_048_576


@pytest.fixture(params=["memory"])
async def log(request: pytest.FixtureRequest) -> SessionLog:
    return MemoryLog(RING_BYTES)


async def drain(reader: Reader) -> tuple[list[tuple[int, bytes]], int]:
    """Read to the end; return the items and the number of gaps."""
    items: list[tuple[int, bytes]] = []
    gaps = 0
    while not (batch := await reader.next()).is_end:
        assert sum(len(item) for _, item in batch.items) <= MIB
        items += batch.items
        gaps += batch.has_gap
    return [*items, *batch.items], gaps + batch.has_gap


async def replay(log: SessionLog, after: int = 0) -> tuple[list[int], int]:
    """Return the numbers and gaps that a reader of an ended session's events gets."""
    async with log.read_events("s", after) as reader:
        items, gaps = await drain(reader)
    return [number for number, _ in items], gaps


async def test_events_are_read_in_order_and_end_with_the_session(log: SessionLog) -> None:
    writer = await log.open("s", fence=1, starts=Starts())
    assert [await writer.publish_event(b"one"), await writer.publish_event(b"two")] == [1, 2]
    async with log.read_events("s", 0) as reader:
        task = aio.start(drain(reader), name="reader")
        await asyncio.sleep(0)
        assert await writer.publish_event(b"three") == 3
        await writer.close()
        assert await task == ([(1, b"one"), (2, b"two"), (3, b"three")], 0)
    assert await replay(log, after=2) == ([3], 0)
    assert await replay(log, after=9) == ([1, 2, 3], 1)


async def test_output_carries_its_stream_and_is_numbered_for_each_app(log: SessionLog) -> None:
    writer = await log.open("s", fence=1, starts=Starts())
    assert await writer.publish_output("a", 1, b"x" * (MAX_CHUNK_BYTES + 1)) == 2
    assert await writer.publish_output("b", 2, b"y") == 1
    assert await writer.publish_output("b", 2, b"") == 0
    await writer.close()
    async with log.read_output("s", "a", 0) as a, log.read_output("s", "b", 0) as b:
        items, _ = await drain(a)
        assert items == [(1, b"\x01" + b"x" * MAX_CHUNK_BYTES), (2, b"\x01x")]
        assert await drain(b) == ([(1, b"\x02y")], 0)


async def test_a_session_that_does_not_exist_yet_is_waited_for(log: SessionLog) -> None:
    async with log.read_events("s", 0) as reader, log.read_output("s", "a", 0) as output:
        tasks = [aio.start(r.next(), name="reader") for r in (reader, output)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        writer = await log.open("s", fence=1, starts=Starts())
        await writer.publish_event(b"one")
        await writer.publish_output("a", 0, b"out")
        assert list((await tasks[0]).items) == [(1, b"one")]
        assert list((await tasks[1]).items) == [(1, b"\x00out")]


async def test_a_cursor_of_before_a_restart_gets_a_gap_even_if_it_came_first(
    log: SessionLog,
) -> None:
    async with log.read_events("s", 50) as early, log.read_output("s", "a", 0) as output:
        tasks = [aio.start(r.next(), name="reader") for r in (early, output)]
        await asyncio.sleep(0)
        writer = await log.open("s", fence=2, starts=Starts(events=100, output={"a": 70}))
        assert await writer.publish_event(b"one") == 101
        assert await writer.publish_output("a", 0, b"out") == 71
        assert [(await task).has_gap for task in tasks] == [True, True]
    await writer.close()
    for after in (0, 50, 100, 102):
        assert await replay(log, after) == ([101], 1)
    assert await replay(log, 101) == ([], 0)


async def test_a_cursor_that_came_before_the_log_and_is_beyond_it_gets_everything(
    log: SessionLog,
) -> None:
    async with log.read_events("s", 2) as early:
        task = aio.start(drain(early), name="reader")
        await asyncio.sleep(0)
        writer = await log.open("s", fence=1, starts=Starts())
        for text in (b"1", b"2", b"3"):
            await writer.publish_event(text)
        await writer.close()
        assert await task == ([(1, b"1"), (2, b"2"), (3, b"3")], 1)


async def test_a_reader_that_fell_behind_gets_one_gap_and_then_what_is_left(
    log: SessionLog,
) -> None:
    writer = await log.open("s", fence=1, starts=Starts())
    await writer.publish_output("a", 0, b"x")
    async with log.read_output("s", "a", 0) as reader:
        assert list((await reader.next()).items) == [(1, b"\x00x")]
        for _ in range(10):
            await writer.publish_output("a", 0, b"y" * MAX_CHUNK_BYTES)
        await writer.close()
        items, gaps = await drain(reader)
    assert gaps == 1
    assert [number for number, _ in items] == [9, 10, 11]


async def test_lost_output_is_a_gap_at_its_place(log: SessionLog) -> None:
    writer = await log.open("s", fence=1, starts=Starts())
    await writer.publish_output("a", 0, b"1")
    await writer.mark_gap("a")
    await writer.publish_output("a", 0, b"2")
    await writer.close()
    async with log.read_output("s", "a", 0) as reader:
        batches = [await reader.next() for _ in range(3)]
    assert [(list(b.items), b.has_gap, b.is_end) for b in batches] == [
        ([(1, b"\x001")], False, False),
        ([(2, b"\x002")], True, False),
        ([], False, True),
    ]


async def test_a_higher_fence_goes_on_and_shuts_the_old_owner_out(log: SessionLog) -> None:
    old = await log.open("s", fence=1, starts=Starts())
    await old.publish_event(b"one")
    new = await log.open("s", fence=2, starts=Starts(events=64))
    assert await new.publish_event(b"two") > 1
    with pytest.raises(StaleFence):
        await old.publish_event(b"no")
    with pytest.raises(StaleFence):
        await old.publish_output("a", 0, b"no")
    with pytest.raises(StaleFence):
        await old.close()
    with pytest.raises(StaleFence):
        await log.open("s", fence=1, starts=Starts())
    await new.close()
    assert len((await replay(log))[0]) == 2


async def test_a_log_that_had_ended_is_taken_up_again(log: SessionLog) -> None:
    writer = await log.open("s", fence=1, starts=Starts())
    await writer.publish_event(b"one")
    await writer.close()
    writer = await log.open("s", fence=2, starts=Starts())
    async with log.read_events("s", 1) as reader:
        task = aio.start(drain(reader), name="reader")
        await asyncio.sleep(0)
        await writer.publish_event(b"two")
        await writer.close()
        assert await task == ([(2, b"two")], 0)


async def test_a_dropped_session_ends_its_readers_and_refuses_its_writer(log: SessionLog) -> None:
    writer = await log.open("s", fence=1, starts=Starts())
    await writer.publish_output("a", 0, b"x")
    async with log.read_events("s", 0) as events, log.read_output("s", "a", 1) as output:
        tasks = [aio.start(r.next(), name="reader") for r in (events, output)]
        await asyncio.sleep(0)
        await log.drop("s")
        assert [(await task).is_end for task in tasks] == [True, True]
    assert not await log.has_output("s", "a")
    with pytest.raises(StaleFence):
        await writer.publish_event(b"late")
    await log.drop("s")


async def test_only_output_counts_as_something_to_replay(log: SessionLog) -> None:
    assert not await log.has_output("s", "a")
    writer = await log.open("s", fence=1, starts=Starts(output={"a": 9}))
    await writer.publish_event(b"one")
    assert not await log.has_output("s", "a")
    await writer.publish_output("a", 0, b"x")
    assert await log.has_output("s", "a")
    await writer.close()
    assert await log.has_output("s", "a")


async def test_a_reader_that_is_cancelled_while_it_waits_loses_nothing(log: SessionLog) -> None:
    writer = await log.open("s", fence=1, starts=Starts())
    async with log.read_events("s", 0) as reader:
        task = aio.start(reader.next(), name="reader")
        await asyncio.sleep(0)
        await writer.publish_event(b"one")
        await aio.stop(task)
        assert list((await reader.next()).items) == [(1, b"one")]


async def test_publishing_never_waits_for_a_reader_and_slow_readers_cost_one_ring(
    log: SessionLog,
) -> None:
    writer = await log.open("s", fence=1, starts=Starts())
    async with asyncio.timeout(10):
        async with log.read_output("s", "a", 0) as stalled:
            for _ in range(200):
                await writer.publish_output("a", 0, b"x" * MAX_CHUNK_BYTES)
            await writer.close()
            items, gaps = await drain(stalled)
    assert gaps == 1
    assert sum(len(item) for _, item in items) <= RING_BYTES


async def test_readers_that_come_at_any_moment_see_every_number_once_or_a_gap(
    log: SessionLog,
) -> None:
    # Replay and live are one read of one ring: there is no moment between them to lose anything.
    dice = random.Random(7)
    total, readers = 3_000, 60

    async def follow(after: int) -> None:
        position, may_jump = after, False
        async with log.read_events("s", after) as reader:
            while not (batch := await reader.next()).is_end:
                may_jump = may_jump or batch.has_gap
                for number, item in batch.items:
                    assert number == position + 1 or (may_jump and number > position)
                    assert item == b"%d" % number + b"." * 90
                    position, may_jump = number, False
                if dice.random() < 0.05:
                    await asyncio.sleep(0)
        assert position == total

    writer = await log.open("s", fence=1, starts=Starts())
    moments = sorted(dice.randrange(total) for _ in range(readers))
    async with asyncio.TaskGroup() as group:
        for number in range(1, total + 1):
            await writer.publish_event(b"%d" % number + b"." * 90)
            while moments and moments[0] < number:
                moments.pop(0)
                group.create_task(follow(dice.choice([0, number, dice.randrange(number + 1)])))
            if dice.random() < 0.3:
                await asyncio.sleep(0)
        await writer.close()


async def test_a_memory_log_that_only_readers_asked_for_goes_with_the_last_of_them() -> None:
    log = MemoryLog(RING_BYTES)
    async with log.read_events("gone", 0):
        async with log.read_output("gone", "a", 0):
            pass
        assert "gone" in log._sessions
    assert not log._sessions
