"""Input keeps its order and its bound; wake-ups come from any thread; presence is counted."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing

from sessions.bus import INPUT_PIECE_BYTES, MAX_PENDING_INPUT_BYTES, Inbox, Pending, Size
from sessions.bus.memory import MemoryBus
from telorunner import aio


async def take(inbox: Inbox) -> bytes:
    pending = await inbox.peek()
    inbox.commit(pending)
    return pending.data


async def turn(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_what_was_typed_before_the_terminal_exists_waits_for_it() -> None:
    bus = MemoryBus()
    await bus.push_input("s", "app", b"one")
    await bus.push_input("s", "app", b"two")
    await bus.push_size("s", "app", Size(100, 30))
    async with bus.open_inbox("s", "app") as inbox:
        assert inbox.size == Size(100, 30)
        assert await inbox.peek() == Pending(Size(100, 30), b"onetwo")


async def test_input_stays_until_it_is_committed_also_for_the_next_owner() -> None:
    bus = MemoryBus()
    await bus.push_input("s", "app", b"x")
    async with bus.open_inbox("s", "app") as inbox:
        await inbox.peek()
    async with bus.open_inbox("s", "app") as inbox:
        assert await take(inbox) == b"x"
        waiting = aio.start(inbox.peek(), name="peek")
        await turn()
        assert not waiting.done()
        await bus.push_input("s", "app", b"y")
        assert (await waiting).data == b"y"


async def test_a_size_that_comes_while_another_is_sent_is_not_lost() -> None:
    bus = MemoryBus()
    async with bus.open_inbox("s", "app") as inbox:
        await bus.push_size("s", "app", Size(1, 1))
        pending = await inbox.peek()
        await bus.push_size("s", "app", Size(2, 2))
        inbox.commit(pending)
        assert await inbox.peek() == Pending(Size(2, 2), b"")


async def test_a_paste_is_delivered_byte_for_byte_in_pieces() -> None:
    bus = MemoryBus()
    paste = bytes(range(256)) * 1024
    await bus.push_input("s", "app", paste)
    received = b""
    async with bus.open_inbox("s", "app") as inbox:
        while len(received) < len(paste):
            piece = await take(inbox)
            assert len(piece) <= INPUT_PIECE_BYTES
            received += piece
    assert received == paste


async def test_a_sender_waits_while_more_than_the_bound_would_be_undelivered() -> None:
    bus = MemoryBus()
    await bus.push_input("s", "app", b"x" * MAX_PENDING_INPUT_BYTES)
    first = aio.start(bus.push_input("s", "app", b"first"), name="first")
    await turn()
    second = aio.start(bus.push_input("s", "app", b"second"), name="second")
    other = aio.start(bus.push_input("s", "other", b"free"), name="other")
    await turn()
    assert not first.done()
    assert other.done()
    async with bus.open_inbox("s", "app") as inbox:
        received = b"".join([await take(inbox) for _ in range(32)])
        assert received == b"x" * MAX_PENDING_INPUT_BYTES
        await turn()
        assert first.done()
        assert second.done()
        assert await take(inbox) == b"firstsecond"


async def test_messages_larger_than_the_bound_are_not_mixed() -> None:
    bus = MemoryBus()
    size = MAX_PENDING_INPUT_BYTES * 2
    senders = [aio.start(bus.push_input("s", "app", c * size), name="send") for c in (b"a", b"b")]
    received = b""
    async with bus.open_inbox("s", "app") as inbox:
        while len(received) < 2 * size:
            received += await take(inbox)
    assert received == b"a" * size + b"b" * size
    assert all(sender.done() for sender in senders)


async def test_a_dropped_session_lets_waiting_senders_return_and_keeps_nothing() -> None:
    bus = MemoryBus()
    await bus.push_input("s", "app", b"x" * MAX_PENDING_INPUT_BYTES)
    senders = [aio.start(bus.push_input("s", "app", b"y"), name="send") for _ in range(3)]
    await turn()
    bus.drop("s")
    for sender in senders:
        await sender
    await bus.push_input("s", "app", b"late" * MAX_PENDING_INPUT_BYTES)
    await bus.push_size("s", "app", Size(1, 1))
    assert not bus._inboxes


async def test_a_wake_up_comes_from_any_thread_and_only_once() -> None:
    bus = MemoryBus()
    async with aclosing(_wakes(bus)) as wakes:
        waiting = aio.start(anext(wakes), name="wakes")
        await turn()

        def wake() -> None:
            for _ in range(3):
                bus.wake("a")
            bus.wake("b")

        thread = threading.Thread(target=wake)
        thread.start()
        thread.join()
        async with asyncio.timeout(5):
            assert await waiting == "a"
            assert await anext(wakes) == "b"
        again = aio.start(anext(wakes), name="wakes")
        await turn()
        assert not again.done()
        bus.wake("a")
        async with asyncio.timeout(5):
            assert await again == "a"


async def test_a_listener_that_is_cancelled_is_forgotten() -> None:
    bus = MemoryBus()

    async def listen() -> None:
        async for _ in bus.wakes():
            pass

    task = aio.start(listen(), name="listen")
    await turn()
    await aio.stop(task)
    assert not bus._listeners
    bus.wake("a")


def test_attendance_counts_who_watches() -> None:
    bus = MemoryBus()
    with bus.attend("s"), bus.attend("s"):
        assert bus.attendance("s") == 2
    assert bus.attendance("s") == 0
    assert not bus._attendance


async def _wakes(bus: MemoryBus) -> AsyncIterator[str]:
    async for session_id in bus.wakes():
        yield session_id
