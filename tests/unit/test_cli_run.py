"""The command-line client as a process with pipes, against a runner that the test plays."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.cli_runner import TIMEOUT_SECONDS, FakeRunner, open_runner

RUNNING = {"kind": "running"}


@pytest.fixture
async def runner() -> AsyncIterator[FakeRunner]:
    async with open_runner() as fake:
        yield fake


@pytest.fixture
def entry(tmp_path: Path) -> str:
    path = tmp_path / "telo.yaml"
    path.write_text("kind: Telo.Application\n")
    return str(path)


class Client:
    """A running client whose input is a pipe."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        assert process.stdin is not None
        self.stdin = process.stdin

    async def read_until(self, pipe: asyncio.StreamReader | None, text: bytes) -> bytes:
        assert pipe is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await pipe.readuntil(text)

    async def end(self) -> tuple[int, bytes, str]:
        """Wait for its end; return exit code, stdout and stderr."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            out, err = await self.process.communicate()
        assert self.process.returncode is not None
        # The standard library's own watcher of this process: it ends by itself, now.
        for thread in threading.enumerate():
            if thread.name.startswith("asyncio-waitpid-"):
                thread.join(TIMEOUT_SECONDS)
        assert b"Traceback" not in err
        return self.process.returncode, out, err.decode()


_started: list[Client] = []


@pytest.fixture(autouse=True)
async def no_client_is_left_running() -> AsyncIterator[None]:
    """End the clients of a test that failed before it could."""
    yield
    for client in _started:
        if client.process.returncode is None:
            client.process.kill()
            await client.process.communicate()
    _started.clear()


async def start(*arguments: str, url: str, **env: str) -> Client:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "telorunner.cli.main",
        "run",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TELORUNNER_URL": url, **env},
    )
    _started.append(Client(process))
    return _started[-1]


async def test_output_goes_to_stdout_progress_to_stderr_and_the_code_is_the_application_s(
    runner: FakeRunner, entry: str
) -> None:
    client = await start(entry, url=runner.url)
    await runner.publish(type="status", status={"kind": "starting"})
    await runner.publish(type="progress", phase="provision", message="Scheduling\x1b[31m")
    await runner.publish(type="status", status=RUNNING)
    await runner.write(b"\xff\x00raw\r\n")
    await runner.write(b"to stderr\n", stream=2)
    await runner.finish(kind="exited", code=7)

    code, out, err = await client.end()

    assert (code, out) == (7, b"\xff\x00raw\r\n")
    lines = err.splitlines()
    assert lines[0].startswith("session abcdefgh2345: 1 file, 23 bytes, image registry.test")
    assert lines[-1] == "exited with code 7"
    # The application's own stderr may come anywhere between; control characters are harmless.
    assert {"starting", "Scheduling\ufffd[31m", "running", "to stderr"} <= set(lines)


async def test_the_request_carries_what_the_command_says(runner: FakeRunner, entry: str) -> None:
    client = await start(
        *(entry, "--image", "other:2", "--port", "8080", "--port", "53/udp", "--inspect"),
        *("--env", "A=1", "--env", "B=x=y", "--env", "C=", "--accept-terms", "v3"),
        url=runner.url,
    )
    await runner.finish(kind="exited", code=0)
    await client.end()

    assert runner.created == [
        {
            "bundle": {
                "entryRelativePath": "telo.yaml",
                "files": [{"relativePath": "telo.yaml", "contents": "kind: Telo.Application\n"}],
            },
            "env": {"A": "1", "B": "x=y", "C": ""},
            "config": {"image": "other:2", "pullPolicy": "missing"},
            "ports": [{"port": 8080, "protocol": "tcp"}, {"port": 53, "protocol": "udp"}],
            "inspect": True,
        }
    ]
    assert runner.create_headers[0]["x-telo-accepted-terms"] == "v3"


async def test_a_refusal_is_told_with_each_issue_s_path(runner: FakeRunner, entry: str) -> None:
    issues = [{"path": "/env/A", "message": "too long"}, {"path": "", "message": "odd"}]
    runner.refusal = (400, {"error": "invalid_request", "message": "No.", "issues": issues})
    client = await start(entry, "--env", "A=secret", url=runner.url)

    assert await client.end() == (2, b"", "No.\n  /env/A: too long\n  /: odd\n")


async def test_a_command_that_cannot_be_used_ends_with_2(entry: str) -> None:
    client = await start(entry, url="ftp://x")

    assert await client.end() == (2, b"", "ftp://x is no http or https URL\n")


async def test_a_pipe_s_bytes_are_forwarded_and_its_end_is_ctrl_d(
    runner: FakeRunner, entry: str
) -> None:
    client = await start(entry, url=runner.url)
    await runner.publish(type="status", status=RUNNING)
    data = bytes(range(256)) * 1024 + b"\n"
    client.stdin.write(data)
    client.stdin.write_eof()
    await runner.until(lambda: len(runner.input) > len(data))
    await runner.finish(kind="exited", code=0)

    assert (await client.end())[0] == 0
    assert runner.input == data + b"\x04"
    assert runner.sizes == []
    assert runner.stops == 0


async def test_a_broken_connection_loses_and_doubles_nothing(
    runner: FakeRunner, entry: str
) -> None:
    client = await start(entry, url=runner.url)
    await runner.publish(type="status", status=RUNNING)
    lines = [[b"line %d.%d\n" % (cut, number) for number in range(20)] for cut in range(5)]
    out, err = b"", b""
    for batch in lines:
        for line in batch:
            await runner.publish(type="progress", phase="boot", message=f"event {line[5:-1]!r}")
            await runner.write(line)
        # The first is there, the others may be on their way when the connections break.
        out += await client.read_until(client.process.stdout, batch[0])
        err += await client.read_until(client.process.stderr, b"event b'%b'\n" % batch[0][5:-1])
        await runner.cut()
    await runner.finish(kind="exited", code=0)

    code, rest, told = await client.end()

    assert (code, out + rest) == (0, b"".join(line for batch in lines for line in batch))
    events = [line for line in (err.decode() + told).splitlines() if line.startswith("event ")]
    assert events == [f"event {line[5:-1]!r}" for batch in lines for line in batch]
    # Each connection went on where the one before had broken off.
    assert runner.event_resumes[0] is None
    assert "0" not in [*runner.event_resumes[1:], *runner.socket_resumes[1:]]
    assert len(runner.socket_resumes) > 1


async def test_a_socket_closed_for_now_is_opened_again_and_input_waits_for_it(
    runner: FakeRunner, entry: str
) -> None:
    runner.refused_sockets = [1001, 1011, 1012, 1013]
    client = await start(entry, url=runner.url)
    client.stdin.write(b"typed early\n")
    await runner.until(lambda: runner.input == b"typed early\n")
    await runner.write(b"out")
    await runner.finish(kind="exited", code=0)

    assert (await client.end())[:2] == (0, b"out")
    assert runner.socket_resumes == ["0"] * 5


async def test_sigint_is_the_application_s_ctrl_c_and_a_second_one_stops_the_session(
    runner: FakeRunner, entry: str
) -> None:
    client = await start(entry, url=runner.url)
    await runner.publish(type="status", status=RUNNING)
    await runner.until(lambda: runner.socket_resumes)
    client.process.send_signal(signal.SIGINT)
    await runner.until(lambda: runner.input == b"\x03")
    assert runner.stops == 0
    client.process.send_signal(signal.SIGINT)
    await runner.until(lambda: runner.stops)
    await runner.finish(kind="stopped")

    code, _, err = await client.end()

    assert code == 130
    assert err.splitlines()[-2:] == ["stopping the session", "stopped"]
    assert runner.input == b"\x03"


async def test_sigterm_stops_the_session(runner: FakeRunner, entry: str) -> None:
    client = await start(entry, url=runner.url)
    await runner.until(lambda: runner.socket_resumes)
    client.process.send_signal(signal.SIGTERM)
    await runner.until(lambda: runner.stops)
    await runner.finish(kind="stopped")

    assert (await client.end())[0] == 143


async def test_an_output_that_nobody_reads_stops_the_session(
    runner: FakeRunner, entry: str
) -> None:
    client = await start(entry, url=runner.url)
    transport = client.process._transport  # type: ignore[attr-defined] - to close one pipe only
    transport.get_pipe_transport(1).close()
    await runner.write(b"to nobody")
    await runner.until(lambda: runner.stops)

    assert (await client.end())[0] == 141


async def test_a_session_that_the_runner_forgot_is_told(runner: FakeRunner, entry: str) -> None:
    client = await start(entry, url=runner.url)
    await runner.until(lambda: runner.event_resumes)
    runner.is_forgotten = True
    await runner.cut()

    code, _, err = await client.end()

    assert code == 1
    assert "does not know the session any more" in err
