"""Answers `pods/log`: checks what is asked for and passes on what the node has."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any

from aiohttp import web

from telorunner.localcluster import statuses
from telorunner.localcluster.kubelet import Node, container_name
from telorunner.localcluster.node.container import ContainerUnavailable
from telorunner.localcluster.node.logs import LogRequest
from telorunner.localcluster.paths import Target, method_not_allowed
from telorunner.localcluster.queries import flag, integer
from telorunner.localcluster.store import Store, StoreError
from telorunner.localcluster.validation import Fault, not_allowed, wrong
from telorunner.localcluster.watching import Connections

_RFC3339 = r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)"
_REASONS = {400: "BadRequest", 404: "NotFound", 500: "InternalError"}


class PodLogs:
    """The log subresource of pods."""

    def __init__(self, store: Store, node: Node, connections: Connections) -> None:
        self._store = store
        self._node = node
        self._connections = connections

    async def handle(self, request: web.Request, target: Target) -> web.StreamResponse:
        """Answer with a container's log, to its end or for as long as it grows.

        Raises:
            StoreError: 400, 404 or 422, there is no such log or what is asked for cannot be.
        """
        if request.method != "GET":
            raise method_not_allowed()
        pod = self._store.get("pods", target.scope, target.name)
        log_request = _log_request(pod, request.query)
        if "nodeName" not in pod["spec"]:
            return web.Response(status=204)
        try:
            pieces = self._node.read_log(log_request)
        except ContainerUnavailable as exc:
            reason = _REASONS.get(exc.status_code, "InternalError")
            raise StoreError(exc.status_code, reason, str(exc)) from exc
        with self._connections.hold():
            return await _stream(request, pieces)


async def _stream(request: web.Request, pieces: AsyncIterator[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    response.enable_chunked_encoding()
    async with AsyncExitStack() as stack:
        if isinstance(pieces, AsyncGenerator):
            await stack.enter_async_context(aclosing(pieces))
        await response.prepare(request)
        async for piece in pieces:
            await response.write(piece)
    await response.write_eof()
    return response


def _log_request(pod: dict[str, Any], query: Mapping[str, str]) -> LogRequest:
    """Return what a query asks of a pod's logs.

    Raises:
        StoreError: 400 or 422, it cannot be read or cannot be had.
    """
    since_time = query.get("sinceTime") or None
    if since_time is not None and not re.fullmatch(_RFC3339, since_time):
        message = (
            f'parsing time "{since_time}" as "2006-01-02T15:04:05Z07:00": cannot parse'
            f' "{since_time}" as "2006"'
        )
        raise statuses.bad_request(message)
    request = LogRequest(
        namespace=pod["metadata"]["namespace"],
        pod=pod["metadata"]["name"],
        container=container_name(pod, query.get("container", "")),
        follow=flag(query, "follow"),
        tail_lines=integer(query, "tailLines"),
        since_seconds=integer(query, "sinceSeconds"),
        since_time=since_time,
        limit_bytes=integer(query, "limitBytes"),
        timestamps=flag(query, "timestamps"),
        previous=flag(query, "previous"),
    )
    faults = _faults(request)
    if query.get("stream"):
        faults.append(not_allowed("stream", "may not be specified"))
    if faults:
        raise _invalid_options(request.pod, faults)
    return request


def _faults(request: LogRequest) -> list[Fault]:
    faults = []
    if request.tail_lines is not None and request.tail_lines < 0:
        faults.append(wrong("tailLines", request.tail_lines, "must be greater than or equal to 0"))
    if request.limit_bytes is not None and request.limit_bytes < 1:
        faults.append(wrong("limitBytes", request.limit_bytes, "must be greater than 0"))
    if request.since_seconds is not None and request.since_time is not None:
        why = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        faults.append(not_allowed("[]", why))
    elif request.since_seconds is not None and request.since_seconds < 1:
        faults.append(wrong("sinceSeconds", request.since_seconds, "must be greater than 0"))
    return faults


def _invalid_options(pod: str, faults: list[Fault]) -> StoreError:
    text = ", ".join(f"{fault['field']}: {fault['message']}" for fault in faults)
    shown = text if len(faults) == 1 else f"[{text}]"
    details = {"name": pod, "kind": "PodLogOptions", "causes": faults}
    return StoreError(422, "Invalid", f'PodLogOptions "{pod}" is invalid: {shown}', details)
