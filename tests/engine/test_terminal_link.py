"""A terminal from the first early attach to the last byte, in virtual time."""

import asyncio

import pytest

from sessions.states import IoMode
from sessions.terminal import TerminalTarget
from sessions.terminal.link import CHECKED_LINES
from telorunner import aio
from telorunner.errors import ClusterUnavailable, NotReady, ObjectNotFound, StaleFence
from tests.engine.terminal_fakes import Terminal, open_terminal, running, target

pytestmark = pytest.mark.looptime


async def end(terminal: Terminal, task: "asyncio.Task[None]", status_after: float = 0.5) -> None:
    """Let the container exit, and its status follow; wait until the terminal is complete."""
    terminal.container.end()
    await asyncio.sleep(status_after)
    terminal.pod.say_terminated()
    async with asyncio.timeout(30):
        await task


async def test_an_early_attach_brings_every_line_of_a_short_program_once() -> None:
    async with open_terminal() as terminal:
        link = terminal.link(target())
        async with running(link) as task:
            await asyncio.sleep(0.33)
            assert not link.proved.is_set()
            terminal.container.is_running = True
            await asyncio.sleep(0.06)
            assert link.proved.is_set()
            terminal.container.write(b"hello\r\n")
            await end(terminal, task)
        assert terminal.recorder.items == [(0, b"hello\r\n")]
        # Only to see whether the attach brought the end.
        assert terminal.container.log_reads == 1


async def test_early_tries_come_every_50_ms_for_3_s_and_then_wait_for_the_status() -> None:
    async with open_terminal() as terminal, running(terminal.link(target())):
        await asyncio.sleep(10)
        attempts = terminal.container.attempts
        assert 55 <= len(attempts) <= 61
        assert attempts[-1] - attempts[0] <= 3.0
        terminal.container.is_running = True
        terminal.pod.say_running()
        await asyncio.sleep(0.01)
        assert len(terminal.container.attaches) == 1


async def test_early_tries_end_when_the_container_waits_for_something_else() -> None:
    async with open_terminal() as terminal, running(terminal.link(target())):
        await asyncio.sleep(0.5)
        terminal.pod.say(is_attach_worth_trying=False)
        await asyncio.sleep(0.1)
        count = len(terminal.container.attempts)
        await asyncio.sleep(10)
        assert len(terminal.container.attempts) == count


async def test_nothing_is_tried_before_the_pod_is_scheduled() -> None:
    async with open_terminal() as terminal:
        terminal.pod.is_attach_worth_trying = False
        async with running(terminal.link(target())):
            await asyncio.sleep(10)
            assert not terminal.container.attempts
            terminal.pod.say(is_attach_worth_trying=True)
            await asyncio.sleep(1)
            assert len(terminal.container.attempts) >= 19


async def test_a_program_that_ended_before_any_attach_has_its_output_from_the_log() -> None:
    async with open_terminal() as terminal:
        async with running(terminal.link(target())) as task:
            await asyncio.sleep(4)
            terminal.container.write(b"DONE\r\nlast")
            await end(terminal, task, status_after=0)
        assert terminal.recorder.items == [(0, b"DONE\r\nlast")]


async def test_a_container_that_never_ran_leaves_nothing_behind() -> None:
    async with open_terminal() as terminal:
        terminal.container.log_error = NotReady()
        async with running(terminal.link(target())) as task:
            await asyncio.sleep(1)
            terminal.pod.say_terminated()
            async with asyncio.timeout(1):
                await task
        assert terminal.recorder.items == []


@pytest.mark.parametrize("is_orderly", [True, False])
async def test_an_attach_that_is_cut_while_the_container_runs_is_made_again_without_loss(
    is_orderly: bool,
) -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        async with running(terminal.link(target())) as task:
            await asyncio.sleep(1)
            terminal.container.write(b"one\r\ntwo\r\n")
            await asyncio.sleep(1)
            terminal.container.attaches[0].end(is_orderly=is_orderly)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            terminal.container.write(b"missed\r\n")
            await asyncio.sleep(2)
            assert len(terminal.container.attaches) == 2
            terminal.container.write(b"four\r\n")
            await end(terminal, task)
        own = b"".join(
            line for line in terminal.recorder.text.splitlines(True) if b"[telorunner]" not in line
        )
        assert own == b"one\r\ntwo\r\nmissed\r\nfour\r\n"
        assert terminal.recorder.gaps == 0
        # A connection that broke is worth one line; one that was closed in order is not.
        assert terminal.recorder.text.count(b"[telorunner]") == (0 if is_orderly else 1)


