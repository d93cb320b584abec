"""One shared list-and-watch for all objects of a resource that a selector matches.

`run()` lists, then watches from there, for ever; whoever owns it cancels it. It survives everything
but that. A watch that the server ended in order goes on from its last resource version. Anything
else leads to a new list, after a pause that grows from failure to failure: a version that is too
old, a connection that is cut, silent or ends at once, a line that is no event, an answer that is no
2xx, a defect of its own. A list is compared with what is known, so that what happened meanwhile is
seen, and seen once; an object that vanished in the hole is a deletion, once the API has said so of
that very object: a list that lacks what exists is false, and is read again. While nothing current
is known, `is_fresh` is False.

Subscribers see the newest state of one object by name, never the client; several changes in a row
may be seen as one.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from telorunner.aio import Backoff
from telorunner.errors import ClusterError, Forbidden, ResourceExpired
from telorunner.kube.absence import confirm
from telorunner.kube.client import Cluster
from telorunner.kube.errors import cut, from_exception
from telorunner.kube.objects import is_selected, list_with_version
from telorunner.kube.watch import SERVER_TIMEOUT_SECONDS, WatchEvent, watch

logger = logging.getLogger(__name__)

# A restart of the API server is no news; an outage that lasts longer is.
STALE_SECONDS = 10.0
# A watch that ends sooner has not worked, whatever it brought: without a pause a broken server, or
# a proxy in front of it, would be asked a thousand times a second.
HEALTHY_SECONDS = 5.0
# The version was listed just now and is too old all the same: a list at once would not help.
EXPIRED_AGAIN_SECONDS = 5.0
# The cap decides how soon after an outage the states are right again.
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
# A long outage is told again now and then, not at each attempt.
WARNING_SECONDS = 60.0

_NEVER = float("-inf")

# A namespace that does not exist has no Role either, and the API says the same of both.
_NO_NAMESPACE = " (said of a namespace that does not exist, too)"

Object = dict[str, Any]


class Subscription:
    """What an informer knows of one object, as it changes; one task waits on it.

    Attributes:
        object: The newest state; None if there is no such object, or nothing is known yet.
        last: The newest state in which the object existed, also after it is gone.
        is_listed: Whether the informer has read a list, so that None means that there is none.
    """

    def __init__(self, name: str, known: Object | None, *, is_listed: bool) -> None:
        self.name = name
        self.object = known
        self.last = known
        self.is_listed = is_listed
        self._news = asyncio.Event()
        if is_listed:
            self._news.set()

    async def changed(self) -> None:
        """Wait for anything newer than at the last return; the first time, for the first list.

        Cancelling loses nothing.
        """
        await self._news.wait()
        self._news.clear()

    def take(self, state: Object | None) -> None:
        """Note a new state, None for a deletion; only the informer calls this."""
        self.object = state
        self.last = self.last if state is None else state
        if self.is_listed:
            self._news.set()

    def take_listed(self) -> None:
        """Note that the first list is complete; only the informer calls this."""
        self.is_listed = True
        self._news.set()


class Informer:
    """The cache; it knows nothing unless `run()` is running."""

    def __init__(
        self,
        cluster: Cluster,
        resource: str = "pods",
        selector: str = "",
        *,
        backoff: Backoff | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._cluster = cluster
        self._resource = resource
        self._selector = selector
        self._backoff = backoff or Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        self._clock = clock or asyncio.get_running_loop().time
        self._objects: dict[str, Object] = {}
        # How many lists have been asked for, and had been when an object was learned otherwise: the
        # newest one may not show it.
        self._lists = 0
        self._watching: asyncio.Timeout | None = None
        self._learned: dict[str, int] = {}
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._listed = asyncio.Event()
        self._version = ""
        # When contact was lost: None while there is contact.
        self._lost_at: float | None = _NEVER
        # What lists and watches fail by now.
        self.failure: ClusterError | None = None
        # When the newest request was sent: how long it lasted says whether it worked.
        self._asked_at = _NEVER
        self._has_expired = False
        self._warned_at = _NEVER

    @property
    def is_fresh(self) -> bool:
        """Whether the cache says what the cluster says, or did so a moment ago."""
        return self._lost_at is None or self._clock() - self._lost_at <= STALE_SECONDS

    async def wait_listed(self) -> None:
        """Wait until the first list is complete."""
        await self._listed.wait()

    def snapshot(self) -> dict[str, Object]:
        """Return all objects known just now, by name."""
        return dict(self._objects)

    @contextmanager
    def subscribe(self, name: str) -> Iterator[Subscription]:
        """Follow one object by name, whether it exists yet or not."""
        known = self._objects.get(name)
        subscription = Subscription(name, known, is_listed=self._listed.is_set())
        self._subscriptions.setdefault(name, set()).add(subscription)
        try:
            yield subscription
        finally:
            followers = self._subscriptions[name]
            followers.discard(subscription)
            if not followers:
                del self._subscriptions[name]

    def learn(self, thing: Object) -> None:
        """Take in an object that was read in another way, where list and watch do not show it.

        They are behind, then: a list that is asked for from now on says whether it exists.
        """
        name = thing["metadata"]["name"]
        if name not in self._objects:
            self._learned[name] = self._lists
            self._keep(name, thing)
            # One that is ending already cannot be ended again.
            if self._watching is not None and not self._watching.expired():
                self._watching.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                await self._list()
                if not self._learned:
                    await self._watch_until_learned()
            except ResourceExpired:
                await self._take_expiry()
            except ClusterError as exc:
                self._lose(self._clock(), exc)
                await self._pause(exc.retry_after_seconds)
            except Exception as exc:
                # A defect must not end the watch of a process that looks healthy otherwise.
                self._lose(_NEVER, exc)
                await self._pause()

    async def _list(self) -> None:
        self._asked_at = self._clock()
        self._lists += 1
        objects, version = await list_with_version(
            self._cluster, self._resource, selector=self._selector
        )
        listed = {thing["metadata"]["name"]: thing for thing in objects}
        self._learned = {
            name: lists for name, lists in self._learned.items() if lists == self._lists
        }
        for name, thing in listed.items():
            self._keep(name, thing)
        await self._confirm(self._objects.keys() - listed.keys() - self._learned.keys())
        self._version = version
        self.failure = None
        if self._lost_at is not None:
            logger.info("The %s of the cluster are known.", self._resource)
        self._lost_at = None
        if not self._listed.is_set():
            self._listed.set()
            for followers in self._subscriptions.values():
                for subscription in followers:
                    subscription.take_listed()

    async def _confirm(self, lacking: set[str]) -> None:
        """Forget those of them that are gone.

        Raises:
            ClusterError: Not all are known to be gone, so that the list cannot be built upon.
        """
        if not lacking:
            return
        failure = await confirm(self._cluster, self._resource, lacking, self._take_found)
        if failure is not None:
            raise from_exception(failure)

    def _take_found(self, name: str, found: Object | None) -> bool:
        """Take what was found of an object that a list lacked; return whether it could lack it."""
        if found is None or not is_selected(found, self._selector):
            self._forget(name, None)
            return True
        known = self._objects.get(name)
        self._keep(name, found)
        # One of the same name, made since the list was read.
        return known is None or known["metadata"].get("uid") != found["metadata"].get("uid")

    async def _watch_until_learned(self) -> None:
        """Watch until a new list is needed, which something learned otherwise needs too."""
        try:
            async with asyncio.timeout(None) as watching:
                self._watching = watching
                await self._watch_on()
        except TimeoutError:
            if not watching.expired():
                raise
        finally:
            self._watching = None

    async def _watch_on(self) -> None:
        """Watch, again and again, until a new list is needed."""
        while True:
            self._asked_at = self._clock()
            has_events = False
            events = watch(
                self._cluster, self._resource, selector=self._selector, version=self._version
            )
            async with aclosing(events):
                async for event in events:
                    has_events = True
                    self._take(event)
            if self._clock() - self._asked_at < HEALTHY_SECONDS:
                logger.debug("A watch of %s ended at once.", self._resource)
                await self._pause()
                return
            self._has_expired = False
            self._backoff.reset()
            lasted_seconds = self._clock() - self._asked_at
            if not has_events or lasted_seconds < SERVER_TIMEOUT_SECONDS - HEALTHY_SECONDS:
                # Not even a bookmark, or ended before its time: what there is to see may not come
                # by this way.
                return

    def _take(self, event: WatchEvent) -> None:
        metadata = event.object["metadata"]
        if event.type in ("ADDED", "MODIFIED"):
            self._keep(metadata["name"], event.object)
        elif event.type == "DELETED":
            self._forget(metadata["name"], event.object)
        self._version = str(metadata.get("resourceVersion") or self._version)

    def _keep(self, name: str, thing: Object) -> None:
        # Nobody here reads who set which field, and that is up to half of an object.
        thing["metadata"].pop("managedFields", None)
        known = self._objects.get(name)
        if known is not None and _identity(known) == _identity(thing):
            return
        self._objects[name] = thing
        for subscription in self._subscriptions.get(name, ()):
            subscription.take(thing)

    def _forget(self, name: str, final: Object | None) -> None:
        """Drop an object; `final` is its last state, where the cluster has told it."""
        if final is not None:
            self._keep(name, final)
        if self._objects.pop(name, None) is not None:
            for subscription in self._subscriptions.get(name, ()):
                subscription.take(None)

    def _lose(self, lost_at: float, cause: Exception) -> None:
        self.failure = cause if isinstance(cause, ClusterError) else None
        if self._lost_at is None or lost_at == _NEVER:
            self._lost_at = lost_at
        if self._clock() - self._warned_at >= WARNING_SECONDS:
            self._warned_at = self._clock()
            is_defect = not isinstance(cause, ClusterError)
            reason = cut(str(cause.__cause__ or cause))
            logger.warning(
                "The watch of %s has failed and goes on: %s%s",
                self._resource,
                reason,
                _NO_NAMESPACE if type(cause) is Forbidden else "",
                exc_info=cause if is_defect else None,
            )

    async def _take_expiry(self) -> None:
        is_young = self._clock() - self._asked_at < HEALTHY_SECONDS
        is_again = self._has_expired and is_young
        self._has_expired = True
        logger.info("The list of %s is too old; listing again.", self._resource)
        if is_again:
            await asyncio.sleep(EXPIRED_AGAIN_SECONDS)

    async def _pause(self, at_least_seconds: float = 0.0) -> None:
        """Wait before the next attempt, the longer the more attempts in a row did not work."""
        if self._clock() - self._asked_at >= HEALTHY_SECONDS:
            self._backoff.reset()
        await self._backoff.wait(at_least_seconds)


def _identity(thing: Object) -> tuple[Any, Any]:
    metadata = thing["metadata"]
    return metadata.get("uid"), metadata.get("resourceVersion")
