"""Label and field selectors: parse them once, match them against objects. Pure."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from telorunner.localcluster import statuses
from telorunner.localcluster.validation import LABEL_VALUE, NOT_A_LABEL_VALUE, wrong

Matcher = Callable[[dict[str, Any]], bool]

_TOKEN = re.compile(r"\s*(==|!=|=|!|\(|\)|,|<|>|[^\s=!(),<>]+)")
_KEY = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
_OPERATORS = "in, notin, =, ==, !=, gt, lt"

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


@dataclass(frozen=True)
class Requirement:
    """One condition of a label selector; `operator` is in, notin, exists, !, gt or lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for value in self.values:
            if not re.fullmatch(LABEL_VALUE, value):
                fault = wrong(f"values[0][{self.key}]", value, NOT_A_LABEL_VALUE)
                raise _unreadable(f"{fault['field']}: {fault['message']}")

    def matches(self, labels: dict[str, str]) -> bool:
        """Say whether an object with those labels satisfies the condition."""
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case _:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        bound = next(iter(self.values))
        if value is None or not re.fullmatch(r"-?\d+", value) or not re.fullmatch(r"-?\d+", bound):
            return False
        return int(value) > int(bound) if self.operator == "gt" else int(value) < int(bound)


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


def parse_labels(text: str) -> list[Requirement]:
    """Return the conditions of a label selector, none for an empty one.

    Raises:
        StoreError: 400, it cannot be read.
    """
    tokens = _TOKEN.findall(text)
    requirements: list[Requirement] = []
    position = 0
    while position < len(tokens):
        if requirements:
            if tokens[position] != ",":
                message = f"found '{tokens[position]}', expected: ',' or 'end of string'"
                raise statuses.bad_request(message)
            position += 1
            if position == len(tokens):
                raise statuses.bad_request("found '', expected: identifier after ','")
        requirement, position = _requirement(tokens, position)
        requirements.append(requirement)
    return requirements


def parse_fields(resource: str, text: str) -> list[tuple[str, str, bool]]:
    """Return (path, value, whether it must be equal) for each condition of a field selector.

    Raises:
        StoreError: 400, it cannot be read or names a field that cannot be selected.
    """
    conditions = []
    for term in filter(None, text.split(",")):
        match = re.fullmatch(r"([^=!]*)(!=|==|=)(.*)", term)
        if match is None:
            message = f"invalid selector: '{text}'; can't understand '{term}'"
            raise statuses.bad_request(message)
        path, operator, value = match.groups()
        allowed = ("metadata.name", "metadata.namespace", *SELECTABLE_FIELDS.get(resource, ()))
        if path not in allowed:
            raise statuses.bad_request(f"field label not supported: {path}")
        conditions.append((path, value, operator != "!="))
    return conditions


def _requirement(tokens: list[str], position: int) -> tuple[Requirement, int]:
    """Read one condition; return it and the position after it."""
    rest = tokens[position:]
    if rest[:1] == ["!"]:
        return Requirement(_key(rest[1:2]), "!"), position + 2
    key = _key(rest[:1])
    operator = rest[1] if len(rest) > 1 else ","
    if operator == ",":
        return Requirement(key, "exists"), position + 1
    if operator in ("=", "==", "!=", ">", "<"):
        # An equals sign with nothing after it asks for the empty value.
        value = rest[2] if len(rest) > 2 and rest[2] != "," else ""
        name = {"!=": "notin", ">": "gt", "<": "lt"}.get(operator, "in")
        taken = 3 if len(rest) > 2 and rest[2] != "," else 2
        return Requirement(key, name, frozenset((value,))), position + taken
    if operator in ("in", "notin"):
        if rest[2:3] != ["("] or ")" not in rest:
            found = rest[2] if len(rest) > 2 else ""
            raise _unreadable(f"found '{found}' expected: '('")
        end = rest.index(")")
        values = frozenset(rest[3:end]) - {","}
        return Requirement(key, operator, values), position + end + 1
    raise _unreadable(f"found '{operator}', expected: {_OPERATORS}")


def _key(tokens: list[str]) -> str:
    if not tokens or not _KEY.fullmatch(tokens[0]):
        found = tokens[0] if tokens else ""
        message = f"found '{found}', expected: !, identifier, or 'end of string'"
        raise statuses.bad_request(message)
    return tokens[0]


def _unreadable(why: str) -> statuses.StoreError:
    return statuses.bad_request(f"unable to parse requirement: {why}")


def _field(obj: dict[str, Any], path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, dict):
        value = value.get("component")
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