async def test_a_hole_that_the_log_cannot_fill_is_a_gap() -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        async with running(terminal.link(target())) as task:
            await asyncio.sleep(1)
            terminal.container.write(b"one\r\n")
            terminal.container.log_error = ClusterUnavailable()
            await asyncio.sleep(0.1)
            terminal.container.attaches[0].end(is_orderly=True)
            await asyncio.sleep(1)
            terminal.container.write(b"two\r\n")
            await asyncio.sleep(10)
            await end(terminal, task)
        assert terminal.recorder.items == [(0, b"one\r\n"), None, (0, b"two\r\n")]


async def test_a_failing_attach_is_one_line_and_the_terminal_comes_back() -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        terminal.container.attach_error = ClusterUnavailable()
        async with running(terminal.link(target())) as task:
            await asyncio.sleep(60)
            assert terminal.recorder.text == (
                b"[telorunner] the terminal is not connected: "
                b"The Kubernetes API cannot be reached; trying again\r\n"
            )
            terminal.container.attach_error = None
            await asyncio.sleep(10)
            terminal.container.write(b"here\r\n")
            await end(terminal, task)
        assert terminal.recorder.text.endswith(b"\r\nhere\r\n")
        assert terminal.recorder.gaps == 0


async def test_a_kubelet_that_refuses_twice_and_then_attaches_is_not_told_of() -> None:
    async with open_terminal(status_says_so=True) as terminal:
        async with running(terminal.link(target())) as task:
            await asyncio.sleep(0.25)
            terminal.container.is_running = True
            await asyncio.sleep(1)
            terminal.container.write(b"x")
            await end(terminal, task)
        assert terminal.recorder.items == [(0, b"x")]


async def test_what_the_attach_lost_at_the_end_comes_from_the_log() -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        async with running(terminal.link(target())) as task:
            await asyncio.sleep(1)
            terminal.container.write(b"one\r\n")
            await asyncio.sleep(1)
            attach = terminal.container.attaches[0]
            terminal.container.is_running = False
            attach.end(is_orderly=False)
            await asyncio.sleep(0.01)
            terminal.container.write(b"last")
            await end(terminal, task)
        assert terminal.recorder.items == [(0, b"one\r\n"), (0, b"last")]


async def test_a_silent_attach_of_a_pod_that_is_gone_is_given_up_within_5_s() -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        async with running(terminal.link(target())) as task:
            await asyncio.sleep(1)
            terminal.container.write(b"one\r\n")
            terminal.container.log_error = ObjectNotFound()
            await asyncio.sleep(1)
            terminal.pod.say_terminated()
            async with asyncio.timeout(5):
                await task
        assert terminal.container.attaches[0].is_closed
        # Nobody knows whether there was more.
        assert terminal.recorder.items == [(0, b"one\r\n"), None]


async def test_output_that_is_still_on_its_way_when_the_container_has_ended_is_drained() -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        async with running(terminal.link(target())) as task:
            await asyncio.sleep(1)
            log_reads = terminal.container.log_reads
            terminal.pod.say_terminated()
            for number in range(5):
                await asyncio.sleep(1)
                terminal.container.write(b"%d\r\n" % number)
            terminal.container.end()
            await task
        assert terminal.recorder.text == b"0\r\n1\r\n2\r\n3\r\n4\r\n"
        assert terminal.container.log_reads == log_reads + 1


@pytest.mark.parametrize("count", [1000, 3 * CHECKED_LINES])
@pytest.mark.parametrize("io", [IoMode.TTY, IoMode.STREAMS])
async def test_what_an_attach_lacks_that_ended_in_good_order_is_told_by_the_log(
    io: IoMode, count: int
) -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        async with running(terminal.link(target(io=io))) as task:
            await asyncio.sleep(1)
            lines = [b"line %d\r\n" % number for number in range(count)]
            if io is IoMode.STREAMS:
                lines = [line.replace(b"\r", b"") for line in lines]
            terminal.container.write(b"".join(lines[:-500]))
            terminal.container.write_to_log_only(b"".join(lines[-500:]))
            await end(terminal, task)
        assert terminal.recorder.text == b"".join(lines)
        assert None not in terminal.recorder.items


