"""What makes a ResourceQuota or a LimitRange invalid, in the words of the real API. Pure.

It covers amounts, types and scopes that contradict each other; what names are taken for resources
is looked at for quotas only.
"""

import json
from collections.abc import Iterator
from typing import Any

from telorunner.localcluster.quantities import amount_of
from telorunner.localcluster.validation import Fault, duplicate, not_allowed, required, wrong

_QUOTA_NAMES = (
    "cpu",
    "memory",
    "ephemeral-storage",
    *(f"{field}.{name}" for field in ("requests", "limits") for name in ("cpu", "memory")),
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
    "requests.storage",
    "requests.hugepages-",
    "hugepages-",
)
_INTEGERS = (
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
)
_CONFLICTS = (("Terminating", "NotTerminating"), ("BestEffort", "NotBestEffort"))
_EXISTS_ONLY = (
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "CrossNamespacePodAffinity",
)
_SCOPES = (*_EXISTS_ONLY, "PriorityClass")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_LIMIT_TYPES = ("Pod", "Container", "PersistentVolumeClaim")


def quota_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with a ResourceQuota, after its defaults."""
    spec = obj["spec"]
    hard: dict[str, str] = spec.get("hard") or {}
    return [
        *(fault for name, amount in hard.items() for fault in _hard_faults(name, amount)),
        *_scope_faults(spec.get("scopes") or [], hard),
        *(
            fault
            for term in (spec.get("scopeSelector") or {}).get("matchExpressions") or []
            for fault in _term_faults(term)
        ),
    ]


def _hard_faults(name: str, amount: str) -> Iterator[Fault]:
    field = f"spec.hard[{name}]"
    if "/" not in name and not name.startswith(_QUOTA_NAMES) and name not in _INTEGERS:
        yield wrong(field, name, "must be a standard resource type or fully qualified")
        yield wrong(field, name, "must be a standard resource for quota")
    if amount_of(amount) < 0:
        yield wrong(field, amount, "must be greater than or equal to 0")
    is_count = name in _INTEGERS or name.startswith("count/")
    if is_count and amount_of(amount) % 1:
        yield wrong(field, amount, "must be an integer")


def _scope_faults(scopes: list[str], hard: dict[str, str]) -> Iterator[Fault]:
    if not scopes:
        return
    told = [
        "unsupported scope" if scope not in _SCOPES else "unsupported scope applied to resource"
        for scope in scopes
        if scope not in _SCOPES or any(not _may_be_scoped(scope, name) for name in hard)
    ]
    if any(set(pair) <= set(scopes) for pair in _CONFLICTS):
        told.append("conflicting scopes")
    shown = json.dumps(scopes, separators=(",", ":"))
    for why in told:
        message = f"Invalid value: {shown}: {why}"
        yield {"reason": "FieldValueInvalid", "message": message, "field": "spec.scopes"}


def _may_be_scoped(scope: str, name: str) -> bool:
    """Say whether a scope narrows what an entry counts: pods, or what pods ask for."""
    if name in ("pods", "count/pods"):
        return True
    return scope != "BestEffort" and name.startswith(_QUOTA_NAMES) and name != "requests.storage"


def _term_faults(term: dict[str, Any]) -> Iterator[Fault]:
    field = "spec.scopeSelector.matchExpressions"
    name, operator = term.get("scopeName", ""), term.get("operator", "")
    if name not in _SCOPES:
        yield wrong(f"{field}.scopeName", name, "unsupported scope")
    if name in _EXISTS_ONLY and operator != "Exists":
        why = (
            "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating,"
            " ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort,"
            " ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
        )
        yield wrong(f"{field}.operator", operator, why)
    if operator not in _OPERATORS:
        yield wrong(f"{field}.operator", operator, "not a valid selector operator")
    elif operator in ("In", "NotIn") and not term.get("values"):
        why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
        yield required(f"{field}.values", why)


def limit_range_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with a LimitRange, after its defaults."""
    faults: list[Fault] = []
    seen: set[str] = set()
    for index, limit in enumerate(obj["spec"].get("limits") or []):
        field, type_ = f"spec.limits[{index}]", limit["type"]
        if type_ not in _LIMIT_TYPES and "/" not in type_:
            why = "must be a standard limit type or fully qualified"
            faults.append(wrong(f"{field}.type", type_, why))
        if type_ in seen:
            faults.append(duplicate(f"{field}.type", type_))
        seen.add(type_)
        faults += _limit_faults(field, limit)
    return faults


def _limit_faults(field: str, limit: dict[str, Any]) -> Iterator[Fault]:
    if limit["type"] == "Pod":
        for name in ("default", "defaultRequest"):
            if name in limit:
                yield not_allowed(f"{field}.{name}", "may not be specified when `type` is 'Pod'")
        limit = {key: limit[key] for key in limit if not key.startswith("default")}
    amounts = ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")
    for resource in sorted({one for name in amounts for one in limit.get(name) or {}}):
        given = {name: limit[name][resource] for name in amounts if resource in limit.get(name, {})}
        yield from _contradictions(field, resource, given)
        if "maxLimitRequestRatio" in given:
            yield from _ratio_faults(f"{field}.maxLimitRequestRatio[{resource}]", given)


_WORDS = {
    "min": "min value",
    "max": "max value",
    "default": "default value",
    "defaultRequest": "default request value",
}
# (field of the fault, what must not be more than what, whose amount the fault shows).
_ORDER = (
    ("min", "min", "max", "min"),
    ("defaultRequest", "min", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "defaultRequest", "max", "defaultRequest"),
    ("defaultRequest", "defaultRequest", "default", "defaultRequest"),
    ("default", "min", "default", "min"),
    ("default", "default", "max", "max"),
)


def _contradictions(field: str, resource: str, given: dict[str, str]) -> Iterator[Fault]:
    for name, smaller, greater, shown in _ORDER:
        if smaller not in given or greater not in given:
            continue
        if amount_of(given[smaller]) <= amount_of(given[greater]):
            continue
        words = [_WORDS[smaller], _WORDS[greater]]
        if (smaller, greater) == ("defaultRequest", "default"):
            words[1] = "default limit value"
        why = f"{words[0]} {given[smaller]} is greater than {words[1]} {given[greater]}"
        yield wrong(f"{field}.{name}[{resource}]", given[shown], why)


def _ratio_faults(field: str, given: dict[str, str]) -> Iterator[Fault]:
    ratio = given["maxLimitRequestRatio"]
    if amount_of(ratio) < 1:
        yield wrong(field, ratio, f"ratio {ratio} is less than 1")
    if "min" in given and "max" in given and amount_of(given["min"]) > 0:
        largest = amount_of(given["max"]) / amount_of(given["min"])
        if amount_of(ratio) > largest:
            yield wrong(field, ratio, f"ratio {ratio} is greater than max/min = {largest:.6f}")
