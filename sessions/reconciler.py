"""Makes log and cluster agree with the rows: restores ended logs, deletes what nobody claims.

Live sessions are not touched here: their supervisors bring them on from any state. `run()` is a
task of the engine's, and owns those that delete. Only what carries the runner's label is ever seen:
two runners in one namespace need different values of it (RUNNER_MANAGED_BY).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from sessions import events, sse, store
from sessions.pods import reading
from sessions.pods.hardening import GRACE_SECONDS
from sessions.runtime import Runtime
from sessions.store import Unlogged
from sessions.supervisor.ledger import starts_after
from sessions.supervisor.ownership import Lease
from telorunner.errors import ClusterError, ResourceExpired, StaleFence, Unavailable
from telorunner.kube import objects

logger = logging.getLogger(__name__)

REAP_SECONDS = 30.0
# A ConfigMap is made a moment before its pod; the age keeps the reaper off one in the making.
CONFIG_MAP_AGE = timedelta(seconds=60)
# A pod that is to be deleted for so long has lost its node: only force frees its name.
FORCE_AFTER = timedelta(seconds=60)
# One deletion that hangs must not hold the others up, and many must not flood the API.
DELETIONS_AT_ONCE = 8
# A list that changes too much between two pages is begun anew, but not for ever.
LIST_TRIES = 3

Object = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Unclaimed:
    """An object that no live session claims; `grace_seconds` is for pods."""

    resource: str
    name: str
    uid: str
    session_id: str
    grace_seconds: int | None = None


class Reconciler:
    """The part of the engine that looks at everything at once."""

    def __init__(self, runtime: Runtime, lease: Lease) -> None:
        self._runtime = runtime
        self._lease = lease

    async def restore_logs(self, ended: list[Unlogged]) -> None:
        """Let the log of every ended session that clients can read end with its status.

        For a log that began empty with this process, before any session is taken up.
        """
        for session in ended:
            starts = starts_after(session.event_numbers, session.output_numbers, session.apps)
            try:
                writer = await self._runtime.log.open(
                    session.session_id, fence=session.fence, starts=starts
                )
                await writer.publish_event(sse.encode(events.status(session.status.to_json())))
                await writer.close()
            except StaleFence:
                logger.info("A log has a newer owner.", extra={"session": session.session_id})

    async def run(self) -> None:
        """Reap now and then until cancelled; never before the pods have been listed."""
        while True:
            await self._runtime.pods.wait_listed()
            await self._lease.wait_held()
            try:
                if self._may_delete:
                    await self.reap()
            except Unavailable as exc:
                logger.info("The reaper comes back later.", exc_info=exc)
            await asyncio.sleep(REAP_SECONDS)

    async def reap(self) -> None:
        """Delete managed pods, ConfigMaps and routes that belong to no live session.

        What cannot be deleted is tried again the next time.

        NB: what exists is read before which sessions live. A row is committed before its objects
        are made, so whatever was seen without a live row will never get one, however young it is.

        Raises:
            Unavailable: The database cannot be reached.
        """
        config_maps = await self._config_maps()
        routed = await self._routed()
        pods = self._runtime.pods.snapshot()
        live = await store.live_ids()
        now = datetime.now(UTC)
        unclaimed = [*_unclaimed_pods(pods, live, now)]
        unclaimed += _unclaimed_config_maps(config_maps, pods, live, now)
        deleted = await self._for_all(unclaimed, self._delete)
        # What publishes a session is taken away as a whole, whatever objects it has.
        withdrawn = await self._for_all(sorted(routed - live), self._withdraw)
        await _warn_of_strangers({one.session_id for one in deleted} | set(withdrawn))

    @property
    def _may_delete(self) -> bool:
        """Whether the pods that are known are those that there are, and this engine may decide."""
        return self._runtime.pods.is_fresh and self._lease.is_held

    async def _config_maps(self) -> list[Object]:
        """Return the runner's ConfigMaps; none where they cannot be listed: pods go without."""
        cluster = self._runtime.cluster
        selector = objects.managed_selector(cluster.managed_by)
        for _ in range(LIST_TRIES):
            try:
                return await objects.list_objects(cluster, "configmaps", selector=selector)
            except ResourceExpired:
                logger.info("The list of ConfigMaps is too old; listing again.")
            except ClusterError as exc:
                logger.warning("The ConfigMaps cannot be listed.", exc_info=exc)
                break
        return []

    async def _routed(self) -> set[str]:
        """Return the sessions that anything is published of; none where that cannot be listed."""
        try:
            return await self._runtime.router.session_ids()
        except ClusterError as exc:
            logger.warning("The public routes cannot be listed.", exc_info=exc)
            return set()

    async def _for_all(
        self, unclaimed: Sequence[T], take_away: Callable[[T], Awaitable[bool]]
    ) -> list[T]:
        """Take some away at once, for as long as this engine may; return those that were there."""
        waiting = iter(unclaimed)
        taken: list[T] = []
        failures: list[ClusterError] = []

        async def work() -> None:
            for one in waiting:
                if not self._may_delete:
                    return
                try:
                    if await take_away(one):
                        taken.append(one)
                except ClusterError as exc:
                    failures.append(exc)

        async with asyncio.TaskGroup() as group:
            for number in range(min(DELETIONS_AT_ONCE, len(unclaimed))):
                group.create_task(work(), name=f"reaper-{number}")
        if failures:
            logger.warning(
                "%d objects of ended sessions could not be deleted; the reaper tries again.",
                len(failures),
                exc_info=failures[0],
            )
        return taken

    async def _withdraw(self, session_id: str) -> bool:
        await self._runtime.router.withdraw(session_id)
        logger.info("Reaped the routes of session %s.", session_id)
        # A list had something of it.
        return True

    async def _delete(self, one: Unclaimed) -> bool:
        if one.resource == "configmaps" and await self._is_mounted(one.name):
            return False
        is_deleted = await objects.delete_if_exists(
            self._runtime.cluster,
            one.resource,
            one.name,
            grace_seconds=one.grace_seconds,
            uid=one.uid,
        )
        if is_deleted:
            logger.info("Reaped %s %s.", one.resource, one.name)
        return is_deleted

    async def _is_mounted(self, name: str) -> bool:
        """Tell whether the pod that a ConfigMap was made for mounts it, whatever lists lacked."""
        pod = await objects.find(self._runtime.cluster, "pods", name)
        return pod is not None and name in _mounts(pod)


