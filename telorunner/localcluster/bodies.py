"""Reads request bodies into objects, with the real API's messages for what is no object. Pure."""

import secrets
from dataclasses import dataclass
from typing import Any

import orjson
import yaml

from telorunner.localcluster import gojson, statuses
from telorunner.localcluster.decoding import Undecodable, decode
from telorunner.localcluster.paths import Target
from telorunner.localcluster.resources import KINDS_BY_PLURAL, KNOWN_KINDS, ResourceKind
from telorunner.localcluster.validation import wrong

# Source: MaxRequestBodyBytes of the API server, 3 MiB.
MAX_BODY_BYTES = 3 * 1024 * 1024
# Source: k8s.io/apiserver/pkg/storage/names: a base of 58 and a suffix of 5 characters.
_MAX_BASE_LENGTH = 58
# Source: summarizeData of k8s.io/apiserver/pkg/endpoints/handlers.
_SHOWN_BYTES = 30
_KNOWN_HEADS = {(kind.kind, kind.api_version) for kind in KNOWN_KINDS}
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True)
class Decoded:
    """An object out of a body, and what the client is to be warned of."""

    obj: dict[str, Any]
    warnings: tuple[str, ...] = ()


def decode_object(
    kind: ResourceKind, content_type: str, body: bytes, validation: str = "Warn"
) -> Decoded:
    """Return the object in a body, with the kind's own `kind` and `apiVersion`.

    `validation` is what the request asks for by `fieldValidation`: what is done about fields that
    the kind does not have.

    Raises:
        StoreError: 415, it is not JSON or YAML by its content type; 400, it is no object of that
            kind.
    """
    if content_type == "application/yaml":
        body = _from_yaml(kind, body)
    elif content_type not in ("application/json", "application/octet-stream", ""):
        raise _unknown_format(content_type)
    try:
        obj = gojson.loads(body)
    except gojson.GoJsonError as exc:
        raise _unrecognized(kind, str(exc), body) from exc
    if not isinstance(obj, dict | None):
        what = gojson.kind_of_value(obj)
        raise _unrecognized(kind, f"json: cannot unmarshal {what} into {gojson.HEAD_TYPE}", body)
    obj = obj if obj is not None else {}
    _check_head_types(kind, obj, body)
    if obj.get("metadata") is None:
        obj["metadata"] = {}
    given, version = _head(kind, obj)
    if kind.is_custom:
        _check_custom_head(kind, obj, body)
    try:
        if why := _problem_with_head(kind, obj):
            raise Undecodable(why)
        return _decoded(kind, obj, validation)
    except Undecodable as exc:
        shown = version.rpartition("/")[2]
        message = f'{given} in version "{shown}" cannot be handled as a {kind.kind}: {exc}'
        raise statuses.bad_request(message) from exc


def redecode(
    kind: ResourceKind, obj: dict[str, Any], shown: str, validation: str = "Warn"
) -> Decoded:
    """Return an object that a patch left, as `decode_object` does; `shown` is it in a refusal.

    Raises:
        StoreError: 422, it is no object of that kind.
    """
    if kind.is_custom and (faults := _custom_head_faults(kind, obj)):
        raise statuses.invalid(kind, (obj.get("metadata") or {}).get("name", ""), faults)
    try:
        if why := _problem_with_head(kind, obj):
            raise Undecodable(why)
        return _decoded(kind, {"metadata": {}, **obj}, validation)
    except Undecodable as exc:
        raise statuses.invalid_patch(shown, str(exc)) from exc


def _decoded(kind: ResourceKind, obj: dict[str, Any], validation: str) -> Decoded:
    found, faults = decode(kind, obj)
    if faults and validation == "Strict":
        raise Undecodable(f"strict decoding error: {', '.join(faults)}")
    warnings = () if validation == "Ignore" else tuple(faults)
    # The store keeps each kind in one version, whichever it was written in.
    return Decoded({**found, **KINDS_BY_PLURAL[kind.plural].head}, warnings)


