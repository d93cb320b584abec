"""What creating and updating mean for each kind: defaults, what is kept, what may not change.

It stands between a request and the store: bodies have been decoded, namespaces and quotas are
checked elsewhere. Nothing here waits.
"""

import base64
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from telorunner.localcluster import (
    customkinds,
    limitranges,
    limitvalidation,
    networkdefaults,
    networkvalidation,
    podvalidation,
    serviceaddresses,
    serviceallocation,
    servicevalidation,
    slicevalidation,
    statuses,
    validation,
)
from telorunner.localcluster.bodies import without_nulls
from telorunner.localcluster.defaulting import default_pod, default_quota, new_pod_status
from telorunner.localcluster.metadata import (
    given_metadata,
    merged_metadata,
    new_faults,
    update_faults,
)
from telorunner.localcluster.quantities import NOT_A_QUANTITY
from telorunner.localcluster.resources import ResourceKind
from telorunner.localcluster.store import Store
from telorunner.localcluster.validation import Fault

# Kinds that count the changes of their spec.
_WITH_GENERATION = (
    "pods",
    "endpointslices",
    "ingresses",
    "ingressclasses",
    "gateways",
    "gatewayclasses",
    "httproutes",
)
_NEW_STATUS: dict[str, dict[str, Any]] = {
    "ingresses": {"loadBalancer": {}},
    "namespaces": {"phase": "Active"},
    "resourcequotas": {},
    "services": {"loadBalancer": {}},
}
_FAULTS: dict[str, Callable[[dict[str, Any]], list[Fault]]] = {
    "configmaps": validation.configmap_faults,
    "endpointslices": slicevalidation.endpoint_slice_faults,
    "gatewayclasses": partial(customkinds.faults, "gatewayclasses"),
    "gateways": partial(customkinds.faults, "gateways"),
    "httproutes": partial(customkinds.faults, "httproutes"),
    "ingressclasses": networkvalidation.ingress_class_faults,
    "ingresses": networkvalidation.ingress_faults,
    "limitranges": limitvalidation.limit_range_faults,
    "pods": podvalidation.pod_faults,
    "resourcequotas": limitvalidation.quota_faults,
    "secrets": validation.secret_faults,
    "services": servicevalidation.service_faults,
}
_STATUS_FAULTS: dict[str, Callable[[dict[str, Any]], list[Fault]]] = {
    "gatewayclasses": partial(customkinds.status_faults, "gatewayclasses"),
    "gateways": partial(customkinds.status_faults, "gateways"),
    "httproutes": partial(customkinds.status_faults, "httproutes"),
    "ingresses": networkvalidation.ingress_status_faults,
    "services": lambda obj: serviceaddresses.status_faults(obj["spec"]["type"], obj["status"]),
}
# An update of one that is not there creates it.
CREATED_BY_UPDATES = ("services",)
# Updates of these must name the version that they replace.
_NEED_VERSION = ("gatewayclasses", "gateways", "httproutes", "leases")


