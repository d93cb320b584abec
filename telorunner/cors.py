"""Origins: which browser pages may read answers, and which may change anything.

Two ASGI middlewares. `Cors` tells browsers (it never keeps a request from having its effect), and
`Guard`, beside it, refuses what must not happen: changes asked for by a foreign origin, and changes
while the process is going down. Sockets pass both: their consumer answers with a close code.
"""

import re
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sessions import runtime
from telorunner.errors import NotFound, OriginNotAllowed, RunnerError, Stopping
from telorunner.jsonerrors import ADMIN_PREFIX, answer

API_PREFIX = "/v1"

ALLOWED_METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS")
ALLOWED_HEADERS = ("x-telo-accepted-terms", "content-type", "last-event-id")
PREFLIGHT_MAX_AGE_SECONDS = 600

_READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_EVENTS_PATH = re.compile(r"/v1/sessions/[^/]+/events/?")
_HTTP_OK = 200


class Cors(CORSMiddleware):
    """Starlette's CORS around everything but the admin."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(
            app,
            allow_origins=["*"] if "*" in origins else list(origins),
            allow_methods=ALLOWED_METHODS,
            allow_headers=ALLOWED_HEADERS,
            max_age=PREFLIGHT_MAX_AGE_SECONDS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the headers to what the application answers; answer preflights."""
        if scope["type"] == "http" and _is_admin(_path(scope)):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def preflight_response(self, request_headers: Headers) -> Response:
        """Refuse in the contract's form what Starlette would refuse in plain text."""
        response = super().preflight_response(request_headers)
        if response.status_code == _HTTP_OK:
            return response
        refusal = OriginNotAllowed("This origin, method or header is not allowed here.")
        vary = {"vary": response.headers["vary"]}
        allowed = response.headers.get("access-control-allow-origin")
        return answer(
            refusal, headers=vary | ({"access-control-allow-origin": allowed} if allowed else {})
        )

    async def send(self, message: Message, send: Send, request_headers: Headers) -> None:
        """Say `*` also to requests that name no origin, where everybody is allowed."""
        if message["type"] == "http.response.start" and self.allow_all_origins:
            MutableHeaders(scope=message)["access-control-allow-origin"] = "*"
        await super().send(message, send, request_headers)


class Guard:
    """Refuses before anything happens."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._origins = None if "*" in origins else frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is refused; hand everything else on."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is not None:
            await answer(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> RunnerError | None:
        path = _path(scope)
        if not path.isprintable():
            # No route has control characters, and no database should be asked for them.
            return NotFound()
        is_change = path.startswith(API_PREFIX) and scope["method"] not in _READING_METHODS
        if (is_change or _EVENTS_PATH.fullmatch(path)) and not self._is_allowed(scope):
            return OriginNotAllowed()
        return Stopping() if is_change and _is_stopping() else None

    def _is_allowed(self, scope: Scope) -> bool:
        """Tell whether every Origin header is on the list; a request without one is allowed."""
        if self._origins is None:
            return True
        return self._origins.issuperset(Headers(scope=scope).getlist("origin"))


def _path(scope: Scope) -> str:
    """Return the path as the routers see it: they take any number of leading slashes for one."""
    return "/" + str(scope["path"]).lstrip("/")


def _is_admin(path: str) -> bool:
    return path == ADMIN_PREFIX or path.startswith(f"{ADMIN_PREFIX}/")


def _is_stopping() -> bool:
    try:
        runtime.current()
    except Stopping:
        return True
    return False
