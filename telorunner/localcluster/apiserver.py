"""The API server of the local cluster: authentication, dispatch, failures. It owns no tasks.

What the paths do is in `rest`, `streams` and `podlogs`; `cluster` runs it.
"""

import hmac
import logging
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from telorunner.localcluster import statuses
from telorunner.localcluster.bodies import MAX_BODY_BYTES
from telorunner.localcluster.discovery import build_documents
from telorunner.localcluster.kubelet import Node
from telorunner.localcluster.paths import Paths, method_not_allowed
from telorunner.localcluster.podlogs import PodLogs
from telorunner.localcluster.resources import ResourceKind
from telorunner.localcluster.rest import Rest
from telorunner.localcluster.store import Store, StoreError
from telorunner.localcluster.streams import Attach
from telorunner.localcluster.watching import Connections

logger = logging.getLogger(__name__)

_HEALTH_PATHS = ("/healthz", "/livez", "/readyz")


class ApiServer:
    """Answers the requests to one local cluster."""

    def __init__(
        self, store: Store, node: Node, kinds: tuple[ResourceKind, ...], token: str, address: str
    ) -> None:
        self._token = token.encode()
        self._paths = Paths(kinds)
        documents = build_documents(kinds, address)
        self._documents = {path: orjson.dumps(found) for path, found in documents.items()}
        self._connections = Connections()
        self._rest = Rest(store, self._connections)
        self._attach = Attach(store, node, self._connections)
        self._logs = PodLogs(store, node, self._connections)

    def build_app(self) -> web.Application:
        """Return the application to run; its shutdown ends every watch and stream."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._render_failures])
        app.router.add_route("*", "/{path:.*}", self._dispatch)
        app.on_shutdown.append(self._end_connections)
        return app

    async def _end_connections(self, _: web.Application) -> None:
        self._connections.end()

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        if request.path in _HEALTH_PATHS:
            if "Authorization" in request.headers:
                self._authenticate(request)
            return web.Response(text="ok")
        self._authenticate(request)
        document = self._documents.get(request.path.rstrip("/"))
        if document is not None:
            if request.method != "GET":
                raise method_not_allowed()
            return web.Response(body=document, content_type="application/json")
        target = self._paths.target(request.path)
        if target is None:
            return web.Response(status=404, text="404 page not found\n")
        match target.subresource:
            case "attach":
                return await self._attach.handle(request, target)
            case "log":
                return await self._logs.handle(request, target)
        return await self._rest.handle(request, target)

    def _authenticate(self, request: web.Request) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        is_known = hmac.compare_digest(token.strip().encode(), self._token)
        if scheme.lower() != "bearer" or not is_known:
            raise statuses.unauthorized()

    @web.middleware
    async def _render_failures(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer what is refused with a Status, and a fault of ours with 500."""
        try:
            return await handler(request)
        except StoreError as exc:
            return _status(exc)
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {MAX_BODY_BYTES}"
            return _status(StoreError(413, "RequestEntityTooLarge", message))
        except ConnectionError:
            # The client has gone; nobody reads this answer.
            return web.Response(status=503)
        except web.HTTPException:
            raise
        except Exception:
            logger.exception("The local cluster failed at %s %s.", request.method, request.path)
            return _status(StoreError(500, "InternalError", "Internal error occurred"))


def _status(error: StoreError) -> web.Response:
    headers = {}
    seconds = (error.details or {}).get("retryAfterSeconds")
    if seconds is not None:
        headers["Retry-After"] = str(seconds)
    return web.Response(
        status=error.status_code,
        body=_as_go_writes(error.to_status()),
        content_type="application/json",
        headers=headers,
    )


def _as_go_writes(status: dict[str, Any]) -> bytes:
    """Return a Status as JSON to the byte as Go's encoder writes it."""
    encoded = orjson.dumps(status)
    for plain, escaped in ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026")):
        encoded = encoded.replace(plain, escaped)
    return encoded + b"\n"