def _problem_with_head(kind: ResourceKind, obj: dict[str, Any]) -> str:
    """Return what is wrong where an object says that it is of another kind, else ""."""
    given, version = _head(kind, obj)
    if (given, version) == (kind.kind, kind.api_version):
        return ""
    if (given, version) in _KNOWN_HEADS:
        group = kind.group.partition(".")[0] or "core"
        return f"converting (v1.{given}) to ({group}.{kind.kind}): unknown conversion"
    return (
        f'no kind "{given}" is registered for version "{version}" in scheme'
        ' "pkg/runtime/scheme.go:110"'
    )


def _check_head_types(kind: ResourceKind, obj: dict[str, Any], body: bytes) -> None:
    for field in ("kind", "apiVersion"):
        if not isinstance(obj.get(field, ""), str | None):
            what = gojson.kind_of_value(obj[field])
            why = f"json: cannot unmarshal {what} into Go struct field .{field} of type string"
            raise _unrecognized(kind, why, body)


def _check_custom_head(kind: ResourceKind, obj: dict[str, Any], body: bytes) -> None:
    """Check that an object of a custom kind says of what kind and version it is."""
    if not obj.get("kind"):
        why = f"Object 'Kind' is missing in '{body.decode('utf-8', 'replace')}'"
        raise _unrecognized(kind, why, body, is_json=True)
    version = obj.get("apiVersion") or ""
    if version != kind.api_version:
        raise statuses.bad_request(
            f"the API version in the data ({version}) does not match the expected API version"
            f" ({kind.api_version})"
        )


def _custom_head_faults(kind: ResourceKind, obj: dict[str, Any]) -> list[dict[str, str]]:
    expected = {"apiVersion": kind.api_version, "kind": kind.kind}
    return [
        wrong(field, obj.get(field) or "", f"must be {value}")
        for field, value in expected.items()
        if obj.get(field) != value
    ]


def _head(kind: ResourceKind, obj: dict[str, Any]) -> tuple[str, str]:
    return obj.get("kind") or kind.kind, obj.get("apiVersion") or kind.api_version


def _from_yaml(kind: ResourceKind, body: bytes) -> bytes:
    try:
        return orjson.dumps(yaml.safe_load(body))
    except (yaml.YAMLError, TypeError) as exc:
        raise _unrecognized(kind, f"yaml: {exc}", body) from exc


def _unknown_format(content_type: str) -> statuses.StoreError:
    message = (
        "the body of the request was in an unknown format - accepted media types include:"
        " application/json, application/yaml, application/vnd.kubernetes.protobuf"
    )
    if "protobuf" in content_type:
        # What `kubectl create configmap` and the like send, and no other kubectl command.
        message += " (the local cluster reads no protobuf: use kubectl apply -f)"
    return statuses.StoreError(415, "UnsupportedMediaType", message)


def _unrecognized(
    kind: ResourceKind, why: str, body: bytes, *, is_json: bool = False
) -> statuses.StoreError:
    shown = "<empty>"
    if body:
        start = body[:_SHOWN_BYTES]
        shown = start.decode("utf-8", "replace") if body[:1] == b"{" else start.hex()
        shown += " ..." if len(body) > _SHOWN_BYTES else ""
    told = why if is_json else f"couldn't get version/kind; json parse error: {why}"
    return statuses.bad_request(
        f"the object provided is unrecognized (must be of type {kind.kind}): {told} ({shown})"
    )


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
    if target.name and not metadata.get("name"):
        raise statuses.bad_request(
            f"the name of the object ({target.name} based on URL) was undeterminable: name must be"
            " provided"
        )
    if target.name and metadata["name"] != target.name:
        raise statuses.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL"
            f" ({target.name})"
        )
    if not metadata.get("name") and metadata.get("generateName"):
        base = metadata["generateName"][:_MAX_BASE_LENGTH]
        metadata["name"] = base + "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))
    return {**obj, "metadata": metadata}
