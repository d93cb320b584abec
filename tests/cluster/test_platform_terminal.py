"""What is typed reaches the application as it is, at the pace it reads."""

import hashlib
import random

import pytest

from tests.clients import Client

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
    # The window was right before the application started: its first word is the client's size.
    assert terminal.output.startswith(b"size 101x33")
    assert terminal.texts[0] == {"type": "seq", "seq": 0, "app": "app", "io": "tty"}
    assert await client.status(session) == {"kind": "exited", "code": 0}


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
