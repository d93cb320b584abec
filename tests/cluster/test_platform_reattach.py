"""A terminal whose connection to the container breaks while the container goes on."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tests.clients import Client, Terminal
from tests.clusters import ClusterUnderTest
from tests.faultproxy import FaultProxy
from tests.faultrules import refusal
from tests.faulty import Faulty, faulty_platform, pod_name

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# Says numbered lines without a pause, and what it hears, until it hears `end`. In the two minutes
# that twenty cuts take they stay under the 10 MiB at which a log is rotated.
TALK = """
import sys, threading, time, tty
tty.setcbreak(0)
lock, has_ended = threading.Lock(), threading.Event()

def say(text):
    with lock:
        sys.stdout.write(text + "\\n")
        sys.stdout.flush()

def listen():
    for line in iter(sys.stdin.readline, ""):
        say("heard " + line.strip())
        if line.strip() == "end":
            has_ended.set()

threading.Thread(target=listen, daemon=True).start()
number = 0
while not has_ended.wait(0.005):
    for _ in range(3):
        say(f"{number:08d} " + "x" * 40)
        number += 1
say("the last line")
raise SystemExit(7)
"""

WINDOW = """
import os, signal, sys
size = lambda *_: os.write(1, b"size %dx%d\\n" % os.get_terminal_size(0))
signal.signal(signal.SIGWINCH, size)
size()
for line in sys.stdin:
    os.system("stty size")
    break
"""

BROKE = b"[telorunner] the terminal's connection broke and was made again"
KEYS_LOST = b"what was typed last may be lost"


@pytest.fixture(scope="module", name="faulty")
def platform_behind_a_proxy(
    cluster: ClusterUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Faulty]:
    with faulty_platform(cluster, tmp_path_factory.mktemp("faulty")) as faulty:
        yield faulty


@pytest.fixture(name="proxy")
def proxy_without_rules(faulty: Faulty) -> Iterator[FaultProxy]:
    yield faulty.proxy
    faulty.proxy.clear()


@pytest.fixture
async def client(faulty: Faulty, cluster: ClusterUnderTest) -> AsyncIterator[Client]:
    client = Client(faulty.platform.url, cluster.image)
    yield client
    await client.close()


async def grow(terminal: Terminal, more_bytes: int) -> None:
    """Receive until there is so much more output."""
    wanted = len(terminal.output) + more_bytes
    async with asyncio.timeout(60):
        while len(terminal.output) < wanted:
            await terminal.receive()


async def hear(terminal: Terminal, least: int) -> None:
    """Receive until a numbered line was heard that is no earlier; any single one may be lost."""
    async with asyncio.timeout(60):
        while True:
            heard = re.findall(rb"heard (\d{6})\r\n", terminal.output[-4000:])
            if heard and int(heard[-1]) >= least:
                return
            await terminal.receive()


def cut(proxy: FaultProxy, session: str) -> int:
    """Cut a session's attach; return how many there were."""
    return proxy.cut(verb="attach", name=pod_name(session))


async def statuses(client: Client, session: str) -> list[dict[str, Any]]:
    return [event["status"] for _, event in await client.events(session) if "status" in event]


