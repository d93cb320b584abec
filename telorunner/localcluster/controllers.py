"""What follows from changes in the store.

New namespaces get their service account, pods are scheduled, dependents of what is gone are
collected, namespaces end, quotas and events are counted.

One queue of small jobs, filled from the store's changes and worked off by one task, as a real
cluster's controllers do it: after the request was answered, in order, each job looking at the
store as it then is. The task is owned by whoever calls `run()`.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from telorunner.localcluster import deletion, quota
from telorunner.localcluster.deletion import POLICY_FINALIZERS, DeleteOptions
from telorunner.localcluster.recorder import EventLifetimes
from telorunner.localcluster.resources import KINDS_BY_PLURAL, KNOWN_KINDS
from telorunner.localcluster.scheduling import Scheduler
from telorunner.localcluster.store import Change, Store, StoreError

logger = logging.getLogger(__name__)

Job = Callable[[], None]

_NAMESPACED = tuple(kind for kind in KNOWN_KINDS if kind.namespaced)
_OWNER_KINDS = {(kind.group, kind.kind): kind.plural for kind in KNOWN_KINDS}


_CA_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal"
    " endpoints such as the internal service IP or kubernetes.default.svc. No other usage is"
    " guaranteed across distributions of Kubernetes clusters."
)


class Controllers:
    """The controllers of one cluster."""

    def __init__(self, store: Store, *, ca_certificate: str = "") -> None:
        self._store = store
        self._scheduler = Scheduler(store)
        self._events = EventLifetimes(store)
        self._ca_certificate = ca_certificate
        # Ordered and without doubles: a job that is due already need not be due twice.
        self._due: dict[tuple[str, ...], Job] = {}
        self._news = asyncio.Event()
        self._dependents: dict[str, set[tuple[str, str, str]]] = {}
        store.observers.append(self._note)

    async def run(self) -> None:
        """Work off jobs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._events.run(), name="event lifetimes")
            group.create_task(self._work_off(), name="controllers")

    async def _work_off(self) -> None:
        while True:
            while self._due:
                key = next(iter(self._due))
                self._work(key, self._due.pop(key))
            self._news.clear()
            await self._news.wait()

    def _work(self, key: tuple[str, ...], job: Job) -> None:
        try:
            job()
        except StoreError as exc:
            # The object went or changed under the job; what changed it has brought a new one.
            logger.debug("Job %s was overtaken: %s", key, exc.message)
        except Exception:
            logger.exception("Job %s of the local cluster failed.", key)

    def _add(self, job: Callable[..., None], *arguments: str) -> None:
        self._due[(job.__name__, *arguments)] = partial(job, *arguments)
        self._news.set()

    def _note(self, resource: str, change: Change) -> None:
        """Note what is to be done after a change; called inside the write."""
        metadata = change.obj["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace", "")
        is_gone = change.type == "DELETED"
        if not is_gone and "deletionTimestamp" in metadata and metadata.get("finalizers"):
            self._add(self._release, resource, namespace, name)
        self._note_owners(resource, change)
        if is_gone and namespace:
            self._add(self._finish_namespace, namespace)
        if resource == "namespaces" and not is_gone:
            self._add(self._tend_namespace, name)
        elif resource == "pods":
            self._note_pod(change, namespace, name)
        elif resource == "resourcequotas":
            self._add(self._count_quota, namespace)
        elif resource == "events" and change.type == "ADDED":
            self._add(self._tend_events, namespace)
        is_count_kept = change.type == "MODIFIED" and resource != "services"
        if not is_count_kept and resource not in ("events", "resourcequotas"):
            self._add(self._count_quota, namespace)

    def _note_pod(self, change: Change, namespace: str, name: str) -> None:
        self._scheduler.note(change)
        phase = (change.obj.get("status") or {}).get("phase")
        if change.type == "ADDED" and "nodeName" not in change.obj["spec"]:
            self._add(self._schedule, namespace, name)
        elif change.type == "DELETED" or phase in quota.TERMINAL_PHASES:
            self._add(self._reschedule)
            self._add(self._count_quota, namespace)

    def _note_owners(self, resource: str, change: Change) -> None:
        metadata = change.obj["metadata"]
        key = (resource, metadata.get("namespace", ""), metadata["name"])
        for owner in ((change.previous or {}).get("metadata") or {}).get("ownerReferences") or []:
            owned = self._dependents.get(owner["uid"])
            if owned is not None:
                owned.discard(key)
                if not owned:
                    del self._dependents[owner["uid"]]
            if change.type == "DELETED" and owner.get("blockOwnerDeletion"):
                self._note_dependent_gone(owner, metadata.get("namespace", ""))
        if change.type == "DELETED":
            for dependent in sorted(self._dependents.get(metadata["uid"], ())):
                self._add(self._collect, *dependent)
            return
        for owner in metadata.get("ownerReferences") or []:
            self._dependents.setdefault(owner["uid"], set()).add(key)
            self._add(self._collect, *key)

    def _note_dependent_gone(self, owner: dict[str, Any], namespace: str) -> None:
        """Note that an owner may have waited for a dependent to go."""
        resource = _resource_of(owner)
        if resource is not None:
            scope = namespace if KINDS_BY_PLURAL[resource].namespaced else ""
            self._add(self._release, resource, scope, owner["name"])

    def _release(self, resource: str, namespace: str, name: str) -> None:
        """Do to the dependents of an object that is being deleted what its deletion asked for."""
        obj = self._store.find(resource, namespace, name)
        if obj is None or "deletionTimestamp" not in obj["metadata"]:
            return
        kind, uid = KINDS_BY_PLURAL[resource], obj["metadata"]["uid"]
        finalizers = obj["metadata"].get("finalizers") or []
        if POLICY_FINALIZERS["Orphan"] in finalizers:
            deletion.orphan_dependents(self._store, uid)
            deletion.release(self._store, kind, obj, POLICY_FINALIZERS["Orphan"])
        elif POLICY_FINALIZERS["Foreground"] in finalizers and not self._delete_blocking(uid):
            deletion.release(self._store, kind, obj, POLICY_FINALIZERS["Foreground"])

    def _delete_blocking(self, uid: str) -> bool:
        """Delete the dependents that an owner waits for; say whether some are left."""
        for resource, namespace, name in sorted(self._dependents.get(uid, ())):
            dependent = self._store.find(resource, namespace, name)
            if dependent is not None and _blocks(dependent, uid):
                deletion.delete(self._store, KINDS_BY_PLURAL[resource], dependent, DeleteOptions())
        left = [self._store.find(*key) for key in self._dependents.get(uid, ())]
        return any(dependent is not None and _blocks(dependent, uid) for dependent in left)

    def _collect(self, resource: str, namespace: str, name: str) -> None:
        """Delete an object all of whose owners are gone."""
        obj = self._store.find(resource, namespace, name)
        if obj is None or "deletionTimestamp" in obj["metadata"]:
            return
        owners = obj["metadata"].get("ownerReferences") or []
        if owners and not any(self._is_there(namespace, owner) for owner in owners):
            uid = obj["metadata"]["uid"]
            deletion.delete(self._store, KINDS_BY_PLURAL[resource], obj, DeleteOptions(uid=uid))

    def _is_there(self, namespace: str, owner: dict[str, Any]) -> bool:
        resource = _resource_of(owner)
        if resource is None:
            # Of a kind that this cluster does not have: nobody can say that it is gone.
            return True
        scope = namespace if KINDS_BY_PLURAL[resource].namespaced else ""
        found = self._store.find(resource, scope, owner["name"])
        return found is not None and found["metadata"]["uid"] == owner["uid"]

    def _tend_namespace(self, name: str) -> None:
        """Give a new namespace what each has; empty one that is being deleted."""
        namespace = self._store.find("namespaces", "", name)
        if namespace is None:
            return
        if "deletionTimestamp" in namespace["metadata"]:
            self._empty_namespace(name)
            return
        contents: tuple[tuple[str, dict[str, Any]], ...] = (
            ("serviceaccounts", {"metadata": {"name": "default", "namespace": name}}),
            (
                "configmaps",
                {
                    "metadata": {
                        "name": "kube-root-ca.crt",
                        "namespace": name,
                        "annotations": {"kubernetes.io/description": _CA_DESCRIPTION},
                    },
                    "data": {"ca.crt": self._ca_certificate},
                },
            ),
        )
        for resource, content in contents:
            if self._store.find(resource, name, content["metadata"]["name"]) is None:
                self._store.create(resource, content)

    def _empty_namespace(self, name: str) -> None:
        for kind in _NAMESPACED:
            for obj in self._store.list(kind.plural, name)[0]:
                deletion.delete(self._store, kind, obj, DeleteOptions())
        self._finish_namespace(name)

    def _finish_namespace(self, name: str) -> None:
        """Remove a namespace that is being deleted once nothing is left in it."""
        namespace = self._store.find("namespaces", "", name)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return
        left = [obj for kind in _NAMESPACED for obj in self._store.list(kind.plural, name)[0]]
        if not left and not namespace["metadata"].get("finalizers"):
            self._store.remove("namespaces", "", name)
        elif left and all("deletionTimestamp" not in obj["metadata"] for obj in left):
            self._empty_namespace(name)

    def _schedule(self, namespace: str, name: str) -> None:
        self._scheduler.schedule(namespace, name)

    def _tend_events(self, namespace: str) -> None:
        if self._store.find("namespaces", "", namespace) is None:
            # Whoever wrote it had not heard yet.
            for event in self._store.list("events", namespace)[0]:
                self._store.remove("events", namespace, event["metadata"]["name"])
        self._events.remove_surplus()

    def _reschedule(self) -> None:
        """Try the pods that found no room again."""
        for pod in self._store.list("pods")[0]:
            if "nodeName" not in pod["spec"]:
                self._schedule(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def _count_quota(self, namespace: str) -> None:
        """Write into each quota of a namespace how much of it is used."""
        for found in self._store.list("resourcequotas", namespace)[0]:
            status = quota.status(found, lambda plural: self._store.list(plural, namespace)[0])
            self._store.replace("resourcequotas", {**found, "status": status}, subresource="status")


def _resource_of(owner: dict[str, Any]) -> str | None:
    """Return the resource that an owner reference names, None where it is not served."""
    group = owner["apiVersion"].rpartition("/")[0]
    return _OWNER_KINDS.get((group, owner["kind"]))


def _blocks(dependent: dict[str, Any], uid: str) -> bool:
    """Say whether an owner that is deleted in the foreground waits for a dependent."""
    owners = dependent["metadata"].get("ownerReferences") or []
    return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners)
