"""Daphne as it comes, beside the product's server: a second baseline."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from daphne.http_protocol import HTTPFactory
from daphne.server import Server as DaphneServer
from daphne.ws_protocol import WebSocketFactory
from starlette.types import ASGIApp
from twisted.internet import reactor

# Twisted's interfaces are no types.
_reactor: Any = reactor


@contextmanager
def listen_plainly(application: ASGIApp) -> Iterator[int]:
    """Serve an application by Daphne's own server on a free port, without its housekeeping."""
    server = DaphneServer(application, endpoints=["unused"], signal_handlers=False)
    server.connections = {}
    server.http_factory = HTTPFactory(server)
    server.ws_factory = WebSocketFactory(server, server=server.server_name)
    listener = _reactor.listenTCP(0, server.http_factory, 1024, "127.0.0.1")
    try:
        yield listener.getHost().port
    finally:
        listener.stopListening()
