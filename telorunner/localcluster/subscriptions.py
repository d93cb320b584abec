"""Tells a controller of this cluster which objects to look at: the way in for what lives beside it.

A subscription names changed objects and holds none: whoever gets a key asks the store for what is
there by then. Changes of one object that nobody has taken yet are one. It starts no task.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from telorunner.localcluster.store import Change, Store


class ObjectKey(NamedTuple):
    """What names an object in the store; `namespace` is "" for kinds without one."""

    resource: str
    namespace: str
    name: str


class Subscription:
    """The objects of some resources that have come, changed or gone and are to be looked at."""

    def __init__(self, store: Store, resources: Iterable[str]) -> None:
        self._resources = frozenset(resources)
        # In order of the first change, without doubles. What is there already is new to us.
        self._due: dict[ObjectKey, None] = {
            key_of(resource, obj["metadata"]): None
            for resource in sorted(self._resources)
            for obj in store.list(resource)[0]
        }
        self._news = asyncio.Event()

    async def next(self) -> tuple[ObjectKey, ...]:
        """Return the objects to look at; wait until there are some.

        The first time these are all that there are. Cancelling loses nothing.
        """
        while not self._due:
            self._news.clear()
            await self._news.wait()
        found = tuple(self._due)
        self._due.clear()
        return found

    def note(self, resource: str, change: Change) -> None:
        """Note a change; called inside the write."""
        if resource in self._resources:
            self._due[key_of(resource, change.obj["metadata"])] = None
            self._news.set()


@contextmanager
def subscribed(store: Store, resources: Iterable[str]) -> Iterator[Subscription]:
    """Have a subscription for the length of the block."""
    subscription = Subscription(store, resources)
    store.observers.append(subscription.note)
    try:
        yield subscription
    finally:
        store.observers.remove(subscription.note)


def key_of(resource: str, metadata: dict[str, str]) -> ObjectKey:
    """Return what names an object, by its metadata."""
    return ObjectKey(resource, metadata.get("namespace", ""), metadata["name"])
