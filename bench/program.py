"""The applications of the bench: Python programs, for the kernel of the tests, which runs those.

One says that it is there, echoes, and pours at a key; both sides run it. The other listens on
ports, and does nothing more.
"""

from collections.abc import Sequence

ENTRY = "telo.yaml"
READY = "ready"
FLOOD_KEY = "!"
PIECE_BYTES = 32_768

BUNDLE = f"""
import os, tty
tty.setraw(0)
os.write(1, b"{READY}")
piece = b"x" * {PIECE_BYTES}
def pour(left):
    while left > 0:
        left -= os.write(1, piece[:left])
while data := os.read(0, 1024):
    if data == b"{FLOOD_KEY}":
        pour(FLOOD_BYTES)
    else:
        os.write(1, data)
"""


LISTENER = """
import os, signal, socket
address = os.environ.get("TELO_STANDIN_BIND", "")
kept = [socket.create_server((address, port)) for port in PORTS]
signal.pause()
"""


def program(flood_bytes: int) -> str:
    """Return the program; it pours so much at each flood key."""
    return BUNDLE.replace("FLOOD_BYTES", str(flood_bytes))


def listener(ports: Sequence[int]) -> str:
    """Return the program that listens on these ports."""
    return LISTENER.replace("PORTS", repr(list(ports)))
