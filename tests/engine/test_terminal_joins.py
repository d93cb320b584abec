"""Where output may have come before an attach, the log is put in front of it, once."""

import asyncio

import pytest

from sessions.states import IoMode
from sessions.terminal.output import HELD_MAX_BYTES
from telorunner.errors import ClusterUnavailable, NotReady
from tests.engine.terminal_fakes import open_terminal, running, target

pytestmark = pytest.mark.looptime


async def test_an_adopted_container_is_refilled_from_its_log() -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        terminal.container.write(b"before\r\n")
        async with running(terminal.link(target(is_adopted=True))):
            await asyncio.sleep(0)
            await asyncio.sleep(1)
            terminal.container.write(b"live\r\n")
            await asyncio.sleep(1)
            # What stood between may have been a line that nobody had ended yet.
            assert terminal.recorder.items == [(0, b"before\r\n"), None, (0, b"live\r\n")]


async def test_what_is_written_before_a_new_attach_brings_anything_is_read_from_the_log() -> None:
    """A server grants an attach and joins it to the container's output a moment later."""
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        async with running(terminal.link(target())):
            await asyncio.sleep(1)
            terminal.container.write(b"one\r\n")
            await asyncio.sleep(1)
            terminal.container.attaches[-1].end(is_orderly=False)
            while len(terminal.container.attaches) < 2:  # noqa: ASYNC110 - its moment matters
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            terminal.container.write_to_log_only(b"two\r\n")
            await asyncio.sleep(1)
            terminal.container.write(b"three\r\n")
            await asyncio.sleep(1)
        broke = b"[telorunner] the terminal's connection broke and was made again\r\n"
        assert terminal.recorder.text.replace(broke, b"") == b"one\r\ntwo\r\nthree\r\n"
        assert terminal.recorder.gaps == 0


async def test_an_adopted_container_whose_log_cannot_be_read_has_a_gap() -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        terminal.container.log_error = ClusterUnavailable()
        async with running(terminal.link(target(is_adopted=True))):
            await asyncio.sleep(1)
            terminal.container.write(b"live\r\n")
            await asyncio.sleep(9)
            assert terminal.recorder.items == [None, (0, b"live\r\n")]


async def test_an_adopted_container_that_has_ended_has_its_log() -> None:
    async with open_terminal() as terminal:
        terminal.container.write(b"all of it\r\n")
        terminal.container.end()
        terminal.pod.say_terminated()
        async with asyncio.timeout(1):
            await terminal.link(target(is_adopted=True)).run()
        assert terminal.recorder.items == [(0, b"all of it\r\n")]
        assert not terminal.container.attempts


async def test_a_log_that_is_cut_at_the_limit_comes_behind_a_gap() -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        terminal.container.log_limit_bytes = 8
        terminal.container.write(b"too long\r\nend\r\n")
        async with running(terminal.link(target(is_adopted=True))):
            await asyncio.sleep(1)
            assert terminal.recorder.items == [None, (0, b"ong\r\nend\r\n"), None]


async def test_without_a_gate_early_output_is_held_until_the_log_can_be_read() -> None:
    async with open_terminal(runs=True) as terminal:
        terminal.container.write(b"first\r\n")
        terminal.container.log_error = NotReady()
        async with running(terminal.link(target(has_start_gate=False))):
            await asyncio.sleep(0.1)
            terminal.container.write(b"second\r\n")
            await asyncio.sleep(0.5)
            assert terminal.recorder.items == []
            terminal.container.log_error = None
            terminal.pod.say_running()
            await asyncio.sleep(0.15)
            assert terminal.recorder.text == b"first\r\nsecond\r\n"


async def test_without_a_gate_nothing_is_held_longer_than_1500_ms() -> None:
    async with (
        open_terminal(runs=True) as terminal,
        running(terminal.link(target(has_start_gate=False))),
    ):
        await asyncio.sleep(0.1)
        terminal.container.write(b"x\r\n")
        await asyncio.sleep(1.2)
        assert terminal.recorder.items == []
        await asyncio.sleep(0.2)
        # Nobody knows whether there was something before.
        assert terminal.recorder.items == [None, (0, b"x\r\n")]


async def test_without_stty_an_attach_that_came_late_looks_at_the_log() -> None:
    async with (
        open_terminal(status_says_so=True) as terminal,
        running(terminal.link(target(), has_stty=False)),
    ):
        await asyncio.sleep(1.2)
        terminal.container.write(b"unseen\r\n")
        terminal.container.is_running = True
        await asyncio.sleep(5)
        assert terminal.recorder.items == [(0, b"unseen\r\n")]


async def test_streams_keep_their_channels_and_what_came_before_is_stdout() -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        terminal.container.write(b"before\n")
        async with running(terminal.link(target(io=IoMode.STREAMS, has_start_gate=False))):
            await asyncio.sleep(0.5)
            terminal.container.write(b"out\n")
            terminal.container.write(b"err\n", channel=2)
            await asyncio.sleep(0.5)
            assert terminal.recorder.on(1) == b"before\nout\n"
            assert terminal.recorder.on(2) == b"err\n"
            assert terminal.container.attaches[0].sent == []


async def test_a_flood_while_output_is_held_slows_the_container_down_and_loses_nothing() -> None:
    async with open_terminal(runs=True) as terminal:
        piece = b"x" * 65_534 + b"\r\n"
        async with running(terminal.link(target(has_start_gate=False))) as task:
            await asyncio.sleep(0.1)
            for _ in range(64):
                terminal.container.write(piece)
            await asyncio.sleep(0.1)
            unread = terminal.container.attaches[0]._frames.qsize()
            assert unread >= 64 - HELD_MAX_BYTES // len(piece) - 1
            terminal.pod.say_running()
            await asyncio.sleep(0.1)
            terminal.container.end()
            terminal.pod.say_terminated()
            await task
        assert terminal.recorder.text == piece * 64


async def test_two_channels_that_flood_while_they_are_held_are_joined_once() -> None:
    def lines(what: bytes) -> list[bytes]:
        return [b"%s %06d %s\n" % (what, number, b"x" * 50) for number in range(6000)]

    async with open_terminal(runs=True) as terminal:
        streams = target(io=IoMode.STREAMS, has_start_gate=False)
        terminal.container.write(b"early\n")
        async with running(terminal.link(streams)) as task:
            await asyncio.sleep(0.1)
            for out, err in zip(lines(b"out"), lines(b"err"), strict=True):
                terminal.container.write(out)
                terminal.container.write(err, channel=2)
            terminal.pod.say_running()
            await asyncio.sleep(2)
            terminal.container.end()
            terminal.pod.say_terminated()
            await task
        assert terminal.recorder.on(1) == b"early\n" + b"".join(lines(b"out"))
        assert terminal.recorder.on(2) == b"".join(lines(b"err"))
        assert terminal.recorder.gaps == 0
