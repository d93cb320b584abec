"""The command-line client at a terminal of its own, against a runner that the test plays."""

import asyncio
import fcntl
import os
import pty
import random
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.cli_runner import TIMEOUT_SECONDS, FakeRunner, open_runner


class Terminal:
    """A client at a pseudo-terminal; the test is the user in front of it."""

    def __init__(self, *arguments: str, url: str, size: tuple[int, int] = (100, 30)) -> None:
        self.master, self._slave = pty.openpty()
        self.resize(*size)
        os.set_blocking(self.master, False)
        self.before = termios.tcgetattr(self._slave)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "telorunner.cli.main", "run", *arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TELORUNNER_URL": url},
        )
        self.shown = b""

    def resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    @property
    def is_raw(self) -> bool:
        return not termios.tcgetattr(self._slave)[3] & (termios.ICANON | termios.ECHO)

    @property
    def is_as_before(self) -> bool:
        return termios.tcgetattr(self._slave) == self.before

    async def show(self, text: bytes) -> None:
        """Wait until the user sees a text."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while text not in self.shown:
                readable = asyncio.Event()
                loop.add_reader(self.master, readable.set)
                await readable.wait()
                loop.remove_reader(self.master)
                self.shown += os.read(self.master, 65536)

    async def type(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        while data:
            writable = asyncio.Event()
            loop.add_writer(self.master, writable.set)
            await writable.wait()
            loop.remove_writer(self.master)
            data = data[os.write(self.master, data[:1024]) :]

    async def end(self) -> int:
        code = await asyncio.to_thread(self.process.wait, TIMEOUT_SECONDS)
        assert b"Traceback" not in self.shown
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)
        os.close(self.master)
        os.close(self._slave)


@pytest.fixture
async def runner() -> AsyncIterator[FakeRunner]:
    async with open_runner() as fake:
        yield fake


@pytest.fixture
async def terminal(runner: FakeRunner, tmp_path: Path) -> AsyncIterator[Terminal]:
    """A client whose session runs and whose terminal is attached."""
    (tmp_path / "telo.yaml").write_text("kind: Telo.Application\n")
    client = Terminal(str(tmp_path), url=runner.url)
    try:
        await runner.publish(type="status", status={"kind": "running"})
        await runner.until(lambda: runner.sizes)
        await client.show(b"running\r\n")
        yield client
    finally:
        client.close()


async def test_every_key_reaches_the_application_and_nothing_is_echoed_here(
    runner: FakeRunner, terminal: Terminal
) -> None:
    assert terminal.is_raw
    keys = b"a\x1b[A\x7f\x04\x1a\x1c\x13\r"
    await terminal.type(keys)
    await runner.until(lambda: runner.input == keys)
    await runner.write(b"answer\n")
    await terminal.show(b"answer\n")
    await runner.finish(kind="exited", code=5)

    assert await terminal.end() == 5
    assert terminal.is_as_before
    await terminal.show(b"exited with code 5\r\n")
    # What the application wrote came as it was: no carriage return was put in.
    assert terminal.shown.split(b"running\r\n")[1].startswith(b"answer\nexited")


async def test_the_size_is_told_at_once_and_whenever_it_changes(
    runner: FakeRunner, terminal: Terminal
) -> None:
    assert runner.sizes == [(100, 30)]
    terminal.resize(132, 50)
    await runner.until(lambda: runner.sizes[-1] == (132, 50))
    await runner.cut()
    # A new connection begins with the size.
    await runner.until(lambda: runner.sizes == [(100, 30), (132, 50), (132, 50)])
    await runner.finish(kind="exited", code=0)
    assert await terminal.end() == 0


async def test_ctrl_c_is_the_application_s_and_a_second_one_stops_the_session(
    runner: FakeRunner, terminal: Terminal
) -> None:
    await terminal.type(b"\x03")
    await runner.until(lambda: runner.input == b"\x03")
    assert runner.stops == 0
    await terminal.type(b"\x03")
    await runner.until(lambda: runner.stops == 1)
    await terminal.show(b"stopping the session\r\n")
    await runner.finish(kind="stopped")

    assert await terminal.end() == 130
    assert terminal.is_as_before


async def test_a_third_ctrl_c_leaves_without_waiting(
    runner: FakeRunner, terminal: Terminal
) -> None:
    await terminal.type(b"\x03\x03")
    await runner.until(lambda: runner.stops == 1)
    await terminal.type(b"\x03")

    assert await terminal.end() == 130
    assert terminal.is_as_before
    await terminal.show(b"before its end\r\n")


async def test_a_long_paste_arrives_byte_for_byte_whatever_is_in_it(
    runner: FakeRunner, terminal: Terminal
) -> None:
    pasted = random.Random(1).randbytes(256 * 1024)
    await terminal.type(pasted)
    await runner.until(lambda: len(runner.input) >= len(pasted))

    assert runner.input == pasted
    assert runner.stops == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_the_terminal_is_given_back_after_a_signal(
    runner: FakeRunner, terminal: Terminal, number: signal.Signals
) -> None:
    terminal.process.send_signal(number)
    await runner.until(lambda: runner.stops == 1)
    await runner.finish(kind="stopped")

    assert await terminal.end() == 128 + number
    assert terminal.is_as_before


async def test_the_terminal_is_given_back_when_the_runner_forgets_the_session(
    runner: FakeRunner, terminal: Terminal
) -> None:
    runner.is_forgotten = True
    await runner.cut()

    assert await terminal.end() == 1
    assert terminal.is_as_before
