"""Objects of custom kinds by their structural schema: unknown fields, defaults, faults. Pure.

A schema is a dict in the form of `openAPIV3Schema`, as far as the Gateway API uses it. Its rules
are functions here where a real cluster evaluates expressions: under `checks` stand pairs of the
message and of what says whether a value is right.

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

import copy
import re
from collections.abc import Iterator
from typing import Any

from telorunner.localcluster import gojson
from telorunner.localcluster.validation import (
    Fault,
    duplicate,
    required,
    shown,
    too_many,
    too_many_bytes,
    wrong,
)

Schema = dict[str, Any]

# The field of a fault that is about no field.
NOWHERE = "<nil>"

_TYPES: dict[str, type | tuple[type, ...]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "object": dict,
    "string": str,
}
_TIME = r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d([.]\d+)?([Zz]|[-+]\d\d:\d\d)"
# After these a real cluster evaluates no rules.
_BLOCKING = (
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
)
_NOT_EVALUATED = (
    "some validation rules were not checked because the object was invalid; correct the existing"
    " errors to complete validation"
)


def pruned(schema: Schema, value: Any, path: str = "") -> tuple[Any, list[str]]:
    """Return a value without the fields that its schema does not have, and their paths."""
    if isinstance(value, list) and "items" in schema:
        members = [
            pruned(schema["items"], member, f"{path}[{index}]")
            for index, member in enumerate(value)
        ]
        return [member for member, _ in members], [one for _, lost in members for one in lost]
    if not isinstance(value, dict) or "properties" not in schema:
        return value, []
    kept, unknown = {}, []
    for name, member in value.items():
        where = f"{path}.{name}" if path else name
        if name not in schema["properties"]:
            unknown.append(where)
            continue
        kept[name], lost = pruned(schema["properties"][name], member, where)
        unknown += lost
    return kept, sorted(unknown)


def defaulted(schema: Schema, value: Any) -> Any:
    """Return a value with its schema's defaults in place of what is left out or null."""
    if isinstance(value, list) and "items" in schema:
        return [defaulted(schema["items"], member) for member in value]
    if not isinstance(value, dict):
        return value
    found = dict(value)
    for name, inner in schema.get("properties", {}).items():
        if found.get(name) is None and "default" in inner:
            found[name] = copy.deepcopy(inner["default"])
        if name in found:
            found[name] = defaulted(inner, found[name])
    return found


def faults(schema: Schema, value: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with an object by its schema."""
    found = list(_schema_faults(schema, value, ""))
    if any(fault["reason"] in _BLOCKING for fault in found):
        found.append(wrong(NOWHERE, None, _NOT_EVALUATED))
        return found
    return [*found, *_rule_faults(schema, value, "")]


def _schema_faults(schema: Schema, value: Any, path: str) -> Iterator[Fault]:
    kind = schema["type"]
    is_right = isinstance(value, _TYPES[kind]) and (
        kind == "boolean" or not isinstance(value, bool)
    )
    if not is_right:
        found = _kind_of(value)
        message = f'Invalid value: "{found}": {path} in body must be of type {kind}: "{found}"'
        yield {"reason": "FieldValueTypeInvalid", "message": message, "field": path}
        if "enum" in schema:
            yield _unsupported(path, value, schema["enum"])
        return
    match kind:
        case "object":
            yield from _object_faults(schema, value, path)
        case "array":
            yield from _array_faults(schema, value, path)
        case "string":
            yield from _string_faults(schema, value, path)
        case "integer":
            yield from _integer_faults(schema, value, path)


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "integer" if isinstance(value, int) else gojson.kind_of_value(value)


def _object_faults(schema: Schema, value: dict[str, Any], path: str) -> Iterator[Fault]:
    properties = schema.get("properties", {})
    for name in sorted(value):
        inner = properties.get(name, schema.get("additionalProperties"))
        if inner is not None:
            yield from _schema_faults(inner, value[name], _joined(path, name))
    for name in schema.get("required", ()):
        if name not in value:
            yield required(_joined(path, name))
    if len(value) > schema.get("maxProperties", len(value)):
        yield too_many(path, len(value), schema["maxProperties"])


def _array_faults(schema: Schema, value: list[Any], path: str) -> Iterator[Fault]:
    for index, member in enumerate(value):
        yield from _schema_faults(schema["items"], member, f"{path}[{index}]")
    if len(value) > schema.get("maxItems", len(value)):
        yield too_many(path, len(value), schema["maxItems"])
    minimum = schema.get("minItems", 0)
    if len(value) < minimum:
        yield wrong(path, len(value), f"{path} in body should have at least {minimum} items")
    keys = schema.get("keys", ())
    seen: list[dict[str, Any]] = []
    for index, member in enumerate(value if keys else ()):
        key = {name: member[name] for name in keys if isinstance(member, dict) and name in member}
        if key in seen:
            yield duplicate(f"{path}[{index}]", key)
        seen.append(key)


def _string_faults(schema: Schema, value: str, path: str) -> Iterator[Fault]:
    minimum, pattern = schema.get("minLength", 0), schema.get("pattern")
    # Of these only the first fault is told.
    if len(value) > schema.get("maxLength", len(value)):
        yield too_many_bytes(path, schema["maxLength"])
    elif len(value) < minimum:
        yield wrong(path, value, f"{path} in body should be at least {minimum} chars long")
    elif pattern and not re.search(pattern, value):
        yield wrong(path, value, f"{path} in body should match '{pattern}'")
    if value not in schema.get("enum", (value,)):
        yield _unsupported(path, value, schema["enum"])
    if schema.get("format") == "date-time" and not re.fullmatch(_TIME, value):
        message = f"Invalid value: {shown(value)}: {path} in body must be of type date-time:"
        message = f"{message} {shown(value)}"
        yield {"reason": "FieldValueTypeInvalid", "message": message, "field": path}


def _integer_faults(schema: Schema, value: int, path: str) -> Iterator[Fault]:
    minimum, maximum = schema.get("minimum", value), schema.get("maximum", value)
    if value < minimum:
        why = f"{path} in body should be greater than or equal to {minimum}"
        yield wrong(path, value, why)
    if value > maximum:
        yield wrong(path, value, f"{path} in body should be less than or equal to {maximum}")
    if value not in schema.get("enum", (value,)):
        yield _unsupported(path, value, schema["enum"])


def _unsupported(path: str, value: Any, choices: tuple[Any, ...]) -> Fault:
    supported = ", ".join(shown(str(choice)) for choice in choices)
    message = f"Unsupported value: {shown(value)}: supported values: {supported}"
    return {"reason": "FieldValueNotSupported", "message": message, "field": path}


def _rule_faults(schema: Schema, value: Any, path: str) -> Iterator[Fault]:
    for message, is_right in schema.get("checks", ()):
        if not is_right(value):
            yield wrong(path, schema["type"], message)
    if isinstance(value, list):
        for index, member in enumerate(value):
            yield from _rule_faults(schema["items"], member, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name in sorted(value):
            inner = schema.get("properties", {}).get(name)
            if inner is not None:
                yield from _rule_faults(inner, value[name], _joined(path, name))


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
