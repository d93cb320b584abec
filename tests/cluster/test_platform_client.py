"""The command-line client and the stand-in kernel, end to end on the platform."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.clients import Client
from tests.clusters import ClusterUnderTest
from tests.serving import ROOT, Platform

pytestmark = pytest.mark.cluster

EXAMPLE = ROOT / "examples" / "http-api" / "telo.yaml"
PORT, NOBODYS_PORT, UDP_PORT, INSPECT_PORT = 8080, 8081, 5353, 9230
LIFECYCLE = [
    "Kernel.Initialized",
    "Kernel.Starting",
    "Kernel.PortsResolved",
    "Kernel.Started",
    "Kernel.Stopping",
    "Kernel.Stopped",
]

Event = dict[str, Any]


@pytest.fixture(scope="module")
def standin_platform(
    cluster: ClusterUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Platform]:
    """A platform whose session image is the stand-in kernel."""
    folder: Path = tmp_path_factory.mktemp("standin")
    environment = {**cluster.environment, "RUNNER_DATA_DIR": str(folder)}
    if cluster.kind == "real":
        image = os.environ.get("TELORUNNER_TEST_STANDIN_IMAGE")
        if not image:
            pytest.skip("TELORUNNER_TEST_STANDIN_IMAGE names no image on the real cluster")
        environment["RUNNER_IMAGE"] = image
    platform = Platform(folder, environment)
    # Without the test kernel on PATH the local cluster starts the stand-in.
    platform.environment["PATH"] = os.environ["PATH"]
    platform.environment["RUNNER_DATA_DIR"] = str(folder)
    platform.start()
    yield platform
    assert platform.stop() == 0


def test_hello_prints_its_lines_and_exits_0(standin_platform: Platform) -> None:
    result = standin_platform.run("run", "examples/hello")
    assert result.returncode == 0, result.stderr
    assert "Hello from Telo!" in result.stdout
    assert "stand-in" in result.stdout.splitlines()[0]


def test_an_application_that_fails_ends_the_client_with_its_code(
    standin_platform: Platform,
) -> None:
    result = standin_platform.run("run", "examples/failing")
    assert result.returncode == 1
    assert "exit code 1" in result.stderr


def test_a_megabyte_arrives_whole_with_its_last_line(standin_platform: Platform) -> None:
    result = standin_platform.run("run", "examples/megabyte")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout) > 1_048_576


@pytest.fixture
async def standin(standin_platform: Platform, cluster: ClusterUnderTest) -> AsyncIterator[Client]:
    image = standin_platform.environment.get("RUNNER_IMAGE", cluster.image)
    client = Client(standin_platform.url, image)
    yield client
    await client.close()


async def create(client: Client) -> str:
    return await client.create(
        EXAMPLE.read_text(),
        inspect=True,
        ports=[
            {"port": PORT, "protocol": "tcp"},
            {"port": NOBODYS_PORT, "protocol": "tcp"},
            {"port": UDP_PORT, "protocol": "udp"},
        ],
    )


def reachability(events: list[Event]) -> list[tuple[int, str]]:
    return [(e["port"], e["state"]) for e in events if e["type"] == "reachability"]


def lifecycle(events: list[Event]) -> list[str]:
    frames = [event["frame"] for event in events if event["type"] == "debug"]
    return [frame["event"] for frame in frames if frame["event"].startswith("Kernel.")]


async def until_up(client: Client, session: str) -> list[Event]:
    """Follow until the port is reachable and the kernel has said that it has started."""
    events = []
    async with aclosing(client.follow(session)) as stream:  # type: ignore[type-var] # a generator
        async for _, event in stream:
            events.append(event)
            is_reachable = (PORT, "reachable") in reachability(events)
            if is_reachable and "Kernel.Started" in lifecycle(events):
                return events
    raise AssertionError(f"the stream ended: {events}")


async def stop(client: Client, session: str) -> list[tuple[int, Event]]:
    assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
    return await client.events(session)


async def test_lifecycle_and_reachability_come_in_order_and_once(standin: Client) -> None:
    session = await create(standin)
    await until_up(standin, session)
    numbered = await stop(standin, session)
    assert [number for number, _ in numbered] == list(range(1, len(numbered) + 1))
    events = [event for _, event in numbered]
    statuses = [event["status"] for event in events if event["type"] == "status"]
    assert events[0]["status"] == {"kind": "starting"}
    assert events[-1]["status"] == {"kind": "stopped"}
    assert [status["kind"] for status in statuses] == ["starting", "running", "stopped"]
    # The inspect port is nobody's business.
    assert "inspectUrl" not in statuses[1]
    assert INSPECT_PORT not in [endpoint["port"] for endpoint in statuses[1]["endpoints"]]
    assert reachability(events) == [
        (PORT, "checking"),
        (NOBODYS_PORT, "checking"),
        (PORT, "reachable"),
    ]
    assert lifecycle(events) == LIFECYCLE
    assert {event["app"] for event in events if event["type"] == "debug"} == {"app"}
    kinds = [event["type"] for event in events]
    running = events.index({"type": "status", "status": statuses[1]})
    assert running < kinds.index("reachability")
    assert running < kinds.index("debug")
