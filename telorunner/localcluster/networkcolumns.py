"""What kubectl prints of Services and routes: the cells of their rows. Pure."""

from typing import Any

from telorunner.localcluster.ages import age

Cells = list[Any]

_NONE = "<none>"
_MOST = 3


def service_cells(obj: dict[str, Any]) -> Cells:
    """Return the cells of a Service."""
    spec = obj.get("spec") or {}
    address = (spec.get("clusterIPs") or [spec.get("clusterIP") or _NONE])[0]
    ports = ",".join(map(_port, spec.get("ports") or [])) or _NONE
    selector = ",".join(
        f"{key}={value}" for key, value in sorted((spec.get("selector") or {}).items())
    )
    kind = spec.get("type", "ClusterIP")
    outside = _external_address(kind, spec, obj.get("status") or {})
    return [_name(obj), kind, address, outside, ports, _age(obj), selector or _NONE]


def ingress_cells(obj: dict[str, Any]) -> Cells:
    """Return the cells of an Ingress."""
    spec = obj.get("spec") or {}
    ports = "80, 443" if spec.get("tls") else "80"
    address = ",".join(sorted(_points(obj.get("status") or {})))
    hosts = _hosts(spec.get("rules") or [])
    return [_name(obj), spec.get("ingressClassName", _NONE), hosts, address, ports, _age(obj)]


def ingress_class_cells(obj: dict[str, Any]) -> Cells:
    """Return the cells of an IngressClass."""
    spec = obj.get("spec") or {}
    found = spec.get("parameters")
    parameters = _NONE
    if found:
        group = f".{found['apiGroup']}" if "apiGroup" in found else ""
        parameters = f"{found['kind']}{group}/{found['name']}"
    return [_name(obj), spec.get("controller", ""), parameters, _age(obj)]


def endpoint_slice_cells(obj: dict[str, Any]) -> Cells:
    """Return the cells of an EndpointSlice."""
    ports = [str(one.get("port", one.get("name", "*"))) for one in obj.get("ports") or []]
    addresses = [
        address for one in obj.get("endpoints") or [] for address in one.get("addresses") or []
    ]
    shown = (_first(ports), _first(addresses))
    return [_name(obj), obj.get("addressType", ""), *shown, _age(obj)]


def gateway_class_cells(obj: dict[str, Any]) -> Cells:
    """Return the cells of a GatewayClass."""
    spec = obj.get("spec") or {}
    accepted = _condition(obj, "Accepted")
    return [_name(obj), spec.get("controllerName"), accepted, _age(obj), spec.get("description")]


def gateway_cells(obj: dict[str, Any]) -> Cells:
    """Return the cells of a Gateway."""
    addresses = (obj.get("status") or {}).get("addresses") or []
    # A real cluster shows the first that its path finds.
    address = addresses[0].get("value") if addresses else None
    gateway_class = (obj.get("spec") or {}).get("gatewayClassName")
    return [_name(obj), gateway_class, address, _condition(obj, "Programmed"), _age(obj)]


def http_route_cells(obj: dict[str, Any]) -> Cells:
    """Return the cells of an HTTPRoute."""
    hosts = (obj.get("spec") or {}).get("hostnames")
    shown = None if hosts is None else "[" + ",".join(f'"{host}"' for host in hosts) + "]"
    return [_name(obj), shown, _age(obj)]


def _name(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["name"])


def _age(obj: dict[str, Any]) -> str:
    return age(obj["metadata"].get("creationTimestamp"))


def _port(port: dict[str, Any]) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node_port}/{port.get('protocol', 'TCP')}"


def _external_address(kind: str, spec: dict[str, Any], status: dict[str, Any]) -> str:
    outside = list(spec.get("externalIPs") or [])
    if kind == "ExternalName":
        return str(spec.get("externalName", ""))
    if kind != "LoadBalancer":
        return ",".join(outside) or _NONE
    return ",".join([*sorted(_points(status)), *outside]) or "<pending>"


def _points(status: dict[str, Any]) -> set[str]:
    found = (status.get("loadBalancer") or {}).get("ingress") or []
    return {point.get("ip") or point.get("hostname") or "" for point in found} - {""}


def _hosts(rules: list[dict[str, Any]]) -> str:
    named = [index for index, rule in enumerate(rules) if rule.get("host")][:_MOST]
    if not named:
        return "*"
    shown = ",".join(str(rules[index]["host"]) for index in named)
    # Rules behind the last host that is shown are more hosts, whether they have one or not.
    if len(named) < _MOST or named[-1] == len(rules) - 1:
        return shown
    return f"{shown} + {len(rules) - _MOST} more..."


def _first(texts: list[str]) -> str:
    shown = ",".join(texts[:_MOST])
    if len(texts) > _MOST:
        return f"{shown} + {len(texts) - _MOST} more..."
    return shown or "<unset>"


def _condition(obj: dict[str, Any], kind: str) -> str | None:
    for found in (obj.get("status") or {}).get("conditions") or []:
        if found["type"] == kind:
            return str(found["status"])
    return None
