"""The parts that the schemas of the Gateway API's kinds are made of. Pure data.

Source: https://gateway-api.sigs.k8s.io/reference/spec/
"""

from typing import Any

from telorunner.localcluster.resources import GATEWAY_GROUP
from telorunner.localcluster.structural import Schema

LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
CONTROLLER = rf"^{SUBDOMAIN}\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$"
_CONDITION_TYPE = rf"^({SUBDOMAIN}/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"


def text(pattern: str = "", *, low: int = 0, high: int = 253, **more: Any) -> Schema:
    """Return the schema of a text of `low` to `high` characters."""
    found: Schema = {"type": "string", "maxLength": high, **more}
    return found | ({"minLength": low} if low else {}) | ({"pattern": pattern} if pattern else {})


def choice(*choices: str, **more: Any) -> Schema:
    """Return the schema of one of some texts."""
    return {"type": "string", "enum": choices, **more}


def number(low: int, high: int, **more: Any) -> Schema:
    """Return the schema of a whole number of a range."""
    return {"type": "integer", "minimum": low, "maximum": high, **more}


def items(item: Schema, high: int, **more: Any) -> Schema:
    """Return the schema of a list of up to `high` items; `keys` are what tells them apart."""
    return {"type": "array", "items": item, "maxItems": high, **more}


def mapping(values: Schema, high: int) -> Schema:
    """Return the schema of an object with up to `high` fields of any name."""
    return {"type": "object", "additionalProperties": values, "maxProperties": high}


def fields(*required: str, checks: Any = (), default: Any = None, **properties: Schema) -> Schema:
    """Return the schema of an object; `required` are the fields that it must have."""
    found: Schema = {"type": "object", "properties": properties, "required": required}
    if checks:
        found["checks"] = checks
    return found | ({"default": default} if default else {})


PORT = number(1, 65535)
HOSTNAME = text(rf"^(\*\.)?{SUBDOMAIN}$", low=1)
NAME = text(low=1)
NAMESPACE = text(f"^{LABEL}$", low=1, high=63)
SECTION = text(f"^{SUBDOMAIN}$", low=1)
_KIND_PATTERN = "^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"
_GROUP_PATTERN = rf"^$|^{SUBDOMAIN}$"


def kind(default: str = "") -> Schema:
    """Return the schema of the kind of a reference."""
    found = text(_KIND_PATTERN, low=1, high=63)
    return {**found, "default": default} if default else found


def group(default: str | None = None) -> Schema:
    """Return the schema of the API group of a reference."""
    found = text(_GROUP_PATTERN)
    return found if default is None else {**found, "default": default}


CONDITIONS = items(
    fields(
        "lastTransitionTime",
        "message",
        "reason",
        "status",
        "type",
        lastTransitionTime={"type": "string", "format": "date-time"},
        message=text(high=32768),
        observedGeneration={"type": "integer", "minimum": 0},
        reason=text("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", low=1, high=1024),
        status=choice("True", "False", "Unknown"),
        type=text(_CONDITION_TYPE, high=316),
    ),
    8,
    keys=("type",),
)
PARENT = fields(
    "name",
    group=group(GATEWAY_GROUP),
    kind=kind("Gateway"),
    name=NAME,
    namespace=NAMESPACE,
    port=PORT,
    sectionName=SECTION,
)
