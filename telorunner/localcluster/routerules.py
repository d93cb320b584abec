"""The rules of an HTTPRoute that no field's type tells: pairs of a message and a check. Pure.

A real cluster evaluates them as expressions; the order is theirs.

Source: https://gateway-api.sigs.k8s.io/reference/spec/#httproute
"""

import re
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]
Rule = tuple[str, Callable[[Any], bool]]

_NEVER_IN_A_PATH = ("//", "/./", "/../", "%2f", "%2F", "#")
_NEVER_AT_ITS_END = ("/..", "/.")
_PATH = "^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$"
_MAX_MATCHES = 128
_UNITS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


def _has_port(backend: Object) -> bool:
    is_service = (backend.get("group"), backend.get("kind")) == ("", "Service")
    return not is_service or "port" in backend


def _path_rules() -> tuple[Rule, ...]:
    def on_plain(check: Callable[[str], bool]) -> Callable[[Object], bool]:
        return lambda found: found.get("type") == "RegularExpression" or check(found["value"])

    def without(part: str) -> Callable[[Object], bool]:
        return on_plain(lambda path: part not in path)

    def not_at_end(part: str) -> Callable[[Object], bool]:
        return on_plain(lambda path: not path.endswith(part))

    types = "['Exact', 'PathPrefix']"
    kinds = f"type one of {types}"
    absolute = f"value must be an absolute path and start with '/' when {kinds}"
    valid = f"must only contain valid characters (matching {_PATH}) for types {types}"
    return (
        (absolute, on_plain(lambda path: path.startswith("/"))),
        *((f"must not contain '{part}' when {kinds}", without(part)) for part in _NEVER_IN_A_PATH),
        *(
            (f"must not end with '{part}' when {kinds}", not_at_end(part))
            for part in _NEVER_AT_ITS_END
        ),
        (valid, on_plain(lambda path: re.search(_PATH, path) is not None)),
    )


def _modifier_rules() -> tuple[Rule, ...]:
    def of(field: str, kind: str) -> tuple[Rule, Rule]:
        return (
            (
                f"{field} must be specified when type is set to '{kind}'",
                lambda found: found["type"] != kind or field in found,
            ),
            (
                f"type must be '{kind}' when {field} is set",
                lambda found: field not in found or found["type"] == kind,
            ),
        )

    return (
        *of("replaceFullPath", "ReplaceFullPath"),
        *of("replacePrefixMatch", "ReplacePrefixMatch"),
    )


def filter_rules(fields: dict[str, str]) -> tuple[Rule, ...]:
    """Return the rules that each kind of filter has its field; `fields` are the kinds by it."""

    def of(field: str, kind: str) -> tuple[Rule, Rule]:
        return (
            (
                f"filter.{field} must be nil if the filter.type is not {kind}",
                lambda found: field not in found or found["type"] == kind,
            ),
            (
                f"filter.{field} must be specified for {kind} filter.type",
                lambda found: field in found or found["type"] != kind,
            ),
        )

    return tuple(rule for one in fields.items() for rule in of(*one))


def _list_rules(*more: str) -> tuple[Rule, ...]:
    """Return what filters may not stand beside each other; `more` are kinds that come once."""

    def count(found: list[Object], kind: str) -> int:
        return sum(one["type"] == kind for one in found)

    def once(kind: str) -> Rule:
        return f"{kind} filter cannot be repeated", lambda found: count(found, kind) <= 1

    both = (
        "May specify either httpRouteFilterRequestRedirect or httpRouteFilterRequestRewrite, but"
        " not both"
    )
    kinds = ("RequestRedirect", "URLRewrite")
    return (
        (both, lambda found: not all(count(found, kind) for kind in kinds)),
        *map(once, ("RequestHeaderModifier", "ResponseHeaderModifier", *kinds, *more)),
    )


def _replaces_prefix(filters: list[Object], kind: str, field: str) -> bool:
    return any(
        "replacePrefixMatch" in ((one.get(field) or {}).get("path") or {})
        for one in filters
        if one["type"] == kind
    )


def _has_one_prefix(rule: Object) -> bool:
    matches = rule.get("matches") or []
    return len(matches) == 1 and (matches[0].get("path") or {}).get("type") == "PathPrefix"


def _rule_rules() -> tuple[Rule, ...]:
    def of(kind: str, field: str) -> Rule:
        why = (
            f"When using {kind} filter with path.replacePrefixMatch, exactly one PathPrefix match"
            " must be specified"
        )
        return (
            why,
            lambda rule: (
                not _replaces_prefix(rule.get("filters") or [], kind, field)
                or _has_one_prefix(rule)
            ),
        )

    redirects = "RequestRedirect filter must not be used together with backendRefs"
    return (
        (
            redirects,
            lambda rule: (
                not rule.get("backendRefs")
                or not any("requestRedirect" in one for one in rule.get("filters") or [])
            ),
        ),
        of("RequestRedirect", "requestRedirect"),
        of("URLRewrite", "urlRewrite"),
    )


def _milliseconds(text: str) -> int:
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)(ms|[hms])", text))


def _is_within(timeouts: Object) -> bool:
    whole, part = (_milliseconds(timeouts.get(one, "")) for one in ("request", "backendRequest"))
    return not whole or part <= whole


def _parent_rules() -> tuple[Rule, ...]:
    def same(parents: list[Object], one: Object) -> list[str]:
        """Return the sections of what is the same parent."""
        fields = ("group", "kind", "name", "namespace")
        key = [one.get(field) for field in fields]
        return [
            other.get("sectionName", "")
            for other in parents
            if [other.get(field) for field in fields] == key
        ]

    def is_told(parents: list[Object]) -> bool:
        return all(len(set(map(bool, same(parents, one)))) == 1 for one in parents)

    def is_unique(parents: list[Object]) -> bool:
        return all(same(parents, one).count(one.get("sectionName", "")) == 1 for one in parents)

    when = "when parentRefs includes 2 or more references to the same parent"
    return (
        (f"sectionName must be specified {when}", is_told),
        (f"sectionName must be unique {when}", is_unique),
    )


def _has_few_matches(rules: list[Object]) -> bool:
    return sum(len(rule.get("matches") or []) for rule in rules) <= _MAX_MATCHES


BACKEND: tuple[Rule, ...] = (("Must have port for Service reference", _has_port),)
BACKEND_FILTERS = _list_rules()
FILTERS = _list_rules("CORS")
MODIFIER = _modifier_rules()
PARENTS = _parent_rules()
PATH = _path_rules()
RULE = _rule_rules()
RULES: tuple[Rule, ...] = (
    (
        "While 16 rules and 64 matches per rule are allowed, the total number of matches across all"
        " rules in a route must be less than 128",
        _has_few_matches,
    ),
)
TIMEOUTS: tuple[Rule, ...] = (
    ("backendRequest timeout cannot be longer than request timeout", _is_within),
)
