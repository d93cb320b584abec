"""What a LimitRange fills into pods and what it refuses. Pure: objects in, pods and sentences out.

Limits of PersistentVolumeClaims are kept and have no effect: the local cluster has no claims.

Source: https://kubernetes.io/docs/concepts/policy/limit-range/
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from telorunner.localcluster.podresources import container_amount, pod_amount
from telorunner.localcluster.quantities import amount_of, canonical, canonical_amounts

_ANNOTATION = "kubernetes.io/limit-ranger"
_AMOUNTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
# In the order in which a real cluster goes through them.
_GROUPS = (("containers", "container"), ("initContainers", "init container"))


@dataclass(frozen=True)
class _Asked:
    """What a container or pod asks for of one resource; None: it does not say."""

    request: str | None
    limit: str | None


def default_limit_range(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a LimitRange with the defaults that follow from its bounds."""
    spec = obj.get("spec") or {}
    limits = [_default_limit(limit) for limit in spec.get("limits") or []]
    return {**obj, "spec": {**spec, "limits": limits}}


def _default_limit(given: dict[str, Any]) -> dict[str, Any]:
    amounts = {name: canonical_amounts(given.get(name) or {}) for name in _AMOUNTS}
    if given.get("type") == "Container":
        amounts["default"] = amounts["max"] | amounts["default"]
        amounts["defaultRequest"] = amounts["min"] | amounts["default"] | amounts["defaultRequest"]
    filled = {name: dict(sorted(found.items())) for name, found in amounts.items() if found}
    return {"type": given.get("type", ""), **filled}


def fill_in(limit_range: dict[str, Any], pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod with the default limits and requests, and an annotation that names them."""
    defaults: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for limit in _limits(limit_range, "Container"):
        defaults["requests"] |= limit.get("defaultRequest") or {}
        defaults["limits"] |= limit.get("default") or {}
    spec = dict(pod["spec"])
    told: list[str] = []
    for group, word in _GROUPS:
        if group not in spec:
            continue
        filled = [_with_defaults(container, defaults) for container in spec[group]]
        for old, new in zip(spec[group], filled, strict=True):
            told += _told(old, new, f"{word} {new.get('name', '')}")
        spec[group] = filled
    if not told:
        return pod
    annotations = {
        **(pod["metadata"].get("annotations") or {}),
        _ANNOTATION: f"LimitRanger plugin set: {'; '.join(told)}",
    }
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}, "spec": spec}


def _with_defaults(
    container: dict[str, Any], defaults: dict[str, dict[str, str]]
) -> dict[str, Any]:
    resources = dict(container.get("resources") or {})
    for field in ("limits", "requests"):
        amounts = {**defaults[field], **(resources.get(field) or {})}
        if amounts:
            resources[field] = dict(sorted(amounts.items()))
    return {**container, "resources": resources}


def _told(old: dict[str, Any], new: dict[str, Any], whose: str) -> Iterator[str]:
    """Say what was filled into a container."""
    for field, word in (("requests", "request"), ("limits", "limit")):
        had = (old.get("resources") or {}).get(field) or {}
        added = [name for name in new["resources"].get(field) or {} if name not in had]
        if added:
            yield f"{', '.join(added)} {word} for {whose}"


def refusal(limit_range: dict[str, Any], spec: dict[str, Any]) -> str | None:
    """Return the sentence that refuses a pod, None where it keeps within a LimitRange."""
    # A sentence that is true of two containers is said once.
    told = list(dict.fromkeys(_violations(limit_range, spec)))
    if not told:
        return None
    return told[0] if len(told) == 1 else f"[{', '.join(told)}]"


def _violations(limit_range: dict[str, Any], spec: dict[str, Any]) -> Iterator[str]:
    for limit in limit_range["spec"].get("limits") or []:
        if limit["type"] == "Container":
            for group, _ in _GROUPS:
                for container in spec.get(group) or []:
                    yield from _outside(limit, container, container_amount)
        elif limit["type"] == "Pod":
            yield from _outside(limit, spec, pod_amount)


def _outside(limit: dict[str, Any], asking: dict[str, Any], amount_in: Any) -> Iterator[str]:
    """Say where a container or a pod is outside of the bounds of a limit."""
    checks = (
        ("min", "minimum {} usage per {} is {}", _below),
        ("max", "maximum {} usage per {} is {}", _above),
        ("maxLimitRequestRatio", "{} max limit to request ratio per {} is {}", _too_far_apart),
    )
    for field, sentence, check in checks:
        for resource, bound in (limit.get(field) or {}).items():
            request = amount_in(asking, "requests", resource)
            found = check(_Asked(request, amount_in(asking, "limits", resource)), bound)
            if found is not None:
                yield sentence.format(resource, limit["type"], bound) + found


def _below(asked: _Asked, bound: str) -> str | None:
    if asked.request is None:
        return ".  No request is specified"
    if amount_of(asked.request) < amount_of(bound):
        return f", but request is {canonical(asked.request)}"
    return None


def _above(asked: _Asked, bound: str) -> str | None:
    if asked.limit is None:
        return ".  No limit is specified"
    if amount_of(asked.limit) > amount_of(bound):
        return f", but limit is {canonical(asked.limit)}"
    return None


def _too_far_apart(asked: _Asked, bound: str) -> str | None:
    request, limit = (amount_of(text or "0") for text in (asked.request, asked.limit))
    if not request:
        return ", but no request is specified or request is 0"
    if not limit:
        return ", but no limit is specified or limit is 0"
    if limit / request > amount_of(bound):
        return f", but provided ratio is {limit / request:.6f}"
    return None


def _limits(limit_range: dict[str, Any], type_: str) -> Iterator[dict[str, Any]]:
    for limit in limit_range["spec"].get("limits") or []:
        if limit["type"] == type_:
            yield limit
