"""The Ingress of a session: a rule for the host of each tcp port; pure."""

from dataclasses import dataclass
from typing import Any

from routing.routes import ProbeBackend, SessionRoutes, hostname, metadata, object_name
from routing.service import port_name


@dataclass(frozen=True)
class IngressTarget:
    """Where Ingresses go; an empty class leaves the choice to the cluster, an empty secret TLS."""

    class_name: str
    tls_secret: str
    base_domain: str


def build_ingress(
    routes: SessionRoutes, target: IngressTarget, probe: ProbeBackend | None
) -> dict[str, Any]:
    """Return the manifest of a session's Ingress; the session has a tcp port."""
    hosts = {
        port: hostname(port, routes.session_id, target.base_domain) for port in routes.tcp_ports
    }
    tls = {"hosts": list(hosts.values()), "secretName": target.tls_secret}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": metadata(routes, object_name(routes.session_id)),
        "spec": {
            **({"ingressClassName": target.class_name} if target.class_name else {}),
            **({"tls": [tls]} if target.tls_secret else {}),
            "rules": [_rule(routes, port, host, probe) for port, host in hosts.items()],
        },
    }


def _rule(
    routes: SessionRoutes, port: int, host: str, probe: ProbeBackend | None
) -> dict[str, Any]:
    paths = []
    if probe is not None:
        number = {"number": probe.port}
        paths.append(_path(probe.path.prefix(host), probe.service_name, number))
    # By name: a number may be there twice, for tcp and for udp.
    name = {"name": port_name(port)}
    paths.append(_path("/", object_name(routes.session_id), name))
    return {"host": host, "http": {"paths": paths}}


def _path(path: str, service: str, port: dict[str, Any]) -> dict[str, Any]:
    backend = {"service": {"name": service, "port": port}}
    return {"path": path, "pathType": "Prefix", "backend": backend}
