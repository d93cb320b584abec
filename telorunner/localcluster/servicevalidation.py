"""What makes a Service invalid, in the words of the real API. Pure.

Addresses and node ports are given out before this, in `serviceallocation`, which refuses what it
cannot give.

Source: https://kubernetes.io/docs/reference/kubernetes-api/service-resources/service-v1/
"""

from collections.abc import Iterator
from typing import Any

from telorunner.localcluster import names
from telorunner.localcluster.metadata import label_value_faults, qualified_name_problems
from telorunner.localcluster.validation import (
    Fault,
    duplicate,
    label_faults,
    not_allowed,
    required,
    unsupported,
    wrong,
)

HEADLESS = "None"
TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
FAMILIES = ("IPv4", "IPv6")
FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
TRAFFIC_POLICIES = ("Cluster", "Local")
# Source: MaxClientIPServiceAffinitySeconds of k8s.io/api/core/v1.
MAX_AFFINITY_SECONDS = 86400
_AFFINITIES = ("ClientIP", "None")
_DISTRIBUTIONS = ("PreferClose", "PreferSameNode", "PreferSameZone")


def service_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with a Service, after its defaults and addresses have been filled in."""
    spec = obj.get("spec") or {}
    return [
        *_type_faults(spec),
        *_port_faults(spec),
        *_selector_faults(spec),
        *_affinity_faults(spec),
        *cluster_ip_faults(spec),
        *_external_ip_faults(spec),
        *_kind_faults(spec),
        *_port_use_faults(spec),
        *_traffic_faults(spec),
    ]


def update_faults(old: dict[str, Any], new: dict[str, Any]) -> list[Fault]:
    """Return what a Service may not become: its first address and family stay."""
    if "ExternalName" in (old.get("type"), new.get("type")):
        return []
    faults = []
    for field in ("clusterIPs", "ipFamilies"):
        had, has = old.get(field) or [], new.get(field) or []
        if had and not has:
            why = "primary clusterIP can not be unset" if field == "clusterIPs" else None
            why = why or "primary ipFamily can not be unset"
            faults.append(wrong(f"spec.{field}[0]", has, why))
        elif had and had[0] != has[0]:
            faults.append(wrong(f"spec.{field}[0]", has, "may not change once set"))
    return faults


def status_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with the status that a Service is given."""
    return load_balancer_faults((obj.get("status") or {}).get("loadBalancer") or {})


