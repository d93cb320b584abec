"""How much of a resource a pod asks for altogether. Pure.

Its containers run together; init containers run one after the other before them, except for those
that restart always, which stay (sidecars). What the pod's RuntimeClass costs comes on top.

Source: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
"""

from collections.abc import Iterator
from typing import Any

from telorunner.localcluster.quantities import largest, total


def pod_amount(spec: dict[str, Any], field: str, resource: str) -> str | None:
    """Return the amount that a pod asks for; None: none of its containers names the resource.

    `field` is "requests" or "limits".
    """
    together = list(_amounts(spec.get("containers") or [], field, resource))
    staying: list[str] = []
    peaks: list[str] = []
    for container in spec.get("initContainers") or []:
        amount = container_amount(container, field, resource)
        if amount is None:
            continue
        if container.get("restartPolicy") == "Always":
            staying.append(amount)
            peaks.append(total(staying))
        else:
            peaks.append(total([*staying, amount]))
    if not together and not peaks:
        return None
    needed = largest(total([*together, *staying]), *peaks)
    overhead = (spec.get("overhead") or {}).get(resource)
    return needed if overhead is None else total([needed, str(overhead)])


def container_amount(container: dict[str, Any], field: str, resource: str) -> str | None:
    """Return the amount that one container names, None for nothing."""
    amount = ((container.get("resources") or {}).get(field) or {}).get(resource)
    return None if amount is None else str(amount)


def _amounts(containers: list[dict[str, Any]], field: str, resource: str) -> Iterator[str]:
    for container in containers:
        amount = container_amount(container, field, resource)
        if amount is not None:
            yield amount
