"""Input on its way to the application, Ctrl-C, and events in words."""

import asyncio
from typing import Any

import pytest

from telorunner.cli.input import (
    MAX_WAITING_BYTES,
    InterruptKey,
    PendingInput,
    Press,
    count_presses,
)
from telorunner.cli.progress import describe


async def drain(pending: PendingInput, count: int) -> list[bytes]:
    pieces = []
    for _ in range(count):
        pieces.append(await pending.first())
        pending.take_off()
    return pieces


async def test_input_waits_in_order_and_stays_until_it_is_taken_off() -> None:
    pending = PendingInput()
    pending.add(b"one")
    pending.add(b"two")

    assert await pending.first() == b"one"
    assert await drain(pending, 2) == [b"one", b"two"]


async def test_a_writer_waits_while_too_much_is_undelivered() -> None:
    pending = PendingInput()
    pending.add(b"x" * MAX_WAITING_BYTES)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(pending.wait_for_room())
        await asyncio.sleep(0)
        assert not waiting.done()
        await drain(pending, 1)
    assert waiting.done()


@pytest.mark.parametrize(
    ("last", "end"), [(b"line\n", b"\x04"), (b"unfinished", b"\x04\x04"), (b"", b"\x04")]
)
async def test_the_end_of_the_input_is_what_ends_a_terminal_s(last: bytes, end: bytes) -> None:
    pending = PendingInput()
    if last:
        pending.add(last)
    pending.add_end()

    assert (await drain(pending, 2 if last else 1))[-1] == end


def test_a_second_press_within_a_second_stops_and_a_third_leaves() -> None:
    key = InterruptKey()

    presses = [key.press(now) for now in (10.0, 11.5, 12.5, 20.0)]

    assert presses == [Press.INTERRUPT, Press.INTERRUPT, Press.STOP, Press.LEAVE]


@pytest.mark.parametrize(
    ("data", "count"),
    [(b"\x03", 1), (b"\x03\x03", 2), (b"x\x03", 1), (b"x", 0), (b"\x03" * 17, 0)],
)
def test_a_pasted_byte_3_is_no_key(data: bytes, count: int) -> None:
    assert count_presses(data) == count


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"type": "status", "status": {"kind": "starting"}}, "starting"),
        ({"type": "status", "status": {"kind": "running"}}, "running"),
        ({"type": "status", "status": {"kind": "exited", "code": 0}}, None),
        (
            {
                "type": "status",
                "status": {
                    "kind": "running",
                    "endpoints": [
                        {"host": "h", "port": 80, "protocol": "tcp", "url": "https://h"},
                        {"host": "", "port": 53, "protocol": "udp"},
                    ],
                },
            },
            "running at https://h, port 53/udp",
        ),
        ({"type": "progress", "phase": "provision", "message": "Scheduling"}, "Scheduling"),
        ({"type": "reachability", "port": 80, "state": "checking"}, None),
        ({"type": "reachability", "port": 80, "state": "reachable"}, "port 80 is reachable"),
        (
            {"type": "route", "host": "h", "state": "unprogrammed", "reason": "why"},
            "route h is unprogrammed: why",
        ),
        ({"type": "debug", "frame": {}}, None),
        ({"type": "invented"}, None),
    ],
)
def test_an_event_is_told_in_words(event: dict[str, Any], line: str | None) -> None:
    assert describe(event) == line
