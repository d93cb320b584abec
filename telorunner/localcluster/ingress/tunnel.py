"""Passes bytes between two connections that no longer speak HTTP, as they come.

So what WebSocket says passes unchanged: messages of any size, pings, extensions, close codes.
"""

import asyncio

from telorunner.localcluster.ingress.wire import CHUNK_BYTES, Wire


async def run_tunnel(
    client: Wire, application: Wire, *, idle_seconds: float, linger_seconds: float
) -> None:
    """Pass on what both sides say until one has ended, and for a moment after that.

    It ends in silence where a connection breaks, or neither side has said anything for
    `idle_seconds`; the caller closes both.
    """
    try:
        async with asyncio.timeout(idle_seconds) as deadline:
            tunnel = _Tunnel(deadline, idle_seconds, linger_seconds)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(tunnel.pass_on(client, application), name="ingress tunnel up")
                tasks.create_task(tunnel.pass_on(application, client), name="ingress tunnel down")
    except* (OSError, TimeoutError):
        # Whoever is left sees a connection that ends without a farewell, as it was.
        client.abort()
        application.abort()


class _Tunnel:
    """Two directions with one clock."""

    def __init__(
        self, deadline: asyncio.Timeout, idle_seconds: float, linger_seconds: float
    ) -> None:
        self._deadline = deadline
        self._idle_seconds = idle_seconds
        self._linger_seconds = linger_seconds
        self._is_ending = False

    async def pass_on(self, source: Wire, target: Wire) -> None:
        """Pass on what one side says until it has ended."""
        data, _ = source.protocol.trailing_data
        while data or (data := await source.reader.read(CHUNK_BYTES)):
            target.writer.write(data)
            data = b""
            self._extend(self._idle_seconds)
            await target.writer.drain()
        self._extend(self._linger_seconds)
        self._is_ending = True
        if target.writer.can_write_eof():
            target.writer.write_eof()
        else:
            target.writer.close()

    def _extend(self, seconds: float) -> None:
        # One that is just passing cannot be put off: what came at that moment came too late.
        if not self._is_ending and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time() + seconds)
