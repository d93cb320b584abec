"""What the API fills into Services, Ingresses, their classes and EndpointSlices; the default class.

What is empty and not shown is taken out first, as the real API's encoder leaves it out.

The default class is that of a real cluster's admission: the newest that is marked so.

Source: https://kubernetes.io/docs/concepts/services-networking/ingress/#default-ingress-class
"""

from typing import Any

from telorunner.localcluster.networkvalidation import CLASS_ANNOTATION
from telorunner.localcluster.serviceaddresses import LOAD_BALANCER, is_outside
from telorunner.localcluster.store import Store

_AFFINITY_SECONDS = 10800
_SHOWN_OF_SERVICES = (
    "allocateLoadBalancerNodePorts",
    "internalTrafficPolicy",
    "ipFamilyPolicy",
    "loadBalancerClass",
    "sessionAffinityConfig",
    "trafficDistribution",
)
DEFAULT_ANNOTATION = "ingressclass.kubernetes.io/is-default-class"
# The class of this cluster's own ingress, for Ingresses and, as a GatewayClass, for Gateways.
LOCAL_CLASS = "telorunner-local"
LOCAL_CONTROLLER = "telo.run/local-ingress"


def default_service(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a Service with everything filled in that needs no look at others."""
    given = _shown(obj.get("spec") or {}, *_SHOWN_OF_SERVICES)
    spec: dict[str, Any] = {"type": "ClusterIP", "sessionAffinity": "None", **given}
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        client = {"timeoutSeconds": _AFFINITY_SECONDS}
        client |= (given.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        spec["sessionAffinityConfig"] = {"clientIP": client}
    if given.get("ports"):
        spec["ports"] = [_service_port(port) for port in given["ports"]]
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if is_outside(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == LOAD_BALANCER:
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    return {**obj, "spec": spec}


def default_ingress(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an Ingress as the API shows it: a Service behind it always has a port."""
    # Whether rules are empty or absent shows in what refuses an Ingress without any.
    spec = _shown(obj.get("spec") or {}, "defaultBackend", "ingressClassName", "rules")
    if spec.get("defaultBackend") is not None:
        spec["defaultBackend"] = _backend(spec["defaultBackend"])
        if not spec.get("rules"):
            spec.pop("rules", None)
    if spec.get("tls"):
        spec["tls"] = [_shown(tls) for tls in spec["tls"]]
    if spec.get("rules"):
        spec["rules"] = [_rule(rule) for rule in spec["rules"]]
    return {**obj, "spec": spec}


def default_ingress_class(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an IngressClass whose parameters have a scope."""
    spec = dict(obj.get("spec") or {})
    if spec.get("parameters") is not None:
        spec["parameters"] = {"scope": "Cluster", **spec["parameters"]}
    return {**obj, "spec": spec}


def default_endpoint_slice(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an EndpointSlice with the conditions and ports that are always shown."""
    endpoints = [_endpoint(endpoint) for endpoint in obj.get("endpoints") or []]
    ports = [{"name": "", "protocol": "TCP", **port} for port in obj.get("ports") or []]
    # A list that is empty is shown as null.
    return {**obj, "endpoints": endpoints or None, "ports": ports or None}


def with_default_class(store: Store, ingress: dict[str, Any]) -> dict[str, Any]:
    """Return a new Ingress with the default class, where it names none and there is one."""
    annotations = ingress["metadata"].get("annotations") or {}
    if "ingressClassName" in ingress["spec"] or CLASS_ANNOTATION in annotations:
        return ingress
    defaults = [one for one in store.list("ingressclasses")[0] if _is_default(one)]
    if not defaults:
        return ingress
    # The list is in order of the names: of two that are as new as each other the first is taken.
    newest = max(defaults, key=lambda one: str(one["metadata"]["creationTimestamp"]))
    spec = {**ingress["spec"], "ingressClassName": newest["metadata"]["name"]}
    return {**ingress, "spec": spec}


def add_local_classes(store: Store, *, has_gateways: bool) -> None:
    """Add the class of this cluster's own ingress, which is the default."""
    annotations = {DEFAULT_ANNOTATION: "true"}
    metadata = {"name": LOCAL_CLASS, "generation": 1}
    store.create(
        "ingressclasses",
        {
            "metadata": {**metadata, "annotations": annotations},
            "spec": {"controller": LOCAL_CONTROLLER},
        },
    )
    if has_gateways:
        spec = {"controllerName": LOCAL_CONTROLLER}
        store.create("gatewayclasses", {"metadata": metadata, "spec": spec})


def _is_default(ingress_class: dict[str, Any]) -> bool:
    annotations = ingress_class["metadata"].get("annotations") or {}
    return bool(annotations.get(DEFAULT_ANNOTATION) == "true")


def _shown(given: dict[str, Any], *always: str) -> dict[str, Any]:
    """Return fields without those that are empty; those of `always` are shown as they are."""
    return {field: value for field, value in given.items() if value or field in always}


def _service_port(given: dict[str, Any]) -> dict[str, Any]:
    port = {"protocol": "TCP", **_shown(given, "appProtocol", "port")}
    port["targetPort"] = given.get("targetPort") or given.get("port", 0)
    return port


def _rule(given: dict[str, Any]) -> dict[str, Any]:
    rule = _shown(given, "http")
    paths = (rule.get("http") or {}).get("paths")
    if not paths:
        return rule
    shown = [
        {**_shown(path, "pathType"), "backend": _backend(path.get("backend") or {})}
        for path in paths
    ]
    return {**rule, "http": {**rule["http"], "paths": shown}}


def _backend(given: dict[str, Any]) -> dict[str, Any]:
    if given.get("service") is None:
        return given
    service = given["service"]
    port = _shown(service.get("port") or {})
    return {**given, "service": {"name": "", **service, "port": port}}


def _endpoint(given: dict[str, Any]) -> dict[str, Any]:
    # What the older version called topology is no part of this one.
    endpoint = {field: given[field] for field in given if field != "deprecatedTopology"}
    return {"conditions": {}, **endpoint}
