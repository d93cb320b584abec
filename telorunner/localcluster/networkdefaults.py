"""What the API fills into Ingresses, IngressClasses and EndpointSlices; the default class.

The default class is that of a real cluster's admission: the newest that is marked so.

Source: https://kubernetes.io/docs/concepts/services-networking/ingress/#default-ingress-class
"""

from typing import Any

from telorunner.localcluster.networkvalidation import CLASS_ANNOTATION
from telorunner.localcluster.store import Store

DEFAULT_ANNOTATION = "ingressclass.kubernetes.io/is-default-class"
# The class of this cluster's own ingress, for Ingresses and, as a GatewayClass, for Gateways.
LOCAL_CLASS = "telorunner-local"
LOCAL_CONTROLLER = "telo.run/local-ingress"


def default_ingress(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an Ingress as the API shows it: a Service behind it always has a port."""
    spec = dict(obj.get("spec") or {})
    if spec.get("defaultBackend"):
        spec["defaultBackend"] = _backend(spec["defaultBackend"])
    if spec.get("rules"):
        spec["rules"] = [_rule(rule) for rule in spec["rules"]]
    return {**obj, "spec": spec}


def default_ingress_class(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an IngressClass whose parameters have a scope."""
    spec = dict(obj.get("spec") or {})
    if spec.get("parameters"):
        spec["parameters"] = {"scope": "Cluster", **spec["parameters"]}
    return {**obj, "spec": spec}


def default_endpoint_slice(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an EndpointSlice with the conditions and ports that are always shown."""
    endpoints, ports = obj.get("endpoints"), obj.get("ports")
    # A list that was left out is shown as null.
    if endpoints is not None:
        endpoints = [{"conditions": {}, **endpoint} for endpoint in endpoints]
    if ports is not None:
        ports = [{"name": "", "protocol": "TCP", **port} for port in ports]
    return {**obj, "endpoints": endpoints, "ports": ports}


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


def class_warnings(ingress: dict[str, Any]) -> list[str]:
    """Return what a client is warned of that names a class by annotation."""
    if CLASS_ANNOTATION not in (ingress["metadata"].get("annotations") or {}):
        return []
    return [
        f'annotation "{CLASS_ANNOTATION}" is deprecated, please use'
        " 'spec.ingressClassName' instead"
    ]


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


def _rule(given: dict[str, Any]) -> dict[str, Any]:
    paths = (given.get("http") or {}).get("paths")
    if not paths:
        return given
    shown = [{**path, "backend": _backend(path.get("backend") or {})} for path in paths]
    return {**given, "http": {**given["http"], "paths": shown}}


def _backend(given: dict[str, Any]) -> dict[str, Any]:
    if given.get("service") is None:
        return given
    return {**given, "service": {"name": "", "port": {}, **given["service"]}}
