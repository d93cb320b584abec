"""Where servers listen, and the threads that serve."""

import os
import signal
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# Set by the local cluster: wildcard addresses are bound here, so that each pod has its own.
BIND_VARIABLE = "TELO_STANDIN_BIND"
WILDCARDS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, not listened on


def listening_address(host: str) -> str:
    """Return the address to bind for a host that an application or an option names."""
    if host in WILDCARDS:
        return os.environ.get(BIND_VARIABLE) or "0.0.0.0"  # noqa: S104 - as the real kernel
    return host


def address_family(host: str) -> socket.AddressFamily:
    """Return the family of an address; a name is looked up over IPv4."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class LocalServer(ThreadingHTTPServer):
    """An HTTP server, a thread a connection, that asks no name server for its own name."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = address_family(address[0])
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without the look-up that takes seconds where no name server answers."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.socket.getsockname()[:2]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep a client that went away off the application's terminal."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def start_thread(target: Callable[[], None], name: str) -> None:
    """Start a thread that ends with the process and takes no signals.

    Python runs signal handlers in the main thread, which would not wake up for a signal that the
    system hands to another thread.
    """
    masked = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, masked)
    try:
        threading.Thread(target=target, name=name, daemon=True).start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
