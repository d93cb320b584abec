"""A route's request schema: the few JSON Schema keywords that the stand-in knows."""

from typing import Any

from telo_standin.errors import ManifestError

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_CHECKED = frozenset({"type", "properties", "required", "items", "enum"})
_NOTES = frozenset({"title", "description", "default", "examples"})


def refuse_unknown_keywords(schema: Any) -> None:
    """Refuse a schema that asks for what would not be checked.

    Raises:
        ManifestError: it names the keyword.
    """
    if not isinstance(schema, dict):
        raise ManifestError("a schema is not a map")
    for keyword in schema:
        if keyword not in _CHECKED | _NOTES:
            raise ManifestError(f"the stand-in kernel does not know schema keyword '{keyword}'")
    if "type" in schema and schema["type"] not in _TYPES:
        raise ManifestError(f"the stand-in kernel does not know schema type {schema['type']}")
    for part in (schema.get("properties") or {}).values():
        refuse_unknown_keywords(part)
    if "items" in schema:
        refuse_unknown_keywords(schema["items"])


def problems(schema: dict[str, Any], value: Any, path: str = "") -> list[str]:
    """Return a sentence for each part of a value that the schema refuses."""
    wanted = schema.get("type")
    if wanted is not None and not _is_a(wanted, value):
        return [f"{path or 'the value'} must be of type {wanted}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path or 'the value'} is not one of the allowed values")
    if isinstance(value, dict):
        for name in schema.get("required", []):
            if name not in value:
                found.append(f"{path}{'.' if path else ''}{name} is required")
        for name, part in (schema.get("properties") or {}).items():
            if name in value:
                found += problems(part, value[name], f"{path}{'.' if path else ''}{name}")
    if isinstance(value, list) and "items" in schema:
        for position, item in enumerate(value):
            found += problems(schema["items"], item, f"{path}[{position}]")
    return found


def _is_a(type_name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return type_name == "boolean"
    return isinstance(value, _TYPES[type_name])
