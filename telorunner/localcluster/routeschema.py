"""The schema of an HTTPRoute, as far as its standard channel is used here. Pure data.

Both served versions have the same. Left out are finer rules about filters that belong together,
and CORS.

Source: https://gateway-api.sigs.k8s.io/reference/spec/#httproute
"""

from collections.abc import Callable
from typing import Any

from telorunner.localcluster.gatewayparts import (
    CONDITIONS,
    CONTROLLER,
    HOSTNAME,
    NAME,
    NAMESPACE,
    PARENT,
    PORT,
    SECTION,
    SUBDOMAIN,
    choice,
    fields,
    group,
    items,
    kind,
    number,
    text,
)
from telorunner.localcluster.structural import Schema

_DURATION = "^([0-9]{1,5}(h|m|s|ms)){1,4}$"
_HEADER_NAME = r"^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$"
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")
_PATH_TYPES = ("Exact", "PathPrefix", "RegularExpression")
_NEVER_IN_A_PATH = ("//", "/./", "/../", "%2f", "%2F", "#")
_NEVER_AT_ITS_END = ("/..", "/.")
_DEFAULT_PATH = {"type": "PathPrefix", "value": "/"}

_HEADERS = items(
    fields("name", "value", name=text(_HEADER_NAME, low=1, high=256), value=text(low=1, high=4096)),
    16,
    keys=("name",),
)
_HEADER_FILTER = fields(add=_HEADERS, remove=items({"type": "string"}, 16), set=_HEADERS)


def _has_port(backend: dict[str, Any]) -> bool:
    is_service = (backend.get("group"), backend.get("kind")) == ("", "Service")
    return not is_service or "port" in backend


_NEEDS_PORT: tuple[str, Callable[[dict[str, Any]], bool]] = (
    "Must have port for Service reference",
    _has_port,
)
_REFERENCE = {"group": group(""), "kind": kind("Service"), "name": NAME, "namespace": NAMESPACE}
_PATH_MODIFIER = fields(
    "type",
    replaceFullPath=text(high=1024),
    replacePrefixMatch=text(high=1024),
    type=choice("ReplaceFullPath", "ReplacePrefixMatch"),
)


def _filter_rule(field: str, kind: str) -> list[tuple[str, Callable[[dict[str, Any]], bool]]]:
    return [
        (
            f"filter.{field} must be nil if the filter.type is not {kind}",
            lambda found: field not in found or found["type"] == kind,
        ),
        (
            f"filter.{field} must be specified for {kind} filter.type",
            lambda found: field in found or found["type"] != kind,
        ),
    ]


_FILTER_FIELDS = {
    "requestHeaderModifier": "RequestHeaderModifier",
    "responseHeaderModifier": "ResponseHeaderModifier",
    "requestMirror": "RequestMirror",
    "requestRedirect": "RequestRedirect",
    "urlRewrite": "URLRewrite",
    "extensionRef": "ExtensionRef",
}
_FILTER = fields(
    "type",
    checks=tuple(rule for one in _FILTER_FIELDS.items() for rule in _filter_rule(*one)),
    extensionRef=fields("group", "kind", "name", group=group(), kind=kind(), name=NAME),
    requestHeaderModifier=_HEADER_FILTER,
    requestMirror=fields(
        "backendRef",
        backendRef=fields("name", checks=(_NEEDS_PORT,), port=PORT, **_REFERENCE),
        percent=number(0, 100),
    ),
    requestRedirect=fields(
        hostname=text(rf"^{SUBDOMAIN}$", low=1),
        path=_PATH_MODIFIER,
        port=PORT,
        scheme=choice("http", "https"),
        statusCode={"type": "integer", "enum": (301, 302, 303, 307, 308), "default": 302},
    ),
    responseHeaderModifier=_HEADER_FILTER,
    type=choice(*_FILTER_FIELDS.values()),
    urlRewrite=fields(hostname=text(rf"^{SUBDOMAIN}$", low=1), path=_PATH_MODIFIER),
)
_BACKEND = fields(
    "name",
    checks=(_NEEDS_PORT,),
    filters=items(_FILTER, 16),
    port=PORT,
    weight=number(0, 1000000, default=1),
    **_REFERENCE,
)


def _path_rules() -> list[tuple[str, Callable[[dict[str, Any]], bool]]]:
    def is_plain(found: dict[str, Any]) -> bool:
        return found.get("type") in ("Exact", "PathPrefix")

    def without(part: str) -> Callable[[dict[str, Any]], bool]:
        return lambda found: not is_plain(found) or part not in found["value"]

    def not_at_end(part: str) -> Callable[[dict[str, Any]], bool]:
        return lambda found: not is_plain(found) or not found["value"].endswith(part)

    kinds = "type one of ['Exact', 'PathPrefix']"
    absolute = "value must be an absolute path and start with '/' when " + kinds
    return [
        (absolute, lambda found: not is_plain(found) or found["value"].startswith("/")),
        *((f"must not contain '{part}' when {kinds}", without(part)) for part in _NEVER_IN_A_PATH),
        *(
            (f"must not end with '{part}' when {kinds}", not_at_end(part))
            for part in _NEVER_AT_ITS_END
        ),
    ]


def _matched(name: Schema) -> Schema:
    found = fields(
        "name",
        "value",
        name=name,
        type=choice("Exact", "RegularExpression", default="Exact"),
        value=text(low=1, high=4096),
    )
    return items(found, 16, keys=("name",))


_MATCH = fields(
    headers=_matched(text(_HEADER_NAME, low=1, high=256)),
    method=choice(*_METHODS),
    path=fields(
        checks=_path_rules(),
        default=_DEFAULT_PATH,
        type=choice(*_PATH_TYPES, default="PathPrefix"),
        value=text(high=1024, default="/"),
    ),
    queryParams=_matched(text(_HEADER_NAME, low=1, high=256)),
)
_RULE = fields(
    backendRefs=items(_BACKEND, 16),
    filters=items(_FILTER, 16),
    matches=items(_MATCH, 64, default=[{"path": _DEFAULT_PATH}]),
    name=SECTION,
    timeouts=fields(
        backendRequest={"type": "string", "pattern": _DURATION},
        request={"type": "string", "pattern": _DURATION},
    ),
)
_ROUTE_STATUS = fields(
    "parents",
    parents=items(
        fields(
            "conditions",
            "controllerName",
            "parentRef",
            conditions={**CONDITIONS, "minItems": 1},
            controllerName=text(CONTROLLER, low=1),
            parentRef=PARENT,
        ),
        32,
    ),
)
HTTP_ROUTE = fields(
    "spec",
    spec=fields(
        hostnames=items(HOSTNAME, 16),
        parentRefs=items(PARENT, 32),
        rules=items(_RULE, 16, default=[{"matches": [{"path": _DEFAULT_PATH}]}]),
    ),
    status=_ROUTE_STATUS,
)
