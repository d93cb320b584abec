"""Label and field selectors: parse them once, match them against objects. Pure."""

import re
from collections.abc import Callable
from typing import Any

from telorunner.localcluster import statuses
from telorunner.localcluster.labelselectors import parse_labels
from telorunner.localcluster.resources import KINDS_BY_PLURAL

_COMMA = r"(?<!\\),"
_BY_METADATA = ("metadata.name", "metadata.namespace")
# Truth values, which are false where they are left out.
_TRUTHS = ("spec.hostNetwork", "spec.unschedulable")

Matcher = Callable[[dict[str, Any]], bool]

# The fields that can be selected besides metadata.name and metadata.namespace, which each kind has.
SELECTABLE_FIELDS = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "secrets": ("type",),
    "namespaces": ("status.phase",),
    "nodes": ("spec.unschedulable",),
    "services": ("spec.clusterIP", "spec.type"),
}


def selector(resource: str, labels: str, fields: str) -> Matcher | None:
    """Return what tells whether an object is selected; None where everything is.

    Raises:
        StoreError: 400, a selector cannot be read or names a field that cannot be selected.
    """
    requirements = parse_labels(labels)
    conditions = parse_fields(resource, fields)
    if not requirements and not conditions:
        return None

    def matches(obj: dict[str, Any]) -> bool:
        found = obj["metadata"].get("labels") or {}
        return all(requirement.matches(found) for requirement in requirements) and all(
            (_field(obj, path) == value) is wanted for path, value, wanted in conditions
        )

    return matches


def parse_fields(resource: str, text: str) -> list[tuple[str, str, bool]]:
    """Return (path, value, whether it must be equal) for each condition of a field selector.

    Raises:
        StoreError: 400, it cannot be read or names a field that cannot be selected.
    """
    conditions = []
    for term in filter(None, re.split(_COMMA, text)):
        match = re.search("!=|==|=", term)
        if match is None:
            message = f"invalid selector: '{text}'; can't understand '{term}'"
            raise statuses.bad_request(message)
        path, value = term[: match.start()], _unescaped(term[match.end() :])
        _check_field(resource, path)
        conditions.append((path, value, match.group() != "!="))
    return conditions


def _unescaped(value: str) -> str:
    """Return a value without its backslashes.

    Raises:
        StoreError: 400, a backslash or an equals sign does not stand there rightly.
    """
    if match := re.search(r"\\([^\\,=]|$)", re.sub(r"\\[\\,=]", "", value)):
        raise statuses.bad_request(
            f"invalid field selector: invalid escape sequence: {match.group()}"
        )
    if "=" in re.sub(r"\\[\\,=]", "", value):
        raise statuses.bad_request(
            f"invalid field selector: unescaped character in value: {ord('=')}"
        )
    return re.sub(r"\\(.)", r"\1", value)


def _check_field(resource: str, path: str) -> None:
    kind = KINDS_BY_PLURAL[resource]
    # Of custom kinds only those in a namespace can be selected by it.
    by_metadata = _BY_METADATA if kind.namespaced or not kind.is_custom else _BY_METADATA[:1]
    if path in (*by_metadata, *SELECTABLE_FIELDS.get(resource, ())):
        return
    if resource in SELECTABLE_FIELDS or kind.is_custom:
        raise statuses.bad_request(f"field label not supported: {path}")
    message = f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    raise statuses.bad_request(message)


def _field(obj: dict[str, Any], path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, dict):
        value = value.get("component")
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "false" if path in _TRUTHS else ""
    return str(value)
