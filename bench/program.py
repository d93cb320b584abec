"""The application that both sides run: it says that it is there, echoes, and pours at a key.

It is a Python program, for the kernel of the tests, which runs an entry as one.
"""

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


def program(flood_bytes: int) -> str:
    """Return the program; it pours so much at each flood key."""
    return BUNDLE.replace("FLOOD_BYTES", str(flood_bytes))
