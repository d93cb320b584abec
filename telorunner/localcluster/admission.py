"""Who may create what: namespaces, service accounts, limit ranges, Pod Security and quotas.

It reads the store and refuses with the real API's words; it changes nothing but the pod in hand,
into which a LimitRange's defaults go.
"""

from typing import Any

from telorunner.localcluster import podsecurity, quota, statuses
from telorunner.localcluster.defaulting import default_pod
from telorunner.localcluster.resources import ResourceKind
from telorunner.localcluster.store import Store

_ENFORCE = "pod-security.kubernetes.io/enforce"


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


def apply_limit_ranges(store: Store, namespace: str, pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod with the default limits and requests of the namespace's LimitRanges."""
    for limit_range in store.list("limitranges", namespace)[0]:
        for limit in limit_range["spec"].get("limits") or []:
            if limit.get("type") == "Container":
                pod = _with_defaults(pod, limit)
    return default_pod(pod)


def _with_defaults(pod: dict[str, Any], limit: dict[str, Any]) -> dict[str, Any]:
    spec = dict(pod["spec"])
    for group in ("initContainers", "containers"):
        if group not in spec:
            continue
        spec[group] = [
            {
                **container,
                "resources": {
                    **(container.get("resources") or {}),
                    "limits": {
                        **(limit.get("default") or {}),
                        **((container.get("resources") or {}).get("limits") or {}),
                    },
                    "requests": {
                        **(limit.get("defaultRequest") or {}),
                        **((container.get("resources") or {}).get("requests") or {}),
                    },
                },
            }
            for container in spec[group]
        ]
    return {**pod, "spec": spec}


def check_service_account(store: Store, namespace: str, pod: dict[str, Any]) -> None:
    """Check that a pod's service account is there.

    Raises:
        StoreError: 403, it is not.
    """
    account = pod["spec"]["serviceAccountName"]
    if store.find("serviceaccounts", namespace, account) is None:
        why = (
            f"error looking up service account {namespace}/{account}:"
            f' serviceaccount "{account}" not found'
        )
        raise statuses.forbidden(statuses.kind_of("pods"), pod["metadata"]["name"], why)


def check_pod_security(store: Store, namespace: str, pod: dict[str, Any]) -> None:
    """Check a pod against the level that its namespace enforces.

    Raises:
        StoreError: 403, with everything that the pod violates.
    """
    labels = store.get("namespaces", "", namespace)["metadata"].get("labels") or {}
    level = labels.get(_ENFORCE, "privileged")
    version = labels.get(f"{_ENFORCE}-version", "latest")
    violated = podsecurity.violations(level, version, pod["spec"])
    if violated is not None:
        raise statuses.forbidden(statuses.kind_of("pods"), pod["metadata"]["name"], violated)


def check_quotas(store: Store, kind: ResourceKind, namespace: str, obj: dict[str, Any]) -> None:
    """Check that an object fits into each quota of its namespace.

    Raises:
        StoreError: 403, one is exhausted, or a pod leaves out what one limits.
    """
    name = obj["metadata"]["name"]
    for found in store.list("resourcequotas", namespace)[0]:
        entries = [entry for entry in found["spec"].get("hard") or {} if quota.counts(kind, entry)]
        if not entries:
            continue
        existing, _ = store.list(kind.plural, namespace)
        asked = {entry: quota.usage(kind, obj, entry) for entry in entries}
        taken = {entry: quota.used(kind, existing, entry) for entry in entries}
        refused = quota.unspecified(found, obj["spec"]) if kind.plural == "pods" else None
        refused = refused or quota.refusal(found, asked, taken)
        if refused is not None:
            raise statuses.forbidden(kind, name, refused)
