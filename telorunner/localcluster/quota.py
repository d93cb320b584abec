"""What a ResourceQuota counts and when it refuses. Pure: objects in, amounts and sentences out."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from telorunner.localcluster.quantities import canonical, total
from telorunner.localcluster.resources import ResourceKind
from telorunner.values.quantity import parse_quantity

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
# These resources may be counted by their bare name too.
_COUNTED_BY_NAME = ("pods", "services", "secrets", "configmaps", "resourcequotas")
TERMINAL_PHASES = ("Succeeded", "Failed")


def counts(kind: ResourceKind, name: str) -> bool:
    """Say whether a quota entry such as `pods` or `limits.cpu` is about objects of a kind."""
    if name == f"count/{kind.qualified}" or (name == kind.plural and name in _COUNTED_BY_NAME):
        return True
    return kind.plural == "pods" and _compute_name(name) is not None


def usage(kind: ResourceKind, obj: dict[str, Any], name: str) -> str:
    """Return the quantity that one object takes of a quota entry that counts its kind."""
    compute = _compute_name(name)
    if compute is None:
        is_over = kind.plural == "pods" and name == "pods" and _is_terminal(obj)
        return "0" if is_over else "1"
    if _is_terminal(obj):
        return "0"
    field, resource = compute
    return _pod_amount(obj["spec"], field, resource)


def used(kind: ResourceKind, objects: Iterable[dict[str, Any]], name: str) -> str:
    """Return what objects of one kind take together."""
    return total(usage(kind, obj, name) for obj in objects)


def refusal(quota: dict[str, Any], asked: dict[str, str], taken: dict[str, str]) -> str | None:
    """Return the sentence that refuses an object, None where it fits.

    `asked` and `taken` hold quantities by quota entry: what the object would take, what is taken.
    """
    hard = quota["spec"].get("hard") or {}
    exceeded = sorted(
        name
        for name, amount in asked.items()
        if parse_quantity(amount) > 0
        and parse_quantity(taken[name]) + parse_quantity(amount) > parse_quantity(str(hard[name]))
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
        if compute is None or compute[1] == "ephemeral-storage":
            continue
        without = [
            container["name"]
            for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
            if compute[1] not in ((container.get("resources") or {}).get(compute[0]) or {})
        ]
        if without:
            missing.append(f"{name} for: {','.join(without)}")
    if not missing:
        return None
    return f"failed quota: {quota['metadata']['name']}: must specify {'; '.join(missing)}"


def _listed(names: list[str], amounts: dict[str, str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in names)


def _compute_name(name: str) -> tuple[str, str] | None:
    """Return (requests or limits, resource) for an entry about compute resources."""
    field, _, resource = name.rpartition(".")
    if resource in _COMPUTE and field in ("requests", "limits"):
        return field, resource
    return ("requests", name) if name in _COMPUTE else None


def _is_terminal(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in TERMINAL_PHASES


def _pod_amount(spec: dict[str, Any], field: str, resource: str) -> str:
    """Return the larger of what the containers need together and what an init container needs."""

    def amounts(group: str) -> list[str]:
        return [
            str(((container.get("resources") or {}).get(field) or {}).get(resource, "0"))
            for container in spec.get(group) or []
        ]

    together = total(amounts("containers"))
    largest = max(amounts("initContainers"), key=parse_quantity, default="0")
    zero = Decimal(0)
    if parse_quantity(largest) > max(parse_quantity(together), zero):
        return canonical(largest)
    return together
