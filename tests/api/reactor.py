"""Serves small ASGI applications by the real server, on its loop in a thread of this process."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar

import pytest

from telorunner.server import Address, Limits, Server, open_server, server_loop

T = TypeVar("T")
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Opener = Callable[..., AbstractAsyncContextManager[Server]]

BODY_LIMIT_BYTES = 100_000
WAIT_SECONDS = 10.0


async def on_server(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run something on the server's loop and wait for it."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, server_loop))


@pytest.fixture(scope="module", name="reactor")
def running_reactor() -> Iterator[None]:
    """Run the loop that Twisted's reactor is installed on."""

    def run() -> None:
        asyncio.set_event_loop(server_loop)
        server_loop.run_forever()

    thread = threading.Thread(target=run, name="PoolThread-twisted-reactor")
    thread.start()
    yield
    server_loop.call_soon_threadsafe(server_loop.stop)
    thread.join()


@pytest.fixture
def serve(reactor: None) -> Opener:
    """Return a context manager that serves an application on a free port."""

    @asynccontextmanager
    async def serving(application: Any, **limits: Any) -> AsyncIterator[Server]:
        async def opened() -> tuple[Server, Any]:
            context = open_server(
                application,
                Address("127.0.0.1", 0),
                Limits(**{"body_bytes": BODY_LIMIT_BYTES, **limits}),
            )
            return await context.__aenter__(), context

        server, context = await on_server(opened())
        try:
            yield server
        finally:
            await on_server(context.__aexit__(None, None, None))

    return serving


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, seen from the server's loop."""

    async def look() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not holds():  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.02)

    await on_server(look())


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """Return all that comes until the connection ends, however it ends."""
    received = bytearray()
    with suppress(ConnectionError):
        async with asyncio.timeout(WAIT_SECONDS):
            while data := await reader.read(2**20):
                received += data
    return bytes(received)


@asynccontextmanager
async def dialled(server: Server) -> AsyncIterator[Pair]:
    """Connect with a small buffer, so that what is not read stays with the kernel or the server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**14)
    try:
        yield reader, writer
    finally:
        await hang_up(writer)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a connection and wait until it is closed."""
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def exchange(server: Server, request: bytes, *, rest: bytes = b"") -> bytes:
    """Send raw bytes and return all that comes until the server closes.

    `rest` is sent without minding that the server may have answered and closed already.
    """
    async with dialled(server) as (reader, writer):
        writer.write(request)
        await writer.drain()
        with suppress(ConnectionError):
            writer.write(rest)
            await writer.drain()
        return await read_to_end(reader)