def parted(output: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the application's lines and the runner's."""
    lines = output.split(b"\r\n")
    assert lines.pop() == b""
    told = [line for line in lines if line.startswith(b"[telorunner]")]
    return [line for line in lines if line not in told], told


async def test_an_attach_cut_in_mid_output_many_times_adds_up_to_the_source(
    client: Client, proxy: FaultProxy, times: Callable[[int, int], int]
) -> None:
    cuts = times(20, 4)
    session = await client.create(TALK)
    async with client.terminal(session) as terminal:
        for number in range(cuts):
            await grow(terminal, 5000)
            assert cut(proxy, session) == 1
            # There is no attach now: it waits, and goes into the next one.
            await terminal.socket.send(b"key %d\n" % number)
            await terminal.until(b"heard key %d\r\n" % number)
        await terminal.socket.send(b"end\n")
        assert await terminal.drain() == 1000
    # No gap, and every number once.
    assert [text["type"] for text in terminal.texts] == ["seq"]
    assert terminal.numbers == list(range(1, len(terminal.numbers) + 1))
    lines, told = parted(bytes(terminal.output))
    assert told == [BROKE] * cuts
    heard = [line for line in lines if line.startswith(b"heard")]
    assert heard == [b"heard key %d" % number for number in range(cuts)] + [b"heard end"]
    said = [line for line in lines if not line.startswith(b"heard")]
    assert said.pop() == b"the last line"
    assert said == [b"%08d %s" % (number, b"x" * 40) for number in range(len(said))]
    assert await statuses(client, session) == [
        {"kind": "starting"},
        {"kind": "running"},
        {"kind": "failed", "message": 'container "session" failed: Error (exit code 7)'},
    ]


async def test_keys_typed_while_the_attach_is_cut_arrive_once_or_are_told_to_be_lost(
    client: Client, proxy: FaultProxy, times: Callable[[int, int], int]
) -> None:
    cuts, typed = times(15, 4), 0
    session = await client.create(TALK)
    async with client.terminal(session) as terminal:
        await grow(terminal, 1)
        is_over = asyncio.Event()

        async def type_on() -> None:
            nonlocal typed
            while not is_over.is_set():
                await terminal.socket.send(b"%06d\n" % typed)
                typed += 1
                # A fast typist, not a flood.
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            group.create_task(type_on())
            for _ in range(cuts):
                await hear(terminal, typed + 20)
                assert cut(proxy, session) == 1
                await proxy.until(lambda: not proxy.live("attach"))
                await proxy.until(lambda: proxy.live("attach"))
            is_over.set()
        await terminal.socket.send(b"end\n")
        assert await terminal.drain() == 1000
    lines, told = parted(bytes(terminal.output))
    heard = [line.split()[1] for line in lines if line.startswith(b"heard")]
    assert heard.pop() == b"end"
    # A key may go with the cut: then half a line is joined to the next one.
    whole = [int(line) for line in heard if re.fullmatch(rb"\d{6}", line)]
    assert whole == sorted(set(whole))
    losses = sum(b - a > 1 for a, b in zip([-1, *whole], [*whole, typed], strict=True))
    assert losses <= sum(KEYS_LOST in line for line in told)
    assert len(told) == cuts
    assert all(line.startswith(BROKE) for line in told)


async def test_an_attach_that_is_refused_twice_and_late_has_the_last_size_and_all_output(
    client: Client, proxy: FaultProxy
) -> None:
    refused = proxy.add(refusal(500, "InternalError", "container not found"), verb="attach")
    session = await client.create(WINDOW)
    async with client.terminal(session) as terminal:
        for columns in (100, 110, 120):
            await terminal.resize(columns, 40)
        await proxy.until(lambda: refused.hits >= 2)
        # Longer than the start gate waits for a size.
        await asyncio.sleep(2)
        proxy.lift(refused)
        await terminal.until(b"size 120x40\r\n")
        await terminal.socket.send(b"\n")
        await terminal.until(b"40 120\r\n")
        assert await terminal.drain() == 1000
    assert b"size 100x40" not in terminal.output
    assert b"size 110x40" not in terminal.output
    assert await client.status(session) == {"kind": "exited", "code": 0}


async def test_a_server_that_speaks_only_v5_brings_all_of_short_runs_and_of_long_ones(
    client: Client, proxy: FaultProxy, times: Callable[[int, int], int]
) -> None:
    # What is not known of the offered protocols is answered so; the handshake proves nothing then.
    refused = proxy.add(refusal(403, "Forbidden"), verb="attach", protocol="v4.channel.k8s.io")
    turns = asyncio.Semaphore(2)

    async def say_hello() -> None:
        async with turns:
            session = await client.create('print("one\\ntwo")\nraise SystemExit(3)\n')
            kinds = [status["kind"] for status in await statuses(client, session)]
            assert kinds in (["starting", "failed"], ["starting", "running", "failed"])
            assert await client.replay(session) == b"one\r\ntwo\r\n"

    async with asyncio.TaskGroup() as group:
        for _ in range(times(20, 2)):
            group.create_task(say_hello())
    session = await client.create(TALK)
    async with client.terminal(session) as terminal:
        # What is typed before it sets its terminal is thrown away there.
        await grow(terminal, 5000)
        await terminal.socket.send(b"key\n")
        await terminal.until(b"heard key\r\n")
        assert cut(proxy, session) == 1
        await terminal.socket.send(b"end\n")
        assert await terminal.drain() == 1000
    lines, told = parted(bytes(terminal.output))
    assert told == [BROKE]
    said = [line for line in lines if not line.startswith(b"heard")]
    assert said.pop() == b"the last line"
    assert said == [b"%08d %s" % (number, b"x" * 40) for number in range(len(said))]
    assert len(lines) == len(said) + 3
    assert refused.hits > 2


async def test_an_attach_that_falls_silent_is_made_again_within_ninety_seconds(
    client: Client, proxy: FaultProxy, times: Callable[[int, int], int]
) -> None:
    if not times(1, 0):
        pytest.skip("pings tell it after a minute; runs with --full-counts")
    session = await client.create(TALK)
    async with client.terminal(session) as terminal:
        await grow(terminal, 5000)
        assert proxy.silence(verb="attach", name=pod_name(session)) == 1
        await terminal.socket.send(b"lost\n")
        async with asyncio.timeout(90):
            while BROKE not in terminal.output:
                await terminal.receive()
        await terminal.socket.send(b"end\n")
        assert await terminal.drain() == 1000
    _, told = parted(bytes(terminal.output))
    assert told == [BROKE + b"; " + KEYS_LOST]
    assert b"heard lost" not in terminal.output
    assert [status["kind"] for status in await statuses(client, session)] == [
        "starting",
        "running",
        "failed",
    ]


# Says numbered lines to both streams, until it hears anything.
TWO_VOICES = """
import os, sys, threading, time
has_heard = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), has_heard.set()), daemon=True).start()
number = 0
while not has_heard.wait(0.01):
    for fd in (1, 2, 1):
        os.write(fd, b"%d %06d %s\\n" % (fd, number, b"x" * 40))
        number += 1