async def _warn_of_strangers(session_ids: set[str]) -> None:
    """Say so if what was deleted may have been another runner's.

    A session of this database's stays in its history for days; one that was never in it comes
    from a database that was lost, or from a runner that works with the same label.
    """
    if not session_ids:
        return
    strangers = session_ids - await store.known_ids(session_ids)
    if strangers:
        logger.warning(
            "Deleted objects of %d sessions that were never in this database. If another runner "
            "works in this namespace, each of them needs a RUNNER_MANAGED_BY of its own.",
            len(strangers),
        )


def _unclaimed_pods(pods: dict[str, Object], live: set[str], now: datetime) -> Iterator[Unclaimed]:
    for pod in pods.values():
        if _session_id(pod) in live:
            continue
        asked_at = reading.deletion_asked_at(pod)
        if asked_at is None:
            yield _unclaimed("pods", pod, GRACE_SECONDS)
        elif now - asked_at > FORCE_AFTER:
            # Nothing else can run under its name, nor write to what it wrote to: names are of one
            # session, and volumes of one pod.
            yield _unclaimed("pods", pod, 0)


def _unclaimed_config_maps(
    config_maps: list[Object], pods: dict[str, Object], live: set[str], now: datetime
) -> Iterator[Unclaimed]:
    mounted = {name for pod in pods.values() for name in _mounts(pod)}
    for config_map in config_maps:
        is_old = _age(config_map, now) > CONFIG_MAP_AGE
        is_mounted = config_map["metadata"]["name"] in mounted
        if is_old and not is_mounted and _session_id(config_map) not in live:
            yield _unclaimed("configmaps", config_map)


def _unclaimed(resource: str, found: Object, grace_seconds: int | None = None) -> Unclaimed:
    metadata = found["metadata"]
    return Unclaimed(resource, metadata["name"], metadata["uid"], _session_id(found), grace_seconds)


def _session_id(found: Object) -> str:
    labels = found["metadata"].get("labels") or {}
    return str(labels.get(objects.SESSION_ID_LABEL) or "")


def _mounts(pod: Object) -> list[str]:
    volumes = reading.section(pod, "spec").get("volumes") or []
    return [reading.section(volume, "configMap").get("name") or "" for volume in volumes]


def _age(found: Object, now: datetime) -> timedelta:
    created_at = reading.time(found["metadata"].get("creationTimestamp"))
    return now - created_at if created_at is not None else timedelta()
