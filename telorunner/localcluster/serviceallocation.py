"""What the API gives a Service: families, its address, node ports.

Addresses are given out from one range and belong to a Service until it is deleted: what is taken is
read off the Services that there are. Nothing answers at them, and node ports lead nowhere: in this
cluster traffic comes in through its ingress.

Source: https://kubernetes.io/docs/concepts/services-networking/cluster-ip-allocation/
"""

import ipaddress
import secrets
from collections.abc import Iterable
from typing import Any

from telorunner.localcluster import statuses
from telorunner.localcluster.names import parse_address
from telorunner.localcluster.serviceaddresses import (
    HEADLESS,
    LOAD_BALANCER,
    cluster_ip_faults,
    is_headless,
)
from telorunner.localcluster.servicevalidation import needs_health_check
from telorunner.localcluster.store import Store
from telorunner.localcluster.validation import Fault, wrong

Spec = dict[str, Any]

RANGE = ipaddress.ip_network("10.96.0.0/16")
# Addresses below are left to whoever asks for one by itself.
_STATIC_ADDRESSES = 256
_NODE_PORTS = range(30000, 32768)
_WITH_NODE_PORTS = (LOAD_BALANCER, "NodePort")
_ADDRESS_FIELDS = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def allocate_new(store: Store, service: dict[str, Any]) -> dict[str, Any]:
    """Return a new Service with its address, families and node ports.

    Raises:
        StoreError: 422, what it asks for cannot be had.
    """
    spec = dict(service["spec"])
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    return _allocated(store, {**service, "spec": spec}, None)


def allocate_update(store: Store, old: dict[str, Any], service: dict[str, Any]) -> dict[str, Any]:
    """Return what a Service becomes: it keeps its address and its ports' node ports.

    Raises:
        StoreError: 422, what it asks for cannot be had.
    """
    spec, had = dict(service["spec"]), old["spec"]
    _drop_what_was_of_the_type(had, spec)
    if "ExternalName" not in (had["type"], spec["type"]):
        if not spec.get("clusterIP") and "clusterIP" in had:
            spec["clusterIP"] = had["clusterIP"]
        if not spec.get("clusterIPs") and spec.get("clusterIP") == had.get("clusterIP"):
            spec["clusterIPs"] = had.get("clusterIPs", [])
    _keep_node_ports(had, spec)
    if needs_health_check(had) and needs_health_check(spec):
        spec.setdefault("healthCheckNodePort", had["healthCheckNodePort"])
    _match_addresses(had, spec)
    if spec["type"] != "ExternalName" and "ipFamilyPolicy" in had:
        spec.setdefault("ipFamilyPolicy", had["ipFamilyPolicy"])
    return _allocated(store, {**service, "spec": spec}, old)


def _drop_what_was_of_the_type(had: Spec, spec: Spec) -> None:
    """Take out what another type had and nobody has changed."""
    dropped: tuple[str, ...] = ()
    if needs_health_check(had) and not needs_health_check(spec):
        dropped += ("healthCheckNodePort",)
    if spec["type"] == "ExternalName" != had["type"]:
        dropped += (*_ADDRESS_FIELDS, "internalTrafficPolicy")
    if had["type"] in _WITH_NODE_PORTS and spec["type"] not in _WITH_NODE_PORTS:
        _drop_node_ports(had, spec)
        dropped += () if spec.get("externalIPs") else ("externalTrafficPolicy",)
    if had["type"] == LOAD_BALANCER != spec["type"]:
        dropped += ("allocateLoadBalancerNodePorts", "loadBalancerClass")
    for field in dropped:
        if spec.get(field) == had.get(field):
            spec.pop(field, None)


def _drop_node_ports(had: Spec, spec: Spec) -> None:
    ports = spec.get("ports") or []
    numbers = [port.get("nodePort") for port in had.get("ports") or []]
    if [port.get("nodePort") for port in ports] == numbers:
        for port in ports:
            port.pop("nodePort", None)


def _keep_node_ports(had: Spec, spec: Spec) -> None:
    if had["type"] not in _WITH_NODE_PORTS or spec["type"] not in _WITH_NODE_PORTS:
        return
    kept = {
        (port["protocol"], port["port"]): port["nodePort"]
        for port in had.get("ports") or []
        if port.get("nodePort")
    }
    asked = {port.get("nodePort") for port in spec.get("ports") or []}
    for port in spec.get("ports") or []:
        number = kept.get((port["protocol"], port.get("port")))
        if not port.get("nodePort") and number is not None and number not in asked:
            port["nodePort"] = number


def _match_addresses(had: Spec, spec: Spec) -> None:
    """Let the field that nobody changed follow the one that somebody did."""
    if spec.get("clusterIP") == had.get("clusterIP"):
        return
    if spec.get("clusterIPs", []) == had.get("clusterIPs", []) or not spec.get("clusterIPs"):
        spec.pop("clusterIPs", None)
        if spec.get("clusterIP"):
            spec["clusterIPs"] = [spec["clusterIP"]]


