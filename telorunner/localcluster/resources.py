"""The table of kinds that the local cluster knows, and how each is named and scoped.

Everything that depends on a kind's name, group or scope reads it here: the store's error
messages, the REST paths and the discovery documents. It holds no objects and no behaviour.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import orjson

ALL_VERBS = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
# The order in which custom kinds tell theirs.
_CUSTOM_VERBS = (
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
)
GATEWAY_GROUP = "gateway.networking.k8s.io"
# The preferred version first.
GATEWAY_VERSIONS = ("v1", "v1beta1")


@dataclass(frozen=True)
class ResourceKind:
    """One served kind; `plural` is the name it has in paths and in the store."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS

    @property
    def api_version(self) -> str:
        """Return the `apiVersion` that objects of this kind carry."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_custom(self) -> bool:
        """Return whether a real cluster has this kind by a definition that is itself an object."""
        return self.group == GATEWAY_GROUP

    @property
    def head(self) -> dict[str, str]:
        """Return the two fields that say what an object is."""
        return {"kind": self.kind, "apiVersion": self.api_version}

    @property
    def qualified(self) -> str:
        """Return the name that error messages use, e.g. `ingresses.networking.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def singular(self) -> str:
        """Return the lower-case singular that kubectl accepts."""
        return self.kind.lower()


_CREATE_ONLY = ("create",)


def _gateway_kind(
    plural: str, kind: str, *short_names: str, namespaced: bool = True
) -> ResourceKind:
    return ResourceKind(
        plural,
        kind,
        group=GATEWAY_GROUP,
        namespaced=namespaced,
        short_names=short_names,
        categories=("gateway-api",),
        subresources=("status",),
        verbs=_CUSTOM_VERBS,
    )


KNOWN_KINDS = (
    ResourceKind("configmaps", "ConfigMap", short_names=("cm",)),
    ResourceKind("endpoints", "Endpoints", short_names=("ep",)),
    ResourceKind("events", "Event", short_names=("ev",)),
    ResourceKind("limitranges", "LimitRange", short_names=("limits",)),
    ResourceKind(
        "namespaces",
        "Namespace",
        namespaced=False,
        short_names=("ns",),
        subresources=("status", "finalize"),
    ),
    ResourceKind("nodes", "Node", namespaced=False, short_names=("no",), subresources=("status",)),
    ResourceKind(
        "pods",
        "Pod",
        short_names=("po",),
        categories=("all",),
        subresources=("attach", "binding", "log", "status"),
    ),
    ResourceKind(
        "resourcequotas", "ResourceQuota", short_names=("quota",), subresources=("status",)
    ),
    ResourceKind("secrets", "Secret"),
    ResourceKind("serviceaccounts", "ServiceAccount", short_names=("sa",)),
    ResourceKind(
        "services",
        "Service",
        short_names=("svc",),
        categories=("all",),
        subresources=("status",),
    ),
    ResourceKind(
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        group="authorization.k8s.io",
        namespaced=False,
        verbs=_CREATE_ONLY,
    ),
    ResourceKind("leases", "Lease", group="coordination.k8s.io"),
    ResourceKind("endpointslices", "EndpointSlice", group="discovery.k8s.io"),
    ResourceKind("ingressclasses", "IngressClass", group="networking.k8s.io", namespaced=False),
    ResourceKind(
        "ingresses",
        "Ingress",
        group="networking.k8s.io",
        short_names=("ing",),
        subresources=("status",),
    ),
    ResourceKind("runtimeclasses", "RuntimeClass", group="node.k8s.io", namespaced=False),
    _gateway_kind("gatewayclasses", "GatewayClass", "gc", namespaced=False),
    _gateway_kind("gateways", "Gateway", "gtw"),
    _gateway_kind("httproutes", "HTTPRoute"),
)

KINDS_BY_PLURAL = {kind.plural: kind for kind in KNOWN_KINDS}


def served_kinds(gateway_versions: Iterable[str] = ()) -> tuple[ResourceKind, ...]:
    """Return the kinds that an API server offers, those of the Gateway API once for each version.

    Without `gateway_versions` (of "v1" and "v1beta1") the Gateway API is not served.
    """
    plain = [kind for kind in KNOWN_KINDS if not kind.is_custom]
    custom = [
        replace(kind, version=version)
        for version in gateway_versions
        for kind in KNOWN_KINDS
        if kind.is_custom
    ]
    return (*plain, *custom)


def in_version(kind: ResourceKind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object of the store as it is shown in the version that was asked for."""
    return obj if obj["apiVersion"] == kind.api_version else {**obj, **kind.head}


def encoded_in_version(kind: ResourceKind, encoded: bytes) -> bytes:
    """Return the JSON of an object of the store as it is shown in the version asked for."""
    kept = KINDS_BY_PLURAL[kind.plural]
    if kind.version == kept.version:
        return encoded
    # Kind and version stand first in what the store encodes.
    return orjson.dumps(kind.head)[:-1] + encoded[len(orjson.dumps(kept.head)) - 1 :]
