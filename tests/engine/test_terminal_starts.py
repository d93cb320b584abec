"""The beginning of a container's output, with and without a start gate that works."""

import asyncio

import pytest

from sessions.pods.script import START_MARK
from sessions.states import IoMode
from sessions.terminal.output import HELD_MAX_BYTES
from tests.engine.terminal_fakes import Terminal, open_terminal, running, target

pytestmark = pytest.mark.looptime


async def exit_with(terminal: Terminal, task: "asyncio.Task[None]") -> None:
    terminal.container.end()
    terminal.pod.say_terminated()
    async with asyncio.timeout(30):
        await task


async def test_with_the_mark_nothing_is_held_and_no_log_is_read() -> None:
    async with open_terminal(runs=True) as terminal, running(terminal.link(target())):
        await asyncio.sleep(0.01)
        terminal.container.write(b"prompt> ")
        await asyncio.sleep(0.01)
        assert terminal.recorder.items == [(0, b"prompt> ")]
        terminal.container.write(START_MARK)
        await asyncio.sleep(2)
        # The application's own, though it looks alike.
        assert terminal.recorder.text == b"prompt> " + START_MARK
        assert terminal.container.log_reads == 0


@pytest.mark.parametrize("before_seconds", [0, 0.04, 0.5, 1, 3])
async def test_without_stty_output_from_before_the_attach_is_not_lost(
    before_seconds: float,
) -> None:
    async with open_terminal() as terminal:
        link = terminal.link(target(), has_stty=False)
        terminal.container.write(b"first\r\n")
        async with running(link) as task:
            await asyncio.sleep(before_seconds)
            terminal.container.is_running = True
            await asyncio.sleep(0.1)
            terminal.container.write(b"second\r\n")
            await asyncio.sleep(0.5)
            terminal.pod.say_running()
            await asyncio.sleep(2)
            terminal.container.write(b"third")
            await exit_with(terminal, task)
        assert terminal.recorder.text == b"first\r\nsecond\r\nthird"
        assert terminal.recorder.gaps == 0


async def test_the_mark_that_came_before_a_late_attach_is_taken_out_of_the_log() -> None:
    async with open_terminal(status_says_so=True) as terminal:
        link = terminal.link(target(), has_stty=False)
        terminal.container.write(START_MARK + b"first\r\n")
        async with running(link) as task:
            await asyncio.sleep(4)
            terminal.container.is_running = True
            await asyncio.sleep(6)
            terminal.container.write(b"second\r\n")
            await exit_with(terminal, task)
        assert terminal.recorder.text == b"first\r\nsecond\r\n"


@pytest.mark.parametrize("has_started", [True, False])
async def test_an_adopted_container_shows_no_mark_whether_it_had_started_or_not(
    has_started: bool,
) -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        link = terminal.link(target(is_adopted=True))
        terminal.container.has_gate = not has_started
        if has_started:
            terminal.container.write(START_MARK + b"before\r\n")
        async with running(link) as task:
            await asyncio.sleep(6)
            terminal.container.write(b"live\r\n")
            await exit_with(terminal, task)
        assert terminal.recorder.text == (b"before\r\n" if has_started else b"") + b"live\r\n"
        # A line that nobody had ended may be missing between the log and the attach.
        assert terminal.recorder.gaps == int(has_started)


async def test_what_is_typed_early_waits_for_the_mark_and_so_is_echoed_behind_it() -> None:
    async with open_terminal(runs=True) as terminal:
        link = terminal.link(target(), has_stty=False)
        await terminal.type(b"typed")
        async with running(link):
            await asyncio.sleep(0.5)
            attach = terminal.container.attaches[0]
            assert attach.sent == [(80, 24)]
            terminal.container.write(START_MARK)
            await asyncio.sleep(0.01)
            assert attach.sent == [(80, 24), b"typed"]


async def test_held_bytes_of_exactly_the_limit_are_joined_like_any_others() -> None:
    early, held = b"early\r\n", b"x" * (HELD_MAX_BYTES - 2) + b"\r\n"
    async with open_terminal(runs=True) as terminal:
        terminal.container.write(early)
        async with running(terminal.link(target(), has_stty=False)) as task:
            await asyncio.sleep(0.1)
            terminal.container.write(held)
            terminal.pod.say_running()
            await asyncio.sleep(3)
            terminal.container.write(b"end")
            await exit_with(terminal, task)
        assert terminal.recorder.text == early + held + b"end"
        assert terminal.recorder.gaps == 0


async def test_a_line_that_repeats_is_told_as_often_as_it_was_printed() -> None:
    async with open_terminal(runs=True) as terminal:
        terminal.container.write(b"tick\r\n" * 3)
        async with running(terminal.link(target(), has_stty=False)) as task:
            for number in range(30):
                await asyncio.sleep(0.15)
                terminal.container.write(b"tick\r\n")
                if number == 4:
                    terminal.pod.say_running()
                if number == 15:
                    terminal.container.attaches[0].end(is_orderly=False)
            await exit_with(terminal, task)
        own = terminal.recorder.text.replace(
            b"[telorunner] the terminal's connection broke and was made again\r\n", b""
        )
        assert own == b"tick\r\n" * 33
        assert terminal.recorder.gaps == 0


async def test_a_flood_of_one_line_that_never_pauses_is_joined_behind_a_gap() -> None:
    async with open_terminal(runs=True) as terminal:
        terminal.container.write(b"y\r\n" * 50)
        async with running(terminal.link(target(), has_stty=False)) as task:
            terminal.pod.say_running()
            for _ in range(400):
                await asyncio.sleep(0.01)
                terminal.container.write(b"y\r\n")
            await exit_with(terminal, task)
        assert terminal.recorder.gaps == 1
        assert terminal.recorder.text.count(b"y\r\n") <= 450


async def test_two_channels_that_overtook_each_other_are_joined_without_doubles() -> None:
    async with open_terminal(runs=True) as terminal:
        streams = target(io=IoMode.STREAMS, has_start_gate=False)
        terminal.container.write(b"early\n")
        async with running(terminal.link(streams)) as task:
            await asyncio.sleep(0.1)
            attach = terminal.container.attaches[0]
            # The log has them in the order in which they were written.
            terminal.container._written += b"err 1\nout 1\nerr 2\n"
            for channel, line in ((1, b"out 1\n"), (2, b"err 1\n"), (2, b"err 2\n")):
                attach.bring(channel, line)
            terminal.pod.say_running()
            await asyncio.sleep(2)
            await exit_with(terminal, task)
        assert terminal.recorder.on(1) == b"early\nout 1\n"
        assert terminal.recorder.on(2) == b"err 1\nerr 2\n"
        assert terminal.recorder.gaps == 0
