"""Reads Ingresses: which are this cluster's own, the rules they make and their certificates. Pure.

A path whose type is left to the implementation is a prefix here.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from telorunner.localcluster.ingress.table import ANY_HOST, Backend, Rule, SecretName
from telorunner.localcluster.networkdefaults import LOCAL_CONTROLLER
from telorunner.localcluster.networkvalidation import CLASS_ANNOTATION

Object = dict[str, Any]


def local_classes(ingress_classes: Iterable[Object]) -> frozenset[str]:
    """Return the names of the IngressClasses whose Ingresses are routed here."""
    return frozenset(
        str(one["metadata"]["name"])
        for one in ingress_classes
        if one["spec"].get("controller") == LOCAL_CONTROLLER
    )


def is_local(ingress: Object, classes: frozenset[str]) -> bool:
    """Say whether an Ingress is of one of these classes."""
    annotations = ingress["metadata"].get("annotations") or {}
    named = ingress["spec"].get("ingressClassName") or annotations.get(CLASS_ANNOTATION)
    return named in classes


def ingress_rules(ingress: Object) -> Iterator[Rule]:
    """Yield the rules of an Ingress but for its default backend."""
    for index, given in enumerate(ingress["spec"].get("rules") or []):
        host = given.get("host") or ANY_HOST
        paths = (given.get("http") or {}).get("paths")
        if paths is None and (backend := ingress["spec"].get("defaultBackend")):
            # A host that is only named gets all that comes for it to the default backend.
            paths = [{"path": "/", "backend": backend}]
        for position, path in enumerate(paths or []):
            yield Rule(
                host=host,
                path=path.get("path") or "/",
                is_exact=path.get("pathType") == "Exact",
                backends=_backends(ingress, path["backend"]),
                age=(*age(ingress), index, position),
            )


def default_rules(ingress: Object) -> Iterator[Rule]:
    """Yield the rule for what no other rule takes, where an Ingress has one."""
    backend = ingress["spec"].get("defaultBackend")
    if backend:
        yield Rule(host=ANY_HOST, path="/", backends=_backends(ingress, backend), age=age(ingress))


def ingress_secrets(ingress: Object) -> Iterator[tuple[str, SecretName]]:
    """Yield the hosts of an Ingress that have a certificate, and where that is."""
    named = [rule["host"] for rule in ingress["spec"].get("rules") or [] if rule.get("host")]
    for tls in ingress["spec"].get("tls") or []:
        if secret := tls.get("secretName"):
            found = SecretName(ingress["metadata"]["namespace"], secret)
            yield from ((host, found) for host in tls.get("hosts") or named)


def age(obj: Object) -> tuple[str, str, str]:
    """Return what puts the older of two objects first, and those of one second in an order."""
    metadata = obj["metadata"]
    return (metadata["creationTimestamp"], metadata["namespace"], metadata["name"])


def _backends(ingress: Object, backend: Object) -> tuple[Backend, ...]:
    service = backend.get("service")
    if not service:
        # A backend of another kind leads nowhere here.
        return ()
    port = service.get("port") or {}
    wanted = port.get("name") or port.get("number") or 0
    return (Backend(ingress["metadata"]["namespace"], service["name"], wanted),)
