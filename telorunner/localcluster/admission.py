"""Who may create what: namespaces, service accounts, limit ranges, Pod Security, quotas and more.

As in a real cluster there are two rounds: `mutate` fills in and refuses what it cannot, before an
object is checked for faults; `validate` looks at what has come out of it, after. It reads the store
and changes nothing in it. The words are the real API's.

Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/
"""

from typing import Any

from telorunner.localcluster import limitranges, networkdefaults, podsecurity, quota, statuses
from telorunner.localcluster.defaulting import PRIORITIES, new_pod_status
from telorunner.localcluster.networkwarnings import warnings_of
from telorunner.localcluster.resources import KINDS_BY_PLURAL, ResourceKind
from telorunner.localcluster.store import Store

_PODS = KINDS_BY_PLURAL["pods"]


def name_in_refusals(obj: dict[str, Any]) -> str:
    """Return what an object is called before a name is made up for it."""
    metadata = obj["metadata"]
    return metadata.get("name") or metadata.get("generateName") or "Unknown"


def check_namespace(store: Store, kind: ResourceKind, namespace: str, name: str) -> None:
    """Check that a namespace is there and takes new objects.

    Raises:
        StoreError: 404, there is none; 403, it is being deleted.
    """
    found = store.get("namespaces", "", namespace)
    if "deletionTimestamp" not in found["metadata"]:
        return
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    refused = statuses.forbidden(kind, name, why)
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    refused.details = {**(refused.details or {}), "causes": [cause]}
    raise refused


def mutate(
    store: Store, kind: ResourceKind, namespace: str, obj: dict[str, Any], name: str
) -> dict[str, Any]:
    """Return a new object with what its namespace and its classes bring; `name` is for refusals.

    Raises:
        StoreError: 403, a pod's service account, priority class or runtime class is not there.
    """
    match kind.plural:
        case "ingresses":
            return networkdefaults.with_default_class(store, obj)
        case "pods":
            return _mutate_pod(store, namespace, obj, name)
    return obj


def _mutate_pod(store: Store, namespace: str, pod: dict[str, Any], name: str) -> dict[str, Any]:
    for limit_range in store.list("limitranges", namespace)[0]:
        pod = limitranges.fill_in(limit_range, pod)
    account = pod["spec"]["serviceAccountName"]
    if store.find("serviceaccounts", namespace, account) is None:
        why = (
            f"error looking up service account {namespace}/{account}:"
            f' serviceaccount "{account}" not found'
        )
        raise statuses.forbidden(_PODS, name, why)
    _check_priority(pod["spec"], name)
    spec = _with_runtime_class(store, pod["spec"], name)
    return {**pod, "spec": spec, "status": new_pod_status(spec)}


def _check_priority(spec: dict[str, Any], name: str) -> None:
    class_name = spec.get("priorityClassName", "")
    if class_name and class_name not in PRIORITIES:
        why = f"no PriorityClass with name {class_name} was found"
        raise statuses.forbidden(_PODS, name, why)
    priority = PRIORITIES.get(class_name, 0)
    if spec["priority"] != priority:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec;"
            f" priority admission controller computed {priority} from the given PriorityClass name"
        )
        raise statuses.forbidden(_PODS, name, why)


def _with_runtime_class(store: Store, spec: dict[str, Any], name: str) -> dict[str, Any]:
    class_name = spec.get("runtimeClassName")
    if not class_name:
        return spec
    found = store.find("runtimeclasses", "", class_name)
    if found is None:
        raise statuses.forbidden(
            _PODS, name, f'pod rejected: RuntimeClass "{class_name}" not found'
        )
    overhead = (found.get("overhead") or {}).get("podFixed")
    selector = (found.get("scheduling") or {}).get("nodeSelector")
    if overhead:
        spec = {**spec, "overhead": overhead}
    if selector:
        spec = {**spec, "nodeSelector": {**(spec.get("nodeSelector") or {}), **selector}}
    return spec


