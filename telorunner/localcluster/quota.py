"""What a ResourceQuota counts and when it refuses. Pure: objects in, amounts and sentences out.

Source: https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from telorunner.localcluster.defaulting import qos_class
from telorunner.localcluster.podresources import container_amount, pod_amount
from telorunner.localcluster.quantities import amount_of, canonical, total
from telorunner.localcluster.resources import KNOWN_KINDS, ResourceKind

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
# Of these a pod must say how much it needs where a quota limits them.
_MUST_BE_SPECIFIED = ("cpu", "memory")
# These resources may be counted by their bare name too.
_COUNTED_BY_NAME = ("pods", "services", "secrets", "configmaps", "resourcequotas")
_OF_SERVICES = ("services.nodeports", "services.loadbalancers")
# A real cluster counts these; here there are none of them.
_NEVER_USED = (
    "persistentvolumeclaims",
    "requests.storage",
    "replicationcontrollers",
    "count/persistentvolumeclaims",
    "count/replicationcontrollers",
)
TERMINAL_PHASES = ("Succeeded", "Failed")


def counts(kind: ResourceKind, name: str) -> bool:
    """Say whether a quota entry such as `pods` or `limits.cpu` is about objects of a kind."""
    if kind.plural == "events":
        return False
    if name == f"count/{kind.qualified}" or (name == kind.plural and name in _COUNTED_BY_NAME):
        return True
    if kind.plural == "services":
        return name in _OF_SERVICES
    return kind.plural == "pods" and _compute_name(name) is not None


def usage(kind: ResourceKind, obj: dict[str, Any], name: str) -> str:
    """Return the quantity that one object takes of a quota entry that counts its kind."""
    if name.startswith("count/"):
        return "1"
    if name in _OF_SERVICES:
        return str(_service_amount(obj["spec"], name))
    if kind.plural == "pods" and (obj.get("status") or {}).get("phase") in TERMINAL_PHASES:
        return "0"
    compute = _compute_name(name)
    return "1" if compute is None else pod_amount(obj["spec"], *compute) or "0"


def used(kind: ResourceKind, objects: Iterable[dict[str, Any]], name: str) -> str:
    """Return what objects of one kind take together."""
    return total(
        usage(kind, obj, name)
        for obj in objects
        if name.startswith("count/") or not _is_overdue(obj["metadata"])
    )


def status(
    found: dict[str, Any], objects_of: Callable[[str], list[dict[str, Any]]]
) -> dict[str, Any]:
    """Return the status of a quota: what is allowed and, of what can be counted, what is used.

    `objects_of` returns its namespace's objects of a kind, by the plural name.
    """
    hard = found["spec"].get("hard") or {}
    amounts = {name: "0" for name in hard if name in _NEVER_USED}
    for kind in KNOWN_KINDS:
        entries = [name for name in hard if counts(kind, name)]
        if entries:
            matching = [obj for obj in objects_of(kind.plural) if is_in_scope(found, kind, obj)]
            amounts |= {name: used(kind, matching, name) for name in entries}
    return {"hard": hard, "used": dict(sorted(amounts.items()))}


def is_in_scope(found: dict[str, Any], kind: ResourceKind, obj: dict[str, Any]) -> bool:
    """Say whether a quota is about an object, by its scopes."""
    terms = [
        {"scopeName": name, "operator": "Exists"} for name in found["spec"].get("scopes") or []
    ]
    terms += (found["spec"].get("scopeSelector") or {}).get("matchExpressions") or []
    if not terms:
        return True
    return kind.plural == "pods" and all(_matches(term, obj["spec"]) for term in terms)


def refusal(quota: dict[str, Any], asked: dict[str, str], taken: dict[str, str]) -> str | None:
    """Return the sentence that refuses an object, None where it fits.

    `asked` and `taken` hold quantities by quota entry: what the object would take, what is taken.
    """
    hard = quota["spec"].get("hard") or {}
    exceeded = sorted(
        name
        for name, amount in asked.items()
        if amount_of(amount) > 0
        and amount_of(taken[name]) + amount_of(amount) > amount_of(str(hard[name]))
    )
    if not exceeded:
        return None
    limits = {name: canonical(str(hard[name])) for name in exceeded}
    return (
        f"exceeded quota: {quota['metadata']['name']},"
        f" requested: {_listed(exceeded, asked)},"
        f" used: {_listed(exceeded, taken)},"
        f" limited: {_listed(exceeded, limits)}"
    )


def unspecified(quota: dict[str, Any], spec: dict[str, Any]) -> str | None:
    """Return the sentence that refuses a pod which leaves out what a quota limits, else None."""
    missing = []
    for name in sorted(quota["spec"].get("hard") or {}):
        compute = _compute_name(name)
        if compute is None or compute[1] not in _MUST_BE_SPECIFIED:
            continue
        without = sorted(
            container["name"]
            for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
            if container_amount(container, *compute) is None
        )
        if without:
            missing.append(f"{name} for: {','.join(without)}")
    if not missing:
        return None
    return f"failed quota: {quota['metadata']['name']}: must specify {'; '.join(missing)}"


def _listed(names: list[str], amounts: dict[str, str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in names)


def _compute_name(name: str) -> tuple[str, str] | None:
    """Return (requests or limits, resource) for an entry about compute resources."""
    field, _, resource = name.partition(".")
    if field == "requests" and "/" in resource:
        # Resources that only some nodes have, such as GPUs.
        return field, resource
    if resource in _COMPUTE and field in ("requests", "limits"):
        return field, resource
    return ("requests", name) if name in _COMPUTE else None


def _service_amount(spec: dict[str, Any], name: str) -> int:
    if name == "services.loadbalancers":
        return int(spec.get("type") == "LoadBalancer")
    ports = spec.get("ports") or []
    if spec.get("type") == "LoadBalancer" and not spec.get("allocateLoadBalancerNodePorts", True):
        return sum(bool(port.get("nodePort")) for port in ports)
    return len(ports) if spec.get("type") in ("NodePort", "LoadBalancer") else 0


def _matches(term: dict[str, Any], spec: dict[str, Any]) -> bool:
    """Say whether a pod is in a scope."""
    name, operator = term["scopeName"], term["operator"]
    if name == "PriorityClass":
        given: str = spec.get("priorityClassName", "")
        is_listed = given in (term.get("values") or [])
        return {
            "In": is_listed,
            "NotIn": not is_listed,
            "Exists": bool(given),
            "DoesNotExist": not given,
        }.get(operator, False)
    is_best_effort = qos_class(spec) == "BestEffort"
    is_terminating = spec.get("activeDeadlineSeconds") is not None
    return {
        "Terminating": is_terminating,
        "NotTerminating": not is_terminating,
        "BestEffort": is_best_effort,
        "NotBestEffort": not is_best_effort,
    }.get(name, False)


def _is_overdue(metadata: dict[str, Any]) -> bool:
    """Say whether an object should have been gone for as long as it was given to end."""
    deleted_at = metadata.get("deletionTimestamp")
    grace_seconds = metadata.get("deletionGracePeriodSeconds")
    if deleted_at is None or grace_seconds is None:
        return False
    due = datetime.fromisoformat(deleted_at) + timedelta(seconds=grace_seconds)
    return datetime.now(UTC) > due
