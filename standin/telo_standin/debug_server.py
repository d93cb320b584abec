"""The debug server of ``--inspect``: ``/events`` as SSE, ``/json/version`` as JSON."""

import contextlib
import errno
import json
import os
from http.server import BaseHTTPRequestHandler
from typing import Any

from telo_standin.errors import RunError
from telo_standin.events import Events
from telo_standin.listening import LocalServer, listening_address, start_thread

HEARTBEAT_SECONDS = 15.0


class _Server(LocalServer):
    def __init__(self, address: tuple[str, int], events: Events, application: str) -> None:
        self.events = events
        self.application = application
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/events":
            self._stream()
        elif path == "/json/version":
            self._answer(200, self._version())
        else:
            self._answer(404, {"error": "not_found"})

    def log_message(self, *_: Any) -> None:
        """Keep the application's terminal free of the debug server's own lines."""

    def _version(self) -> dict[str, Any]:
        return {
            "protocol": "telo-debug",
            "version": 1,
            "application": self.server.application,
            "pid": os.getpid(),
        }

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache")
        self.send_header("connection", "close")
        self.end_headers()
        self.server.events.subscribe()
        try:
            # A subscriber that is gone is nobody's trouble.
            with contextlib.suppress(OSError):
                self._send_frames()
        finally:
            self.server.events.unsubscribe()

    def _send_frames(self) -> None:
        seen = 0
        while True:
            seen, frames = self.server.events.after(seen, HEARTBEAT_SECONDS)
            if frames is None:
                return
            text = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames)
            self.wfile.write((text or ": heartbeat\n\n").encode())


def start_debug_server(address: tuple[str, int], events: Events, application: str) -> None:
    """Serve the debug stream; on another port where the wanted one is taken, as real kernels do.

    Raises:
        RunError: the address cannot be listened on.
    """
    host = listening_address(address[0])
    try:
        try:
            server = _Server((host, address[1]), events, application)
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
            server = _Server((host, 0), events, application)
    except OSError as exc:
        raise RunError(f"--inspect cannot listen on {host}: {exc.strerror}") from exc
    start_thread(server.serve_forever, "debug server")
