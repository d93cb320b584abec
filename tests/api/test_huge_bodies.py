"""Bodies far over the limit, against `serve` as a process: refused, not kept, in nobody's way."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.api.hostile import Answer, parse
from tests.api.test_server_process import LISTENING, environment
from tests.serving import Process

GROWTH_BYTES = 30_000_000
ANSWERED_SECONDS = 20.0
# Of another client's small request while a body pours in, on a machine that others use too.
SERVED_SECONDS = 2.0
PIECE = b"a" * 2**20

Times = Callable[[int, int], int]


@dataclass(frozen=True)
class Serving:
    """A server process, and its memory."""

    pid: int
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def forget_peak(self) -> int:
        """Begin to measure the peak anew; return the memory in use."""
        # Source: proc(5), /proc/pid/clear_refs.
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self._memory("VmRSS")

    def peak(self) -> int:
        return self._memory("VmHWM")

    def _memory(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"no {name}")


@pytest.fixture(scope="module", name="serving")
def serving_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("huge")
    process = Process("serve", environment=environment(folder, RUNNER_BUNDLE_DELIVERY="inline"))
    try:
        yield Serving(process.pid, process.wait_for(LISTENING)[1])
    finally:
        assert process.stop() == 0, "".join(process.output)
    assert "Traceback" not in "".join(process.output)


async def pour(writer: asyncio.StreamWriter, size: int, *, chunked: bool) -> None:
    """Send so many bytes, or as many as the server lets come."""
    with suppress(ConnectionError):
        for _ in range(size // len(PIECE)):
            writer.write(b"%x\r\n%s\r\n" % (len(PIECE), PIECE) if chunked else PIECE)
            await writer.drain()
        writer.write(b"0\r\n\r\n" if chunked else b"")
        await writer.drain()


async def send_body(serving: Serving, framing: bytes, size: int) -> list[Answer]:
    """Post a body; return all answers up to the server's close, which must come."""
    head = (
        b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\norigin: https://editor.example\r\n"
        b"content-type: application/json\r\n%s\r\n\r\n" % framing
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
    writer.write(head)
    received = bytearray()
    async with asyncio.timeout(ANSWERED_SECONDS), asyncio.TaskGroup() as group:
        pouring = group.create_task(pour(writer, size, chunked=b"chunked" in framing))
        with suppress(ConnectionError):
            while data := await reader.read(2**16):
                received += data
        pouring.cancel()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return parse(bytes(received))


@asynccontextmanager
async def others_are_served(serving: Serving) -> AsyncIterator[None]:
    """Ask for something small all the time; each answer must come soon."""
    slowest = 0.0

    async def ask(client: httpx.AsyncClient) -> None:
        nonlocal slowest
        while True:
            began = time.monotonic()
            assert (await client.get("/v1/capabilities")).status_code == 200
            slowest = max(slowest, time.monotonic() - began)

    async with httpx.AsyncClient(base_url=serving.url, trust_env=False, timeout=30) as client:
        await client.get("/v1/capabilities")
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(ask(client))
            yield
            asking.cancel()
    assert slowest < SERVED_SECONDS


@pytest.mark.parametrize(
    ("framing", "status"),
    [
        (b"content-length: SIZE", 413),
        (b"transfer-encoding: chunked", 413),
        # More is announced than comes, and less.
        (b"content-length: 18446744073709551616", 413),
        (b"content-length: 10", 400),
    ],
)
async def test_a_huge_body_is_refused_without_being_kept(
    serving: Serving, times: Times, framing: bytes, status: int
) -> None:
    size = times(900_000_000, 100_000_000)
    before = serving.forget_peak()
    async with others_are_served(serving):
        answers = await send_body(serving, framing.replace(b"SIZE", b"%d" % size), size)
    assert answers[0].status == status
    assert answers[0].json()["error"] == ("bundle_too_large" if status == 413 else "invalid_json")
    assert answers[0].headers["access-control-allow-origin"] == "*"
    # What stands behind a body that was shorter than what came is no request.
    assert [answer.status for answer in answers[1:]] in ([], [400])
    assert answers[-1].headers["connection"] == "close"
    assert serving.peak() - before < GROWTH_BYTES


@pytest.mark.parametrize(
    "framing",
    [
        b"content-length: -1",
        b"content-length: abc",
        b"content-length: 5\r\ncontent-length: 6",
        b"content-length: 5\r\ntransfer-encoding: chunked",
        b"content-length: " + b"9" * 5000,
    ],
)
async def test_a_length_that_is_none_is_refused_without_being_kept(
    serving: Serving, times: Times, framing: bytes
) -> None:
    before = serving.forget_peak()
    answers = await send_body(serving, framing, times(900_000_000, 20_000_000))
    assert [answer.status for answer in answers] == [400]
    assert answers[0].headers["connection"] == "close"
    assert serving.peak() - before < GROWTH_BYTES
