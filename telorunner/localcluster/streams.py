"""Answers `pods/attach` over WebSocket, in the channel protocol v4 and, for kubectl, v5.

Under v4 the handshake is refused until the container runs; under v5 it always succeeds and a
failure comes on the error channel, as on a real cluster. A frame is one byte that names the
channel and then its bytes. While the application does not read its input the socket is not read
either, and while the client does not read the application's output waits.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/ and
k8s.io/apimachinery/pkg/util/remotecommand.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import WSCloseCode, WSMsgType, web

from telorunner.localcluster import statuses
from telorunner.localcluster.kubelet import Attachment, Container, Node, container_name
from telorunner.localcluster.node.container import ContainerUnavailable
from telorunner.localcluster.paths import Target, method_not_allowed
from telorunner.localcluster.queries import flag
from telorunner.localcluster.store import Store, StoreError
from telorunner.localcluster.watching import Connections

V4 = "v4.channel.k8s.io"
V5 = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
# kubectl sends 32 KiB at once; one that sends more than this is closed with 1009.
MAX_MESSAGE_BYTES = 1024 * 1024
# aiohttp has a bound of its own, but hangs up there before a close frame can be sent: it serves
# for what is too large to be read.
MAX_READ_BYTES = 16 * 1024 * 1024
CLOSE_SECONDS = 2.0

_SUCCESS = b'{"metadata":{},"status":"Success"}'
_MAX_TERMINAL_SIDE = 65535


@dataclass(frozen=True)
class AttachRequest:
    """Which streams of which container; `is_stdin_once` ends its input with the client's."""

    namespace: str
    pod: str
    container: str
    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool
    is_stdin_once: bool


class Attach:
    """The attach subresource of pods."""

    def __init__(self, store: Store, node: Node, connections: Connections) -> None:
        self._store = store
        self._node = node
        self._connections = connections

    async def handle(self, request: web.Request, target: Target) -> web.StreamResponse:
        """Attach the client to a container until either of them ends.

        Raises:
            StoreError: 400 or 404, there is no such container or this is no WebSocket request.
        """
        if request.method not in ("GET", "POST"):
            raise method_not_allowed()
        pod = self._store.get("pods", target.scope, target.name)
        asked = _attach_request(pod, request)
        if not (asked.stdin or asked.stdout or asked.stderr):
            return _text(400, "you must specify at least 1 of stdin, stdout, stderr")
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise statuses.bad_request("Upgrade request required")
        protocol = _protocol(request)
        container = None
        try:
            container = self._container(asked)
        except StoreError as exc:
            if protocol != V5:
                return _text(exc.status_code, exc.message)
            failure = _failure(exc.message)
        if protocol is None:
            return web.Response(status=403)
        socket = web.WebSocketResponse(
            protocols=(protocol,) if protocol else (),
            compress=False,
            max_msg_size=MAX_READ_BYTES,
            timeout=CLOSE_SECONDS,
        )
        with self._connections.hold():
            await socket.prepare(request)
            # Whoever has the handshake knows from this frame that the stream is open.
            await socket.send_bytes(bytes((_first_channel(asked),)))
            if container is None:
                await socket.send_bytes(bytes((ERROR,)) + failure)
            else:
                await _Session(socket, container, asked).run(with_status=bool(protocol))
            await socket.close()
        return socket

    def _container(self, asked: AttachRequest) -> Container:
        """Return the container to attach to.

        Raises:
            StoreError: 500, it does not run, or it has a terminal and stderr is asked for apart.
        """
        try:
            container = self._node.container(asked.namespace, asked.pod, asked.container)
        except ContainerUnavailable as exc:
            where = f"{asked.pod}_{asked.namespace}"
            message = f"container {asked.container} not found in pod {where}"
            raise StoreError(500, "InternalError", message) from exc
        if container.tty and asked.stderr and not asked.tty:
            message = "rpc error: code = InvalidArgument desc = tty and stderr cannot both be true"
            raise StoreError(500, "InternalError", message)
        return container


