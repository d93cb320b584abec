"""Answers watches: one JSON line for every change, from a version on, until time is up.

A watch reads the history at its own pace and holds nothing but a position in it. Each runs in the
task of its request; `Connections` ends them all when the server stops.
"""

import asyncio
import math
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from aiohttp import web

from telorunner.localcluster import listing
from telorunner.localcluster.negotiation import Form, partial
from telorunner.localcluster.paths import Target
from telorunner.localcluster.queries import ListQuery
from telorunner.localcluster.resources import encoded_in_version
from telorunner.localcluster.store import Change, Store, StoreError
from telorunner.localcluster.table import render_table

# A real API server ends watches without a timeout after 30 to 60 minutes.
MIN_WATCH_SECONDS = 1800
BOOKMARK_SECONDS = 60.0
# Before a watch ends it is told where to go on, if it is not shorter than this.
# Source: k8s.io/apiserver/pkg/storage/cacher, nextBookmarkTime.
LAST_BOOKMARK_SECONDS = 2.0
# What is handed to the socket at once; writing waits where the client reads slowly.
WRITE_BYTES = 256 * 1024

_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class Connections:
    """The long answers that are being given, so that they can be ended together."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Count the current task in while the block runs."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine always runs in a task
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    def end(self) -> None:
        """Cancel them all."""
        for task in self._tasks:
            task.cancel()


class Watch:
    """One watch of one collection."""

    def __init__(self, store: Store, target: Target, query: ListQuery, form: Form) -> None:
        self._store = store
        self._target = target
        self._query = query
        self._form = form
        self._has_columns = False
        self._history = store.history(target.kind.plural)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer the request; returns when time is up or the watch fell out of the history."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            await self._run(response)
        except StoreError as exc:
            line = orjson.dumps({"type": "ERROR", "object": exc.to_status()}) + b"\n"
            await response.write(line)
        await response.write_eof()
        return response

    async def _run(self, response: web.StreamResponse) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds()
        revision = self._query.revision or 0
        bookmarks = self._bookmark_times(loop.time(), end)
        if self._query.wants_initial_events:
            listing.check_version_exists(self._store, self._query.revision)
            # NB: the list and the position belong together, nothing may wait between them.
            revision, position = self._store.revision, self._history.end
            await self._write(response, list(self._initial_lines(revision)))
        elif self._query.revision is None:
            revision, position = self._store.revision, self._history.end
        else:
            position = self._history.position_after(revision)
        due = next(bookmarks)
        while True:
            changes = self._history.read(position)
            position += len(changes)
            await self._write(response, self._lines(changes, revision))
            if position != self._history.end:
                continue
            try:
                async with asyncio.timeout_at(min(end, due)):
                    await self._history.wait()
            except TimeoutError:
                if position != self._history.end:
                    # It came as time ran out: a bookmark now would let the client go on behind it.
                    continue
                if loop.time() >= end:
                    return
                if self._query.wants_bookmarks:
                    await response.write(self._bookmark(self._store.revision))
                due = next(bookmarks)

    def _bookmark_times(self, start: float, end: float) -> Iterator[float]:
        """Yield when bookmarks are due: once a minute, and shortly before the end."""
        last = end - LAST_BOOKMARK_SECONDS
        due = start
        while (due := due + BOOKMARK_SECONDS) < last:
            yield due
        if last > start:
            yield last
        while True:
            yield math.inf

    def _seconds(self) -> float:
        if self._query.timeout_seconds is not None:
            return self._query.timeout_seconds
        return MIN_WATCH_SECONDS + secrets.randbelow(MIN_WATCH_SECONDS)

    async def _write(self, response: web.StreamResponse, lines: Iterable[bytes]) -> None:
        pending = bytearray()
        for line in lines:
            pending += line
            if len(pending) >= WRITE_BYTES:
                await response.write(bytes(pending))
                pending.clear()
        if pending:
            await response.write(bytes(pending))

    def _initial_lines(self, revision: int) -> Iterator[bytes]:
        entries = listing.select(self._store, self._target, self._query)
        for entry in entries:
            yield self._line("ADDED", entry.obj, entry.encoded)
        if self._query.wants_bookmarks:
            yield self._bookmark(revision, _INITIAL_EVENTS_END)

    def _lines(self, changes: list[Change], since: int) -> Iterator[bytes]:
        for change in changes:
            namespace = change.obj["metadata"].get("namespace", "")
            if change.revision <= since or self._target.namespace not in (None, namespace):
                continue
            seen = self._seen(change)
            if seen is not None:
                yield self._line(*seen)

    def _seen(self, change: Change) -> tuple[str, dict[str, Any], bytes] | None:
        """Return a change as this watch sees it: selected objects come and go by matching."""
        matches = self._query.matcher
        if matches is None:
            return change.type, change.obj, change.encoded
        is_selected = change.type != "DELETED" and matches(change.obj)
        was_selected = change.previous is not None and matches(change.previous)
        if is_selected:
            return ("MODIFIED" if was_selected else "ADDED"), change.obj, change.encoded
        if not was_selected or change.previous is None:
            return None
        if change.type == "DELETED":
            return "DELETED", change.obj, change.encoded
        metadata = {**change.previous["metadata"], "resourceVersion": str(change.revision)}
        gone = {**change.previous, "metadata": metadata}
        return "DELETED", gone, orjson.dumps(gone)

    def _line(self, type_: str, obj: dict[str, Any], encoded: bytes) -> bytes:
        if self._form is Form.TABLE:
            version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            table = render_table(
                self._target.kind, [obj], version, with_columns=not self._has_columns
            )
            self._has_columns = True
            encoded = orjson.dumps(table)
        elif self._form is Form.METADATA:
            encoded = orjson.dumps(partial(obj))
        else:
            encoded = encoded_in_version(self._target.kind, encoded)
        return b'{"type":"' + type_.encode() + b'","object":' + encoded + b"}\n"

    def _bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if annotations is not None:
            metadata["annotations"] = annotations
        if self._form is Form.TABLE:
            mark = render_table(self._target.kind, [], metadata, with_columns=False)
        elif self._form is Form.METADATA:
            mark = partial({"metadata": metadata})
        else:
            mark = {**self._target.kind.head, "metadata": metadata}
        return b'{"type":"BOOKMARK","object":' + orjson.dumps(mark) + b"}\n"