def validate(store: Store, kind: ResourceKind, namespace: str, obj: dict[str, Any]) -> list[str]:
    """Check a new object against its namespace's rules and return warnings for the client.

    Raises:
        StoreError: 403, a rule forbids it; 422, the rules that a namespace itself sets are none.
    """
    warnings: list[str] = []
    if kind.plural == "namespaces":
        _check_labels(obj)
    elif kind.plural == "pods":
        _check_limit_ranges(store, namespace, obj)
        warnings = _check_pod_security(store, namespace, obj)
    if kind.namespaced:
        _check_quotas(store, kind, namespace, obj)
    return [*warnings, *warnings_of(kind.plural, obj)]


def validate_update(
    store: Store, kind: ResourceKind, old: dict[str, Any], new: dict[str, Any]
) -> list[str]:
    """Check a change of a namespace's own rules and return warnings about the pods in it.

    A Service may need more of a quota than it did, and what routes traffic is warned of as when it
    was new.

    Raises:
        StoreError: 422, its labels set no rules that there are; 403, a quota forbids it.
    """
    if kind.plural == "services":
        _check_quotas(store, kind, new["metadata"]["namespace"], new, old)
    if kind.plural != "namespaces":
        return warnings_of(kind.plural, new)
    _check_labels(new)
    had, has = (
        podsecurity.demand(one["metadata"].get("labels") or {}, podsecurity.ENFORCE)
        for one in (old, new)
    )
    if not has.may_refuse_more_than(had):
        return []
    name = new["metadata"]["name"]
    return podsecurity.relabel_warnings(has, name, store.list("pods", name)[0])


def _check_labels(namespace: dict[str, Any]) -> None:
    faults = podsecurity.label_faults(namespace["metadata"].get("labels") or {})
    if faults:
        kind = KINDS_BY_PLURAL["namespaces"]
        raise statuses.invalid(kind, namespace["metadata"]["name"], faults)


def _check_limit_ranges(store: Store, namespace: str, pod: dict[str, Any]) -> None:
    for limit_range in store.list("limitranges", namespace)[0]:
        refused = limitranges.refusal(limit_range, pod["spec"])
        if refused is not None:
            raise statuses.forbidden(_PODS, pod["metadata"]["name"], refused)


def _check_pod_security(store: Store, namespace: str, pod: dict[str, Any]) -> list[str]:
    """Check a pod against the level that its namespace enforces; warn where it asks for that."""
    labels = store.get("namespaces", "", namespace)["metadata"].get("labels") or {}
    violated = podsecurity.violations(podsecurity.demand(labels, podsecurity.ENFORCE), pod)
    if violated is not None:
        raise statuses.forbidden(_PODS, pod["metadata"]["name"], f"violates {violated}")
    warned = podsecurity.violations(podsecurity.demand(labels, podsecurity.WARN), pod)
    return [] if warned is None else [f"would violate {warned}"]


def _check_quotas(
    store: Store,
    kind: ResourceKind,
    namespace: str,
    obj: dict[str, Any],
    old: dict[str, Any] | None = None,
) -> None:
    """Check an object against its namespace's quotas; one that was there counts by what it adds."""
    name = obj["metadata"]["name"]
    interested = []
    for found in store.list("resourcequotas", namespace)[0]:
        entries = [entry for entry in found["spec"].get("hard") or {} if quota.counts(kind, entry)]
        if entries and quota.is_in_scope(found, kind, obj):
            interested.append((found, entries))
    # NB: what an object leaves out is refused before what it has too much of, over all quotas.
    for found, _ in interested:
        refused = quota.unspecified(found, obj["spec"]) if kind.plural == "pods" else None
        if refused is not None:
            raise statuses.forbidden(kind, name, refused)
    for found, entries in interested:
        existing = [
            one
            for one in store.list(kind.plural, namespace)[0]
            if quota.is_in_scope(found, kind, one)
        ]
        asked = {entry: quota.usage(kind, obj, entry) for entry in entries}
        if old is not None:
            asked = {
                entry: str(max(0, int(amount) - int(quota.usage(kind, old, entry))))
                for entry, amount in asked.items()
            }
        taken = {entry: quota.used(kind, existing, entry) for entry in entries}
        refused = quota.refusal(found, asked, taken)
        if refused is not None:
            raise statuses.forbidden(kind, name, refused)
