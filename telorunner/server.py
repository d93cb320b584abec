"""The web server: Daphne's protocols with flow control, limits, close codes and an ordered stop.

It serves one ASGI application on the loop of Twisted's reactor. `open_server` owns the listening
port, one task a request or socket, and a housekeeping task; leaving it stops them in order. It
handles no signals and knows no sessions.
"""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

# NB: importing this installs Twisted's reactor on this loop; the process must run it.
from daphne.server import Server as DaphneServer
from daphne.server import twisted_loop as server_loop
from starlette.types import ASGIApp
from twisted.internet import reactor
from twisted.internet.error import CannotListenError
from twisted.logger import STDLibLogObserver, globalLogBeginner

from telorunner import aio, receipt
from telorunner.connection import Channel, Factory, Request
from telorunner.drf import REFUSAL_KEY
from telorunner.errors import ConfigError
from telorunner.flow import Inbox
from telorunner.transport import Transport
from telorunner.websocket import Socket, SocketFactory

# Twisted's interfaces are no types.
_reactor: Any = reactor

logger = logging.getLogger(__name__)

__all__ = ["Address", "Limits", "Server", "open_server", "server_loop"]

PING_INTERVAL_SECONDS = 20
PING_TIMEOUT_SECONDS = 30
# A client that still reads what came before the close answers it late; Autobahn would break the
# connection off after a second, and the client would see 1006 in place of the code.
CLOSE_HANDSHAKE_SECONDS = 10
HOUSEKEEPING_SECONDS = 1.0
# Applications whose client is gone end by themselves; one that does not is cancelled.
APPLICATION_END_SECONDS = 10.0
# The stop, after the grace: applications are cancelled, and then their last bytes are sent.
STOP_CANCEL_SECONDS = 1.0
STOP_FLUSH_SECONDS = 1.0

_LISTEN_BACKLOG = 1024
# What the kernel holds of a connection beyond what is on its way: the rest waits in the gate, and
# a ping is not stuck behind megabytes.
_KERNEL_UNSENT_BYTES = 131_072
_BODY_PIECE_BYTES = 65_536


@dataclass(frozen=True)
class Address:
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int


@dataclass(frozen=True)
class Limits:
    """What a client may make the server hold."""

    body_bytes: int
    message_bytes: int = 1_048_576
    # A client that takes none of what waits for it for so long is dropped.
    stall_seconds: float = 60.0
    # How long a header may take from its first byte, a body at least (more as it grows), and a
    # connection may wait for a request.
    header_seconds: float = 30.0
    body_seconds: float = 30.0
    idle_seconds: float = 60.0
    # How long requests and streams may take to end by themselves once the server stops.
    stop_grace_seconds: float = 3.0


