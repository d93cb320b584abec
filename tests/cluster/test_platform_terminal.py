"""What is typed reaches the application as it is, at the pace it reads."""

import asyncio
import hashlib
import random
from urllib.parse import urlsplit

import pytest

from tests.clients import Client
from tests.clusters import ClusterUnderTest
from tests.held import resident_bytes
from tests.readers import Place, open_output_reader
from tests.serving import Platform

pytestmark = pytest.mark.cluster

# Answers each line, tells its size when that changes, and survives one Ctrl-C.
ECHO = """
import fcntl, os, signal, struct, sys, termios

def size(*_):
    rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, b"\\0" * 8))
    os.write(1, f"size {columns}x{rows}\\n".encode())

signal.signal(signal.SIGWINCH, size)
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"interrupted\\n"))
size()
os.write(1, b"ready\\n")
for line in sys.stdin:
    if line.strip() == "bye":
        raise SystemExit(0)
    os.write(1, b"heard " + line.encode())
"""

PASTE_BYTES = 256 * 1024
# Reads 64 KiB/s in raw mode and tells the digest of what it read.
SLOW_READER = f"""
import hashlib, os, time, tty
tty.setraw(0)
os.write(1, b"ready\\n")
digest, left = hashlib.sha256(), {PASTE_BYTES}
while left:
    data = os.read(0, min(left, 4096))
    digest.update(data)
    left -= len(data)
    time.sleep(len(data) / 65536)
os.write(1, b"digest " + digest.hexdigest().encode() + b"\\n")
"""

# Reads nothing for a while, then all that was pasted, as fast as it can.
STALLED_READER = """
import hashlib, os, time, tty
tty.setraw(0)
os.write(1, b"ready\\n")
time.sleep({seconds})
os.write(1, b"awake\\n")
digest, left = hashlib.sha256(), {size}
while left:
    data = os.read(0, min(left, 65536))
    digest.update(data)
    left -= len(data)
os.write(1, b"digest " + digest.hexdigest().encode() + b"\\n")
"""
STALLED_SECONDS = 3
HUGE_PASTE_BYTES = 20 * 2**20
# What is held on the way: 1 MiB in the bus, 256 KiB in the socket's consumer, buffers of sockets.
HELD_BYTES = 8 * 2**20

RAW_BYTES = """
import os, tty
tty.setraw(0)
os.write(1, bytes(range(256)) + "\\u20ac".encode()[:1])
os.write(1, "\\u20ac".encode()[1:] + b"end")
"""


async def test_keys_a_resize_and_ctrl_c_reach_the_application(client: Client) -> None:
    session = await client.create(ECHO)
    async with client.terminal(session) as terminal:
        await terminal.resize(101, 33)
        await terminal.until(b"ready")
        await terminal.resize(120, 40)
        await terminal.until(b"size 120x40")
        await terminal.socket.send(b"hello\r")
        await terminal.until(b"heard hello")
        await terminal.socket.send(b"\x03")
        await terminal.until(b"interrupted")
        await terminal.socket.send(b"bye\r")
        assert await terminal.drain() == 1000
    assert b"size 101x33" in terminal.output
    assert terminal.texts[0] == {"type": "seq", "seq": 0, "app": "app", "io": "tty"}
    assert await client.status(session) == {"kind": "exited", "code": 0}


async def test_the_window_is_right_before_the_application_starts(client: Client) -> None:
    first = []
    while b"size 101x33" not in first:
        # A client that is slower than the start has not said its size in time: then 80x24 is right.
        assert len(first) < 5, first
        session = await client.create(ECHO)
        async with client.terminal(session) as terminal:
            await terminal.resize(101, 33)
            await terminal.until(b"ready")
            await terminal.socket.send(b"bye\r")
            await terminal.drain()
        first.append(bytes(terminal.output).split(b"\r\n")[0])
    assert set(first) <= {b"size 80x24", b"size 101x33"}


async def test_a_large_paste_arrives_byte_for_byte_at_a_slow_reader(client: Client) -> None:
    paste = random.Random(64).randbytes(PASTE_BYTES)
    session = await client.create(SLOW_READER)
    async with client.terminal(session) as terminal:
        await terminal.until(b"ready")
        for start in range(0, PASTE_BYTES, 10_000):
            await terminal.socket.send(paste[start : start + 10_000])
        await terminal.until(b"digest ")
        assert await terminal.drain() == 1000
    assert hashlib.sha256(paste).hexdigest().encode() in terminal.output


