"""The Service of a session: every declared port of its pod under one name; pure."""

from typing import Any

from routing.routes import RoutedPort, SessionRoutes, metadata, object_name
from telorunner.kube.objects import SESSION_ID_LABEL


def port_name(port: int) -> str:
    """Return the name of a tcp port in the Service."""
    return f"p{port}"


def build_service(routes: SessionRoutes) -> dict[str, Any]:
    """Return the manifest of a session's Service; the session has a port."""
    # NB: tcp first. An HTTPRoute can name a port only by its number, and where a udp port has the
    # same one, whoever takes the first of that number takes the right one.
    ports = sorted(dict.fromkeys(routes.ports), key=lambda port: not port.is_tcp)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(routes, object_name(routes.session_id)),
        "spec": {
            "type": "ClusterIP",
            "selector": {SESSION_ID_LABEL: routes.session_id},
            "ports": [_port(port, routes) for port in ports],
        },
    }


def _port(port: RoutedPort, routes: SessionRoutes) -> dict[str, Any]:
    name = port_name(port.port)
    if not port.is_tcp and port.port in routes.tcp_ports:
        # Names are unique in a Service, and this one is taken by the tcp port.
        name = f"{name}-udp"
    return {
        "name": name,
        "port": port.port,
        "targetPort": port.port,
        "protocol": "TCP" if port.is_tcp else "UDP",
    }
