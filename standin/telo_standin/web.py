"""``Http.Server`` and ``Http.Api``: mounts and routes over Python's own HTTP server."""

import json
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

from telo_standin.errors import RunError, StandinError
from telo_standin.expressions import resolve
from telo_standin.kernel import Kernel
from telo_standin.listening import LocalServer, listening_address, start_thread
from telo_standin.manifest import Resource
from telo_standin.references import MEDIA_TYPE, METHODS
from telo_standin.schema import problems

MAX_BODY_BYTES = 10 * 1024 * 1024
IDLE_CONNECTION_SECONDS = 60


class Answer(NamedTuple):
    """A response: status and what is sent as JSON; None sends nothing."""

    status: int
    body: Any


def start_server(kernel: Kernel, resource: Resource) -> None:
    """Listen for one ``Http.Server`` and serve it in threads of its own.

    Raises:
        RunError: the port is no number or taken.
    """
    port = resolve(resource.fields["port"], kernel.settings)
    host = resolve(resource.fields.get("host", ""), kernel.settings)
    if type(port) is not int or not 0 <= port <= 65535:
        raise RunError(f"{resource.kind} '{resource.name}': the port is no port number")
    address = listening_address(str(host))
    routes = {(method, path): route for method, path, route in _routes(kernel, resource)}
    try:
        server = _Server((address, port), kernel, routes)
    except OSError as exc:
        raise RunError(f"cannot listen on {address}:{port}: {exc.strerror}") from exc
    start_thread(server.serve_forever, f"server {resource.name}")


def _routes(kernel: Kernel, server: Resource) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for mount in server.fields.get("mounts") or []:
        api = kernel.manifest.resources[mount["mount"].target]
        for route in api.fields["routes"] or []:
            path = mount["path"].rstrip("/") + route["request"]["path"]
            yield route["request"]["method"], path.rstrip("/") or "/", route


class _Server(LocalServer):
    def __init__(
        self,
        address: tuple[str, int],
        kernel: Kernel,
        routes: Mapping[tuple[str, str], Mapping[str, Any]],
    ) -> None:
        self.kernel = kernel
        self.routes = routes
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "telo-standin"
    timeout = IDLE_CONNECTION_SECONDS
    server: _Server

    def _serve(self) -> None:
        path, _, query = self.path.partition("?")
        data = self._read_body()
        if data is None:
            self._send(Answer(413, {"error": "PayloadTooLarge", "message": "no usable length"}))
            return
        route = self.server.routes.get((self.command, unquote(path).rstrip("/") or "/"))
        if route is None:
            self._send(Answer(404, {"error": "NotFound", "message": "no such route"}))
            return
        try:
            request = {"query": _query(query), "body": _body(data)}
        except ValueError:
            self._send(Answer(400, {"error": "ValidationError", "message": "not valid JSON"}))
            return
        self._send(answer(self.server.kernel, route, request))

    def log_message(self, *_: Any) -> None:
        """Keep the application's terminal for what the application writes."""

    def _read_body(self) -> bytes | None:
        length = self.headers.get("content-length", "0")
        is_usable = length.isdecimal() and "transfer-encoding" not in self.headers
        if not is_usable or int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            return None
        return self.rfile.read(int(length))

    def _send(self, reply: Answer) -> None:
        data = b"" if reply.body is None else json.dumps(reply.body, ensure_ascii=False).encode()
        self.send_response(reply.status)
        if data:
            self.send_header("content-type", MEDIA_TYPE)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


for _method in METHODS:
    setattr(_Handler, f"do_{_method}", _Handler._serve)


def answer(kernel: Kernel, route: Mapping[str, Any], request: Mapping[str, Any]) -> Answer:
    """Return a route's answer to a request (``query`` and ``body``)."""
    refused = [
        f"{part}: {problem}"
        for part, schema in (route["request"].get("schema") or {}).items()
        for problem in problems(schema, request[part])
    ]
    if refused:
        return Answer(400, {"error": "ValidationError", "message": "; ".join(refused)})
    scope = {**kernel.settings, "request": request}
    try:
        if "handler" in route:
            inputs = resolve(route.get("inputs") or {}, scope)
            scope["result"] = kernel.invoke(route["handler"], inputs)
        return _render(route["returns"][0], scope)
    except StandinError as exc:
        return _caught(route, {**scope, "error": {"message": str(exc)}})


def _caught(route: Mapping[str, Any], scope: Mapping[str, Any]) -> Answer:
    try:
        if route.get("catches"):
            return _render(route["catches"][0], scope)
    except StandinError:
        pass  # What a broken `catches` would have said is told as if there were none.
    return Answer(500, {"error": "InternalError", "message": scope["error"]["message"]})


def _render(declared: Mapping[str, Any], scope: Mapping[str, Any]) -> Answer:
    content = (declared.get("content") or {}).get(MEDIA_TYPE) or {}
    return Answer(declared["status"], resolve(content.get("body"), scope))


def _query(text: str) -> dict[str, Any]:
    values = parse_qs(text, keep_blank_values=True)
    return {name: found if len(found) > 1 else found[0] for name, found in values.items()}


def _body(data: bytes) -> Any:
    return json.loads(data) if data else None
