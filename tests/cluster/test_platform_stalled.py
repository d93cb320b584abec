"""Viewers that read nothing, beside a workload that floods its terminal: memory and pace."""

import asyncio
import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from tests.clients import Client, Terminal
from tests.held import resident_bytes
from tests.readers import OutputReader, Place, open_output_reader
from tests.serving import Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

MIB = 1_048_576
STALLED = 10
RING_BYTES = 5_000_000
STALLED_BYTES = 20 * MIB
# Two of these are more than a ring and all buffers on the way: who takes nothing loses something.
FILL_MIB = 8
# What is meant is a tenth. Floods with and without stalled viewers are short, many and in turns, so
# that what else the machine does falls on both, and the median of their ratios is not its doing.
FLOOD_MIB = 1
SLOWER = 1.1
SLOWER_OF_FEW = 2.0

# Says as many MiB as it is told, and how long that took it.
FLOOD = """
import os, sys, time
block = b"x" * 65536
os.write(1, b"ready\\n")
for line in sys.stdin:
    began_at = time.monotonic()
    for _ in range(int(line) * 16):
        left = block
        while left:
            left = left[os.write(1, left):]
    os.write(1, f"\\ntook {time.monotonic() - began_at:.4f} s\\n".encode())
"""


async def flood(viewer: Terminal, mib: int = FLOOD_MIB) -> float:
    """Let the workload say much while a viewer reads all of it; return how long that took it."""
    viewer.output.clear()
    await viewer.socket.send(f"{mib}\r".encode())
    async with asyncio.timeout(120):
        while b" s\r\n" not in viewer.output[-100:]:
            await viewer.receive()
    return float(viewer.output.rpartition(b"took ")[2].split()[0])


@asynccontextmanager
async def flooded(client: Client) -> AsyncIterator[tuple[str, Terminal]]:
    """Start a session whose ring is full, and read all of it; what is made only once is there."""
    session = await client.create(FLOOD)
    async with client.terminal(session) as viewer:
        await viewer.until(b"ready")
        for _ in range(2):
            await flood(viewer, FILL_MIB)
        yield session, viewer
        assert {"type": "gap", "reason": "buffer_evicted"} not in viewer.texts
        assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
    assert await client.status(session) == {"kind": "stopped"}


async def slower(alone: Terminal, beside: Terminal, count: int) -> list[float]:
    """Return how much slower one flood is than the other, pair by pair, each first in turn."""
    ratios = []
    for number in range(count):
        if number % 2:
            first = await flood(alone)
            ratios.append(await flood(beside) / first)
        else:
            first = await flood(beside)
            ratios.append(first / await flood(alone))
    return ratios


async def stalled_readers(client: Client, session: str, after: int) -> list[OutputReader]:
    port = urlsplit(client.url).port or 0
    return [await open_output_reader(port, session, Place(after, None)) for _ in range(STALLED)]


async def read_on(reader: OutputReader, newest: int) -> None:
    """Read again after a long pause: what was lost meanwhile is told."""
    while reader.place.last < newest:
        assert await reader.read()
    assert reader.place.holes >= 1
    await reader.hang_up()


async def test_stalled_viewers_cost_little_and_slow_nobody_down(
    client: Client, serving: Platform, times: Callable[[int, int], int]
) -> None:
    assert serving.process is not None
    pid = serving.process.pid
    async with flooded(client) as (_, alone), flooded(client) as (session, beside):
        before = resident_bytes(pid)
        readers = await stalled_readers(client, session, beside.numbers[-1])
        # The buffers on the way fill up first.
        for _ in range(2):
            await flood(beside, FILL_MIB)
        costs = [resident_bytes(pid) - before]
        ratios = await slower(alone, beside, times(80, 6))
        costs.append(resident_bytes(pid) - before)
        for reader in readers:
            await read_on(reader, beside.numbers[-1])
    assert max(costs) < RING_BYTES + STALLED_BYTES
    assert statistics.median(ratios) < (SLOWER if times(1, 0) else SLOWER_OF_FEW), sorted(ratios)