class _Session:
    """One client attached to one container."""

    def __init__(
        self, socket: web.WebSocketResponse, container: Container, asked: AttachRequest
    ) -> None:
        self._socket = socket
        self._container = container
        self._asked = asked
        self._ends_input = asked.is_stdin_once and not container.tty
        self._takes_sizes = True

    async def run(self, *, with_status: bool) -> None:
        """Relay until the container has ended or the client has; tell the client of the former."""
        async with self._container.attach() as attachment:
            async with asyncio.TaskGroup() as group:
                output = group.create_task(self._send_output(attachment), name="attach output")
                typed = group.create_task(self._take_input(attachment), name="attach input")
                await asyncio.wait((output, typed), return_when=asyncio.FIRST_COMPLETED)
                output.cancel()
                typed.cancel()
            if self._asked.stdin and self._ends_input:
                await attachment.close_stdin()
        if with_status and not self._socket.closed:
            await self._socket.send_bytes(bytes((ERROR,)) + _SUCCESS)

    async def _send_output(self, attachment: Attachment) -> None:
        stderr = self._asked.stderr and not self._asked.tty
        wanted = {STDOUT: self._asked.stdout, STDERR: stderr}
        while (piece := await attachment.read()) is not None:
            stream, data = piece
            if data and wanted.get(stream):
                try:
                    await self._socket.send_bytes(bytes((stream,)) + data)
                except ConnectionError:
                    return

    async def _take_input(self, attachment: Attachment) -> None:
        """Pass on what the client sends; returns when it has closed its input or the socket."""
        async for message in self._socket:
            if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT) or not message.data:
                continue
            if len(message.data) > MAX_MESSAGE_BYTES:
                await self._socket.close(code=WSCloseCode.MESSAGE_TOO_BIG)
                return
            data = message.data.encode() if message.type is WSMsgType.TEXT else message.data
            channel, payload = data[0], data[1:]
            if channel == STDIN and self._asked.stdin and payload:
                await attachment.write_stdin(payload)
            elif channel == RESIZE:
                if not self._takes_sizes:
                    # Nobody reads the sizes any more, and what comes behind one waits for ever.
                    await asyncio.Event().wait()
                self._takes_sizes = self._resize(payload)
            elif channel == CLOSE and payload == bytes((STDIN,)):
                if not self._ends_input:
                    # As with containerd: input that may come again ends only this client's stay.
                    return
                await attachment.close_stdin()

    def _resize(self, payload: bytes) -> bool:
        """Resize the terminal; return whether sizes go on being taken: not after a wrong one.

        Source: k8s.io/kubelet/pkg/cri/streaming/remotecommand, handleResizeEvents
        """
        try:
            size = orjson.loads(payload)
            columns, rows = int(size["Width"]), int(size["Height"])
        except (ValueError, TypeError, KeyError):
            return False
        if not (0 <= columns <= _MAX_TERMINAL_SIDE and 0 <= rows <= _MAX_TERMINAL_SIDE):
            return False
        if columns and rows:
            self._container.resize(columns, rows)
        return True


def _first_channel(asked: AttachRequest) -> int:
    """Return the lowest channel that the client may be written to on."""
    if asked.stdout:
        return STDOUT
    return STDERR if asked.stderr else ERROR


def _protocol(request: web.Request) -> str | None:
    """Return the channel protocol to speak, "" where none is offered; None: only unknown ones."""
    offered = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
    names = [name.strip() for name in offered]
    return next((name for name in (V5, V4, "") if name in names), None)


def _attach_request(pod: dict[str, Any], request: web.Request) -> AttachRequest:
    query, metadata = request.query, pod["metadata"]
    name = container_name(pod, query.get("container", ""))
    if "nodeName" not in pod["spec"]:
        message = f"pod {metadata['name']} does not have a host assigned"
        raise statuses.bad_request(message)
    spec = next(
        found
        for group in ("containers", "initContainers")
        for found in pod["spec"].get(group) or []
        if found["name"] == name
    )
    tty = flag(query, "tty")
    return AttachRequest(
        namespace=metadata["namespace"],
        pod=metadata["name"],
        container=name,
        stdin=flag(query, "stdin"),
        stdout=flag(query, "stdout"),
        stderr=flag(query, "stderr"),
        tty=tty,
        is_stdin_once=bool(spec.get("stdinOnce")),
    )


def _failure(message: str) -> bytes:
    text = f"unable to upgrade connection: {message}"
    status = {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {text}",
        "reason": "InternalError",
        "details": {"causes": [{"message": text}]},
        "code": 500,
    }
    return orjson.dumps(status)


def _text(status: int, message: str) -> web.Response:
    return web.Response(status=status, text=message)
