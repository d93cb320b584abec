"""An attach whose server sends messages without an end: memory stays level, and it is cut off."""

import asyncio
import base64
import gc
import hashlib
import os
import re
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from telorunner.conf import ClusterKind
from telorunner.kube.attach import open_attach
from telorunner.kube.client import MAX_FRAME_BYTES, ClusterSettings, open_cluster
from tests.fakes import MANAGED_BY, NAMESPACE, FakeApi
from tests.held import resident_bytes

MIB = 2**20
AT_ONCE = 4
# Far beyond the limit: who does not mind it takes all of this.
ENDLESS_MIB = 256
PIECE = b"x" * MIB
# What one attach may hold at most: a message up to the limit, once more while it grows, and what
# is on its way.
MOST_BYTES = 2 * MAX_FRAME_BYTES + 4 * MIB
ROUNDS = 4
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY, _CONTINUATION, _FIN = 2, 0, 0x80


def head(opcode: int, length: int) -> bytes:
    return struct.pack(">BBQ", opcode, 127, length)


def never_ending_message() -> list[bytes]:
    """Return fragments of which none says that it is the last one."""
    following = head(_CONTINUATION, MIB) + PIECE
    return [head(_BINARY, MIB) + PIECE, *[following] * ENDLESS_MIB]


def many_small_fragments() -> list[bytes]:
    small = bytes([_CONTINUATION, 100]) + b"x" * 100
    return [bytes([_BINARY, 1]) + b"x", *[small * (MIB // len(small))] * ENDLESS_MIB]


def one_huge_frame() -> list[bytes]:
    return [head(_FIN | _BINARY, ENDLESS_MIB * MIB), *[PIECE] * ENDLESS_MIB]


class Flood:
    """A server that answers every handshake, and then sends pieces until it is hung up on."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces
        self.most_bytes = 0
        self.sent_bytes = 0
        self.is_over = asyncio.Semaphore(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        key = re.search(rb"sec-websocket-key: (\S+)", asked, re.IGNORECASE)
        assert key is not None
        accepted = base64.b64encode(hashlib.sha1(key[1] + _GUID, usedforsecurity=False).digest())
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n"
            b"Sec-WebSocket-Accept: " + accepted + b"\r\n\r\n"
        )
        with suppress(ConnectionError):
            for piece in self._pieces:
                writer.write(piece)
                await writer.drain()
                self.sent_bytes += len(piece)
                self.most_bytes = max(self.most_bytes, resident_bytes(os.getpid()))
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.is_over.release()


@asynccontextmanager
async def flooding(pieces: list[bytes]) -> AsyncIterator[tuple[Flood, str]]:
    flood = Flood(pieces)
    async with await asyncio.start_server(flood.serve, "127.0.0.1", 0) as server:
        yield flood, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def run_flood(folder: Path, pieces: list[bytes]) -> Flood:
    """Read some attaches to their end, all of them flooded."""
    async with flooding(pieces) as (flood, url):
        kubeconfig = str(FakeApi(url=url).kubeconfig(folder))
        settings = ClusterSettings(ClusterKind.KUBECONFIG, kubeconfig, NAMESPACE, MANAGED_BY)
        async with open_cluster(settings) as cluster:

            async def read() -> None:
                async with open_attach(cluster, "a", "session", tty=True) as stream:
                    assert await stream.read() is None
                    assert not stream.is_complete

            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(read())
                for _ in range(AT_ONCE):
                    await flood.is_over.acquire()
    return flood


@pytest.mark.parametrize("pieces", [never_ending_message, many_small_fragments, one_huge_frame])
async def test_a_message_without_an_end_is_cut_off_at_the_limit(
    tmp_path: Path, pieces: Callable[[], list[bytes]]
) -> None:
    sent = pieces()
    gc.collect()
    before = resident_bytes(os.getpid())
    # What one round kept of its messages would be too much after a few.
    for _ in range(ROUNDS):
        flood = await run_flood(tmp_path, sent)
        assert flood.most_bytes - before < AT_ONCE * MOST_BYTES
        # What was sent beyond the limit was on its way when the connection was closed.
        assert flood.sent_bytes < AT_ONCE * MOST_BYTES
        gc.collect()
