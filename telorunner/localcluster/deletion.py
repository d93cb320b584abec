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

# What an object waits for that is deleted with a propagation policy.
POLICY_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
# These kinds answer a deletion with the object, the others with a Status.
_RETURN_THE_OBJECT = ("pods", "services", "serviceaccounts", "resourcequotas", "namespaces")


@dataclass(frozen=True)
class DeleteOptions:
    """What a DELETE may ask for; None means that it says nothing.

    `policy` is Background, Foreground, Orphan, or "" for what is there already.
    """

    grace_seconds: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    policy: str = ""
    is_dry_run: bool = False


def delete(
    store: Store, kind: ResourceKind, old: dict[str, Any], options: DeleteOptions
) -> dict[str, Any]:
    """Delete an object in the way of its kind and return what the API answers with.

    Raises:
        StoreError: 409, a precondition does not hold; 403, the namespace may not be deleted.
    """
    _check_preconditions(kind, old, options)
    if kind.plural == "namespaces":
        return _terminate_namespace(store, old, is_dry_run=options.is_dry_run)
    old = _with_policy(old, options.policy)
    if kind.plural == "pods":
        seconds = _grace_seconds(old, options.grace_seconds)
        return _marked(old, seconds) if options.is_dry_run else _delete_pod(store, old, seconds)
    if options.is_dry_run:
        return old if kind.plural in _RETURN_THE_OBJECT else _success(kind, old)
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


def _with_policy(obj: dict[str, Any], policy: str) -> dict[str, Any]:
    """Return an object that waits for its dependents as a deletion asks for."""
    if not policy:
        return obj
    had = obj["metadata"].get("finalizers") or []
    finalizers = [one for one in had if one not in POLICY_FINALIZERS.values()]
    if policy in POLICY_FINALIZERS:
        finalizers.append(POLICY_FINALIZERS[policy])
    if finalizers == had:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "finalizers": finalizers}}


def _grace_seconds(pod: dict[str, Any], asked_seconds: int | None) -> int:
    """Return how long a pod has to end: no time where no process can run for it."""
    seconds: int | None = asked_seconds
    if seconds is None:
        seconds = pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    has_ended = (pod.get("status") or {}).get("phase") in TERMINAL_PHASES
    if "nodeName" not in pod["spec"] or has_ended or seconds is None:
        return 0
    return 1 if seconds < 0 else seconds


def _delete_pod(store: Store, pod: dict[str, Any], seconds: int) -> dict[str, Any]:
    """Delete a pod: at once where it has no time to end, else by asking the node to stop it."""
    kind = statuses.kind_of("pods")
    already = pod["metadata"].get("deletionGracePeriodSeconds")
    if already is None or already > seconds:
        # NB: also before a removal: a watch sees the mark first, then the end.
        pod = store.replace(kind.plural, _marked(pod, seconds))
    if seconds == 0 and not pod["metadata"].get("finalizers"):
        return _remove(store, kind, pod)
    return pod


def _marked(pod: dict[str, Any], seconds: int) -> dict[str, Any]:
    """Return an object with the time of its deletion: when its grace period ends.

    A shorter period counts from the first request; one that is over by then ends now, and is given
    as 1 second at most.

    Source: k8s.io/apiserver/pkg/registry/rest/delete.go, BeforeDelete
    """
    now = datetime.now(UTC)
    ends_at = now + timedelta(seconds=seconds)
    if "deletionTimestamp" in pod["metadata"]:
        first_end = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"])
        less_seconds = pod["metadata"].get("deletionGracePeriodSeconds", 0) - seconds
        ends_at = first_end - timedelta(seconds=less_seconds)
        if ends_at < now:
            ends_at, seconds = now, min(seconds, 1)
    ends = timestamp(ends_at)
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


def _terminate_namespace(
    store: Store, namespace: dict[str, Any], *, is_dry_run: bool
) -> dict[str, Any]:
    name = namespace["metadata"]["name"]
    if name in ("default", "kube-system"):
        why = "this namespace may not be deleted"
        raise statuses.forbidden(statuses.kind_of("namespaces"), name, why)
    if is_dry_run or "deletionTimestamp" in namespace["metadata"]:
        return namespace
    metadata = {**namespace["metadata"], "deletionTimestamp": timestamp()}
    terminating = {**namespace, "metadata": metadata, "status": {"phase": "Terminating"}}
    return store.replace("namespaces", terminating)


def release(store: Store, kind: ResourceKind, obj: dict[str, Any], finalizer: str) -> None:
    """Take a finalizer out of an object that is being deleted; it goes if that was the last."""
    kept = [one for one in obj["metadata"].get("finalizers") or [] if one != finalizer]
    metadata = {**obj["metadata"], "finalizers": kept}
    if not kept:
        del metadata["finalizers"]
    finish_if_released(store, kind, store.replace(kind.plural, {**obj, "metadata": metadata}))


def orphan_dependents(store: Store, uid: str) -> None:
    """Take the owner out of everything that it owns, so that nothing goes with it."""
    for kind in KNOWN_KINDS:
        for obj in store.list(kind.plural)[0]:
            owners = obj["metadata"].get("ownerReferences") or []
            kept = [owner for owner in owners if owner["uid"] != uid]
            if len(kept) != len(owners):
                metadata = {**obj["metadata"], "ownerReferences": kept}
                if not kept:
                    del metadata["ownerReferences"]
                store.replace(kind.plural, {**obj, "metadata": metadata})
