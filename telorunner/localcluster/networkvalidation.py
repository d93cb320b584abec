"""What makes Ingresses and IngressClasses invalid, as the real API says it. Pure."""

import re
from collections.abc import Iterator
from typing import Any

from telorunner.localcluster import names
from telorunner.localcluster.validation import (
    Fault,
    not_allowed,
    required,
    too_many_bytes,
    unsupported,
    wrong,
)

CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_NEVER_IN_A_PATH = ("//", "/./", "/../", "%2f", "%2F")
_NEVER_AT_ITS_END = ("/..", "/.")
_MAX_CONTROLLER_BYTES = 250
_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_NOT_A_PATH = 'must be a domain-prefixed path (such as "acme.io/foo")'


def ingress_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with an Ingress."""
    spec = obj.get("spec") or {}
    faults: list[Fault] = []
    rules = spec.get("rules")
    backend = spec.get("defaultBackend")
    if not rules and backend is None:
        faults.append(wrong("spec", rules, "either `defaultBackend` or `rules` must be specified"))
    if backend is not None:
        faults += _backend_faults("spec.defaultBackend", backend)
    for index, rule in enumerate(rules or []):
        faults += _rule_faults(f"spec.rules[{index}]", rule)
    for index, tls in enumerate(spec.get("tls") or []):
        faults += _tls_faults(f"spec.tls[{index}]", tls)
    name = spec.get("ingressClassName")
    for why in names.subdomain_problems(name) if name is not None else ():
        faults.append(wrong("spec.ingressClassName", name, why))
    return faults


def class_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with a new Ingress whose two ways to name a class differ."""
    named = (obj.get("spec") or {}).get("ingressClassName")
    annotated = (obj["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    if None in (named, annotated) or named == annotated:
        return []
    why = "must match `ingressClassName` when both are specified"
    return [wrong(f"annotations.{CLASS_ANNOTATION}", annotated, why)]


def ingress_status_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with the status that an Ingress is given."""
    points = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    return [
        fault
        for index, point in enumerate(points)
        for fault in names.point_faults(f"status.loadBalancer.ingress[{index}]", point)
    ]


def _rule_faults(field: str, rule: dict[str, Any]) -> Iterator[Fault]:
    host = rule.get("host")
    if host:
        if names.is_address(host):
            yield wrong(f"{field}.host", host, "must be a DNS name, not an IP address")
        for why in names.host_problems(host):
            yield wrong(f"{field}.host", host, why)
    if rule.get("http") is None:
        return
    paths = rule["http"].get("paths")
    if not paths:
        yield required(f"{field}.http.paths")
    for index, path in enumerate(paths or []):
        yield from _path_faults(f"{field}.http.paths[{index}]", path)


def _path_faults(field: str, found: dict[str, Any]) -> Iterator[Fault]:
    kind, path = found.get("pathType"), found.get("path") or ""
    if kind is None:
        yield required(f"{field}.pathType", "pathType must be specified")
        return
    if kind not in _PATH_TYPES:
        yield unsupported(f"{field}.pathType", kind, _PATH_TYPES)
    elif not path.startswith("/") and (path or kind != "ImplementationSpecific"):
        yield wrong(f"{field}.path", path, "must be an absolute path")
    if kind in ("Exact", "Prefix"):
        for part in _NEVER_IN_A_PATH:
            if part in path:
                yield wrong(f"{field}.path", path, f"must not contain '{part}'")
        for part in _NEVER_AT_ITS_END:
            if path.endswith(part):
                yield wrong(f"{field}.path", path, f"cannot end with '{part}'")
    yield from _backend_faults(f"{field}.backend", found.get("backend") or {})


def _backend_faults(field: str, backend: dict[str, Any]) -> Iterator[Fault]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is None and resource is None:
        yield wrong(field, "", "resource or service backend is required")
    elif service is not None and resource is not None:
        yield wrong(field, "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from _reference_faults(f"{field}.resource", resource)
    elif service is not None:
        yield from _service_backend_faults(field, service)


def _service_backend_faults(field: str, service: dict[str, Any]) -> Iterator[Fault]:
    if not service.get("name"):
        yield required(f"{field}.service.name")
    for why in names.service_name_problems(service["name"]) if service.get("name") else ():
        yield wrong(f"{field}.service.name", service["name"], why)
    port = service.get("port") or {}
    name, number = port.get("name"), port.get("number")
    if name and number:
        yield wrong(field, "", "cannot set both port name & port number")
    elif name:
        for why in names.port_name_problems(name):
            yield wrong(f"{field}.service.port.name", name, why)
    elif not number:
        yield required(field, "port name or number is required")
    elif not 1 <= number <= 65535:
        yield wrong(f"{field}.service.port.number", number, names.NOT_A_PORT)


def _reference_faults(field: str, reference: dict[str, Any]) -> Iterator[Fault]:
    group = reference.get("apiGroup")
    for why in names.subdomain_problems(group) if group is not None else ():
        yield wrong(f"{field}.apiGroup", group, why)
    for part in ("kind", "name"):
        text = reference.get(part)
        if not text:
            yield required(f"{field}.{part}")
        for why in names.path_segment_problems(text or ""):
            yield wrong(f"{field}.{part}", text, why)


def _tls_faults(field: str, tls: dict[str, Any]) -> Iterator[Fault]:
    for index, host in enumerate(tls.get("hosts") or []):
        for why in names.host_problems(host):
            yield wrong(f"{field}.hosts[{index}]", host, why)
    secret = tls.get("secretName")
    for why in names.subdomain_problems(secret) if secret else ():
        yield wrong(f"{field}.secretName", secret, why)


def ingress_class_faults(obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with an IngressClass."""
    spec = obj.get("spec") or {}
    controller, parameters = spec.get("controller"), spec.get("parameters")
    faults: list[Fault] = []
    if not controller:
        faults.append(required("spec.controller"))
    else:
        if len(controller.encode()) > _MAX_CONTROLLER_BYTES:
            faults.append(too_many_bytes("spec.controller", _MAX_CONTROLLER_BYTES))
        faults += _controller_faults(controller)
    if parameters is not None:
        faults += _reference_faults("spec.parameters", parameters)
        faults += _scope_faults("spec.parameters", parameters)
    return faults


def _controller_faults(controller: str) -> Iterator[Fault]:
    field = "spec.controller"
    domain, slash, path = controller.partition("/")
    if not slash or not domain or not path:
        yield wrong(field, controller, _NOT_A_PATH)
        return
    for why in names.subdomain_problems(domain):
        yield wrong(field, domain, why)
    if not re.fullmatch(_PATH, path):
        why = f"Invalid path (regex used for validation is '{_PATH}')"
        yield wrong(field, path, why)


def _scope_faults(field: str, parameters: dict[str, Any]) -> Iterator[Fault]:
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        yield required(f"{field}.scope")
    elif scope not in ("Cluster", "Namespace"):
        yield unsupported(f"{field}.scope", scope, ("Cluster", "Namespace"))
    elif scope == "Cluster" and namespace is not None:
        yield not_allowed(f"{field}.namespace", "`parameters.scope` is set to 'Cluster'")
    elif scope == "Namespace" and namespace is None:
        yield required(f"{field}.namespace", "`parameters.scope` is set to 'Namespace'")
    elif scope == "Namespace":
        for why in names.namespace_problems(str(namespace)):
            yield wrong(f"{field}.namespace", namespace, why)


def ingress_class_update_faults(old: dict[str, Any], new: dict[str, Any]) -> list[Fault]:
    """Return what an IngressClass may not become: that of another controller."""
    had, has = (one["spec"].get("controller") for one in (old, new))
    return [] if had == has else [wrong("spec.controller", has or "", "field is immutable")]