def _allocated(store: Store, service: dict[str, Any], old: dict[str, Any] | None) -> dict[str, Any]:
    spec = service["spec"]
    others = [
        one["spec"]
        for one in store.list("services")[0]
        if old is None or one["metadata"]["uid"] != old["metadata"]["uid"]
    ]
    if spec["type"] != "ExternalName":
        _set_families(service)
        had = (old or {}).get("spec", {}).get("clusterIPs") or [HEADLESS]
        # One that has an address keeps it; that it may not change is told with the other faults.
        if not is_headless(spec) and had == [HEADLESS]:
            _set_address(service, {one.get("clusterIP") for one in others})
    if spec["type"] in _WITH_NODE_PORTS:
        _set_node_ports(service, others, (old or {}).get("spec", {}))
    return service


def _set_families(service: dict[str, Any]) -> None:
    spec = service["spec"]
    is_free = is_headless(spec) and not spec.get("selector")
    if "ipFamilyPolicy" not in spec:
        spec["ipFamilyPolicy"] = "RequireDualStack" if is_free else "SingleStack"
    _refuse(service, list(cluster_ip_faults(spec)))
    policy, families = spec["ipFamilyPolicy"], list(spec.get("ipFamilies") or [])
    faults = _single_stack_faults(spec) if policy == "SingleStack" else []
    for index, text in enumerate(spec.get("clusterIPs") or []):
        address = parse_address(text)
        if address is None or index < len(families):
            continue
        family = f"IPv{address.version}"
        if family == "IPv4":
            families.append(family)
        else:
            why = f"{family} is not configured on this cluster"
            faults.append(wrong(f"spec.clusterIPs[{index}]", spec["clusterIPs"], why))
    _refuse(service, faults)
    if is_free:
        families = families or ["IPv4"]
        if len(families) == 1 and policy != "SingleStack":
            families.append("IPv6" if families == ["IPv4"] else "IPv4")
        spec["ipFamilies"] = families
        return
    if policy == "RequireDualStack":
        why = "this cluster is not configured for dual-stack services"
        faults.append(wrong("spec.ipFamilyPolicy", policy, why))
    faults += [
        wrong(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
        for index, family in enumerate(families)
        if family != "IPv4"
    ]
    _refuse(service, faults)
    spec["ipFamilies"] = families or ["IPv4"]


def _single_stack_faults(spec: Spec) -> list[Fault]:
    faults = []
    for field, what in (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")):
        if len(spec.get(field) or []) == 2:
            why = (
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple"
                f" {what} are specified"
            )
            faults.append(wrong("spec.ipFamilyPolicy", "SingleStack", why))
    return faults


def _set_address(service: dict[str, Any], used: set[str | None]) -> None:
    spec = service["spec"]
    asked = (spec.get("clusterIPs") or [""])[0]
    if asked:
        problem = _address_problem(asked, used)
        if problem is not None:
            why = f"failed to allocate IP {asked}: {problem}"
            _refuse(service, [wrong("spec.clusterIPs", spec["clusterIPs"], why)])
        return
    free = RANGE.num_addresses - _STATIC_ADDRESSES - 2
    while not asked or asked in used:
        asked = str(RANGE[_STATIC_ADDRESSES + 1 + secrets.randbelow(free)])
    spec |= {"clusterIP": asked, "clusterIPs": [asked]}


def _address_problem(asked: str, used: Iterable[str | None]) -> str | None:
    """Return what keeps an address from being given out."""
    address = parse_address(asked)
    if address is None or address not in RANGE or address in (RANGE[0], RANGE[-1]):
        return "the provided network does not match the current range"
    return "provided IP is already allocated" if asked in used else None


def _set_node_ports(service: dict[str, Any], others: list[Spec], had: Spec) -> None:
    """Give each port of a Service a node port; one number may serve two protocols of a port."""
    spec = service["spec"]
    used = set().union(*map(_node_ports, others))
    own = _node_ports(had)
    by_port: dict[int, int] = {}
    for index, port in enumerate(spec.get("ports") or []):
        number, shared = port.get("nodePort"), by_port.get(port.get("port", 0))
        if number and number != shared:
            problem = _node_port_problem(number, used - own)
            if problem is not None:
                _refuse(service, [wrong(f"spec.ports[{index}].nodePort", number, problem)])
        elif not number and spec.get("allocateLoadBalancerNodePorts", True):
            number = port["nodePort"] = shared or _free_node_port(used, spec)
        if number:
            used.add(number)
            by_port.setdefault(port.get("port", 0), number)
    if needs_health_check(spec) and "healthCheckNodePort" not in spec:
        spec["healthCheckNodePort"] = _free_node_port(used, spec)


def _node_ports(spec: Spec) -> set[int]:
    found = [port.get("nodePort") for port in spec.get("ports") or []]
    return {number for number in (*found, spec.get("healthCheckNodePort")) if number}


def _node_port_problem(number: int, used: set[int]) -> str | None:
    if number not in _NODE_PORTS:
        shown = f"{_NODE_PORTS[0]}-{_NODE_PORTS[-1]}"
        return f"provided port is not in the valid range. The range of valid ports is {shown}"
    return "provided port is already allocated" if number in used else None


def _free_node_port(used: set[int], spec: Spec) -> int:
    own = {port.get("nodePort") for port in spec.get("ports") or []}
    number = 0
    while not number or number in used or number in own:
        number = secrets.choice(_NODE_PORTS)
    return number


def _refuse(service: dict[str, Any], faults: list[Fault]) -> None:
    if faults:
        name = service["metadata"].get("name", "")
        raise statuses.invalid(statuses.kind_of("services"), name, faults)
