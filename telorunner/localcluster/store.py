"""The objects of the local cluster, in memory, with resource versions and watches.

It knows names, versions and changes, and nothing of what a Pod is: validation, defaults,
admission and the ways an object is deleted live in the API server, what follows from a change in
the controllers and the node agent. Nothing is written to disk: after a restart the cluster is
empty. No tasks are started here.

Objects are plain JSON dicts. Those handed in are copied; those handed out are shared snapshots
that nobody may change.
"""

import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from telorunner.localcluster import statuses
from telorunner.localcluster.history import Change, History, HistoryBounds
from telorunner.localcluster.statuses import StoreError

__all__ = ["Change", "Entry", "HistoryBounds", "Store", "StoreError", "timestamp"]

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """An object as it stands, with its JSON."""

    obj: dict[str, Any]
    encoded: bytes


Objects = list[dict[str, Any]]
Entries = list[Entry]


def timestamp(moment: datetime | None = None) -> str:
    """Return `moment`, or now, in the form that Kubernetes uses in metadata and status."""
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """Every object of one cluster."""

    def __init__(self, bounds: HistoryBounds | None = None) -> None:
        self._bounds = bounds or HistoryBounds()
        # Microseconds, in none of which there is more than one write, so that a version from before
        # a restart is older than any of this life, however short the one before was: it is answered
        # with 410 and the client lists again, as it would after a compaction.
        self._revision = time.time_ns() // 1000
        self._start = self._revision
        self._entries: dict[str, dict[Key, Entry]] = {}
        self._histories: dict[str, History] = {}
        # Told of every change of every resource, in order, inside the write: they note what is to
        # be done and return. They must not write themselves.
        self.observers: list[Callable[[str, Change], None]] = []

    @property
    def revision(self) -> int:
        """Return the resource version of the newest change."""
        return self._revision

    def create(self, resource: str, obj: dict[str, Any]) -> dict[str, Any]:
        """Add an object; uid, resourceVersion and creationTimestamp are set here.

        Raises:
            StoreError: 409, the name is taken; 404, the resource is not known.
        """
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        return self._write(resource, key, "ADDED", self.preview(resource, obj))

    def preview(self, resource: str, obj: dict[str, Any]) -> dict[str, Any]:
        """Return what creating an object would leave, without creating it.

        Raises:
            StoreError: As `create`.
        """
        kind = statuses.kind_of(resource)
        metadata = obj["metadata"]
        found = self.find(resource, metadata.get("namespace", ""), metadata["name"])
        if found is not None:
            is_deleted = "deletionTimestamp" in found["metadata"]
            raise statuses.already_exists(kind, metadata["name"], is_deleted=is_deleted)
        added = {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp()}
        return {**kind.head, **obj, "metadata": {**obj["metadata"], **added}}

    def get(self, resource: str, namespace: str, name: str) -> dict[str, Any]:
        """Return one object; `namespace` is "" for kinds without one.

        Raises:
            StoreError: 404, there is none.
        """
        return self.entry(resource, namespace, name).obj

    def entry(self, resource: str, namespace: str, name: str) -> Entry:
        """Return one object with its JSON.

        Raises:
            StoreError: 404, there is none.
        """
        entry = self._entries.get(resource, {}).get((namespace, name))
        if entry is None:
            raise statuses.not_found(statuses.kind_of(resource), name)
        return entry

    def find(self, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return one object, or None where there is none."""
        entry = self._entries.get(resource, {}).get((namespace, name))
        return None if entry is None else entry.obj

    def list(self, resource: str, namespace: str | None = None) -> tuple[Objects, int]:
        """Return the objects in order of namespace and name, and the version of that answer.

        None as `namespace` means all of them.
        """
        return [entry.obj for entry in self.entries(resource, namespace)], self._revision

    def entries(self, resource: str, namespace: str | None = None) -> Entries:
        """Return the objects with their JSON in order of namespace and name."""
        entries = self._entries.get(resource, {})
        if namespace is None:
            return [entries[key] for key in sorted(entries)]
        return [entries[key] for key in sorted(entries) if key[0] == namespace]

    def count(self, resource: str) -> int:
        """Return how many objects of a resource there are."""
        return len(self._entries.get(resource, ()))

    def entries_at(self, resource: str, namespace: str | None, revision: int) -> Entries:
        """Return the objects as they stood at an earlier version.

        Raises:
            StoreError: 410, what came after that version is no longer known.
        """
        history = self.history(resource)
        changes = history.read(history.position_after(revision))
        if not changes:
            return self.entries(resource, namespace)
        entries = dict(self._entries.get(resource, {}))
        for change in reversed(changes):
            metadata = change.obj["metadata"]
            key = (metadata.get("namespace", ""), metadata["name"])
            if change.previous is None:
                del entries[key]
            else:
                entries[key] = Entry(change.previous, orjson.dumps(change.previous))
        return [entries[key] for key in sorted(entries) if namespace in (None, key[0])]

    def replace(
        self, resource: str, obj: dict[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]:
        """Put an object in the place of the one with its name.

        With `subresource="status"` only the status is taken from `obj`. A replacement that
        changes nothing is no change: nobody is told and the version stays.

        Raises:
            StoreError: 404, there is none; 409, `obj` carries another uid or an older
            resourceVersion.
        """
        kind = statuses.kind_of(resource)
        metadata = obj["metadata"]
        name = metadata["name"]
        key = (metadata.get("namespace", ""), name)
        old = self.get(resource, *key)
        if metadata.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise statuses.other_uid(kind, old["metadata"], metadata["uid"])
        version = old["metadata"]["resourceVersion"]
        if metadata.get("resourceVersion", version) != version:
            raise statuses.modified(kind, name)
        new = _successor(old, obj, subresource)
        if new == old:
            return old
        return self._write(resource, key, "MODIFIED", new, old)

    def preview_replacement(self, resource: str, obj: dict[str, Any]) -> dict[str, Any]:
        """Return what replacing an object would leave, without replacing it.

        Raises:
            StoreError: 404, there is none.
        """
        metadata = obj["metadata"]
        old = self.get(resource, metadata.get("namespace", ""), metadata["name"])
        return _successor(old, obj, "")

    def remove(
        self, resource: str, namespace: str, name: str, *, last: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Take an object out at once and return it as it last was.

        `last` is what watchers are shown instead, where the deletion itself left a mark on it.

        Raises:
            StoreError: 404, there is none.
        """
        old = self.get(resource, namespace, name)
        return self._write(resource, (namespace, name), "DELETED", last or old, old)

    async def watch(
        self, resource: str, namespace: str | None, since: int
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield ("ADDED" | "MODIFIED" | "DELETED", object) for changes after version `since`.

        It never ends by itself.

        Raises:
            StoreError: 410, changes after `since` have been dropped from the history.
        """
        async for change in self.changes(resource, since):
            if namespace in (None, change.obj["metadata"].get("namespace", "")):
                yield change.type, change.obj

    async def changes(self, resource: str, since: int) -> AsyncIterator[Change]:
        """Yield every change of a resource after version `since`, of all namespaces.

        Raises:
            StoreError: 410, as `watch`.
        """
        history = self.history(resource)
        position = history.position_after(since)
        while True:
            for change in history.read(position):
                position += 1
                yield change
            if position == history.end:
                await history.wait()

    def history(self, resource: str) -> History:
        """Return the history of a resource, for readers that need more than an iterator."""
        history = self._histories.get(resource)
        if history is None:
            history = self._histories[resource] = History(self._start, self._bounds)
        return history

    def forget_history(self) -> None:
        """Compact: every older resource version is answered with 410 from now on."""
        self._start = self._revision
        for history in self._histories.values():
            history.forget(self._revision)

    def _write(
        self,
        resource: str,
        key: Key,
        type_: str,
        new: dict[str, Any],
        previous: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        self._revision += 1
        # Kind and version stand first, so that a list can cut them off its items.
        versioned = {
            "kind": new["kind"],
            "apiVersion": new["apiVersion"],
            **{field: new[field] for field in new if field not in ("kind", "apiVersion")},
            "metadata": {**new["metadata"], "resourceVersion": str(self._revision)},
        }
        # Through JSON once: that is the copy that nobody else holds, and the bytes that everybody
        # is sent.
        encoded = orjson.dumps(versioned)
        stored: dict[str, Any] = orjson.loads(encoded)
        entries = self._entries.setdefault(resource, {})
        if type_ == "DELETED":
            del entries[key]
        else:
            entries[key] = Entry(stored, encoded)
        change = Change(type_, self._revision, stored, encoded, previous)
        self.history(resource).append(change)
        for observer in self.observers:
            observer(resource, change)
        return stored


def _successor(old: dict[str, Any], obj: dict[str, Any], subresource: str) -> dict[str, Any]:
    """Return what an object becomes when `obj` replaces it or its status."""
    if subresource == "status":
        return {**old, "status": obj.get("status", {})}
    kept = {
        field: old["metadata"][field] for field in ("uid", "creationTimestamp", "resourceVersion")
    }
    return {
        "kind": old["kind"],
        "apiVersion": old["apiVersion"],
        **obj,
        "metadata": {**obj["metadata"], **kept},
    }
