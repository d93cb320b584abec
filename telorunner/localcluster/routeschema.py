"""The schema of an HTTPRoute, as far as its standard channel is used here. Pure data.

Both served versions have the same; its rules are in `routerules`. Left out is what the fields of
CORS may hold.

Source: https://gateway-api.sigs.k8s.io/reference/spec/#httproute
"""

from telorunner.localcluster import routerules
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
_DEFAULT_PATH = {"type": "PathPrefix", "value": "/"}

_HEADERS = items(
    fields("name", "value", name=text(_HEADER_NAME, low=1, high=256), value=text(low=1, high=4096)),
    16,
    keys=("name",),
)
_HEADER_FILTER = fields(add=_HEADERS, remove=items({"type": "string"}, 16), set=_HEADERS)


_REFERENCE = {"group": group(""), "kind": kind("Service"), "name": NAME, "namespace": NAMESPACE}
_PATH_MODIFIER = fields(
    "type",
    checks=routerules.MODIFIER,
    replaceFullPath=text(high=1024),
    replacePrefixMatch=text(high=1024),
    type=choice("ReplaceFullPath", "ReplacePrefixMatch"),
)


_FILTER_FIELDS = {
    "requestHeaderModifier": "RequestHeaderModifier",
    "responseHeaderModifier": "ResponseHeaderModifier",
    "requestMirror": "RequestMirror",
    "requestRedirect": "RequestRedirect",
    "urlRewrite": "URLRewrite",
    "extensionRef": "ExtensionRef",
    "cors": "CORS",
}
_TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
_FILTER = fields(
    "type",
    checks=routerules.filter_rules(_FILTER_FIELDS),
    cors=fields(
        allowCredentials={"type": "boolean"},
        allowHeaders=_TEXTS,
        allowMethods=_TEXTS,
        allowOrigins=_TEXTS,
        exposeHeaders=_TEXTS,
        maxAge={"type": "integer", "minimum": 1, "default": 5},
    ),
    extensionRef=fields("group", "kind", "name", group=group(), kind=kind(), name=NAME),
    requestHeaderModifier=_HEADER_FILTER,
    requestMirror=fields(
        "backendRef",
        backendRef=fields("name", checks=routerules.BACKEND, port=PORT, **_REFERENCE),
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
    checks=routerules.BACKEND,
    filters=items(_FILTER, 16, checks=routerules.BACKEND_FILTERS),
    port=PORT,
    weight=number(0, 1000000, default=1),
    **_REFERENCE,
)


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
        checks=routerules.PATH,
        default=_DEFAULT_PATH,
        type=choice(*_PATH_TYPES, default="PathPrefix"),
        value=text(high=1024, default="/"),
    ),
    queryParams=_matched(text(_HEADER_NAME, low=1, high=256)),
)
_RULE = fields(
    checks=routerules.RULE,
    backendRefs=items(_BACKEND, 16),
    filters=items(_FILTER, 16, checks=routerules.FILTERS),
    matches=items(_MATCH, 64, default=[{"path": _DEFAULT_PATH}]),
    name=SECTION,
    timeouts=fields(
        checks=routerules.TIMEOUTS,
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
        parentRefs=items(PARENT, 32, checks=routerules.PARENTS),
        rules=items(
            _RULE,
            16,
            minItems=1,
            default=[{"matches": [{"path": _DEFAULT_PATH}]}],
            checks=routerules.RULES,
        ),
    ),
    status=_ROUTE_STATUS,
)
