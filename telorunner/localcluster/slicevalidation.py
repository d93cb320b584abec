"""What makes EndpointSlices invalid, as the real API says it. Pure.

One thing differs from a real cluster: endpoints may be on loopback, where the pods of this one are.
"""

import re
from collections.abc import Iterator
from typing import Any

from telorunner.localcluster import names
from telorunner.localcluster.metadata import label_value_faults, qualified_name_problems
from telorunner.localcluster.validation import (
    NOT_A_SUBDOMAIN,
    SUBDOMAIN,
    Fault,
    duplicate,
    label_faults,
    required,
    too_many,
    unsupported,
    wrong,
)

_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_MAX_ENDPOINTS, _MAX_ADDRESSES, _MAX_PORTS = 1000, 100, 20000
_MAX_HINTS = 8


def endpoint_slice_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with an EndpointSlice."""
    kind, endpoints = obj.get("addressType"), obj.get("endpoints") or []
    faults: list[Fault] = []
    if not kind:
        faults.append(required("addressType"))
    elif kind not in _ADDRESS_TYPES:
        faults.append(unsupported("addressType", kind, _ADDRESS_TYPES))
    faults += _port_faults(obj.get("ports") or [])
    if len(endpoints) > _MAX_ENDPOINTS:
        return [*faults, too_many("endpoints", len(endpoints), _MAX_ENDPOINTS)]
    for index, endpoint in enumerate(endpoints):
        faults += _endpoint_faults(f"endpoints[{index}]", endpoint, kind or "")
    return faults


def _endpoint_faults(field: str, endpoint: dict[str, Any], kind: str) -> Iterator[Fault]:
    addresses = endpoint.get("addresses") or []
    if not addresses:
        yield required(f"{field}.addresses", "must contain at least 1 address")
    elif len(addresses) > _MAX_ADDRESSES:
        yield too_many(f"{field}.addresses", len(addresses), _MAX_ADDRESSES)
    for index, address in enumerate(addresses):
        where = f"{field}.addresses[{index}]"
        if kind == "FQDN":
            yield from _domain_name_faults(where, address)
        elif kind in ("IPv4", "IPv6"):
            yield from _address_faults(f"{field}.addresses", where, address, kind)
    node, host, hints = (endpoint.get(one) for one in ("nodeName", "hostname", "hints"))
    for why in names.subdomain_problems(node) if node is not None else ():
        yield wrong(f"{field}.nodeName", node, why)
    if host is not None:
        yield from label_faults(f"{field}.hostname", host)
    for name in ("forZones", "forNodes"):
        found = [one.get("name", "") for one in (hints or {}).get(name) or []]
        yield from _hint_faults(f"{field}.hints.{name}", found)


def _address_faults(field: str, where: str, address: str, kind: str) -> Iterator[Fault]:
    problems = names.strict_address_problems(address) if kind == "IPv6" else []
    found = names.parse_address(address)
    if found is None and not problems:
        problems = [names.NOT_AN_ADDRESS]
    for why in problems:
        yield wrong(where, address, why)
    if found is None or problems:
        return
    if f"IPv{found.version}" != kind:
        # Without the position, as the real API has it.
        yield wrong(field, address, f"must be an {kind} address")
    yield from names.special_address_faults(where, address, may_be_loopback=True)


def _hint_faults(field: str, found: list[str]) -> Iterator[Fault]:
    if len(found) > _MAX_HINTS:
        yield too_many(field, len(found), _MAX_HINTS)
        return
    for index, name in enumerate(found):
        where = f"{field}[{index}].name"
        if name in found[:index]:
            yield duplicate(where, name)
        yield from label_value_faults(where, name)


def _domain_name_faults(field: str, name: str) -> Iterator[Fault]:
    if not name:
        yield required(field)
        return
    bare = name.removesuffix(".")
    if not re.fullmatch(SUBDOMAIN, bare):
        yield wrong(field, bare, NOT_A_SUBDOMAIN)
    elif "." not in bare:
        yield wrong(field, bare, "should be a domain with at least two segments separated by dots")


def _port_faults(ports: list[dict[str, Any]]) -> Iterator[Fault]:
    if len(ports) > _MAX_PORTS:
        yield too_many("ports", len(ports), _MAX_PORTS)
        return
    seen: set[str] = set()
    for index, port in enumerate(ports):
        field, name = f"ports[{index}]", port["name"]
        if name:
            yield from label_faults(f"{field}.name", name)
        if name in seen:
            yield duplicate(f"{field}.name", name)
        seen.add(name)
        if port["protocol"] not in names.PROTOCOLS:
            yield unsupported(f"{field}.protocol", port["protocol"], names.PROTOCOLS)
        for why in qualified_name_problems(port["appProtocol"]) if "appProtocol" in port else ():
            yield wrong(f"{field}.appProtocol", port["appProtocol"], why)


def endpoint_slice_update_faults(old: dict[str, Any], new: dict[str, Any]) -> list[Fault]:
    """Return what an EndpointSlice may not become: of another address type."""
    if old.get("addressType") == new.get("addressType"):
        return []
    return [wrong("addressType", new.get("addressType") or "", "field is immutable")]
