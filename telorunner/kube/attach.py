"""A container's terminal: the pod's attach subresource over a WebSocket.

Bytes in, bytes out; nothing is decoded, joined or repeated. When to attach, when to attach again
and what an end means is the caller's matter. The socket has no task of its own: pings are answered
while somebody waits in `read()`. A ping follows all input: its answer says that the server, which
reads in order, has handed the input on.

Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ ("connect GET
requests to attach of Pod").
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import aiohttp
from aiohttp import WSMsgType

from telorunner.errors import ClusterError, ClusterUnavailable, Forbidden, NotReady, ObjectNotFound
from telorunner.kube import channels
from telorunner.kube.client import CLOSE_SECONDS, Cluster
from telorunner.kube.errors import cut
from telorunner.kube.objects import get, object_path

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 30.0
# A ping that is not answered by the next one: a dead connection is noticed after a minute.
SILENT_HEARTBEATS = 2
# A container that does not read its input keeps the server from reading our pings too: the
# connection is fine then, and ending it would lose what was typed. Dead or not, it ends after that.
SILENT_HEARTBEATS_WITH_INPUT = 20
# Less than this a terminal takes even for a container that reads nothing (N_TTY_BUF_SIZE of Linux):
# a few keys that are not confirmed mean a dead connection.
LITTLE_INPUT_BYTES = 4096
# After the status of the stream's end, output that was still on its way.
DRAIN_SECONDS = 2.0

# The runtime's own words for "not yet" come with these; 404 may also mean that the pod is gone.
_NOT_YET = {400, 404, 500}


class AttachStream:
    """An open attach; use `open_attach()` to get one. One task may read, others may write."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self._ws = ws
        self._has_output = False
        self._is_complete = False
        self._is_ending = False
        self._silent_heartbeats = 0
        self._written_bytes = 0
        self._confirmed_bytes = 0

    @property
    def is_proof(self) -> bool:
        """Whether this attach proves that the container runs.

        Under v4 the handshake is refused until it does; under v5 only output proves anything.
        """
        return self._ws.protocol == channels.PROTOCOL_V4 or self._has_output

    @property
    def is_open(self) -> bool:
        """Whether what is written now is sent, as far as is known here."""
        transport_socket = self._ws.get_extra_info("socket")
        return (
            not self._ws.closed and transport_socket is not None and transport_socket.fileno() >= 0
        )

    @property
    def is_input_confirmed(self) -> bool:
        """Whether the server has handed on all input, as far as it has said so."""
        return self._confirmed_bytes == self._written_bytes

    @property
    def is_complete(self) -> bool:
        """Whether the server ended the stream in an orderly way; False while it is open."""
        return self._is_complete

    async def read(self) -> tuple[int, bytes] | None:
        """Return the next output: channel 1 or 2 and its bytes, never empty; None at the end.

        Cancelling loses nothing.
        """
        while (frame := await self._next_frame()) is not None:
            decoded = channels.decode(frame)
            if decoded is None:
                continue
            channel, payload = decoded
            if channel in (channels.STDOUT, channels.STDERR):
                self._has_output = True
                return channel, payload
            if channel == channels.ERROR:
                self._take_status(payload)
        return None

    async def write(self, data: bytes) -> None:
        """Send bytes to the container's standard input; returns once they are on their way.

        Waits while the container reads too slowly. Where it raises or is cancelled, any part of
        them may have been sent.

        Raises:
            ClusterUnavailable: The connection has ended.
        """
        for frame in channels.encode_input(data):
            self._written_bytes += len(frame) - 1
            await self._send(frame)
        await self._ping()

    async def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size, clamped to what a terminal can have.

        Raises:
            ClusterUnavailable: The connection has ended.
        """
        await self._send(channels.encode_resize(columns, rows))

    async def close(self) -> None:
        """End the connection, within a bound and whatever the peer does."""
        transport_socket = self._ws.get_extra_info("socket")
        try:
            with suppress(TimeoutError, aiohttp.ClientError, OSError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._ws.close()
        finally:
            # The client waits for unsent input to leave, which a dead peer never takes.
            if transport_socket is not None:
                with suppress(OSError):
                    transport_socket.shutdown(socket.SHUT_RDWR)

    async def _send(self, frame: bytes) -> None:
        with _as_unavailable():
            await self._ws.send_bytes(frame)

    async def _ping(self) -> None:
        # The payload comes back in the answer: it says which input the server has read past.
        with _as_unavailable():
            await self._ws.ping(str(self._written_bytes).encode())

    async def _next_frame(self) -> bytes | None:
        while (message := await self._receive()) is not None:
            if message.type is WSMsgType.BINARY:
                data: bytes = message.data
                return data
            if message.type is WSMsgType.CLOSE:
                self._is_complete = self._is_complete or (
                    message.data == aiohttp.WSCloseCode.OK and not self._is_ending
                )
                return None
            if message.type in (WSMsgType.CLOSED, WSMsgType.CLOSING, WSMsgType.ERROR):
                return None
        return None

    async def _receive(self) -> aiohttp.WSMessage | None:
        """Return the next message that is no heartbeat, or None if the peer is gone."""
        while True:
            try:
                seconds = DRAIN_SECONDS if self._is_ending else HEARTBEAT_SECONDS
                message = await self._ws.receive(timeout=seconds)
            except TimeoutError:
                if self._is_ending or not await self._is_alive():
                    return None
                continue
            self._silent_heartbeats = 0
            if message.type is WSMsgType.PING:
                with suppress(aiohttp.ClientError, OSError):
                    await self._ws.pong(message.data)
            elif message.type is WSMsgType.PONG:
                self._take_pong(message.data)
            else:
                return message

    async def _is_alive(self) -> bool:
        """Send a ping, unless too many in a row were met with silence."""
        may_stall = self._written_bytes - self._confirmed_bytes >= LITTLE_INPUT_BYTES
        limit = SILENT_HEARTBEATS_WITH_INPUT if may_stall else SILENT_HEARTBEATS
        self._silent_heartbeats += 1
        if self._silent_heartbeats >= limit:
            logger.warning("An attached terminal does not answer any more; it is given up.")
            return False
        try:
            await self._ping()
        except ClusterUnavailable:
            return False
        return True

    def _take_pong(self, payload: bytes) -> None:
        if payload.isdigit():
            self._confirmed_bytes = int(payload)

    def _take_status(self, payload: bytes) -> None:
        status = channels.decode_status(payload)
        self._is_ending = True
        self._is_complete = status.is_success
        if not status.is_success:
            logger.info("An attached terminal ended: %s", cut(status.text))


@contextmanager
def _as_unavailable() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError) as exc:
        raise ClusterUnavailable("The connection to the terminal has ended.") from exc


@asynccontextmanager
async def open_attach(
    cluster: Cluster, pod_name: str, container: str, *, tty: bool
) -> AsyncIterator[AttachStream]:
    """Attach to a container's standard streams, and let go of them at the end.

    Raises:
        NotReady: The container does not run yet, or no longer.
        ObjectNotFound: The pod is gone.
        ClusterError: The API refused or did not answer.
    """
    stream = AttachStream(await _open_socket(cluster, pod_name, container, tty=tty))
    try:
        yield stream
    finally:
        await stream.close()


async def _open_socket(
    cluster: Cluster, pod_name: str, container: str, *, tty: bool
) -> aiohttp.ClientWebSocketResponse:
    path = f"{object_path(cluster, 'pods', pod_name)}/attach"
    query = {"container": container, "stdin": "true", "stdout": "true"}
    # A terminal has one output; asking for two of them is refused.
    query |= {"tty": "true"} if tty else {"stderr": "true"}
    try:
        try:
            return await cluster.open_socket(path, query, channels.PROTOCOL_V4)
        except Forbidden:
            # RBAC says 403, and so does a server that does not speak the protocol offered.
            return await cluster.open_socket(path, query, channels.PROTOCOL_V5)
    except ClusterError as exc:
        if exc.status not in _NOT_YET:
            raise
        failure = exc
    if isinstance(failure, ObjectNotFound):
        # The kubelet says 404 too, for a pod that it has not heard of yet.
        await get(cluster, "pods", pod_name)
    raise NotReady(status=failure.status, reason=failure.reason) from failure
