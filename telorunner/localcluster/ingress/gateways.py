"""Reads Gateways and HTTPRoutes: which listeners take a route, for which hosts, and its rules.

Pure. Listeners speak HTTP, or HTTPS that ends here; their port numbers do not count, since one
port of this machine stands for all of a scheme. Filters, regular expressions and matches by query
are not supported: a route with any of them is not accepted.

Source: https://gateway-api.sigs.k8s.io/reference/spec/
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from telorunner.localcluster.ingress.ingresses import age
from telorunner.localcluster.ingress.table import ANY_HOST, HTTP, HTTPS, Backend, Rule, SecretName
from telorunner.localcluster.labelselectors import Requirement
from telorunner.localcluster.networkdefaults import LOCAL_CONTROLLER
from telorunner.localcluster.resources import GATEWAY_GROUP

Object = dict[str, Any]
_SCHEMES = {"HTTP": HTTP, "HTTPS": HTTPS}
_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


@dataclass(frozen=True)
class Attachment:
    """How a route stands to one of its parents.

    `reason` and `message` say why it is not accepted; else `hosts` are pairs of scheme and host,
    and `listeners` the names of those that took it.
    """

    parent: Mapping[str, Any]
    reason: str = ""
    message: str = ""
    hosts: tuple[tuple[str, str], ...] = ()
    listeners: tuple[str, ...] = ()


def local_gateway_classes(classes: Iterable[Object]) -> frozenset[str]:
    """Return the names of the GatewayClasses whose Gateways are this cluster's."""
    return frozenset(
        str(one["metadata"]["name"])
        for one in classes
        if one["spec"]["controllerName"] == LOCAL_CONTROLLER
    )


def scheme_of(listener: Object) -> str:
    """Return the scheme that a listener serves, "" where it is none of ours."""
    mode = (listener.get("tls") or {}).get("mode", "Terminate")
    return _SCHEMES.get(listener["protocol"], "") if mode == "Terminate" else ""


def listener_secret(gateway: Object, listener: Object) -> SecretName | None:
    """Return the first Secret that a listener names in its own namespace."""
    namespace = gateway["metadata"]["namespace"]
    for reference in (listener.get("tls") or {}).get("certificateRefs") or []:
        kind = (reference.get("group", ""), reference.get("kind", "Secret"))
        if kind == ("", "Secret") and reference.get("namespace", namespace) == namespace:
            return SecretName(namespace, reference["name"])
    return None


def gateway_secrets(gateway: Object) -> Iterator[tuple[str, SecretName]]:
    """Yield the hosts that listeners have a certificate for, and where that is."""
    for listener in gateway["spec"]["listeners"]:
        secret = listener_secret(gateway, listener)
        if scheme_of(listener) == HTTPS and secret is not None:
            yield listener.get("hostname") or ANY_HOST, secret


