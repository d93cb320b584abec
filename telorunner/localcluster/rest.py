"""Create, read, list, watch, update, patch and delete: what the REST paths of objects do.

Everything but reading a body and answering a watch happens without waiting, so requests cannot
get between each other's check and write.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from telorunner.localcluster import admission, deletion, listing, scheduling, statuses, strategies
from telorunner.localcluster.bodies import decode_object, delete_options, place, without_nulls
from telorunner.localcluster.patching import apply_patch
from telorunner.localcluster.paths import Target, method_not_allowed
from telorunner.localcluster.queries import list_query
from telorunner.localcluster.store import Entry, Store
from telorunner.localcluster.table import render_table
from telorunner.localcluster.watching import Connections, Watch

Handler = Callable[[web.Request, Target], Awaitable[web.StreamResponse]]


class Rest:
    """The REST API of the objects in one store."""

    def __init__(self, store: Store, connections: Connections) -> None:
        self._store = store
        self._connections = connections
        self._collection: dict[str, Handler] = {
            "GET": self._list,
            "POST": self._create,
            "DELETE": self._delete_collection,
        }
        self._object: dict[str, Handler] = {
            "GET": self._get,
            "PUT": self._update,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }
        self._status: dict[str, Handler] = {
            "GET": self._get,
            "PUT": self._update,
            "PATCH": self._patch,
        }
        self._other: dict[tuple[str, str], Handler] = {
            ("binding", "POST"): self._bind,
            ("finalize", "PUT"): self._get,
        }

    async def handle(self, request: web.Request, target: Target) -> web.StreamResponse:
        """Answer a request for an object, a collection or a subresource.

        Raises:
            StoreError: The request is refused.
        """
        handler: Handler | None
        if target.subresource == "status":
            handler = self._status.get(request.method)
        elif target.subresource:
            handler = self._other.get((target.subresource, request.method))
        elif target.name:
            handler = self._object.get(request.method)
        else:
            handler = self._collection.get(request.method)
        is_review = target.kind.verbs == ("create",)
        if handler is None or (is_review and handler != self._create):
            raise method_not_allowed()
        return await handler(request, target)

    async def _list(self, request: web.Request, target: Target) -> web.StreamResponse:
        query = list_query(target.kind.plural, request.query)
        as_table = wants_table(request)
        if query.is_watch:
            with self._connections.hold():
                watch = Watch(self._store, target, query, as_table=as_table)
                return await watch.serve(request)
        return _json(listing.list_objects(self._store, target, query, as_table=as_table))

    async def _get(self, request: web.Request, target: Target) -> web.StreamResponse:
        entry = self._entry(target)
        if wants_table(request):
            version = {"resourceVersion": entry.obj["metadata"]["resourceVersion"]}
            return _json(orjson.dumps(render_table(target.kind, [entry.obj], version)))
        return _json(entry.encoded)

    async def _create(self, request: web.Request, target: Target) -> web.StreamResponse:
        kind = target.kind
        if kind.namespaced and target.namespace is None:
            raise method_not_allowed()
        obj = decode_object(kind, request.content_type, await request.read())
        if kind.plural == "selfsubjectaccessreviews":
            return _json(orjson.dumps({**obj, "status": {"allowed": True}}), status=201)
        obj = place(target, without_nulls(obj))
        name = obj["metadata"].get("name", "")
        if kind.namespaced:
            admission.check_namespace(self._store, kind, target.scope, name)
        new = strategies.prepare_create(self._store, kind, obj)
        if kind.plural == "pods":
            new = admission.apply_limit_ranges(self._store, target.scope, new)
            admission.check_service_account(self._store, target.scope, new)
        strategies.check(kind, new)
        self._admit(target, new)
        if "dryRun" in request.query:
            return _json(orjson.dumps(self._store.preview(kind.plural, new)), status=201)
        return _json(self._encoded(target, self._store.create(kind.plural, new)), status=201)

    def _admit(self, target: Target, new: dict[str, Any]) -> None:
        if target.kind.plural == "pods":
            admission.check_pod_security(self._store, target.scope, new)
        if target.kind.namespaced:
            admission.check_quotas(self._store, target.kind, target.scope, new)

    async def _update(self, request: web.Request, target: Target) -> web.StreamResponse:
        body = await request.read()
        obj = decode_object(target.kind, request.content_type, body)
        if target.subresource != "status":
            obj = without_nulls(obj)
        obj = place(target, obj)
        return self._write(request, target, obj)

    async def _patch(self, request: web.Request, target: Target) -> web.StreamResponse:
        body = await request.read()
        old = self._entry(target).obj
        patched = apply_patch(request.headers.get("Content-Type", ""), old, body)
        if patched.get("metadata", {}).get("resourceVersion") == "":
            patched["metadata"].pop("resourceVersion")
        obj = decode_object(target.kind, "application/json", orjson.dumps(patched))
        return self._write(request, target, place(target, obj))

    def _write(
        self, request: web.Request, target: Target, obj: dict[str, Any]
    ) -> web.StreamResponse:
        kind = target.kind
        old = self._entry(target).obj
        if target.subresource != "status":
            version = obj["metadata"].get("resourceVersion")
            if version not in (None, "", old["metadata"]["resourceVersion"]):
                raise statuses.modified(kind, target.name)
            obj = strategies.prepare_update(kind, old, obj)
            strategies.check(kind, obj)
        if "dryRun" in request.query:
            return _json(orjson.dumps(obj))
        new = self._store.replace(kind.plural, obj, subresource=target.subresource)
        encoded = self._encoded(target, new)
        deletion.finish_if_released(self._store, kind, new)
        return _json(encoded)

    async def _delete(self, request: web.Request, target: Target) -> web.StreamResponse:
        options = delete_options(await request.read(), request.query)
        old = self._entry(target).obj
        return _json(orjson.dumps(deletion.delete(self._store, target.kind, old, options)))

    async def _delete_collection(self, request: web.Request, target: Target) -> web.StreamResponse:
        if "deletecollection" not in target.kind.verbs or target.kind.plural == "namespaces":
            raise method_not_allowed()
        options = delete_options(await request.read(), request.query)
        query = list_query(target.kind.plural, request.query)
        entries = listing.select(self._store, target, query)
        for entry in entries:
            deletion.delete(self._store, target.kind, entry.obj, options)
        metadata = {"resourceVersion": str(self._store.revision)}
        return _json(listing.render_list(target.kind, entries, metadata))

    async def _bind(self, request: web.Request, target: Target) -> web.StreamResponse:
        binding = orjson.loads(await request.read() or b"{}")
        node = (binding.get("target") or {}).get("name") or ""
        scheduling.bind(self._store, self._entry(target).obj, node)
        done = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "code": 201,
        }
        return _json(orjson.dumps(done), status=201)

    def _entry(self, target: Target) -> Entry:
        return self._store.entry(target.kind.plural, target.scope, target.name)

    def _encoded(self, target: Target, obj: dict[str, Any]) -> bytes:
        metadata = obj["metadata"]
        scope = metadata.get("namespace", "")
        return self._store.entry(target.kind.plural, scope, metadata["name"]).encoded


def wants_table(request: web.Request) -> bool:
    """Say whether the client asks for a Table first, as kubectl does for `get`."""
    return "as=Table" in request.headers.get("Accept", "").partition(",")[0]


def _json(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
