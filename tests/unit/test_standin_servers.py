"""The stand-in kernel's servers: the application's own, and the debug stream."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

# The stand-in is no package of the product: it is copied as a folder, and found as one.
sys.path.insert(0, str(Path(__file__).parents[2] / "standin"))

from telo_standin.events import RING_FRAMES, Events

ROOT = Path(__file__).parents[2]
TELO = [sys.executable, str(ROOT / "standin" / "telo")]
# Not the address that a wildcard would reach first, so that the test sees the mapping.
ADDRESS = "127.41.0.9"
TIMEOUT_SECONDS = 20


class Application:
    """A running stand-in; ``lines`` are what it has printed so far."""

    def __init__(self, *arguments: str, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [*TELO, "run", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TELO_STANDIN_BIND": ADDRESS, **env},
        )
        self.lines: list[str] = []

    def wait_for(self, line: str) -> None:
        assert self.process.stdout is not None
        while not self.lines or self.lines[-1] != line:
            self.lines.append(self.process.stdout.readline().decode().rstrip("\n"))
            assert self.lines[-1], f"ended before '{line}': {self.lines}"

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_SECONDS)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


Start = Callable[..., Application]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def start(*arguments: str, **env: str) -> Application:
            application = Application(*arguments, env=env)
            stack.callback(application.close)
            return application

        yield start


@pytest.fixture
def ports() -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind((ADDRESS, 0))
        return [each.getsockname()[1] for each in sockets]


def example(name: str) -> str:
    return str(ROOT / "examples" / name / "telo.yaml")


@pytest.fixture
def api(start: Start, ports: list[int]) -> Iterator[httpx.Client]:
    application = start(example("http-api"), PORT=str(ports[0]))
    application.wait_for(f"Listening on port {ports[0]}.")
    base = f"http://{ADDRESS}:{ports[0]}/api"
    with httpx.Client(base_url=base, timeout=TIMEOUT_SECONDS, trust_env=False) as client:
        yield client


def test_a_route_answers_with_its_expressions(api: httpx.Client) -> None:
    answer = api.get("/hello", params={"name": "Ada & é"})

    assert (answer.status_code, answer.json()) == (200, {"message": "Hello, Ada & é"})
    assert answer.headers["content-type"] == "application/json"
    assert api.get("/hello").json() == {"message": "Hello"}


def test_a_body_is_checked_against_its_schema(api: httpx.Client) -> None:
    answer = api.post("/echo", json={"text": "né"})
    assert (answer.status_code, answer.json()) == (201, {"text": "né"})

    for refused in ({"text": 3}, {}, ["text"]):
        answer = api.post("/echo", json=refused)
        assert (answer.status_code, answer.json()["error"]) == (400, "ValidationError")
    assert api.post("/echo", content=b"{").status_code == 400


def test_what_is_no_route_is_404(api: httpx.Client) -> None:
    assert api.get("/nothing").status_code == 404
    assert api.post("/hello").status_code == 404


def test_a_failing_handler_is_caught_or_500(start: Start, ports: list[int], tmp_path: Path) -> None:
    entry = tmp_path / "telo.yaml"
    text = (ROOT / "examples" / "http-api" / "telo.yaml").read_text()
    entry.write_text(text.replace('!cel "variables.greeting"', '!cel "1 / 0"'))
    start(str(entry), PORT=str(ports[0])).wait_for(f"Listening on port {ports[0]}.")
    base = f"http://{ADDRESS}:{ports[0]}/api"
    with httpx.Client(base_url=base, timeout=TIMEOUT_SECONDS, trust_env=False) as client:
        caught = client.post("/echo", json={"text": "x"})
        uncaught = client.get("/hello")

    assert (caught.status_code, caught.json()) == (500, {"problem": "division by zero"})
    assert (uncaught.status_code, uncaught.json()["error"]) == (500, "InternalError")


def test_a_server_runs_until_it_is_told_to_stop(start: Start, ports: list[int]) -> None:
    application = start(example("http-api"), PORT=str(ports[0]))
    application.wait_for(f"Listening on port {ports[0]}.")

    assert application.process.poll() is None
    assert application.stop(signal.SIGINT) == 130


def test_two_applications_share_a_port_on_addresses_of_their_own(
    start: Start, ports: list[int]
) -> None:
    for address in (ADDRESS, "127.41.0.10"):
        application = start(
            example("http-api"), PORT=str(ports[0]), TELO_STANDIN_BIND=address, GREETING=address
        )
        application.wait_for(f"Listening on port {ports[0]}.")
    for address in (ADDRESS, "127.41.0.10"):
        url = f"http://{address}:{ports[0]}/api/hello"
        answer = httpx.get(url, timeout=TIMEOUT_SECONDS, trust_env=False)
        assert answer.json() == {"message": address}


def test_a_port_that_is_taken_fails_the_run(start: Start, ports: list[int]) -> None:
    start(example("http-api"), PORT=str(ports[0])).wait_for(f"Listening on port {ports[0]}.")
    second = start(example("http-api"), PORT=str(ports[0]))

    second.wait_for(f"error: cannot listen on {ADDRESS}:{ports[0]}: Address already in use")
    assert second.process.wait(TIMEOUT_SECONDS) == 1


def frames(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def stream_of(port: int) -> Any:
    url = f"http://{ADDRESS}:{port}/events"
    return httpx.stream("GET", url, timeout=TIMEOUT_SECONDS, trust_env=False)


def read_until(stream: Iterator[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    seen = []
    for frame in stream:
        seen.append(frame)
        if frame["event"] == event:
            return seen
    raise AssertionError(f"the stream ended before {event}: {seen}")


def names(seen: list[dict[str, Any]]) -> list[str]:
    return [frame["event"] for frame in seen]


def test_an_inspected_application_stays_and_tells_its_whole_life(
    start: Start, ports: list[int]
) -> None:
    application = start("--inspect", f"0.0.0.0:{ports[0]}", "--no-open", example("hello"))
    application.wait_for("This application has nothing more to do.")
    with stream_of(ports[0]) as response:
        stream = frames(response)
        booted = read_until(stream, "Kernel.Started")
        assert application.process.poll() is None
        # A second subscriber gets the same frames, replayed.
        with stream_of(ports[0]) as other:
            assert read_until(frames(other), "Kernel.Started") == booted
        code = application.stop()
        rest = list(stream)

    assert names(booted) == [
        "Kernel.Initialized",
        "Kernel.Starting",
        "Kernel.PortsResolved",
        "Console.writeLine.Invoked",
        "Console.writeLine.Invoked",
        "Kernel.Started",
    ]
    assert names(rest) == ["Kernel.Stopping", "Kernel.Stopped"]
    assert code == 143
    assert rest[-1]["payload"] == {"exitCode": 143}
    times = [frame["timestamp"] for frame in [*booted, *rest]]
    assert times == sorted(set(times))


def test_the_ports_that_an_application_declares_are_told(start: Start, ports: list[int]) -> None:
    arguments = ["--inspect", f":{ports[1]}", example("http-api")]
    start(*arguments, PORT=str(ports[0])).wait_for(f"Listening on port {ports[0]}.")
    with stream_of(ports[1]) as response:
        seen = read_until(frames(response), "Kernel.Started")

    assert seen[2]["event"] == "Kernel.PortsResolved"
    assert seen[2]["payload"] == {"ports": [{"port": ports[0], "protocol": "tcp"}]}
    assert "Http.Server.server.Created" in names(seen)


def test_a_failure_is_told_before_the_end_and_ends_the_process(
    start: Start, ports: list[int]
) -> None:
    application = start(f"--inspect=0.0.0.0:{ports[0]}", example("console"))
    assert application.process.stdout is not None
    assert application.process.stdin is not None
    application.wait_for("[stand-in telo kernel: a test double, not the Telo kernel]")
    # The prompt has no line end; once it is there the debug server listens.
    application.process.stdout.read(len("What is your name? "))
    with stream_of(ports[0]) as response:
        stream = frames(response)
        read_until(stream, "Console.readLine.Invoked")
        application.process.stdin.close()
        rest = list(stream)

    assert names(rest) == ["Kernel.RunFailed", "Kernel.Stopping", "Kernel.Stopped"]
    assert rest[0]["payload"] == {
        "phase": "run",
        "message": "Console.readLine: the input has ended",
    }
    assert rest[-1]["payload"] == {"exitCode": 1}
    assert application.process.wait(TIMEOUT_SECONDS) == 1


def test_the_debug_server_names_its_protocol_and_its_application(
    start: Start, ports: list[int]
) -> None:
    first = start("--inspect", f"0.0.0.0:{ports[0]}", example("hello"))
    first.wait_for("This application has nothing more to do.")
    # The port is taken: the second application runs all the same, on a port of the system's choice.
    second = start("--inspect", f"0.0.0.0:{ports[0]}", example("hello"))
    second.wait_for("This application has nothing more to do.")

    url = f"http://{ADDRESS}:{ports[0]}/json/version"
    version = httpx.get(url, timeout=TIMEOUT_SECONDS, trust_env=False).json()
    assert version == {
        "protocol": "telo-debug",
        "version": 1,
        "application": "Hello",
        "pid": first.process.pid,
    }
    assert second.process.poll() is None


def test_a_manifest_error_ends_at_once_even_when_inspected(
    start: Start, ports: list[int], tmp_path: Path
) -> None:
    (tmp_path / "telo.yaml").write_text("kind: Something.Else\n")
    application = start("--inspect", f"0.0.0.0:{ports[0]}", str(tmp_path / "telo.yaml"))

    assert application.process.wait(TIMEOUT_SECONDS) == 1


def test_the_replay_holds_the_newest_5000_frames() -> None:
    events = Events()
    for number in range(RING_FRAMES + 7):
        events.emit(str(number))

    seen, replayed = events.after(0, timeout_seconds=0)

    assert RING_FRAMES == 5000
    assert replayed is not None
    assert (len(replayed), replayed[0]["event"]) == (5000, "7")
    assert events.after(seen, timeout_seconds=0) == (seen, [])
    events.close()
    assert events.after(seen, timeout_seconds=0) == (seen, None)
