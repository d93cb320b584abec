"""A client of `pods/attach` that keeps every frame as it came.

It knows the channels' numbers and nothing of what is said on them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import orjson

from tests.conformance.client import WAIT_SECONDS, Api, open_api
from tests.conformance.pods import pods_path

V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
SUCCESS = b'{"metadata":{},"status":"Success"}'
# What a client sends that shakes hands by itself.
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}

Frame = tuple[int, bytes]


class Attached:
    """An open stream. `frames` are those that came, `close_code` how the server closed it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.frames: list[Frame] = []
        self.close_code: int | None = None

    @property
    def protocol(self) -> str | None:
        """Return the protocol that was agreed on."""
        return self._socket.protocol

    def output(self, channel: int = STDOUT) -> bytes:
        """Return what has come on a channel."""
        return b"".join(data for number, data in self.frames if number == channel)

    async def send(self, channel: int, data: bytes) -> None:
        """Send one frame."""
        await self._socket.send_bytes(bytes((channel,)) + data)

    async def resize(self, columns: int, rows: int) -> None:
        """Send a size of the terminal."""
        await self.send(RESIZE, orjson.dumps({"Width": columns, "Height": rows}))

    async def next(self) -> Frame | None:
        """Return the next frame, None where the server has closed the stream."""
        async with asyncio.timeout(WAIT_SECONDS):
            message = await self._socket.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            self.frames.append((message.data[0], message.data[1:]))
            return self.frames[-1]
        if message.type is aiohttp.WSMsgType.CLOSE:
            self.close_code = message.data
        return None

    async def until(self, text: bytes, channel: int = STDOUT, *, ends_with: bytes = b"") -> bytes:
        """Return what has come on a channel once `text` is in it, with a certain end behind."""
        while ends_with not in self.output(channel).partition(text)[2] or (
            text not in self.output(channel)
        ):
            assert await self.next() is not None, f"closed after {self.frames[-5:]}"
        return self.output(channel)

    async def rest(self) -> list[Frame]:
        """Wait for the end of the stream and return all frames."""
        while await self.next() is not None:
            pass
        return self.frames


@asynccontextmanager
async def attach(
    api: Api, namespace: str, pod: str, *protocols: str, **query: str
) -> AsyncIterator[Attached]:
    """Attach with these query parameters; without any, to stdin, stdout and stderr."""
    asked = query or {"stdin": "true", "stdout": "true", "stderr": "true"}
    # A session of its own: that waits in the end until the connection is gone, which closing the
    # socket does not.
    async with open_api(api.access) as own:
        socket = await own.session.ws_connect(
            pods_path(namespace, pod, "attach"),
            params=asked,
            protocols=protocols or (V4,),
            max_msg_size=0,
            # Closing is the server's: what it sends last is looked at.
            autoclose=False,
        )
        yield Attached(socket)


async def refusal(
    api: Api, namespace: str, pod: str, protocol: str = V4, **query: str
) -> tuple[int, str, bytes]:
    """Try to attach and return the status, content type and body of the answer."""
    asked = {"stdin": "true", "stdout": "true", "stderr": "true", **query}
    headers = {**HANDSHAKE, "Sec-WebSocket-Protocol": protocol}
    path = pods_path(namespace, pod, "attach")
    async with api.session.get(path, params=asked, headers=headers) as response:
        if response.status == 101:
            response.close()
            return 101, "", b""
        return response.status, response.headers.get("Content-Type", ""), await response.read()
