"""Health: /v1/health and /livez say that the process lives, /readyz that it can serve.

Readiness names what is missing: a database that takes writes, the log, a fresh watch of the
cluster, or an engine that may decide. A process without an engine has neither a log nor a watch of
its own: all it needs is the database.
"""

import asyncio
import logging

import orjson
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sessions import runtime, store
from telorunner import __version__
from telorunner.drf import JSON_TYPE, json_answer
from telorunner.errors import MethodNotAllowed, Stopping
from telorunner.jsonerrors import answer

logger = logging.getLogger(__name__)

# A probe's default patience is a second or a few; a database that needs longer cannot serve.
DATABASE_SECONDS = 2.0

_METHODS = frozenset({"GET", "HEAD"})
_ALIVE: dict[str, dict[str, object]] = {
    "/v1/health": {"ok": True, "version": __version__},
    "/livez": {"ok": True},
}


async def send_alive(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer that the process lives, whatever its cluster and database do.

    An ASGI application: Django hands each request to threads and back for every middleware, some
    fifty turns of the loop, and a liveness probe that waits for all of them gets a busy process
    killed.
    """
    if scope["method"] not in _METHODS:
        response = answer(MethodNotAllowed(), headers={"allow": "GET, HEAD"})
    else:
        body = orjson.dumps(_ALIVE[scope["path"]])
        response = Response(body, headers={"cache-control": "no-store"}, media_type=JSON_TYPE)
    await response(scope, receive, send)


@csrf_exempt
async def readyz(request: HttpRequest) -> HttpResponse:
    """Answer whether the process can serve, and if not, for want of what."""
    if request.method not in _METHODS:
        return json_answer(MethodNotAllowed(), headers={"Allow": "GET, HEAD"})
    try:
        running = runtime.current()
    except Stopping:
        return _json({"ready": False, "checks": {"process": "stopping"}}, status=503)
    checks = {"database": "ok" if await _is_database_writable() else "unreachable"}
    if running.engine is not None:
        # The log lives in this process: it can be reached wherever the process can.
        checks["log"] = "ok"
        checks["cluster"] = "ok" if running.pods.is_fresh else "stale"
        checks["engine"] = "ok" if running.engine.is_working else "not working"
    is_ready = all(state == "ok" for state in checks.values())
    return _json({"ready": is_ready, "checks": checks}, status=200 if is_ready else 503)


async def _is_database_writable() -> bool:
    try:
        async with asyncio.timeout(DATABASE_SECONDS):
            await store.check_writable()
    except Exception as exc:
        logger.warning("The database takes no writes: %s", type(exc).__name__)
        return False
    return True


def _json(body: object, *, status: int = 200) -> HttpResponse:
    return HttpResponse(
        orjson.dumps(body),
        status=status,
        content_type=JSON_TYPE,
        headers={"Cache-Control": "no-store"},
    )
