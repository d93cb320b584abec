"""Writes the Event objects that people read with `kubectl describe`, and ends them in time.

As on a real cluster an event lasts an hour after it was last written; here their number is bounded
too. Nothing is counted up: who records an event that may repeat takes care not to. The task of
`EventLifetimes.run` belongs to the controllers.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from telorunner.localcluster.store import Change, Store, StoreError, timestamp

NORMAL = "Normal"
WARNING = "Warning"
# Source: the API server's default of --event-ttl.
EVENT_TTL_SECONDS = 3600.0
MAX_EVENTS = 1000
# Source: the longest name of an object is 253 characters, and 16 of them are the number's.
_MAX_BASE_LENGTH = 253 - 17


class _Serial:
    """Numbers that rise with the time, each given once."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last = max(time.time_ns(), self._last + 1)
        return self._last


_serial = _Serial()


class EventRecorder:
    """Records events about one object; `component` is who saw them, e.g. "default-scheduler"."""

    def __init__(
        self, store: Store, obj: Mapping[str, Any], component: str, *, host: str = ""
    ) -> None:
        self._store = store
        self._component = component
        self._host = host
        self._source = {"component": component} | ({"host": host} if host else {})
        metadata = obj["metadata"]
        self._involved = {
            "kind": obj["kind"],
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata["uid"],
            "apiVersion": obj["apiVersion"],
            "resourceVersion": metadata["resourceVersion"],
        }

    def record(
        self,
        reason: str,
        message: str,
        *,
        type_: str = NORMAL,
        field_path: str = "",
        action: str = "",
    ) -> None:
        """Add an event; `field_path` names a container, as in `spec.containers{session}`.

        With an `action` it has the form of `events.k8s.io`, which a scheduler writes. One that
        cannot be recorded is dropped, as a kubelet does.
        """
        involved = {**self._involved, "fieldPath": field_path} if field_path else self._involved
        # In hexadecimal, so that a list in order of names is one in order of time.
        name = f"{involved['name'][:_MAX_BASE_LENGTH]}.{_serial.next():x}"
        event = {
            "metadata": {"name": name, "namespace": involved["namespace"] or "default"},
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "type": type_,
            **(self._newer_fields(action) if action else self._older_fields()),
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }
        with suppress(StoreError):
            self._store.create("events", event)

    def _older_fields(self) -> dict[str, Any]:
        now = timestamp()
        return {
            "source": self._source,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "eventTime": None,
        }

    def _newer_fields(self, action: str) -> dict[str, Any]:
        return {
            "source": {},
            "firstTimestamp": None,
            "lastTimestamp": None,
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "action": action,
        }


class EventLifetimes:
    """Knows since when each event is there; whoever wrote it does not matter."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        # The event that was written first comes first.
        self._written_at: dict[tuple[str, str], float] = {}
        store.observers.append(self._note)

    async def run(self) -> None:
        """Remove events when their time is up, until cancelled."""
        while True:
            left_seconds = self.remove_expired()
            await asyncio.sleep(left_seconds)

    def remove_expired(self) -> float:
        """Remove the events whose time is up; return the seconds until there can be others."""
        while self._written_at:
            left = next(iter(self._written_at.values())) + EVENT_TTL_SECONDS - self._clock()
            if left > 0:
                return left
            self._remove_first()
        return EVENT_TTL_SECONDS

    def remove_surplus(self) -> None:
        """Remove the oldest events while there are too many."""
        while len(self._written_at) > MAX_EVENTS:
            self._remove_first()

    def _remove_first(self) -> None:
        # Removing it is a change, which takes it out of the table.
        self._store.remove("events", *next(iter(self._written_at)))

    def _note(self, resource: str, change: Change) -> None:
        if resource != "events":
            return
        key = (change.obj["metadata"]["namespace"], change.obj["metadata"]["name"])
        self._written_at.pop(key, None)
        if change.type != "DELETED":
            self._written_at[key] = self._clock()
