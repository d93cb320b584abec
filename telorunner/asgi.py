"""The ASGI application: streams to their consumers, everything else to Django, CORS around all.

From the outside in: Cors, Guard, JsonErrors, static files, routes. It starts nothing.
"""

import os
import re
from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application
from starlette.types import ASGIApp, Receive, Scope, Send

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "telorunner.settings")
# NB: this sets Django up, which the consumers' models need before they are imported.
_django: Any = get_asgi_application()

from routing.routes import WELL_KNOWN  # noqa: E402
from sessions.consumers import EventStream, TerminalSocket, send_bundle  # noqa: E402 - see the line above
from telorunner.conf import Settings  # noqa: E402
from telorunner.cors import Cors, Guard  # noqa: E402
from telorunner.errors import MethodNotAllowed  # noqa: E402
from telorunner.health import send_alive  # noqa: E402
from telorunner.jsonerrors import JsonErrors, answer  # noqa: E402
from telorunner.routeproof import Proofs  # noqa: E402
from telorunner.staticfiles import StaticFiles  # noqa: E402

ALIVE_PATH = re.compile(r"/v1/health|/livez")
EVENTS_PATH = re.compile(r"/v1/sessions/(?P<session_id>[^/]+)/events")
RESERVED_PATH = re.compile(re.escape(WELL_KNOWN) + "/.*")
BUNDLE_PATH = re.compile(r"/internal/bundles/(?P<session_id>[^/]+)")
TERMINAL_PATH = re.compile(r"/v1/sessions/(?P<session_id>[^/]+)/io")
UNKNOWN_SOCKET_CODE = 4404


def build_application(config: Settings) -> ASGIApp:
    """Return the whole application for a configuration."""
    http = _route(EVENTS_PATH, _only_get(EventStream.as_asgi()), otherwise=_django)
    http = _route(BUNDLE_PATH, _only_get(send_bundle), otherwise=http)
    http = _route(ALIVE_PATH, send_alive, otherwise=http)
    http = _route(RESERVED_PATH, Proofs(otherwise=http), otherwise=http)
    http = JsonErrors(StaticFiles(http), is_debug=config.debug)
    http = Cors(Guard(http, config.cors_origins), config.cors_origins)
    sockets = _route(TERMINAL_PATH, TerminalSocket.as_asgi(), otherwise=_unknown_socket)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await (http if scope["type"] == "http" else sockets)(scope, receive, send)

    return application


def _route(pattern: re.Pattern[str], app: Any, *, otherwise: ASGIApp) -> ASGIApp:
    """Return an application that hands one path to another one, as Channels' router would."""

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        match = pattern.fullmatch(scope["path"])
        if match is None:
            await otherwise(scope, receive, send)
            return
        url_route = {"args": (), "kwargs": match.groupdict()}
        await app({**scope, "url_route": url_route}, receive, send)

    return route


def _only_get(app: Any) -> ASGIApp:
    async def only_get(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            await app(scope, receive, send)
        else:
            await answer(MethodNotAllowed(), headers={"allow": "GET"})(scope, receive, send)

    return only_get


async def _unknown_socket(_scope: Scope, receive: Receive, send: Send) -> None:
    """Accept and close: a browser cannot read the reason of a refused handshake."""
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": UNKNOWN_SOCKET_CODE, "reason": "not_found"})


application = build_application(settings.RUNNER)
