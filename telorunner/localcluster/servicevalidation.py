"""What makes a Service invalid, in the words of the real API. Pure.

Addresses and node ports are given out before this, in `serviceallocation`, which refuses what it
cannot give.

Source: https://kubernetes.io/docs/reference/kubernetes-api/service-resources/service-v1/
"""

from collections.abc import Iterator
from typing import Any

from telorunner.localcluster import names
from telorunner.localcluster.metadata import label_value_faults, qualified_name_problems
from telorunner.localcluster.serviceaddresses import (
    HEADLESS,
    LOAD_BALANCER,
    cluster_ip_faults,
    external_ip_faults,
    is_headless,
    is_outside,
)
from telorunner.localcluster.validation import (
    Fault,
    duplicate,
    label_faults,
    not_allowed,
    required,
    unsupported,
    wrong,
)

TYPES = ("ClusterIP", "ExternalName", LOAD_BALANCER, "NodePort")
TRAFFIC_POLICIES = ("Cluster", "Local")
# Source: MaxClientIPServiceAffinitySeconds of k8s.io/api/core/v1.
MAX_AFFINITY_SECONDS = 86400
_ONLY_BALANCERS = "may only be used when `type` is 'LoadBalancer'"
_AFFINITIES = ("ClientIP", "None")
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")


def service_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with a Service, after its defaults and addresses have been filled in."""
    spec = obj.get("spec") or {}
    return [
        *_type_faults(spec),
        *_port_faults(spec),
        *_selector_faults(spec),
        *_affinity_faults(spec),
        *cluster_ip_faults(spec),
        *external_ip_faults(spec),
        *_kind_faults(spec),
        *_port_use_faults(spec),
        *_source_range_faults(spec),
        *_traffic_faults(spec),
        *_class_faults(spec),
    ]


def update_faults(old: dict[str, Any], new: dict[str, Any]) -> list[Fault]:
    """Return what a Service may not become: its first address and family stay, and more."""
    faults = []
    if needs_health_check(old) and needs_health_check(new):
        had, has = (one.get("healthCheckNodePort") for one in (old, new))
        if had != has:
            faults.append(not_allowed("spec.healthCheckNodePort", "field is immutable"))
    if old.get("type") == new.get("type") == LOAD_BALANCER:
        had, has = (one.get("loadBalancerClass") for one in (old, new))
        if had != has:
            faults.append(wrong("spec.loadBalancerClass", has, "may not change once set"))
    if "ExternalName" in (old.get("type"), new.get("type")):
        return faults
    for field in ("clusterIPs", "ipFamilies"):
        had, has = old.get(field) or [], new.get(field) or []
        if had and not has:
            why = "primary clusterIP can not be unset" if field == "clusterIPs" else None
            why = why or "primary ipFamily can not be unset"
            faults.append(wrong(f"spec.{field}[0]", has, why))
        elif had and had[0] != has[0]:
            faults.append(wrong(f"spec.{field}[0]", has, "may not change once set"))
    return faults


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


def needs_health_check(spec: dict[str, Any]) -> bool:
    """Say whether a load balancer asks nodes whether they have pods of a Service."""
    return spec.get("type") == LOAD_BALANCER and spec.get("externalTrafficPolicy") == "Local"


def _source_range_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    # In capitals, as the real API has it.
    field = "spec.LoadBalancerSourceRanges"
    ranges = spec.get("loadBalancerSourceRanges") or []
    if ranges and spec["type"] != LOAD_BALANCER:
        yield not_allowed(field, _ONLY_BALANCERS)
        return
    for index, found in enumerate(ranges):
        if not names.is_network(found.strip()):
            yield wrong(f"{field}[{index}]", found, names.NOT_A_NETWORK)


def _traffic_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    kind = spec["type"]
    if spec.get("allocateLoadBalancerNodePorts") is not None and kind != LOAD_BALANCER:
        yield not_allowed("spec.allocateLoadBalancerNodePorts", _ONLY_BALANCERS)
    policy, port = spec.get("externalTrafficPolicy"), spec.get("healthCheckNodePort")
    if policy and not is_outside(spec):
        why = "may only be set for externally-accessible services"
        yield wrong("spec.externalTrafficPolicy", policy, why)
    elif policy and policy not in TRAFFIC_POLICIES:
        yield unsupported("spec.externalTrafficPolicy", policy, TRAFFIC_POLICIES)
    if port and not needs_health_check(spec):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield wrong("spec.healthCheckNodePort", port, why)
    inside = spec.get("internalTrafficPolicy")
    if inside is not None and inside not in TRAFFIC_POLICIES:
        yield unsupported("spec.internalTrafficPolicy", inside, TRAFFIC_POLICIES)
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _DISTRIBUTIONS:
        yield unsupported("spec.trafficDistribution", distribution, _DISTRIBUTIONS)


def _class_faults(spec: dict[str, Any]) -> Iterator[Fault]:
    found = spec.get("loadBalancerClass")
    if found is None:
        return
    if spec["type"] != LOAD_BALANCER:
        yield not_allowed("spec.loadBalancerClass", _ONLY_BALANCERS)
        return
    for why in qualified_name_problems(found):
        yield wrong("spec.loadBalancerClass", found, why)