class Server(DaphneServer):  # type: ignore[misc] # daphne is not typed
    """One application on one port."""

    def __init__(self, application: ASGIApp, limits: Limits) -> None:
        super().__init__(
            application,
            endpoints=["unused: open_server listens itself"],
            signal_handlers=False,
            # A terminal may be open for as long as its session lives.
            websocket_timeout=-1,
            ping_interval=PING_INTERVAL_SECONDS,
            ping_timeout=PING_TIMEOUT_SECONDS,
            websocket_max_message_size=limits.message_bytes,
            websocket_max_frame_size=limits.message_bytes,
            request_buffer_size=_BODY_PIECE_BYTES,
            server_name="",
        )
        self.limits = limits
        self.port = 0
        self.is_stopping = False
        # Set it to cut the waits of a stop short.
        self.hurry = asyncio.Event()
        self.connections: dict[Any, dict[str, Any]] = {}
        self.transports: set[Any] = set()
        self._all_gone = asyncio.Event()
        self._listener: Any = None
        self.http_factory = Factory(self)
        self.ws_factory = SocketFactory(self, server="")
        self.ws_factory.setProtocolOptions(
            autoPingTimeout=PING_TIMEOUT_SECONDS,
            allowNullOrigin=True,
            openHandshakeTimeout=self.websocket_handshake_timeout,
            closeHandshakeTimeout=CLOSE_HANDSHAKE_SECONDS,
            maxMessagePayloadSize=limits.message_bytes,
            maxFramePayloadSize=limits.message_bytes,
            # Say why (1009, 1007, 1002) instead of just dropping the connection.
            failByDrop=False,
        )

    def listen(self, address: Address) -> None:
        """Listen on an address; port 0 takes a free one, which `self.port` then names.

        Raises:
            ConfigError: The address cannot be listened on.
        """
        try:
            self._listener = _reactor.listenTCP(
                address.port, self.http_factory, _LISTEN_BACKLOG, address.host
            )
        except (CannotListenError, OSError) as exc:
            cause = getattr(exc, "socketError", exc)
            reason = getattr(cause, "strerror", None) or "the address cannot be used"
            where = f"{address.host}, port {address.port}"
            raise ConfigError(f"RUNNER_HOST, PORT: cannot listen on {where}: {reason}.") from exc
        self._listener.transport = Transport
        self._listener.socket.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _KERNEL_UNSENT_BYTES
        )
        self.port = self._listener.getHost().port

    def connection_made(self, transport: Any) -> None:
        """Note an open connection."""
        self.transports.add(transport)

    def connection_lost(self, transport: Any) -> None:
        """Note that a connection is gone."""
        self.transports.discard(transport)
        if not self.transports:
            self._all_gone.set()

    def create_application(self, protocol: Any, scope: dict[str, Any]) -> Any:
        """Start the application for a request or socket; return where its messages go."""
        inbox = Inbox(protocol) if isinstance(protocol, Socket) else asyncio.Queue[dict[str, Any]]()
        scope["asgi"] = {"version": "3.0"}
        # A client could set it by a header, and every router would see another path.
        scope["root_path"] = ""
        if isinstance(protocol, Request) and protocol.refusal is not None:
            scope[REFUSAL_KEY] = protocol.refusal
        if isinstance(protocol, Request):
            scope[receipt.SCOPE_KEY] = receipt.Receipt(protocol)
        self.connections[protocol]["application_instance"] = aio.start(
            self._run_application(protocol, scope, inbox), name=f"{scope['type']} {scope['path']}"
        )
        return inbox

    async def _run_application(
        self, protocol: Any, scope: dict[str, Any], inbox: asyncio.Queue[dict[str, Any]]
    ) -> None:
        async def send(message: dict[str, Any]) -> None:
            await self.handle_reply(protocol, message)

        try:
            await self.application(scope, inbox.get, send)
        except Exception:
            logger.exception("An application failed.")
        finally:
            if "disconnected" not in self.connections.get(protocol, {}):
                protocol.conclude(is_stopping=self.is_stopping)
            self._forget_if_over(protocol, is_application_over=True)

    async def handle_reply(self, protocol: Any, message: dict[str, Any]) -> None:
        """Send a message; return when its client can take more."""
        await super().handle_reply(protocol, message)
        left = protocol.unsent_bytes() if not protocol.gate.is_open else 0
        while not protocol.gate.is_open:
            try:
                async with asyncio.timeout(self.limits.stall_seconds):
                    await protocol.gate.wait()
            except TimeoutError:
                before, left = left, protocol.unsent_bytes()
                if left >= before:
                    logger.info("A client that reads nothing was dropped.")
                    protocol.abort()
                    return

    def protocol_disconnected(self, protocol: Any) -> None:
        """Note that a request or socket is over for its client."""
        protocol.gate.stopProducing()
        details = self.connections.get(protocol)
        if details is not None:
            details.setdefault("disconnected", time.time())
            self._forget_if_over(protocol)

    def _forget_if_over(self, protocol: Any, *, is_application_over: bool = False) -> None:
        details = self.connections.get(protocol, {})
        application = details.get("application_instance")
        if "disconnected" in details and (
            is_application_over or application is None or application.done()
        ):
            del self.connections[protocol]

    async def keep_house(self) -> None:
        """Send pings, and cancel applications that outlive their client; until cancelled."""
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            for protocol, details in list(self.connections.items()):
                if "disconnected" not in details:
                    protocol.check_timeouts()
                elif time.time() - details["disconnected"] > APPLICATION_END_SECONDS:
                    logger.warning("An application outlived its client and was cancelled.")
                    details["application_instance"].cancel()

    async def close(self) -> None:
        """Stop: let applications end, listen no more, cancel the rest, send what is left.

        New requests are taken while applications end, for whoever asks whether the process is
        ready is to hear that it is not.
        """
        self.is_stopping = True
        applications = self._applications()
        logger.info("Stopping with %d requests open.", len(applications), extra={"action": "stop"})
        for transport in list(self.transports):
            if isinstance(transport.protocol, Channel):
                transport.protocol.close_when_idle()
        await self._wait_for(applications, self.limits.stop_grace_seconds)
        await self._listener.stopListening().asFuture(asyncio.get_running_loop())
        left = self._applications()
        for application in left:
            application.cancel()
        left = await self._wait_for(left, STOP_CANCEL_SECONDS)
        if left:
            logger.warning("%d requests did not end.", len(left), extra={"action": "stop"})
        await self._flush()

    async def _wait_for(
        self, applications: "set[asyncio.Task[None]]", seconds: float
    ) -> "set[asyncio.Task[None]]":
        """Wait for applications, but not once there is a hurry; return those left."""
        if not applications:
            return set()
        hurry = aio.start(self.hurry.wait(), name="hurry")
        try:
            async with asyncio.timeout(seconds):
                while applications and not hurry.done():
                    await asyncio.wait({*applications, hurry}, return_when=asyncio.FIRST_COMPLETED)
                    applications = {one for one in applications if not one.done()}
        except TimeoutError:
            pass
        finally:
            await aio.stop(hurry)
        return {one for one in applications if not one.done()}

    async def _flush(self) -> None:
        """Let connections send what is left to send, within a bound, and break off the rest."""
        for transport in list(self.transports):
            transport.loseConnection()
        self._all_gone.clear()
        try:
            async with asyncio.timeout(0 if self.hurry.is_set() else STOP_FLUSH_SECONDS):
                while self.transports:
                    await self._all_gone.wait()
        except TimeoutError:
            for transport in list(self.transports):
                transport.abortConnection()

    def _applications(self) -> "set[asyncio.Task[None]]":
        return {
            details["application_instance"]
            for details in self.connections.values()
            if "application_instance" in details
        }


@asynccontextmanager
async def open_server(
    application: ASGIApp, address: Address, limits: Limits
) -> AsyncIterator[Server]:
    """Serve until the context is left, and then stop in order.

    Raises:
        ConfigError: The address cannot be listened on.
    """
    _log_by_logging()
    server = Server(application, limits)
    server.listen(address)
    house = aio.start(server.keep_house(), name="server housekeeping")
    try:
        yield server
    finally:
        try:
            await server.close()
        finally:
            await aio.stop(house)


_observe: Any = STDLibLogObserver("twisted")


@cache
def _log_by_logging() -> None:
    """Hand Twisted's log to `logging`, once a process."""
    globalLogBeginner.beginLoggingTo([_observe], redirectStandardIO=False)