async def test_a_paste_to_an_application_that_does_not_read_waits_and_arrives_whole(
    client: Client, serving: Platform, cluster: ClusterUnderTest
) -> None:
    paste = random.Random(20).randbytes(HUGE_PASTE_BYTES)
    # Not what the first of all runs costs.
    await client.status(await client.create(RAW_BYTES))
    program = STALLED_READER.format(seconds=STALLED_SECONDS, size=HUGE_PASTE_BYTES)
    session = await client.create(program)
    async with client.terminal(session) as terminal, asyncio.TaskGroup() as group:
        await terminal.until(b"ready")
        assert serving.process is not None
        before = resident_bytes(serving.process.pid)

        async def send() -> None:
            for start in range(0, HUGE_PASTE_BYTES, 65_536):
                await terminal.socket.send(paste[start : start + 65_536])

        sending = group.create_task(send())
        await terminal.until(b"awake")
        # The typist feels it, and nothing else does. The connections of a real cluster hold more.
        assert cluster.kind == "real" or not sending.done()
        assert resident_bytes(serving.process.pid) - before < HELD_BYTES
        await terminal.until(b"digest ")
        assert await terminal.drain() == 1000
    assert hashlib.sha256(paste).hexdigest().encode() in terminal.output
    assert b"[telorunner]" not in terminal.output


# Writes much to both streams in pieces of any size, and splits a euro sign between two of them.
TWO_STREAMS = """
import os, random, sys, time
os.write(1, b"ready\\n")
sys.stdin.readline()
dice = random.Random(62)

def write(fd, data):
    while data:
        data = data[os.write(fd, data):]

for fd in (1, 2):
    write(fd, bytes(range(256)))
    write(fd, b"\\xe2\\x82")
for _ in range(200):
    for fd in (1, 2):
        write(fd, dice.randbytes(dice.randrange(1, 10000)))
write(1, b"\\xac")
write(2, b"\\xacend")
# What is in a runtime's pipe at the exit may be lost there, in the log too.
time.sleep(1)
"""


async def test_two_streams_are_told_apart_and_each_is_the_same_byte_for_byte(
    client: Client,
) -> None:
    app = {"name": "app", "entryRelativePath": "telo.yaml", "ports": [], "io": "streams"}
    session = await client.create(TWO_STREAMS, apps=[app])
    async with client.terminal(session) as terminal:
        # From here on all comes by the attach: a log knows no streams.
        await terminal.until(b"ready\n")
        del terminal.streams[1][: len(b"ready\n")]
        await terminal.socket.send(b"\n")
        assert await terminal.drain() == 1000
    dice = random.Random(62)
    expected = {1: bytearray(range(256)) + b"\xe2\x82", 2: bytearray(range(256)) + b"\xe2\x82"}
    for _ in range(200):
        for stream in (1, 2):
            expected[stream] += dice.randbytes(dice.randrange(1, 10000))
    expected[1] += b"\xac"
    expected[2] += b"\xacend"
    assert terminal.texts[0]["io"] == "streams"
    assert set(terminal.streams) == {1, 2}
    for stream, wanted in expected.items():
        assert len(terminal.streams[stream]) == len(wanted)
        assert hashlib.sha256(terminal.streams[stream]).digest() == hashlib.sha256(wanted).digest()
    assert await client.status(session) == {"kind": "exited", "code": 0}


async def test_every_byte_of_the_output_is_carried_undecoded(client: Client) -> None:
    session = await client.create(RAW_BYTES)
    await client.status(session)
    assert await client.replay(session) == bytes(range(256)) + "\u20ac".encode() + b"end"


async def test_a_viewer_that_leaves_does_not_end_the_input(client: Client) -> None:
    session = await client.create(ECHO)
    async with client.terminal(session) as first:
        await first.until(b"ready")
        await first.socket.send(b"one\r")
        await first.until(b"heard one")
    async with client.terminal(session, last_seq=first.numbers[-1]) as second:
        await second.socket.send(b"two\rbye\r")
        assert await second.drain() == 1000
    assert b"heard two" in second.output
    assert b"heard one" not in second.output


CUTS = 20
# Pieces of 4 KiB over a second and a half: most cuts come in the middle of the output.
STEADY = """
import sys, time
for piece in range(75):
    sys.stdout.write("".join(f"{piece:03d} {line:03d} {'x' * 55}\\n" for line in range(64)))
    sys.stdout.flush()
    time.sleep(0.02)
"""


async def test_connections_cut_in_mid_output_add_up_to_the_source(client: Client) -> None:
    session = await client.create(STEADY)
    port, dice, place = urlsplit(client.url).port or 0, random.Random(129), Place(0, None)
    async with asyncio.timeout(60):
        for _ in range(CUTS):
            socket = await open_output_reader(port, session, place)
            frames = len(place.taken) + dice.randrange(1, 4)
            while len(place.taken) < frames and await socket.read():
                pass
            socket.cut()
        socket = await open_output_reader(port, session, place)
        while await socket.read():
            pass
        await socket.hang_up()
    assert place.holes == 0
    expected = b"".join(
        b"%03d %03d %s\r\n" % (piece, line, b"x" * 55) for piece in range(75) for line in range(64)
    )
    # Each is the stream byte and a payload.
    assert b"".join(content[1:] for content in place.taken) == expected
