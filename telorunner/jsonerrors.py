"""Errors at the edge: whatever fails inside, the client reads the contract's JSON.

An ASGI middleware. It replaces the HTML error pages of frameworks, debug pages included, answers
for an application that raised, and for what the server refused. What Django makes a page of its own
of, as in the admin, is told by its cause: a database that is away is no error of ours. The admin
keeps its own pages for mistakes of its user.
"""

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson
from django.core.signals import got_request_exception
from django.dispatch import receiver
from django.http import HttpRequest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from telorunner.drf import JSON_TYPE, REFUSAL_KEY, error_headers, error_of_status, translate
from telorunner.errors import RunnerError

logger = logging.getLogger(__name__)

# What is wrong with such a request's address, method or content type is told before the size of
# its body; `telorunner.drf.read_json` refuses that then.
_BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
_API_PREFIX = "/v1/"
ADMIN_PREFIX = "/admin"
# In a request's scope: a list of the errors that Django has made pages of.
_FAILURES_KEY = "telorunner.failures"
_FIRST_ERROR = 400
_FIRST_SERVER_ERROR = 500
_HTML_TYPES = (b"text/html", b"text/plain")
# Headers of a replaced page that still say something true.
_KEPT_HEADERS = frozenset({b"allow", b"vary", b"retry-after"})


def answer(error: RunnerError, *, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error as an ASGI response."""
    return Response(
        orjson.dumps(error.body()),
        status_code=error.http_status,
        headers={**error_headers(error), **(headers or {})},
        media_type=JSON_TYPE,
    )


@receiver(got_request_exception)
def _note_failure(request: HttpRequest | None = None, **_: Any) -> None:
    """Keep what an exception is to be told as; Django's page says only that there was one."""
    failure = sys.exc_info()[1]
    scope: Mapping[str, Any] = getattr(request, "scope", {})
    if isinstance(failure, Exception) and _FAILURES_KEY in scope:
        scope[_FAILURES_KEY].append(translate(failure))


def _is_told_later(scope: Scope) -> bool:
    return scope["method"] in _BODY_METHODS and scope["path"].startswith(_API_PREFIX)


class JsonErrors:
    """Wraps the HTTP applications; sockets pass."""

    def __init__(self, app: ASGIApp, *, is_debug: bool) -> None:
        self._app = app
        self._is_debug = is_debug

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; replace its error pages, and answer where it raised."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal: RunnerError | None = scope.get(REFUSAL_KEY)
        if refusal is not None and not _is_told_later(scope):
            await answer(refusal)(scope, receive, send)
            return
        failures: list[RunnerError] = []
        guarded = _GuardedSend(send, self._may_pass(scope), failures)
        try:
            await self._app({**scope, _FAILURES_KEY: failures}, receive, guarded)
        except Exception as exc:
            logger.exception("A request failed.")
            if guarded.has_started:
                # What was sent cannot be taken back; the server breaks the connection off.
                raise
            await answer(translate(exc))(scope, receive, send)

    def _may_pass(self, scope: Scope) -> Callable[[int], bool]:
        path = scope["path"]
        is_admin = path == ADMIN_PREFIX or path.startswith(f"{ADMIN_PREFIX}/")

        def may_pass(status: int) -> bool:
            # A debug page shows names and values from the inside even for a 404.
            return is_admin and status < _FIRST_SERVER_ERROR and not self._is_debug

        return may_pass


class _GuardedSend:
    """An application's `send`, which swaps an HTML error page for JSON.

    It is of the same status, unless what failed is known by then and has another.
    """

    def __init__(
        self, send: Send, may_pass: Callable[[int], bool], failures: Sequence[RunnerError]
    ) -> None:
        self._send: Callable[[Message], Awaitable[None]] = send
        self._may_pass = may_pass
        self._failures = failures
        self._is_replaced = False
        self.has_started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            # ASGI wants lower-case names; Django sends its own, and CORS could not merge `Vary`.
            headers = [(name.lower(), value) for name, value in message.get("headers", ())]
            if self._is_page(message["status"], headers):
                self._is_replaced = True
                await self._replace(message["status"], headers)
                return
            message = {**message, "headers": headers}
        if not self._is_replaced:
            await self._send(message)

    def _is_page(self, status: int, headers: list[tuple[bytes, bytes]]) -> bool:
        content_type = dict(headers).get(b"content-type", b"text/html")
        is_page = content_type.startswith(_HTML_TYPES)
        return status >= _FIRST_ERROR and is_page and not self._may_pass(status)

    async def _replace(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        is_failure = status >= _FIRST_SERVER_ERROR
        # NB: the last one is what the page is about.
        error = self._failures[-1] if is_failure and self._failures else error_of_status(status)
        body = orjson.dumps(error.body())
        told = {
            "content-type": JSON_TYPE,
            "content-length": str(len(body)),
            **error_headers(error),
        }
        kept = [(name, value) for name, value in headers if name in _KEPT_HEADERS]
        added = {name.lower().encode(): value.encode() for name, value in told.items()}
        for name, _ in kept:
            added.pop(name, None)
        start: dict[str, Any] = {
            "type": "http.response.start",
            "status": error.http_status if is_failure else status,
            "headers": [*kept, *added.items()],
        }
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})
