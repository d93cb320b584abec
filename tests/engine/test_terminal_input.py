"""Keystrokes and sizes on their way to the container."""

import asyncio

import pytest

from sessions.bus import Size
from sessions.states import IoMode
from telorunner.errors import ClusterUnavailable
from tests.engine.terminal_fakes import open_terminal, running, target

pytestmark = pytest.mark.looptime


async def test_the_first_frame_is_the_size_that_was_asked_for_last() -> None:
    async with (
        open_terminal() as terminal,
        running(terminal.link(target())),
    ):
        for columns in (100, 110, 120):
            await terminal.bus.push_size("s", "app", Size(columns, 40))
        await terminal.type(b"early")
        await asyncio.sleep(2)
        terminal.container.is_running = True
        await asyncio.sleep(0.1)
        sent = terminal.container.attaches[0].sent
        assert sent[0] == (120, 40)
        assert [item for item in sent if isinstance(item, bytes)] == [b"early"]
        assert {item for item in sent if isinstance(item, tuple)} == {(120, 40)}


async def test_a_terminal_nobody_has_asked_a_size_for_is_80_by_24() -> None:
    async with open_terminal(runs=True) as terminal, running(terminal.link(target())):
        await asyncio.sleep(0.1)
        attach = terminal.container.attaches[0]
        assert attach.sent == [(80, 24)]
        await terminal.bus.push_size("s", "app", Size(132, 50))
        await asyncio.sleep(0.1)
        assert attach.sent == [(80, 24), (132, 50)]


async def test_streams_have_no_size() -> None:
    async with (
        open_terminal(runs=True, status_says_so=True) as terminal,
        running(terminal.link(target(io=IoMode.STREAMS, has_start_gate=False))),
    ):
        await terminal.bus.push_size("s", "app", Size(132, 50))
        await terminal.type(b"in")
        await asyncio.sleep(0.1)
        assert terminal.container.attaches[0].sent == [b"in"]


@pytest.mark.parametrize("is_orderly", [True, False])
async def test_what_went_into_an_attach_that_ended_is_told_and_never_sent_again(
    is_orderly: bool,
) -> None:
    async with (
        open_terminal(runs=True, status_says_so=True) as terminal,
        running(terminal.link(target())),
    ):
        await asyncio.sleep(0.1)
        first = terminal.container.attaches[0]
        first.takes_input.clear()
        await terminal.type(b"rm ")
        await asyncio.sleep(0.1)
        await terminal.type(b"-r *")
        first.end(is_orderly=is_orderly)
        await asyncio.sleep(2)
        second = terminal.container.attaches[1]
        # What had not left yet goes on.
        assert second.sent == [(80, 24), b"-r *"]
        broke = b"" if is_orderly else b"the terminal's connection broke and was made again; "
        sentence = b"[telorunner] " + broke + b"what was typed last may be lost\r\n"
        assert terminal.recorder.text == sentence


async def test_what_is_typed_while_there_is_no_attach_arrives_once_and_nothing_is_told() -> None:
    async with (
        open_terminal(runs=True, status_says_so=True) as terminal,
        running(terminal.link(target())),
    ):
        await asyncio.sleep(0.1)
        first = terminal.container.attaches[0]
        await terminal.type(b"one")
        await asyncio.sleep(0.1)
        # It has ended, and the end has not been read yet.
        first._is_broken = True
        await terminal.type(b"two")
        await asyncio.sleep(0.1)
        first.end(is_orderly=False)
        await terminal.type(b"three")
        await asyncio.sleep(2)
        assert first.sent == [(80, 24), b"one"]
        assert terminal.container.attaches[1].sent == [(80, 24), b"twothree"]
        assert b"lost" not in terminal.recorder.text


async def test_lost_input_is_told_after_an_outage_too() -> None:
    async with (
        open_terminal(runs=True, status_says_so=True) as terminal,
        running(terminal.link(target())),
    ):
        await asyncio.sleep(0.1)
        first = terminal.container.attaches[0]
        first.takes_input.clear()
        await terminal.type(b"y")
        await asyncio.sleep(0.1)
        terminal.container.attach_error = ClusterUnavailable()
        first.end(is_orderly=False)
        await asyncio.sleep(30)
        terminal.container.attach_error = None
        await asyncio.sleep(10)
        assert terminal.recorder.text.count(b"[telorunner]") == 2
        assert terminal.recorder.text.endswith(b"[telorunner] what was typed last may be lost\r\n")
        assert terminal.container.attaches[1].sent == [(80, 24)]


async def test_a_container_that_does_not_read_holds_the_typist_and_gets_every_byte() -> None:
    paste = bytes(range(256)) * 1024 * 8
    async with (
        open_terminal(runs=True, status_says_so=True) as terminal,
        running(terminal.link(target())),
    ):
        await asyncio.sleep(0.1)
        attach = terminal.container.attaches[0]
        attach.takes_input.clear()
        async with asyncio.TaskGroup() as group:
            typing = group.create_task(terminal.type(paste))
            await asyncio.sleep(10)
            assert not typing.done()
            attach.takes_input.set()
        await asyncio.sleep(0.1)
        assert b"".join(item for item in attach.sent if isinstance(item, bytes)) == paste
