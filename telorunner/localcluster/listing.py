"""Answers lists: whole, in pages, or as the objects stood at an earlier version.

Objects are kept as JSON, so a list joins what is there and serialises nothing.
"""

import base64
import binascii
import re
from typing import Any

import orjson

from telorunner.localcluster import gojson, statuses
from telorunner.localcluster.negotiation import Form, partial
from telorunner.localcluster.paths import Target
from telorunner.localcluster.queries import ListQuery
from telorunner.localcluster.resources import ResourceKind, encoded_in_version
from telorunner.localcluster.store import Entry, Store, StoreError
from telorunner.localcluster.table import render_table

_KEY_VERSION = "meta.k8s.io/v1"
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start"
    " a new list without the continue parameter, or use the continue token in this response to"
    " retrieve the remainder of the results. Continuing with the provided token results in an"
    " inconsistent list - objects that were created, modified, or deleted between the time the"
    " first chunk was returned and now may show up in the list."
)


def list_objects(store: Store, target: Target, query: ListQuery, form: Form) -> bytes:
    """Return the answer to a list as JSON.

    Raises:
        StoreError: 400, the continue token cannot be read; 410, it or the exact version asked for
            is too old; 504, the version asked for does not exist yet.
    """
    entries, metadata = _page(store, target, query)
    if form is Form.TABLE:
        table = render_table(target.kind, [entry.obj for entry in entries], metadata)
        return orjson.dumps(table)
    if form is Form.METADATA:
        head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        items = [partial(entry.obj) for entry in entries]
        return orjson.dumps({**head, "metadata": metadata, "items": items})
    return render_list(target.kind, entries, metadata)


def render_list(kind: ResourceKind, entries: list[Entry], metadata: dict[str, Any]) -> bytes:
    """Return a list of objects as JSON."""
    if kind.is_custom:
        # Shown of these even where there is no more.
        metadata = {"continue": "", **metadata}
    head = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata}
    items = b",".join(_item(kind, entry) for entry in entries)
    return orjson.dumps(head)[:-1] + b',"items":[' + items + b"]}"


def select(
    store: Store, target: Target, query: ListQuery, revision: int | None = None
) -> list[Entry]:
    """Return the selected objects of a collection, now or at an earlier version.

    Raises:
        StoreError: 410, the earlier version is no longer known.
    """
    if revision is None:
        entries = store.entries(target.kind.plural, target.namespace)
    else:
        entries = store.entries_at(target.kind.plural, target.namespace, revision)
    if query.matcher is None:
        return entries
    return [entry for entry in entries if query.matcher(entry.obj)]


def check_version_exists(store: Store, revision: int | None) -> None:
    """Check that a version asked for is not one that the cluster has not reached.

    Raises:
        StoreError: 504, it is.
    """
    if revision is None or revision <= store.revision:
        return
    message = f"Timeout: Too large resource version: {revision}, current: {store.revision}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    raise StoreError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def _page(store: Store, target: Target, query: ListQuery) -> tuple[list[Entry], dict[str, Any]]:
    """Return the objects of one page and the list's metadata."""
    revision = store.revision
    if query.token:
        revision, after = _read_token(query.token)
        entries = _rest(store, target, query, revision, after)
    else:
        check_version_exists(store, query.revision)
        if query.is_exact and query.revision is not None:
            revision = query.revision
        entries = select(store, target, query, revision)
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if query.limit <= 0 or len(entries) <= query.limit:
        return entries, metadata
    page = entries[: query.limit]
    metadata["continue"] = _write_token(revision, _key(page[-1]))
    if query.matcher is None:
        metadata["remainingItemCount"] = len(entries) - len(page)
    return page, metadata


def _rest(
    store: Store, target: Target, query: ListQuery, revision: int, after: list[str]
) -> list[Entry]:
    try:
        entries = select(store, target, query, revision)
    except StoreError as exc:
        expired = statuses.expired(_TOO_OLD)
        expired.list_metadata = {"continue": _write_token(store.revision, after)}
        raise expired from exc
    return [entry for entry in entries if _key(entry) > after]


def _key(entry: Entry) -> list[str]:
    metadata = entry.obj["metadata"]
    return [metadata.get("namespace", ""), metadata["name"]]


def _item(kind: ResourceKind, entry: Entry) -> bytes:
    """Return an object as it stands in a list: without kind and version, unless it is custom."""
    if kind.is_custom:
        return encoded_in_version(kind, entry.encoded)
    return b"{" + entry.encoded[len(orjson.dumps(kind.head)) :]


def _write_token(revision: int, after: list[str]) -> str:
    content = {"v": _KEY_VERSION, "rv": revision, "start": "/".join(after)}
    return base64.urlsafe_b64encode(orjson.dumps(content)).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, list[str]]:
    try:
        return _token_content(token)
    except (ValueError, AttributeError, TypeError, KeyError) as exc:
        message = f"invalid continue token: continue key is not valid: {exc}"
        raise statuses.bad_request(message) from exc


def _token_content(token: str) -> tuple[int, list[str]]:
    wrong = re.search(r"[^-_A-Za-z0-9]", token)
    if wrong:
        raise ValueError(f"illegal base64 data at input byte {wrong.start()}")
    try:
        decoded = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except binascii.Error as exc:
        position = len(token) // 4 * 4
        raise ValueError(f"illegal base64 data at input byte {position}") from exc
    content = gojson.loads(decoded)
    if content.get("v") != _KEY_VERSION:
        raise ValueError(f"server does not recognize this encoded version {content.get('v')}")
    if not content.get("rv"):
        raise ValueError(f"incorrect encoded start resourceVersion (version {_KEY_VERSION})")
    namespace, _, name = str(content["start"]).rpartition("/")
    return int(content["rv"]), [namespace, name]