def prepare_create(store: Store, kind: ResourceKind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return a new object with its defaults and without what only the API sets."""
    metadata = given_metadata(obj["metadata"])
    if kind.plural == "namespaces":
        name_label = {"kubernetes.io/metadata.name": metadata.get("name", "")}
        metadata["labels"] = {**name_label, **(metadata.get("labels") or {})}
    if kind.plural in _WITH_GENERATION:
        metadata["generation"] = 1
    new = with_defaults(kind, {**obj, "metadata": metadata})
    if kind.plural == "services":
        new = serviceallocation.allocate_new(store, new)
    if kind.plural == "namespaces":
        new["spec"] = {"finalizers": ["kubernetes"]}
    if "status" in kind.subresources:
        new.pop("status", None)
    if kind.is_custom:
        # NB: once more, for the status that a schema gives to what has none.
        new = customkinds.with_defaults(kind.plural, new)
    if kind.plural == "pods":
        new["status"] = new_pod_status(new["spec"])
    elif kind.plural in _NEW_STATUS:
        new["status"] = _NEW_STATUS[kind.plural]
    return new


def with_defaults(kind: ResourceKind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object with what the API fills in on every write.

    Raises:
        StoreError: 400, the object does not have the shape of its kind.
    """
    match kind.plural:
        case "pods":
            podvalidation.check_shape(obj)
            return default_pod(obj)
        case "services":
            return networkdefaults.default_service(obj)
        case "ingresses":
            return networkdefaults.default_ingress(obj)
        case "ingressclasses":
            return networkdefaults.default_ingress_class(obj)
        case "endpointslices":
            return networkdefaults.default_endpoint_slice(obj)
        case "gatewayclasses" | "gateways" | "httproutes":
            return customkinds.with_defaults(kind.plural, obj)
        case "secrets":
            return _secret(obj)
        case "limitranges" | "resourcequotas":
            return _with_amounts(kind, obj)
    return dict(obj)


def _with_amounts(kind: ResourceKind, obj: dict[str, Any]) -> dict[str, Any]:
    try:
        if kind.plural == "limitranges":
            return limitranges.default_limit_range(obj)
        return default_quota(obj)
    except ValueError as exc:
        raise validation.undecodable(kind, NOT_A_QUANTITY) from exc


def check_new(kind: ResourceKind, obj: dict[str, Any]) -> None:
    """Check a new object after its defaults.

    Raises:
        StoreError: 422, with all its faults.
    """
    faults = new_faults(kind, obj)
    if kind.plural == "ingresses":
        faults += networkvalidation.class_faults(obj)
    _check(kind, obj, faults)


def check_update(
    kind: ResourceKind, old: dict[str, Any], new: dict[str, Any], *, uid: str | None = None
) -> None:
    """Check what an object is to become; `uid` is another one that a patch gave it.

    Raises:
        StoreError: 422, with all its faults.
    """
    faults, kept = update_faults(kind, old, new, uid=uid), _immutable_faults(kind, old, new)
    if kind.plural == "endpointslices":
        # What may not change of these comes last.
        _check(kind, new, faults, kept)
    else:
        _check(kind, new, [*faults, *kept])


def _check(
    kind: ResourceKind, obj: dict[str, Any], faults: list[Fault], more: Iterable[Fault] = ()
) -> None:
    if kind.plural in _FAULTS:
        faults += _FAULTS[kind.plural](obj)
    faults += more
    if faults:
        raise statuses.invalid(kind, obj["metadata"].get("name", ""), faults)


def prepare_update(
    store: Store, kind: ResourceKind, old: dict[str, Any], obj: dict[str, Any]
) -> dict[str, Any]:
    """Return what an object becomes in an update: the status and what only the API sets are kept.

    Raises:
        StoreError: 400 or 422, it has not the shape of its kind or lacks a version.
    """
    _check_version(kind, old, obj)
    metadata = merged_metadata(old["metadata"], obj["metadata"])
    new = with_defaults(kind, {**obj, "metadata": metadata})
    if kind.plural == "services":
        new = serviceallocation.allocate_update(store, old, new)
    if kind.plural == "pods" and "nodeName" in old["spec"]:
        new["spec"].setdefault("nodeName", old["spec"]["nodeName"])
    if kind.plural == "namespaces":
        new["spec"] = old["spec"]
    if "status" in kind.subresources:
        new = {**{field: new[field] for field in new if field != "status"}}
        if "status" in old:
            new["status"] = old["status"]
    if kind.plural == "services" and new["spec"]["type"] != old["spec"]["type"]:
        new["status"] = {**old["status"], "loadBalancer": {}}
    if "generation" in metadata and _counted(kind, new) != _counted(kind, old):
        new["metadata"]["generation"] = metadata["generation"] + 1
    return new


def prepare_status(kind: ResourceKind, old: dict[str, Any], obj: dict[str, Any]) -> dict[str, Any]:
    """Return what an object becomes whose status is written.

    Of a kind of the API itself the metadata is taken too, of a custom kind only the status.

    Raises:
        StoreError: 422, it lacks a version or its status has faults.
    """
    _check_version(kind, old, obj)
    new, faults = {**old, "status": _given_status(kind, obj)}, []
    if kind.is_custom:
        if obj.get("status") is None:
            del new["status"]
        new = customkinds.with_defaults(kind.plural, new)
    else:
        new["metadata"] = merged_metadata(old["metadata"], obj["metadata"])
        faults = update_faults(kind, old, new)
    if kind.plural in _STATUS_FAULTS:
        faults += _STATUS_FAULTS[kind.plural](new)
    if faults:
        raise statuses.invalid(kind, obj["metadata"].get("name", ""), faults)
    return new


def _given_status(kind: ResourceKind, obj: dict[str, Any]) -> dict[str, Any]:
    status = obj.get("status") or {}
    if kind.plural == "services":
        return serviceaddresses.default_points(without_nulls(obj))
    if kind.plural == "ingresses":
        return {"loadBalancer": {}, **without_nulls(status)}
    return without_nulls(status) if kind.is_custom else status


def _check_version(kind: ResourceKind, old: dict[str, Any], obj: dict[str, Any]) -> None:
    if kind.plural in _NEED_VERSION and not obj["metadata"].get("resourceVersion"):
        raise _version_missing(kind, old["metadata"]["name"])


def _counted(kind: ResourceKind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return what of an object counts as a change of what it says."""
    found = {field: obj[field] for field in obj if field not in ("metadata", "status")}
    if kind.plural == "endpointslices":
        found["labels"] = obj["metadata"].get("labels") or {}
    return found


def _immutable_faults(kind: ResourceKind, old: dict[str, Any], new: dict[str, Any]) -> list[Fault]:
    match kind.plural:
        case "configmaps" | "secrets":
            return validation.frozen_data_faults(kind, old, new)
        case "pods":
            return podvalidation.pod_update_faults(old, new)
        case "services":
            return servicevalidation.update_faults(old["spec"], new["spec"])
        case "endpointslices":
            return slicevalidation.endpoint_slice_update_faults(old, new)
        case "ingressclasses":
            return networkvalidation.ingress_class_update_faults(old, new)
        case "gatewayclasses":
            return customkinds.class_update_faults(old, new)
    return []


def _version_missing(kind: ResourceKind, name: str) -> statuses.StoreError:
    cause = validation.wrong("metadata.resourceVersion", 0, "must be specified for an update")
    message = f'{kind.qualified} "{name}" is invalid: {cause["field"]}: {cause["message"]}'
    details = {"name": name, "group": kind.group, "kind": kind.plural, "causes": [cause]}
    return statuses.StoreError(422, "Invalid", message, details)


def _secret(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a Secret with its texts encoded into its data."""
    texts = obj.get("stringData") or {}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    secret = {field: value for field, value in obj.items() if field != "stringData"}
    if encoded:
        secret["data"] = {**(obj.get("data") or {}), **encoded}
    secret["type"] = obj.get("type") or "Opaque"
    return secret
