"""The HTTPRoute of one port of a session; pure.

One for each port: a hostname belongs to a whole HTTPRoute, so one with all hosts would send all of
them to its first rule.
"""

from dataclasses import dataclass
from typing import Any

from routing.routes import (
    ProbeBackend,
    SessionRoutes,
    hostname,
    metadata,
    object_name,
    route_name,
)
from telorunner.kube.objects import GATEWAY_GROUP


@dataclass(frozen=True)
class GatewayTarget:
    """The Gateway that HTTPRoutes go to, and the API version that is served.

    An empty section name means all of the Gateway's listeners.
    """

    name: str
    namespace: str
    section_name: str
    api_version: str
    base_domain: str


def build_httproute(
    routes: SessionRoutes, port: int, target: GatewayTarget, probe: ProbeBackend | None
) -> dict[str, Any]:
    """Return the manifest of the HTTPRoute of one tcp port."""
    host = hostname(port, routes.session_id, target.base_domain)
    parent = {"name": target.name, "namespace": target.namespace}
    if target.section_name:
        parent["sectionName"] = target.section_name
    rules = [_rule("/", object_name(routes.session_id), port)]
    if probe is not None:
        rules.insert(0, _rule(probe.path.prefix(host), probe.service_name, probe.port))
    return {
        "apiVersion": f"{GATEWAY_GROUP}/{target.api_version}",
        "kind": "HTTPRoute",
        "metadata": metadata(routes, route_name(routes.session_id, port)),
        "spec": {"parentRefs": [parent], "hostnames": [host], "rules": rules},
    }


def _rule(path: str, service: str, port: int) -> dict[str, Any]:
    return {
        "matches": [{"path": {"type": "PathPrefix", "value": path}}],
        "backendRefs": [{"name": service, "port": port}],
    }