def parent_key(route: Object, parent: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return namespace and name of the Gateway that a parent means, None for another kind."""
    kind = (parent.get("group", GATEWAY_GROUP), parent.get("kind", "Gateway"))
    if kind != (GATEWAY_GROUP, "Gateway"):
        return None
    return parent.get("namespace") or route["metadata"]["namespace"], parent["name"]


def attach(
    route: Object, parent: Mapping[str, Any], gateway: Object, labels: Mapping[str, str]
) -> Attachment:
    """Return how a route stands to a Gateway; `labels` are those of the route's namespace."""
    if problem := unsupported(route):
        return Attachment(parent, "UnsupportedValue", problem)
    named = [
        one
        for one in gateway["spec"]["listeners"]
        if scheme_of(one)
        and parent.get("sectionName") in (None, one["name"])
        and parent.get("port") in (None, one["port"])
    ]
    if not named:
        return Attachment(parent, "NoMatchingParent", "The Gateway has no such listener.")
    allowed = [one for one in named if _allows(one, gateway, route, labels)]
    if not allowed:
        why = "No listener takes routes of this kind from this namespace."
        return Attachment(parent, "NotAllowedByListeners", why)
    taken = {one["name"]: (scheme_of(one), _common_hosts(one, route)) for one in allowed}
    hosts = tuple((scheme, host) for scheme, found in taken.values() for host in found)
    if not hosts:
        why = "No listener has a hostname in common with the route."
        return Attachment(parent, "NoMatchingListenerHostname", why)
    listeners = tuple(name for name, (_, found) in taken.items() if found)
    return Attachment(parent, hosts=hosts, listeners=listeners)


def route_rules(route: Object, attachments: Iterable[Attachment]) -> Iterator[Rule]:
    """Yield the rules of a route for the hosts that listeners took it for."""
    pairs = dict.fromkeys(pair for attachment in attachments for pair in attachment.hosts)
    for index, given in enumerate(route["spec"].get("rules") or []):
        backends = tuple(_backends(route, given.get("backendRefs") or []))
        for position, match in enumerate(given.get("matches") or [{}]):
            path = match.get("path") or {}
            headers = match.get("headers") or []
            for scheme, host in pairs:
                yield Rule(
                    host=host,
                    path=path.get("value", "/"),
                    is_exact=path.get("type") == "Exact",
                    is_deep=True,
                    schemes=frozenset({scheme}),
                    method=match.get("method", ""),
                    headers=tuple((one["name"].lower(), one["value"]) for one in headers),
                    backends=backends,
                    age=(*age(route), index, position),
                )


def unsupported(route: Object) -> str:
    """Return what a route asks for that is not supported here, "" for nothing."""
    for rule in route["spec"].get("rules") or []:
        if rule.get("filters") or any(one.get("filters") for one in rule.get("backendRefs") or []):
            return "Filters are not supported."
        for match in rule.get("matches") or []:
            if match.get("queryParams"):
                return "Matches by query parameters are not supported."
            parts = (match.get("path") or {}, *(match.get("headers") or ()))
            if any(part.get("type") == "RegularExpression" for part in parts):
                return "Regular expressions are not supported."
    return ""


def _backends(route: Object, references: Iterable[Object]) -> Iterator[Backend]:
    namespace = route["metadata"]["namespace"]
    for one in references:
        kind = (one.get("group", ""), one.get("kind", "Service"))
        if kind == ("", "Service") and one.get("namespace", namespace) == namespace:
            yield Backend(namespace, one["name"], one["port"], one.get("weight", 1))


def _allows(listener: Object, gateway: Object, route: Object, labels: Mapping[str, str]) -> bool:
    allowed = listener.get("allowedRoutes") or {}
    kinds = [one["kind"] for one in allowed.get("kinds") or []]
    if kinds and "HTTPRoute" not in kinds:
        return False
    namespaces = allowed.get("namespaces") or {}
    match namespaces.get("from", "Same"):
        case "All":
            return True
        case "Selector":
            return _selects(namespaces.get("selector") or {}, labels)
    return bool(route["metadata"]["namespace"] == gateway["metadata"]["namespace"])


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    wanted = [
        Requirement(key, "in", frozenset({value}))
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for one in selector.get("matchExpressions") or []:
        if one["operator"] not in _OPERATORS:
            # The API takes any word. What cannot be understood selects nothing.
            return False
        values = frozenset(one.get("values") or ())
        wanted.append(Requirement(one["key"], _OPERATORS[one["operator"]], values))
    return all(requirement.matches(dict(labels)) for requirement in wanted)


def _common_hosts(listener: Object, route: Object) -> tuple[str, ...]:
    own, asked = listener.get("hostname"), route["spec"].get("hostnames") or []
    if not own:
        return tuple(asked) or (ANY_HOST,)
    if not asked:
        return (own,)
    found = (_narrower(own, host) for host in asked)
    return tuple(dict.fromkeys(host for host in found if host))


def _narrower(one: str, other: str) -> str:
    """Return the host that both stand for, "" where there is none."""
    for wide, narrow in ((one, other), (other, one)):
        if wide == narrow or (wide.startswith("*.") and narrow.endswith(wide[1:])):
            return narrow
    return ""
