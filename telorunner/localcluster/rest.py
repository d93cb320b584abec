"""Create, read, list, watch, update, patch and delete: what the REST paths of objects do.

Everything but reading a body and answering a watch happens without waiting, so requests cannot
get between each other's check and write.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import orjson
from aiohttp import web

from telorunner.localcluster import (
    admission,
    deletion,
    listing,
    networkwarnings,
    scheduling,
    statuses,
    strategies,
)
from telorunner.localcluster.bodies import Decoded, decode_object, place, redecode, without_nulls
from telorunner.localcluster.negotiation import Form, accepted_form, partial
from telorunner.localcluster.options import check_write_options, delete_options
from telorunner.localcluster.patching import apply_patch
from telorunner.localcluster.paths import Target, method_not_allowed
from telorunner.localcluster.queries import list_query
from telorunner.localcluster.resources import ResourceKind, encoded_in_version, in_version
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
        form = accepted_form(request, is_collection=True)
        query = list_query(target.kind.plural, request.query)
        if query.is_watch:
            with self._connections.hold():
                watch = Watch(self._store, target, query, form)
                return await watch.serve(request)
        return _json(listing.list_objects(self._store, target, query, form))

    async def _get(self, request: web.Request, target: Target) -> web.StreamResponse:
        form = accepted_form(request)
        entry = self._entry(target)
        if form is Form.TABLE:
            version = {"resourceVersion": entry.obj["metadata"]["resourceVersion"]}
            return _json(orjson.dumps(render_table(target.kind, [entry.obj], version)))
        if form is Form.METADATA:
            return _json(orjson.dumps(partial(entry.obj)))
        return _json(encoded_in_version(target.kind, entry.encoded))

    async def _create(self, request: web.Request, target: Target) -> web.StreamResponse:
        if target.kind.namespaced and target.namespace is None:
            raise method_not_allowed()
        check_write_options("Create", request.query)
        decoded = decode_object(
            target.kind, request.content_type, await request.read(), _validation(request)
        )
        return self._add(request, target, decoded)

    def _add(self, request: web.Request, target: Target, decoded: Decoded) -> web.StreamResponse:
        kind, obj = target.kind, decoded.obj
        if kind.plural == "selfsubjectaccessreviews":
            return _json(
                orjson.dumps({**kind.head, **obj, "status": {"allowed": True}}), status=201
            )
        name = admission.name_in_refusals(obj)
        obj = place(target, without_nulls(obj))
        if obj["metadata"].get("resourceVersion"):
            # Without a reason and as a 500, as the real API has it.
            message = "resourceVersion should not be set on objects to be created"
            raise statuses.StoreError(500, "", message)
        if kind.namespaced:
            admission.check_namespace(self._store, kind, target.scope, name)
        new = strategies.prepare_create(self._store, kind, obj)
        new = admission.mutate(self._store, kind, target.scope, new, name)
        strategies.check_new(kind, new)
        warnings = admission.validate(self._store, kind, target.scope, new)
        if "dryRun" in request.query:
            encoded = orjson.dumps(in_version(kind, self._store.preview(kind.plural, new)))
        else:
            encoded = self._encoded(target, self._store.create(kind.plural, new))
        return _json(encoded, status=201, warnings=[*decoded.warnings, *warnings])

    async def _update(self, request: web.Request, target: Target) -> web.StreamResponse:
        check_write_options("Update", request.query)
        decoded = decode_object(
            target.kind, request.content_type, await request.read(), _validation(request)
        )
        obj = decoded.obj
        if target.subresource != "status":
            obj = without_nulls(obj)
            if self._is_created(target):
                return self._add(request, target, _without_version(target, decoded))
        obj = place(target, obj)
        _check_precondition(target.kind, self._entry(target).obj, obj["metadata"])
        return self._write(request, target, Decoded(obj, decoded.warnings))

    def _is_created(self, target: Target) -> bool:
        is_there = self._store.find(target.kind.plural, target.scope, target.name) is not None
        return not is_there and target.kind.plural in strategies.CREATED_BY_UPDATES

    async def _patch(self, request: web.Request, target: Target) -> web.StreamResponse:
        body = await request.read()
        check_write_options("Patch", request.query)
        old = in_version(target.kind, self._entry(target).obj)
        patched, shown = apply_patch(request.headers.get("Content-Type", ""), old, body)
        decoded = redecode(target.kind, patched, shown, _validation(request))
        return self._write(
            request, target, Decoded(place(target, decoded.obj), decoded.warnings), is_patch=True
        )

    def _write(
        self, request: web.Request, target: Target, decoded: Decoded, *, is_patch: bool = False
    ) -> web.StreamResponse:
        kind, obj = target.kind, decoded.obj
        old = self._entry(target).obj
        metadata = obj["metadata"]
        if metadata.get("resourceVersion") in ("", "0", None):
            metadata.pop("resourceVersion", None)
        elif metadata["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise statuses.modified(kind, target.name)
        uid = metadata.pop("uid", None)
        another = uid if is_patch and uid != old["metadata"]["uid"] else None
        warnings = list(decoded.warnings)
        if target.subresource == "status":
            obj = strategies.prepare_status(kind, old, obj)
            warnings += networkwarnings.status_warnings(kind.plural, obj)
        else:
            obj = strategies.prepare_update(self._store, kind, old, obj)
            strategies.check_update(kind, old, obj, uid=another)
            warnings += admission.validate_update(self._store, kind, old, obj)
        if "dryRun" in request.query:
            shown = self._store.preview_replacement(kind.plural, obj)
            return _json(orjson.dumps(in_version(kind, shown)), warnings=warnings)
        new = self._store.replace(kind.plural, obj)
        encoded = self._encoded(target, new)
        deletion.finish_if_released(self._store, kind, new)
        return _json(encoded, warnings=warnings)

    async def _delete(self, request: web.Request, target: Target) -> web.StreamResponse:
        options = delete_options(await request.read(), request.query)
        old = self._entry(target).obj
        left = deletion.delete(self._store, target.kind, old, options)
        shown = left if left["kind"] == "Status" else in_version(target.kind, left)
        return _json(orjson.dumps(shown))

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
        entry = self._store.entry(target.kind.plural, scope, metadata["name"])
        return encoded_in_version(target.kind, entry.encoded)


def _check_precondition(kind: ResourceKind, old: dict[str, Any], given: dict[str, Any]) -> None:
    """Check that the version of an update is one and that its uid is the object's.

    Raises:
        StoreError: 409 or 500, it is not.
    """
    version = given.get("resourceVersion") or "0"
    if not version.isdecimal():
        message = f'strconv.ParseUint: parsing "{version}": invalid syntax'
        raise statuses.StoreError(500, "", message)
    if given.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
        raise statuses.other_uid(kind, old["metadata"], given["uid"])


def _without_version(target: Target, decoded: Decoded) -> Decoded:
    """Return what an update creates: it may name a version, but not the uid of another object.

    Raises:
        StoreError: 409, it names a uid.
    """
    metadata = dict(decoded.obj["metadata"])
    if metadata.get("uid"):
        there = {"namespace": target.scope, "name": target.name, "uid": ""}
        raise statuses.other_uid(target.kind, there, metadata["uid"])
    metadata.pop("resourceVersion", None)
    return Decoded({**decoded.obj, "metadata": metadata}, decoded.warnings)


def _validation(request: web.Request) -> str:
    return request.query.get("fieldValidation") or "Warn"


def _json(body: bytes, *, status: int = 200, warnings: Iterable[str] = ()) -> web.Response:
    response = web.Response(body=body, status=status, content_type="application/json")
    for warning in warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response