def load_balancer_faults(found: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with the addresses that a load balancer is said to have."""
    faults = []
    for index, point in enumerate(found.get("ingress") or []):
        field = f"status.loadBalancer.ingress[{index}]"
        address, host = point.get("ip"), point.get("hostname")
        if address and not names.is_address(address):
            faults.append(wrong(f"{field}.ip", address, names.NOT_AN_ADDRESS))
        if host:
            where = f"{field}.hostname"
            faults += [wrong(where, host, why) for why in names.subdomain_problems(host)]
            if names.is_address(host):
                faults.append(wrong(where, host, "must be a DNS name, not an IP address"))
    return faults


def is_headless(spec: dict[str, Any]) -> bool:
    """Say whether a Service asks for no address."""
    first: str | None = (spec.get("clusterIPs") or [spec.get("clusterIP")])[0]
    return first == HEADLESS


def _type_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    kind = spec["type"]
    if not spec.get("ports") and not is_headless(spec) and kind != "ExternalName":
        yield required("spec.ports")
    if kind in ("LoadBalancer", "NodePort") and is_headless(spec):
        why = f"may not be set to 'None' for {kind} services"
        yield wrong("spec.clusterIPs[0]", HEADLESS, why)
    if kind != "ExternalName":
        return
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(field):
            yield not_allowed(f"spec.{field}", "may not be set for ExternalName services")
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        yield required("spec.externalName")
    for why in names.subdomain_problems(name) if name else ():
        yield wrong("spec.externalName", name, why)


def _port_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    ports = spec.get("ports") or []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        field, name = f"spec.ports[{index}]", port.get("name")
        if name:
            yield from label_faults(f"{field}.name", name)
            if name in seen:
                yield duplicate(f"{field}.name", name)
            seen.add(name)
        elif len(ports) > 1:
            yield required(f"{field}.name")
        number = port.get("port", 0)
        if not 1 <= number <= 65535:
            yield wrong(f"{field}.port", number, names.NOT_A_PORT)
        if port["protocol"] not in names.PROTOCOLS:
            yield unsupported(f"{field}.protocol", port["protocol"], names.PROTOCOLS)
        yield from _target_faults(f"{field}.targetPort", port["targetPort"])
        for why in qualified_name_problems(port["appProtocol"]) if "appProtocol" in port else ():
            yield wrong(f"{field}.appProtocol", port["appProtocol"], why)


def _target_faults(field: str, target: int | str) -> Iterator[Fault]:
    if isinstance(target, str):
        for why in names.port_name_problems(target):
            yield wrong(field, target, why)
    elif not 1 <= target <= 65535:
        yield wrong(field, target, names.NOT_A_PORT)


def _selector_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    for key, value in (spec.get("selector") or {}).items():
        for why in qualified_name_problems(key):
            yield wrong("spec.selector", key, why)
        yield from label_value_faults("spec.selector", value)


def _affinity_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    affinity, config = spec["sessionAffinity"], spec.get("sessionAffinityConfig")
    if affinity not in _AFFINITIES:
        yield unsupported("spec.sessionAffinity", affinity, _AFFINITIES)
    if affinity != "ClientIP":
        return
    seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds", 0)
    if not 0 < seconds <= MAX_AFFINITY_SECONDS:
        why = f"must be greater than 0 and less than {MAX_AFFINITY_SECONDS}"
        yield wrong("spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds, why)


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


def _external_ip_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    for index, address in enumerate(spec.get("externalIPs") or []):
        field = f"spec.externalIPs[{index}]"
        if not names.is_address(address):
            yield wrong(field, address, names.NOT_AN_ADDRESS)
        else:
            yield from names.special_address_faults(field, address)


def _kind_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    if spec["type"] not in TYPES:
        yield unsupported("spec.type", spec["type"], TYPES)
    if spec["type"] == "ClusterIP":
        for index, port in enumerate(spec.get("ports") or []):
            if port.get("nodePort"):
                why = "may not be used when `type` is 'ClusterIP'"
                yield not_allowed(f"spec.ports[{index}].nodePort", why)


def _port_use_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    ports = list(enumerate(spec.get("ports") or []))
    seen: set[tuple[str, int]] = set()
    for index, port in ports:
        if not port.get("nodePort"):
            continue
        if (port["protocol"], port["nodePort"]) in seen:
            yield duplicate(f"spec.ports[{index}].nodePort", port["nodePort"])
        seen.add((port["protocol"], port["nodePort"]))
    seen.clear()
    for index, port in ports:
        if (port["protocol"], port.get("port", 0)) in seen:
            # What of the port is compared, as Go's type has it.
            compared = {"Name": "", "Protocol": port["protocol"], "AppProtocol": None}
            compared |= {"Port": port.get("port", 0), "TargetPort": 0, "NodePort": 0}
            yield duplicate(f"spec.ports[{index}]", compared)
        seen.add((port["protocol"], port.get("port", 0)))


def _traffic_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    kind = spec["type"]
    if kind != "LoadBalancer":
        why = "may only be used when `type` is 'LoadBalancer'"
        for field in ("loadBalancerSourceRanges", "allocateLoadBalancerNodePorts"):
            shown = "LoadBalancerSourceRanges" if field == "loadBalancerSourceRanges" else field
            if spec.get(field) not in (None, []):
                yield not_allowed(f"spec.{shown}", why)
        if spec.get("loadBalancerClass") is not None:
            yield not_allowed("spec.loadBalancerClass", why)
    policy = spec.get("externalTrafficPolicy")
    is_outside = kind in ("LoadBalancer", "NodePort") or spec.get("externalIPs")
    if policy and not is_outside:
        why = "may only be set for externally-accessible services"
        yield wrong("spec.externalTrafficPolicy", policy, why)
    elif policy and policy not in TRAFFIC_POLICIES:
        yield unsupported("spec.externalTrafficPolicy", policy, TRAFFIC_POLICIES)
    inside = spec.get("internalTrafficPolicy")
    if inside is not None and inside not in TRAFFIC_POLICIES:
        yield unsupported("spec.internalTrafficPolicy", inside, TRAFFIC_POLICIES)
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _DISTRIBUTIONS:
        yield unsupported("spec.trafficDistribution", distribution, _DISTRIBUTIONS)
