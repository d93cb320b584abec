"""What clients are warned of that write Services, Ingresses and EndpointSlices. Pure."""

from collections.abc import Callable, Iterator
from typing import Any

from telorunner.localcluster.names import address_warnings
from telorunner.localcluster.networkvalidation import CLASS_ANNOTATION
from telorunner.localcluster.serviceaddresses import HEADLESS, is_headless


def warnings_of(resource: str, obj: dict[str, Any]) -> list[str]:
    """Return what a client is warned of that creates an object or changes it."""
    return list(_WARNINGS[resource](obj)) if resource in _WARNINGS else []


def status_warnings(resource: str, obj: dict[str, Any]) -> list[str]:
    """Return what a client is warned of that writes the status of an object."""
    if resource != "ingresses":
        return []
    points = obj["status"]["loadBalancer"].get("ingress") or []
    return [
        warning
        for index, point in enumerate(points)
        for warning in address_warnings(
            f"status.loadBalancer.ingress[{index}]", point.get("ip") or ""
        )
    ]


def _of_ingress(obj: dict[str, Any]) -> Iterator[str]:
    annotations = obj["metadata"].get("annotations") or {}
    if CLASS_ANNOTATION in annotations and "ingressClassName" not in obj["spec"]:
        yield (
            f'annotation "{CLASS_ANNOTATION}" is deprecated, please use'
            " 'spec.ingressClassName' instead"
        )


def _of_service(obj: dict[str, Any]) -> Iterator[str]:
    spec = obj["spec"]
    outside, balancer = spec.get("externalIPs") or [], spec.get("loadBalancerIP")
    for index, address in enumerate(spec.get("clusterIPs") or []):
        if address != HEADLESS:
            yield from address_warnings(f"spec.clusterIPs[{index}]", address)
    yield from _of_headless(spec)
    for index, address in enumerate(outside):
        yield from address_warnings(f"spec.externalIPs[{index}]", address)
    if balancer:
        yield from address_warnings("spec.loadBalancerIP", balancer)
    if spec["type"] == "ExternalName" and outside:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if spec["type"] != "ExternalName" and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'


def _of_headless(spec: dict[str, Any]) -> Iterator[str]:
    if spec["type"] != "ClusterIP" or not is_headless(spec):
        return
    for field in ("loadBalancerIP", "externalIPs"):
        if spec.get(field):
            yield f"spec.{field} is ignored for headless services"
    if spec["sessionAffinity"] != "None":
        yield "spec.SessionAffinity is ignored for headless services"


def _of_slice(obj: dict[str, Any]) -> Iterator[str]:
    if obj.get("addressType") == "FQDN":
        yield "spec.addressType: FQDN endpoints are deprecated"
    for index, endpoint in enumerate(obj.get("endpoints") or []):
        for position, address in enumerate(endpoint.get("addresses") or []):
            yield from address_warnings(f"endpoints[{index}].addresses[{position}]", address)


_WARNINGS: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "endpointslices": _of_slice,
    "ingresses": _of_ingress,
    "services": _of_service,
}
