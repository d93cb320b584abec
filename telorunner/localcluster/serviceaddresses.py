"""The addresses of a Service: what does not go together, and those that it is told to have. Pure.

Source: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ip-addressing-mechanism
"""

from collections.abc import Iterator
from typing import Any

from telorunner.localcluster import names
from telorunner.localcluster.validation import (
    Fault,
    duplicate,
    not_allowed,
    required,
    unsupported,
    wrong,
)

HEADLESS = "None"
LOAD_BALANCER = "LoadBalancer"
FAMILIES = ("IPv4", "IPv6")
FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_IP_MODES = ("Proxy", "VIP")


def is_headless(spec: dict[str, Any]) -> bool:
    """Say whether a Service asks for no address."""
    first: str | None = (spec.get("clusterIPs") or [spec.get("clusterIP")])[0]
    return first == HEADLESS


def is_outside(spec: dict[str, Any]) -> bool:
    """Say whether traffic from outside of a cluster comes to a Service."""
    if spec["type"] == "ClusterIP":
        return bool(spec.get("externalIPs"))
    return spec["type"] in (LOAD_BALANCER, "NodePort")


def cluster_ip_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    """Yield what does not go together in a Service's addresses and families."""
    if spec["type"] == "ExternalName":
        return
    address, addresses = spec.get("clusterIP"), spec.get("clusterIPs") or []
    if address and not addresses:
        yield required("spec.clusterIPs")
    elif address and addresses[0] != address:
        yield wrong("spec.clusterIPs", addresses, "first value must match `clusterIP`")
    elif addresses and not address:
        why = "must be empty when `clusterIP` is not specified"
        yield wrong("spec.clusterIPs", addresses, why)
    families = spec.get("ipFamilies") or []
    for index, family in enumerate(families):
        if family not in FAMILIES:
            yield unsupported(f"spec.ipFamilies[{index}]", family, FAMILIES)
        if family in families[:index]:
            yield duplicate(f"spec.ipFamilies[{index}]", family)
    policy = spec.get("ipFamilyPolicy")
    if policy is not None and policy not in FAMILY_POLICIES:
        yield unsupported("spec.ipFamilyPolicy", policy, FAMILY_POLICIES)
    yield from _address_faults(addresses, families)


def _address_faults(addresses: list[str], families: list[str]) -> Iterator[Fault]:
    for index, address in enumerate(addresses):
        field = f"spec.clusterIPs[{index}]"
        if index == 0 and address == HEADLESS:
            if len(addresses) > 1:
                why = "'None' must be the first and only value"
                yield wrong("spec.clusterIPs", addresses, why)
            return
        found = names.parse_address(address)
        if found is None:
            yield wrong(field, address, names.NOT_AN_ADDRESS)
        elif index < len(families) and families[index] != f"IPv{found.version}":
            why = f"expected an {families[index]} value as indicated by `ipFamilies[{index}]`"
            yield wrong(field, address, why)
    if len(addresses) > 2:
        yield wrong("spec.clusterIPs", addresses, "may only hold up to 2 values")
    versions = {found.version for found in map(names.parse_address, addresses) if found}
    if all(map(names.is_address, addresses)) and len(addresses) > len(versions):
        why = "may specify no more than one IP for each IP family"
        yield wrong("spec.clusterIPs", addresses, why)


def external_ip_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    """Yield what is wrong with the addresses at which nodes take traffic for a Service."""
    for index, address in enumerate(spec.get("externalIPs") or []):
        field = f"spec.externalIPs[{index}]"
        if not names.is_address(address):
            yield wrong(field, address, names.NOT_AN_ADDRESS)
        else:
            yield from names.special_address_faults(field, address)


def default_points(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the status that a Service is given, its load balancer's addresses with a mode."""
    status = obj.get("status") or {}
    balancer = status.get("loadBalancer") or {}
    points = balancer.get("ingress") or []
    if points and (obj.get("spec") or {}).get("type") == LOAD_BALANCER:
        points = [{"ipMode": "VIP", **point} if point.get("ip") else point for point in points]
    return {**status, "loadBalancer": {**balancer, "ingress": points} if points else {}}


def status_faults(kind: str, status: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with the status that a Service of a type is given."""
    field = "status.loadBalancer.ingress"
    points = status["loadBalancer"].get("ingress") or []
    if points and kind != LOAD_BALANCER:
        return [not_allowed(field, "may only be used when `spec.type` is 'LoadBalancer'")]
    return [
        fault
        for index, point in enumerate(points)
        for fault in _point_faults(f"{field}[{index}]", point)
    ]


def _point_faults(field: str, point: dict[str, Any]) -> Iterator[Fault]:
    address, mode, host = point.get("ip"), point.get("ipMode"), point.get("hostname")
    if address and not names.is_address(address):
        yield wrong(f"{field}.ip", address, names.NOT_AN_ADDRESS)
    if address and mode is None:
        yield required(f"{field}.ipMode", "must be specified when `ip` is set")
    elif mode is not None and not address:
        yield not_allowed(f"{field}.ipMode", "may not be specified when `ip` is not set")
    elif mode is not None and mode not in _IP_MODES:
        yield unsupported(f"{field}.ipMode", mode, _IP_MODES)
    if host:
        yield from names.host_faults(f"{field}.hostname", host)