"""


async def test_two_streams_that_are_cut_lose_and_double_nothing_that_is_not_told(
    client: Client, proxy: FaultProxy
) -> None:
    app = {"name": "app", "entryRelativePath": "telo.yaml", "ports": [], "io": "streams"}
    session = await client.create(TWO_VOICES, apps=[app])
    async with client.terminal(session) as terminal:
        for _ in range(3):
            await grow(terminal, 5000)
            await proxy.until(lambda: cut(proxy, session))
        await grow(terminal, 5000)
        await terminal.socket.send(b"\n")
        assert await terminal.drain() == 1000
    lines = terminal.output.splitlines()
    told = [line for line in lines if line.startswith(b"[telorunner]")]
    # A cut may have met an attach that was cut already.
    assert told
    assert all(line == BROKE for line in told)
    numbers = sorted(int(line.split()[1]) for line in lines if line not in told)
    if {"type": "gap", "reason": "buffer_evicted"} not in terminal.texts:
        assert numbers == list(range(len(numbers)))
    # Each stream has its own in order, and the first one what only the log told.
    for stream in (1, 2):
        shown = terminal.streams[stream].splitlines()
        own = [line for line in shown if line.startswith(b"%d" % stream)]
        assert own == sorted(own)
    assert not [line for line in terminal.streams[2].splitlines() if line.startswith(b"1 ")]


# Says 12 MB with nobody attached, and goes on once the log was rotated.
LONG_LOG = """
import os, sys, time
def say(first, last):
    for number in range(first, last, 1000):
        text = "".join(f"{n:08d} {'x' * 90}\\n" for n in range(number, number + 1000))
        os.write(1, text.encode())
sys.stdin.readline()
time.sleep(2)
say(0, 120000)
time.sleep(15)
for piece in range(120000, 150000, 1000):
    say(piece, piece + 1000)
    time.sleep(0.1)
"""


async def test_a_log_that_was_rotated_while_nobody_was_attached_leaves_a_gap_and_no_double(
    client: Client, proxy: FaultProxy, times: Callable[[int, int], int]
) -> None:
    if not times(1, 0):
        pytest.skip("a kubelet looks at its logs every 10 s; runs with --full-counts")
    session = await client.create(LONG_LOG)
    async with client.terminal(session) as terminal, asyncio.timeout(120):
        await client.until_running(session)
        await terminal.socket.send(b"\r")
        await terminal.until(b"\r\n")
        away = proxy.add(refusal(500, "InternalError"), verb="attach")
        assert cut(proxy, session) == 1
        await asyncio.sleep(15)
        proxy.lift(away)
        assert await terminal.drain() == 1000
    lines, _ = parted(bytes(terminal.output))
    numbers = [int(line.split()[0]) for line in lines if line and b"x" in line]
    assert numbers == sorted(set(numbers))
    assert {"type": "gap", "reason": "buffer_evicted"} in terminal.texts
    assert numbers[-1] == 149_999
