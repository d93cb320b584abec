"""What makes an object invalid, in the words of the real API. Pure.

A fault is a dict with `reason`, `message` and `field`, as in `status.details.causes`. Pods have a
module of their own, `podvalidation`; what may not change in an update is in `strategies`.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any

from telorunner.localcluster import statuses
from telorunner.localcluster.resources import ResourceKind

Fault = dict[str, str]

# Source: k8s.io/apimachinery/pkg/util/validation and core's MaxSecretSize.
MAX_DATA_BYTES = 1024 * 1024
MAX_SUBDOMAIN_LENGTH = 253
MAX_LABEL_LENGTH = 63
MAX_ANNOTATION_BYTES = 256 * 1024

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME_PART = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
LABEL_VALUE = f"({_NAME_PART})?"
_DATA_KEY = "[-._a-zA-Z0-9]+"

NOT_A_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must"
    " start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for"
    f" validation is '{_LABEL}')"
)
_NOT_A_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'example.com', regex used for"
    f" validation is '{_SUBDOMAIN}')"
)
_NOT_DNS1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123',"
    f" regex used for validation is '{_DNS1035}')"
)
_NOT_A_NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end"
    " with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for"
    f" validation is '{_NAME_PART}')"
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
    shown = f'"{value}"' if isinstance(value, str) else value
    message = f"Invalid value: {shown}: {why}"
    return {"reason": "FieldValueInvalid", "message": message, "field": field}


def duplicate(field: str, value: str) -> Fault:
    """Return the fault of a value that may stand only once."""
    message = f'Duplicate value: "{value}"'
    return {"reason": "FieldValueDuplicate", "message": message, "field": field}


def unsupported(field: str, value: str, allowed: Iterable[str]) -> Fault:
    """Return the fault of a value outside of an enumeration."""
    choices = ", ".join(f'"{choice}"' for choice in allowed)
    message = f'Unsupported value: "{value}": supported values: {choices}'
    return {"reason": "FieldValueNotSupported", "message": message, "field": field}


def not_allowed(field: str, why: str) -> Fault:
    """Return the fault of a change or value that is refused."""
    return {"reason": "FieldValueForbidden", "message": f"Forbidden: {why}", "field": field}


def label_faults(field: str, value: str) -> list[Fault]:
    """Return what keeps a value from being a DNS label."""
    if not re.fullmatch(_LABEL, value):
        return [wrong(field, value, NOT_A_LABEL)]
    return _too_long(field, value, MAX_LABEL_LENGTH)


def metadata_faults(kind: ResourceKind, obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with an object's name, labels, annotations and owners."""
    metadata = obj["metadata"]
    name = metadata.get("name")
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    return [
        *_name_faults(kind, name),
        *_label_map_faults(metadata.get("labels") or {}),
        *_annotation_faults(metadata.get("annotations") or {}),
        *_owner_faults(metadata.get("ownerReferences") or []),
    ]


def _name_faults(kind: ResourceKind, name: str) -> list[Fault]:
    field = "metadata.name"
    if kind.plural == "namespaces":
        return label_faults(field, name)
    if kind.plural == "services":
        if not re.fullmatch(_DNS1035, name):
            return [wrong(field, name, _NOT_DNS1035)]
        return _too_long(field, name, MAX_LABEL_LENGTH)
    if not re.fullmatch(_SUBDOMAIN, name):
        return [wrong(field, name, _NOT_A_SUBDOMAIN)]
    return _too_long(field, name, MAX_SUBDOMAIN_LENGTH)


def _too_long(field: str, value: str, limit: int) -> list[Fault]:
    if len(value) <= limit:
        return []
    return [wrong(field, value, f"must be no more than {limit} characters")]


