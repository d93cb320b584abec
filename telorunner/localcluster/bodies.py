"""Reads request bodies into objects, with the real API's messages for what is no object. Pure."""

import secrets
from typing import Any

import orjson

from telorunner.localcluster import statuses
from telorunner.localcluster.deletion import DeleteOptions
from telorunner.localcluster.paths import Target
from telorunner.localcluster.queries import flag, integer
from telorunner.localcluster.resources import ResourceKind
from telorunner.localcluster.validation import undecodable

# Source: MaxRequestBodyBytes of the API server, 3 MiB.
MAX_BODY_BYTES = 3 * 1024 * 1024
# Source: k8s.io/apiserver/pkg/storage/names: a base of 58 and a suffix of 5 characters.
_MAX_BASE_LENGTH = 58
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def decode_object(kind: ResourceKind, content_type: str, body: bytes) -> dict[str, Any]:
    """Return the object in a body, with the kind's own `kind` and `apiVersion`.

    Raises:
        StoreError: 415, it is not JSON by its content type; 400, it is no object of that kind.
    """
    if content_type not in ("application/json", "application/octet-stream", ""):
        message = (
            "the body of the request was in an unknown format - accepted media types include:"
            " application/json"
        )
        if "protobuf" in content_type:
            # What `kubectl create configmap` and the like send, and no other kubectl command.
            message += " (the local cluster reads no protobuf: use kubectl apply -f)"
        raise statuses.StoreError(415, "UnsupportedMediaType", message)
    problem = f"the object provided is unrecognized (must be of type {kind.kind})"
    try:
        obj = orjson.loads(body)
    except ValueError as exc:
        message = f"{problem}: couldn't get version/kind; json parse error: {exc}"
        raise statuses.bad_request(message) from exc
    if not isinstance(obj, dict):
        message = f"{problem}: couldn't get version/kind; json parse error: not an object"
        raise statuses.bad_request(message)
    given = obj.get("kind", kind.kind)
    if given != kind.kind:
        why = f"converting (v1.{given}) to (core.{kind.kind}): unknown conversion"
        message = f'{given} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'
        raise statuses.bad_request(message)
    version = obj.get("apiVersion", kind.api_version)
    if version != kind.api_version:
        message = (
            f"the API version in the data ({version}) does not match the expected API version"
            f" ({kind.api_version})"
        )
        raise statuses.bad_request(message)
    _check_metadata_shape(kind, obj.setdefault("metadata", {}))
    return {**obj, **kind.head}


def without_nulls(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object without the fields that are null: in the API's types these are absent."""
    return {key: _bare(value) for key, value in obj.items() if value is not None}


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return without_nulls(value)
    if isinstance(value, list):
        return [_bare(member) for member in value]
    return value


def place(target: Target, obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the namespace and name that the request gives it.

    Raises:
        StoreError: 400, its own are others.
    """
    metadata = dict(obj["metadata"])
    if target.namespace is not None:
        if metadata.setdefault("namespace", target.namespace) != target.namespace:
            raise statuses.bad_request(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )
    else:
        metadata.pop("namespace", None)
    if target.name and metadata.setdefault("name", target.name) != target.name:
        raise statuses.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL"
            f" ({target.name})"
        )
    if not metadata.get("name") and metadata.get("generateName"):
        base = metadata["generateName"][:_MAX_BASE_LENGTH]
        metadata["name"] = base + "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))
    return {**obj, "metadata": metadata}


def delete_options(body: bytes, query: Any) -> DeleteOptions:
    """Return the options of a deletion: those of the body, else those of the query.

    Raises:
        StoreError: 400, the body is no DeleteOptions.
    """
    try:
        given = orjson.loads(body) if body else {}
        preconditions = given.get("preconditions") or {}
        grace = given.get("gracePeriodSeconds", integer(query, "gracePeriodSeconds"))
        policy = given.get("propagationPolicy") or query.get("propagationPolicy", "")
        orphans = given.get("orphanDependents", flag(query, "orphanDependents"))
        return DeleteOptions(
            grace_seconds=None if grace is None else int(grace),
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
            is_orphaning=policy == "Orphan" or bool(orphans),
            is_dry_run=bool(given.get("dryRun")) or "dryRun" in query,
        )
    except (ValueError, TypeError, AttributeError) as exc:
        message = f"the object provided is unrecognized (must be of type DeleteOptions): {exc}"
        raise statuses.bad_request(message) from exc


def _check_metadata_shape(kind: ResourceKind, metadata: Any) -> None:
    """Check that metadata is what the rest of the server may take it for."""
    if not isinstance(metadata, dict):
        raise undecodable(kind, "json: cannot unmarshal into Go struct field .metadata")
    for field in ("labels", "annotations"):
        pairs = metadata.get(field) or {}
        if not isinstance(pairs, dict) or not all(
            isinstance(value, str) for value in pairs.values()
        ):
            why = f"json: cannot unmarshal into Go struct field ObjectMeta.metadata.{field}"
            raise undecodable(kind, f"{why} of type string")
    owners = metadata.get("ownerReferences") or []
    if not isinstance(owners, list) or not all(isinstance(owner, dict) for owner in owners):
        why = "json: cannot unmarshal into Go struct field ObjectMeta.metadata.ownerReferences"
        raise undecodable(kind, why)
    for field in ("name", "generateName", "namespace", "uid", "resourceVersion"):
        if not isinstance(metadata.get(field) or "", str):
            why = f"json: cannot unmarshal into Go struct field ObjectMeta.metadata.{field}"
            raise undecodable(kind, f"{why} of type string")
