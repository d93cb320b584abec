"""The table of kinds that the local cluster knows, and how each is named and scoped.

Everything that depends on a kind's name, group or scope reads it here: the store's error
messages, the REST paths and the discovery documents. It holds no objects and no behaviour.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

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
GATEWAY_GROUP = "gateway.networking.k8s.io"


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
    ResourceKind(
        "gatewayclasses",
        "GatewayClass",
        group=GATEWAY_GROUP,
        namespaced=False,
        short_names=("gc",),
        subresources=("status",),
    ),
    ResourceKind(
        "gateways",
        "Gateway",
        group=GATEWAY_GROUP,
        short_names=("gtw",),
        subresources=("status",),
    ),
    ResourceKind("httproutes", "HTTPRoute", group=GATEWAY_GROUP, subresources=("status",)),
)

KINDS_BY_PLURAL = {kind.plural: kind for kind in KNOWN_KINDS}


def served_kinds(gateway_api_version: str | None = None) -> tuple[ResourceKind, ...]:
    """Return the kinds that an API server offers.

    The Gateway API is left out unless `gateway_api_version` ("v1" or "v1beta1") asks for it.
    """
    return tuple(_chosen(KNOWN_KINDS, gateway_api_version))


def _chosen(
    kinds: Iterable[ResourceKind], gateway_api_version: str | None
) -> Iterable[ResourceKind]:
    for kind in kinds:
        if kind.group != GATEWAY_GROUP:
            yield kind
        elif gateway_api_version is not None:
            yield replace(kind, version=gateway_api_version)