def _label_map_faults(labels: dict[str, str]) -> list[Fault]:
    faults = []
    for key, value in labels.items():
        prefix, _, name = key.rpartition("/")
        if not re.fullmatch(_NAME_PART, name):
            faults.append(wrong("metadata.labels", key, _NOT_A_NAME_PART))
        elif prefix and not re.fullmatch(_SUBDOMAIN, prefix):
            faults.append(wrong("metadata.labels", key, f"prefix part {_NOT_A_SUBDOMAIN}"))
        if not re.fullmatch(LABEL_VALUE, value):
            faults.append(wrong("metadata.labels", value, NOT_A_LABEL_VALUE))
        faults += _too_long("metadata.labels", value, MAX_LABEL_LENGTH)
    return faults


def _annotation_faults(annotations: dict[str, str]) -> list[Fault]:
    size = sum(len(key) + len(value.encode()) for key, value in annotations.items())
    if size <= MAX_ANNOTATION_BYTES:
        return []
    return [_too_many_bytes("metadata.annotations", MAX_ANNOTATION_BYTES)]


def _owner_faults(owners: list[dict[str, Any]]) -> list[Fault]:
    return [
        wrong(f"metadata.ownerReferences.{field}", "", "must not be empty")
        for owner in owners
        for field in ("apiVersion", "kind", "name", "uid")
        if not owner.get(field)
    ]


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
        faults.append(_too_many_bytes("[]", MAX_DATA_BYTES))
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
        faults.append(_too_many_bytes("data", MAX_DATA_BYTES))
    return faults


def check_base64(kind: ResourceKind, obj: dict[str, Any]) -> None:
    """Check that the bytes of a ConfigMap or Secret can be decoded, and that texts are texts.

    Raises:
        StoreError: 400, as the real API's decoder says it.
    """
    fields = {"configmaps": ("data", "binaryData"), "secrets": ("stringData", "data")}
    for field in fields.get(kind.plural, ()):
        values = (obj.get(field) or {}).values()
        if not all(isinstance(value, str) for value in values):
            what = f"json: cannot unmarshal Go struct field {kind.kind}.{field} of type string"
            raise undecodable(kind, what)
    for value in (obj.get(fields.get(kind.plural, ("", ""))[1]) or {}).values():
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error as exc:
            raise undecodable(kind, "illegal base64 data at input byte 0") from exc


def undecodable(kind: ResourceKind, why: str) -> statuses.StoreError:
    """Return 400 for a body that does not have the shape of its kind."""
    return statuses.bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'
    )


def service_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with a Service's ports."""
    spec = obj.get("spec") or {}
    ports = spec.get("ports") or []
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        return [required("spec.ports")]
    faults = []
    for index, port in enumerate(ports):
        field = f"spec.ports[{index}]"
        if port.get("name"):
            faults += label_faults(f"{field}.name", port["name"])
        elif len(ports) > 1:
            faults.append(required(f"{field}.name"))
        if not 1 <= port.get("port", 0) <= 65535:
            why = "must be between 1 and 65535, inclusive"
            faults.append(wrong(f"{field}.port", port.get("port", 0), why))
    return faults


def ingress_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with an Ingress: nothing to route by."""
    spec = obj.get("spec") or {}
    if spec.get("defaultBackend") or spec.get("rules"):
        return []
    why = "either `defaultBackend` or `rules` must be specified"
    return [
        {"reason": "FieldValueInvalid", "message": f"Invalid value: null: {why}", "field": "spec"}
    ]


def _key_faults(field: str, key: str) -> list[Fault]:
    if re.fullmatch(_DATA_KEY, key) and key not in (".", ".."):
        return _too_long(f"{field}[{key}]", key, MAX_SUBDOMAIN_LENGTH)
    return [wrong(f"{field}[{key}]", key, _NOT_A_KEY)]


def _decoded_length(text: str) -> int:
    return len(text) * 3 // 4 - text.count("=", -2)


def _too_many_bytes(field: str, limit: int) -> Fault:
    message = f"Too long: may not be more than {limit} bytes"
    return {"reason": "FieldValueTooLong", "message": message, "field": field}
