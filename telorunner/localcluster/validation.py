"""What makes an object invalid, in the words of the real API. Pure.

A fault is a dict with `reason`, `message` and `field`, as in `status.details.causes`. Pods and the
kinds of the network have modules of their own.
"""

import re
from collections.abc import Iterable
from typing import Any

import orjson

from telorunner.localcluster import gojson, statuses
from telorunner.localcluster.resources import ResourceKind

Fault = dict[str, str]

# Source: k8s.io/apimachinery/pkg/util/validation and core's MaxSecretSize.
MAX_DATA_BYTES = 1024 * 1024
MAX_SUBDOMAIN_LENGTH = 253
MAX_LABEL_LENGTH = 63
MAX_ANNOTATION_BYTES = 256 * 1024

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
NAME_PART = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
LABEL_VALUE = f"({NAME_PART})?"
_DATA_KEY = "[-._a-zA-Z0-9]+"

NOT_A_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must"
    " start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for"
    f" validation is '{_LABEL}')"
)
NOT_A_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'example.com', regex used for"
    f" validation is '{SUBDOMAIN}')"
)
NOT_A_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or"
    f" '12345', regex used for validation is '{LABEL_VALUE}')"
)
_NOT_A_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',"
    f"  or 'KEY_NAME',  or 'key-name', regex used for validation is '{_DATA_KEY}')"
)
_REQUIRED_SECRET_KEYS = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def required(field: str, why: str = "") -> Fault:
    """Return the fault of a field that is missing."""
    message = f"Required value: {why}" if why else "Required value"
    return {"reason": "FieldValueRequired", "message": message, "field": field}


def wrong(field: str, value: object, why: str) -> Fault:
    """Return the fault of a field whose value does not do."""
    message = f"Invalid value: {shown(value)}: {why}"
    return {"reason": "FieldValueInvalid", "message": message, "field": field}


def shown(value: object) -> str:
    """Return a value as a fault shows it: texts as Go quotes them, the rest as JSON."""
    return gojson.quoted(value) if isinstance(value, str) else orjson.dumps(value).decode()


def duplicate(field: str, value: object) -> Fault:
    """Return the fault of a value that may stand only once."""
    message = f"Duplicate value: {shown(value)}"
    return {"reason": "FieldValueDuplicate", "message": message, "field": field}


def too_many(field: str, count: int, limit: int) -> Fault:
    """Return the fault of a list that is longer than a limit."""
    message = f"Too many: {count}: must have at most {limit} items"
    return {"reason": "FieldValueTooMany", "message": message, "field": field}


def unsupported(field: str, value: str, allowed: Iterable[str]) -> Fault:
    """Return the fault of a value outside of an enumeration."""
    choices = ", ".join(f'"{choice}"' for choice in allowed)
    message = f"Unsupported value: {shown(value)}: supported values: {choices}"
    return {"reason": "FieldValueNotSupported", "message": message, "field": field}


def not_allowed(field: str, why: str) -> Fault:
    """Return the fault of a change or value that is refused."""
    return {"reason": "FieldValueForbidden", "message": f"Forbidden: {why}", "field": field}


def too_many_bytes(field: str, limit: int) -> Fault:
    """Return the fault of a value that is larger than a limit."""
    message = f"Too long: may not be more than {limit} bytes"
    return {"reason": "FieldValueTooLong", "message": message, "field": field}


def label_faults(field: str, value: str) -> list[Fault]:
    """Return what keeps a value from being a DNS label."""
    faults = too_long(field, value, MAX_LABEL_LENGTH)
    if re.fullmatch(_LABEL, value):
        return faults
    is_subdomain = re.fullmatch(SUBDOMAIN, value)
    return [*faults, wrong(field, value, "must not contain dots" if is_subdomain else NOT_A_LABEL)]


def too_long(field: str, value: str, limit: int) -> list[Fault]:
    """Return the fault of a name with more characters than its kind may have."""
    if len(value) <= limit:
        return []
    return [wrong(field, value, f"must be no more than {limit} characters")]


def configmap_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with a ConfigMap's keys and size."""
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    faults = []
    for key in data:
        faults += _key_faults("data", key)
        if key in binary:
            faults.append(wrong(f"data[{key}]", key, "duplicate of key present in binaryData"))
    for key in binary:
        faults += _key_faults("binaryData", key)
    size = sum(len(value.encode()) for value in data.values())
    size += sum(map(_decoded_length, binary.values()))
    if size > MAX_DATA_BYTES:
        faults.append(too_many_bytes("[]", MAX_DATA_BYTES))
    return faults


def secret_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with a Secret's keys and size."""
    data = obj.get("data") or {}
    faults = [fault for key in data for fault in _key_faults("data", key)]
    faults += [
        required(f"data[{key}]")
        for key in _REQUIRED_SECRET_KEYS.get(obj.get("type", ""), ())
        if key not in data
    ]
    if sum(map(_decoded_length, data.values())) > MAX_DATA_BYTES:
        faults.append(too_many_bytes("data", MAX_DATA_BYTES))
    return faults


def frozen_data_faults(kind: ResourceKind, old: dict[str, Any], new: dict[str, Any]) -> list[Fault]:
    """Return what of a ConfigMap or Secret may not change."""
    if kind.plural == "secrets" and old.get("type") != new.get("type"):
        return [wrong("type", new.get("type"), "field is immutable")]
    if not old.get("immutable"):
        return []
    why = "field is immutable when `immutable` is set"
    faults = [] if new.get("immutable") else [not_allowed("immutable", why)]
    return faults + [
        not_allowed(field, why)
        for field in ("data", "binaryData")
        if (old.get(field) or {}) != (new.get(field) or {})
    ]


def undecodable(kind: ResourceKind, why: str) -> statuses.StoreError:
    """Return 400 for a body that does not have the shape of its kind."""
    return statuses.bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'
    )


def _key_faults(field: str, key: str) -> list[Fault]:
    path = f"{field}[{key}]"
    faults = too_long(path, key, MAX_SUBDOMAIN_LENGTH)
    if not re.fullmatch(_DATA_KEY, key):
        faults.append(wrong(path, key, _NOT_A_KEY))
    elif key in (".", ".."):
        faults.append(wrong(path, key, f"must not be '{key}'"))
    return faults


def _decoded_length(text: str) -> int:
    return len(text) * 3 // 4 - text.count("=", -2)
