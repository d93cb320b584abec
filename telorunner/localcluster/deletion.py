"""The ways an object leaves the cluster: at once, gracefully (pods), or after its finalizers.

It decides what a DELETE does to the store. Stopping a pod's containers is the node agent's work,
removing dependents and the content of a namespace the controllers'.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from telorunner.localcluster import statuses
from telorunner.localcluster.defaulting import DEFAULT_GRACE_SECONDS
from telorunner.localcluster.quota import TERMINAL_PHASES
from telorunner.localcluster.resources import KNOWN_KINDS, ResourceKind
from telorunner.localcluster.store import Store, timestamp

# These kinds answer a deletion with the object, the others with a Status.
_RETURN_THE_OBJECT = ("pods", "services", "serviceaccounts", "resourcequotas", "namespaces")


@dataclass(frozen=True)
class DeleteOptions:
    """What a DELETE may ask for; None means that it says nothing."""

    grace_seconds: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    is_orphaning: bool = False
    is_dry_run: bool = False


def delete(
    store: Store, kind: ResourceKind, old: dict[str, Any], options: DeleteOptions
) -> dict[str, Any]:
    """Delete an object in the way of its kind and return what the API answers with.

    Raises:
        StoreError: 409, a precondition does not hold; 403, the namespace may not be deleted.
    """
    _check_preconditions(kind, old, options)
    if options.is_dry_run:
        return old if kind.plural in _RETURN_THE_OBJECT else _success(kind, old)
    if options.is_orphaning:
        _orphan_dependents(store, old["metadata"]["uid"])
    if kind.plural == "namespaces":
        return _terminate_namespace(store, old)
    if kind.plural == "pods":
        return _delete_pod(store, old, options.grace_seconds)
    if old["metadata"].get("finalizers"):
        return _mark(store, kind, old, 0)
    last = _remove(store, kind, old)
    return last if kind.plural in _RETURN_THE_OBJECT else _success(kind, old)


def finish_if_released(store: Store, kind: ResourceKind, obj: dict[str, Any]) -> None:
    """Remove an object whose deletion waited for finalizers, once the last of them is gone."""
    metadata = obj["metadata"]
    is_waiting = "deletionTimestamp" in metadata and not metadata.get("finalizers")
    if (
        is_waiting
        and metadata.get("deletionGracePeriodSeconds") == 0
        and kind.plural != "namespaces"
    ):
        _remove(store, kind, obj)


def _success(kind: ResourceKind, old: dict[str, Any]) -> dict[str, Any]:
    return statuses.success(kind, old["metadata"]["name"], old["metadata"]["uid"])


def _check_preconditions(kind: ResourceKind, old: dict[str, Any], options: DeleteOptions) -> None:
    metadata = old["metadata"]
    for word, asked, found, end in (
        ("UID", options.uid, metadata["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, metadata["resourceVersion"], "modified"),
    ):
        if asked is not None and asked != found:
            message = (
                f'Operation cannot be fulfilled on {kind.kind} "{metadata["name"]}": the {word} in'
                f" the precondition ({asked}) does not match the {word} in record ({found})."
                f" The object might have been {end}"
            )
            details = {"name": metadata["name"], "kind": kind.kind}
            raise statuses.StoreError(409, "Conflict", message, details)


def _delete_pod(store: Store, pod: dict[str, Any], asked_seconds: int | None) -> dict[str, Any]:
    """Delete a pod: at once where no process can run for it, else by asking the node to stop it."""
    kind = statuses.kind_of("pods")
    seconds = asked_seconds
    if seconds is None:
        seconds = pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    is_bound = "nodeName" in pod["spec"]
    if not is_bound or (pod.get("status") or {}).get("phase") in TERMINAL_PHASES:
        seconds = 0
    seconds = max(seconds, 1) if seconds < 0 else seconds
    if seconds == 0 and not pod["metadata"].get("finalizers"):
        return _remove(store, kind, pod)
    already = pod["metadata"].get("deletionGracePeriodSeconds")
    if already is not None and already <= seconds:
        return pod
    return _mark(store, kind, pod, seconds)


def _marked(pod: dict[str, Any], seconds: int) -> dict[str, Any]:
    """Return an object with the time of its deletion: when its grace period ends."""
    ends = timestamp(datetime.now(UTC) + timedelta(seconds=seconds))
    metadata = {
        **pod["metadata"],
        "deletionTimestamp": ends,
        "deletionGracePeriodSeconds": seconds,
    }
    if "generation" in metadata and "deletionTimestamp" not in pod["metadata"]:
        metadata["generation"] += 1
    return {**pod, "metadata": metadata}


def _mark(store: Store, kind: ResourceKind, obj: dict[str, Any], seconds: int) -> dict[str, Any]:
    if seconds == 0 and "deletionTimestamp" in obj["metadata"]:
        return obj
    return store.replace(kind.plural, _marked(obj, seconds))


def _remove(store: Store, kind: ResourceKind, obj: dict[str, Any]) -> dict[str, Any]:
    metadata = obj["metadata"]
    last = _marked(obj, 0) if kind.plural == "pods" else obj
    return store.remove(kind.plural, metadata.get("namespace", ""), metadata["name"], last=last)


def _terminate_namespace(store: Store, namespace: dict[str, Any]) -> dict[str, Any]:
    name = namespace["metadata"]["name"]
    if name in ("default", "kube-system"):
        why = "this namespace may not be deleted"
        raise statuses.forbidden(statuses.kind_of("namespaces"), name, why)
    if "deletionTimestamp" in namespace["metadata"]:
        return namespace
    metadata = {**namespace["metadata"], "deletionTimestamp": timestamp()}
    terminating = {**namespace, "metadata": metadata, "status": {"phase": "Terminating"}}
    return store.replace("namespaces", terminating)


def _orphan_dependents(store: Store, uid: str) -> None:
    """Take the owner out of everything that it owns, so that nothing goes with it."""
    for kind in KNOWN_KINDS:
        for obj in store.list(kind.plural)[0]:
            owners = obj["metadata"].get("ownerReferences") or []
            kept = [owner for owner in owners if owner["uid"] != uid]
            if len(kept) != len(owners):
                store.replace(
                    kind.plural, {**obj, "metadata": {**obj["metadata"], "ownerReferences": kept}}
                )
