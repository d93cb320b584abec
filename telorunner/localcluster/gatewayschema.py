"""The schemas of the Gateway API's kinds, as far as its standard channel is used here. Pure data.

Both served versions have the same.

Source: https://gateway-api.sigs.k8s.io/reference/spec/
"""

from collections.abc import Callable
from typing import Any

from telorunner.localcluster.gatewayparts import (
    CONDITIONS,
    CONTROLLER,
    HOSTNAME,
    NAME,
    NAMESPACE,
    PORT,
    SECTION,
    SUBDOMAIN,
    choice,
    fields,
    group,
    items,
    kind,
    mapping,
    text,
)
from telorunner.localcluster.resources import GATEWAY_GROUP
from telorunner.localcluster.routeschema import HTTP_ROUTE
from telorunner.localcluster.structural import Schema

_NEVER = "1970-01-01T00:00:00Z"


def _waiting(*kinds: str) -> list[dict[str, str]]:
    """Return the conditions of what no controller has looked at yet."""
    return [
        {
            "lastTransitionTime": _NEVER,
            "message": "Waiting for controller",
            "reason": "Pending",
            "status": "Unknown",
            "type": kind,
        }
        for kind in kinds
    ]


_SELECTOR = fields(
    matchExpressions={
        "type": "array",
        "items": fields(
            "key",
            "operator",
            key={"type": "string"},
            operator={"type": "string"},
            values={"type": "array", "items": {"type": "string"}},
        ),
    },
    matchLabels={"type": "object", "additionalProperties": {"type": "string"}},
)
_ROUTE_KIND = fields("kind", group=group(GATEWAY_GROUP), kind=kind())
_ALLOWED = fields(
    default={"namespaces": {"from": "Same"}},
    kinds=items(_ROUTE_KIND, 8),
    namespaces=fields(
        default={"from": "Same"},
        selector=_SELECTOR,
        **{"from": choice("All", "Selector", "Same", default="Same")},
    ),
)
_CERTIFICATE = fields("name", group=group(""), kind=kind("Secret"), name=NAME, namespace=NAMESPACE)


def _has_certificates(tls: dict[str, Any]) -> bool:
    return tls["mode"] != "Terminate" or bool(tls.get("certificateRefs") or tls.get("options"))


_CERTIFICATES_RULE = (
    "no such key: certificateRefs evaluating rule: certificateRefs or options must be specified"
    " when mode is Terminate",
    _has_certificates,
)
_LISTENER_TLS = fields(
    checks=(_CERTIFICATES_RULE,),
    certificateRefs=items(_CERTIFICATE, 64),
    mode=choice("Terminate", "Passthrough", default="Terminate"),
    options=mapping(text(high=4096), 16),
)
_PROTOCOL = rf"^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$|{SUBDOMAIN}\/[A-Za-z0-9]+$"
_LISTENER = fields(
    "name",
    "port",
    "protocol",
    allowedRoutes=_ALLOWED,
    hostname=HOSTNAME,
    name=SECTION,
    port=PORT,
    protocol=text(_PROTOCOL, low=1, high=255),
    tls=_LISTENER_TLS,
)


def _needs(field: str, protocols: tuple[str, ...]) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda found: all(field not in one for one in found if one["protocol"] in protocols)


def _is_distinct(listeners: list[dict[str, Any]]) -> bool:
    keys = [(one["port"], one["protocol"], one.get("hostname")) for one in listeners]
    return len(set(keys)) == len(keys)


_LISTENER_RULES = (
    (
        "tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']",
        _needs("tls", ("HTTP", "TCP", "UDP")),
    ),
    (
        "tls mode must be Terminate for protocol HTTPS",
        lambda found: all(
            (one.get("tls") or {}).get("mode", "Terminate") == "Terminate"
            for one in found
            if one["protocol"] == "HTTPS"
        ),
    ),
    (
        "hostname must not be specified for protocols ['TCP', 'UDP']",
        _needs("hostname", ("TCP", "UDP")),
    ),
    (
        "Listener name must be unique within the Gateway",
        lambda found: len({one["name"] for one in found}) == len(found),
    ),
    (
        "Combination of port, protocol and hostname must be unique for each listener",
        _is_distinct,
    ),
)
_ADDRESS_TYPE = rf"^Hostname|IPAddress|NamedAddress|{CONTROLLER[1:]}"
_ADDRESS = fields(
    "value", type=text(_ADDRESS_TYPE, low=1, default="IPAddress"), value=text(high=253)
)
_PARAMETERS = fields(
    "group", "kind", "name", group=group(), kind=kind(), name=NAME, namespace=NAMESPACE
)
_LISTENER_STATUS = fields(
    "attachedRoutes",
    "conditions",
    "name",
    attachedRoutes={"type": "integer"},
    conditions=CONDITIONS,
    name=SECTION,
    supportedKinds=items(_ROUTE_KIND, 8),
)
GATEWAY = fields(
    "spec",
    spec=fields(
        "gatewayClassName",
        "listeners",
        addresses=items({**_ADDRESS, "required": ()}, 16),
        gatewayClassName=NAME,
        infrastructure=fields(
            annotations=mapping(text(high=4096), 16),
            labels=mapping(text(high=63), 8),
            parametersRef=fields("group", "kind", "name", group=group(), kind=kind(), name=NAME),
        ),
        listeners=items(_LISTENER, 64, minItems=1, keys=("name",), checks=_LISTENER_RULES),
    ),
    status=fields(
        default={"conditions": _waiting("Accepted", "Programmed")},
        addresses=items(_ADDRESS, 16),
        conditions={**CONDITIONS, "default": _waiting("Accepted", "Programmed")},
        listeners=items(_LISTENER_STATUS, 64, keys=("name",)),
    ),
)
GATEWAY_CLASS = fields(
    "spec",
    spec=fields(
        "controllerName",
        controllerName=text(CONTROLLER, low=1),
        description=text(high=64),
        parametersRef=_PARAMETERS,
    ),
    status=fields(
        default={"conditions": _waiting("Accepted")},
        conditions={**CONDITIONS, "default": _waiting("Accepted")},
        supportedFeatures=items(fields("name", name={"type": "string"}), 64, keys=("name",)),
    ),
)
SCHEMAS: dict[str, Schema] = {
    "gatewayclasses": GATEWAY_CLASS,
    "gateways": GATEWAY,
    "httproutes": HTTP_ROUTE,
}
