"""What ends an application's input and what does not, and output larger than any buffer."""

import hashlib
from collections.abc import Callable

import pytest

from tests.clients import Client
from tests.cluster.programs import LINGERS
from tests.clusters import ClusterUnderTest
from tests.serving import Platform

pytestmark = pytest.mark.cluster

READ_TO_THE_END = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    print("heard " + line.strip(), flush=True)
print("ended", flush=True)
"""

OUTPUT_BYTES = 5 * 2**20
# No line end in it: a terminal changes nothing then.
FIVE_MIB = """
import hashlib, os
out, piece = bytearray(), b""
while len(out) < {output_bytes}:
    piece = hashlib.sha256(piece).hexdigest().encode()
    out += piece
left = memoryview(out)[:{output_bytes}]
while left:
    left = left[os.write(1, left[:{piece_bytes}]):]
"""


# How often the end of much output is looked at, and what prints it.
RUNS = 3
MAY_DROP_BYTES = 256 * 1024
NUMBERS = """
import sys
sys.stdout.write("".join(f"{number}\\n" for number in range(300_000)))
"""


def numbers() -> bytes:
    return b"".join(b"%d\n" % number for number in range(300_000))


def five_mib() -> bytes:
    out, piece = bytearray(), b""
    while len(out) < OUTPUT_BYTES:
        piece = hashlib.sha256(piece).hexdigest().encode()
        out += piece
    return bytes(out[:OUTPUT_BYTES])


async def test_ctrl_d_ends_the_input_of_a_terminal(client: Client) -> None:
    session = await client.create(READ_TO_THE_END)
    async with client.terminal(session) as terminal:
        await terminal.until(b"ready")
        await terminal.socket.send(b"one\r\x04")
        assert await terminal.drain() == 1000
    assert terminal.output.endswith(b"heard one\r\nended\r\n")
    assert await client.status(session) == {"kind": "exited", "code": 0}


async def test_nothing_ends_the_input_of_streams_and_no_viewer_that_leaves(client: Client) -> None:
    app = {"name": "app", "entryRelativePath": "telo.yaml", "ports": [], "io": "streams"}
    session = await client.create(READ_TO_THE_END, apps=[app])
    async with client.terminal(session) as first:
        await first.until(b"ready\n")
        await first.socket.send(b"one\n\x04\n")
        await first.until(b"heard \x04\n")
    async with client.terminal(session, last_seq=first.numbers[-1]) as second:
        await second.socket.send(b"two\n")
        await second.until(b"heard two\n")
        assert b"ended" not in second.output
        assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
        assert await second.drain() == 1000
    assert await client.status(session) == {"kind": "stopped"}


@pytest.mark.parametrize("io", ["tty", "streams"])
async def test_the_end_of_much_output_is_told_though_an_attach_may_lack_it(
    client: Client, cluster: ClusterUnderTest, io: str
) -> None:
    """A kubelet closes an attach in good order while tens of KiB are still on their way.

    What its runtime drops at an exit is in no log either; nobody can tell that.
    """
    app = {"name": "app", "entryRelativePath": "telo.yaml", "ports": [], "io": io}
    for _ in range(RUNS):
        session = await client.create(NUMBERS, apps=[app])
        assert await client.status(session) == {"kind": "exited", "code": 0}
        output = (await client.replay(session)).replace(b"\r", b"")
        dropped_bytes = len(numbers()) - len(output)
        assert 0 <= dropped_bytes <= (MAY_DROP_BYTES if cluster.kind == "real" else 0)
        wanted = hashlib.sha256(numbers()[: len(output)])
        assert hashlib.sha256(output).digest() == wanted.digest()


@pytest.mark.parametrize("piece_bytes", [65_536, 64])
async def test_five_mebibytes_are_the_same_live_and_replayed(
    platform: Platform,
    cluster: ClusterUnderTest,
    piece_bytes: int,
    times: Callable[[int, int], int],
) -> None:
    if piece_bytes == 64 and not times(1, 0):
        pytest.skip("80,000 pieces take a while; runs with --full-counts")
    platform.environment["RUNNER_REPLAY_BUFFER_BYTES"] = str(2 * OUTPUT_BYTES)
    platform.start()
    client = Client(platform.url, cluster.image)
    try:
        program = FIVE_MIB.format(output_bytes=OUTPUT_BYTES, piece_bytes=piece_bytes)
        session = await client.create(program + LINGERS[cluster.kind])
        live = await client.replay(session, is_whole=True)
        assert len(live) == OUTPUT_BYTES, await client.events(session)
        # Hashes: the difference of bytes of this length would be worked out for minutes.
        wanted = hashlib.sha256(five_mib()).hexdigest()
        assert hashlib.sha256(live).hexdigest() == wanted
        assert hashlib.sha256(await client.replay(session)).hexdigest() == wanted
    finally:
        await client.close()