async def test_more_than_is_looked_at_that_an_attach_lacks_leaves_a_gap() -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        async with running(terminal.link(target())) as task:
            await asyncio.sleep(1)
            terminal.container.write(b"began\r\n")
            terminal.container.write_to_log_only(b"line\r\n" * (CHECKED_LINES + 1))
            await end(terminal, task)
        assert terminal.recorder.items == [(0, b"began\r\n"), None]


async def test_what_both_streams_lack_of_the_end_is_told_or_a_gap() -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        async with running(terminal.link(target(io=IoMode.STREAMS))) as task:
            await asyncio.sleep(1)
            terminal.container.write(b"out one\nout two\n")
            # The end of the one stream is lost, and the other's, which came later, is not.
            terminal.container.write_to_log_only(b"out three\n")
            terminal.container.write(b"err one\n", channel=2)
            await end(terminal, task)
        assert terminal.recorder.items[-1] is None or b"three" in terminal.recorder.text
        assert terminal.recorder.text.count(b"err one") == 1


async def test_a_log_that_cannot_be_read_after_an_orderly_end_is_no_loss() -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        async with running(terminal.link(target())) as task:
            await asyncio.sleep(1)
            terminal.container.write(b"all\r\n")
            terminal.container.log_error = ClusterUnavailable()
            await end(terminal, task)
        assert terminal.recorder.items == [(0, b"all\r\n")]


async def test_a_handshake_that_proves_nothing_is_no_proof_until_output_comes() -> None:
    async with open_terminal(runs=True) as terminal:
        terminal.container.is_proof = False
        link = terminal.link(target(), has_stty=False)
        async with running(link) as task:
            await terminal.type(b"typed")
            await asyncio.sleep(0.2)
            attach = terminal.container.attaches[0]
            assert not link.proved.is_set()
            assert attach.sent == [(80, 24)]
            terminal.container.write(b"x")
            await asyncio.sleep(0.01)
            assert link.proved.is_set()
            # What is typed would be echoed before the start mark, were there one.
            await asyncio.sleep(1.5)
            assert attach.sent == [(80, 24), b"typed"]
            await end(terminal, task)


async def test_attaches_that_lead_nowhere_are_tried_as_often_as_those_that_are_refused() -> None:
    async with open_terminal() as terminal:
        terminal.container.is_proof = False
        link = terminal.link(target())
        async with running(link) as task:
            await asyncio.sleep(1.02)
            assert len(terminal.container.attempts) >= 19
            assert not link.proved.is_set()
            terminal.container.is_running = True
            await asyncio.sleep(0.05)
            assert link.proved.is_set()
            terminal.container.write(b"hello\r\n")
            await asyncio.sleep(1)
            # It ends, and the next handshake proves nothing.
            terminal.container.is_running = False
            terminal.container.attaches[-1].end(is_orderly=False)
            await asyncio.sleep(0.5)
            attempts = len(terminal.container.attempts)
            assert terminal.container.attaches[-2].sent
            await end(terminal, task)
        assert attempts > 22
        assert terminal.recorder.items == [(0, b"hello\r\n")]


async def test_a_writer_that_is_shut_out_ends_the_terminal() -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        terminal.recorder.error = StaleFence()
        task = aio.start(terminal.link(target()).run(), name="terminal")
        await asyncio.sleep(1)
        terminal.container.write(b"x")
        with pytest.raises(ExceptionGroup) as raised:
            await task
        assert raised.group_contains(StaleFence)
        assert terminal.container.attaches[0].is_closed


async def test_bytes_are_bytes() -> None:
    every = bytes(range(256)) * 5000
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        async with running(terminal.link(target())) as task:
            await asyncio.sleep(1)
            for piece in (every, b"\xe2\x82", b"\xac"):
                terminal.container.write(piece)
            await end(terminal, task)
        assert terminal.recorder.text == every + "€".encode()


async def test_a_cancelled_terminal_lets_go_of_its_attach() -> None:
    async with open_terminal(runs=True, status_says_so=True) as terminal:
        async with running(terminal.link(TerminalTarget("s", "app", "pod", "session"))):
            await asyncio.sleep(1)
        assert terminal.container.attaches[0].is_closed
