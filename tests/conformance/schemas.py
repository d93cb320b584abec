"""Renders a real cluster's OpenAPI document as the table of types that the local cluster reads.

One line a type, each field with the type that it has in Go, as decoding errors name it.
"""

from collections.abc import Iterator

from telorunner.localcluster.resources import GATEWAY_GROUP, KNOWN_KINDS
from tests.conformance.client import Object

# What decodes itself and has no fields.
_OPAQUE = {
    "FieldsV1": "any",
    "IntOrString": "intstr.IntOrString",
    "MicroTime": "v1.MicroTime",
    "Quantity": "resource.Quantity",
    "Time": "v1.Time",
}


def render(openapi: Object) -> str:
    """Return the table for every kind that the local cluster knows but the Gateway API's."""
    definitions = openapi["definitions"]
    by_kind = {
        (one["group"], one["version"], one["kind"]): name
        for name, definition in definitions.items()
        for one in definition.get("x-kubernetes-group-version-kind", [])
    }
    due = [
        by_kind[(kind.group, kind.version, kind.kind)]
        for kind in KNOWN_KINDS
        if kind.group != GATEWAY_GROUP
    ]
    lines: dict[str, str] = {}
    while due:
        name = due.pop()
        properties = definitions[name].get("properties")
        if name in lines or properties is None:
            continue
        fields = " ".join(f"{field}={_type(found)}" for field, found in sorted(properties.items()))
        lines[name] = f"{_short(name)} {fields}"
        due += [used for found in properties.values() for used in _references(found)]
    return "".join(f"{line}\n" for line in sorted(lines.values()))


def _type(found: Object) -> str:
    if "$ref" in found:
        return _short(found["$ref"])
    match found.get("type"):
        case "array":
            return f"[]{_type(found['items'])}"
        case "object" if "additionalProperties" in found:
            return f"map[string]{_type(found['additionalProperties'])}"
        case "string" if found.get("format") == "byte":
            return "[]uint8"
        case "integer":
            return str(found["format"])
        case "boolean":
            return "bool"
        case "string":
            return "string"
    return "any"


def _short(reference: str) -> str:
    """Return the name of a type as Go tells it: `v1.Pod`."""
    *_, group, version, kind = reference.rpartition("/")[2].split(".")
    if kind in _OPAQUE:
        return _OPAQUE[kind]
    # The one name that two packages share.
    prefix = "discovery." if (group, kind) == ("discovery", "EndpointPort") else ""
    return f"{prefix}{version}.{kind}"


def _references(found: Object) -> Iterator[str]:
    if "$ref" in found:
        yield found["$ref"].rpartition("/")[2]
    for inner in ("items", "additionalProperties"):
        if isinstance(found.get(inner), dict):
            yield from _references(found[inner])
