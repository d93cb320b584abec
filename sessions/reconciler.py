"""Makes log and cluster agree with the rows: restores ended logs, deletes what nobody claims.

Live sessions are not touched here: their supervisors bring them on from any state. `run()` is a
task of the engine's.
"""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from sessions import events, sse, store
from sessions.pods import reading
from sessions.pods.hardening import GRACE_SECONDS
from sessions.runtime import Runtime
from sessions.store import Unlogged
from sessions.supervisor.ledger import starts_after
from sessions.supervisor.ownership import Lease
from telorunner.errors import ClusterError, StaleFence, Unavailable
from telorunner.kube import objects

logger = logging.getLogger(__name__)

REAP_SECONDS = 30.0
# A ConfigMap is made a moment before its pod; the age keeps the reaper off one in the making.
CONFIG_MAP_AGE = timedelta(seconds=60)
# A pod that is to be deleted for so long has lost its node: only force frees its name.
FORCE_AFTER = timedelta(seconds=60)

Object = dict[str, Any]


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
                if self._runtime.pods.is_fresh:
                    await self.reap()
            except (ClusterError, Unavailable) as exc:
                logger.info("The reaper comes back later.", exc_info=exc)
            await asyncio.sleep(REAP_SECONDS)

    async def reap(self) -> None:
        """Delete managed pods and ConfigMaps that belong to no live session.

        NB: what exists is read before which sessions live. A row is committed before its objects
        are made, so whatever was seen without a live row will never get one.

        Raises:
            ClusterError: The API refused or did not answer.
            Unavailable: The database cannot be reached.
        """
        config_maps = await self._config_maps()
        pods = self._runtime.pods.snapshot()
        live = await store.live_ids()
        now = datetime.now(UTC)
        for pod in pods.values():
            if _session_id(pod) not in live:
                await self._delete_pod(pod, now)
        mounted = {name for pod in pods.values() for name in _mounts(pod)}
        for config_map in config_maps:
            name = config_map["metadata"]["name"]
            is_old = _age(config_map, now) > CONFIG_MAP_AGE
            if is_old and name not in mounted and _session_id(config_map) not in live:
                await self._delete("configmaps", config_map, None)

    async def _config_maps(self) -> list[Object]:
        cluster = self._runtime.cluster
        selector = objects.managed_selector(cluster.managed_by)
        return await objects.list_objects(cluster, "configmaps", selector=selector)

    async def _delete_pod(self, pod: Object, now: datetime) -> None:
        asked_at = reading.deletion_asked_at(pod)
        if asked_at is None:
            await self._delete("pods", pod, GRACE_SECONDS)
        elif now - asked_at > FORCE_AFTER:
            await self._delete("pods", pod, 0)

    async def _delete(self, resource: str, found: Object, grace_seconds: int | None) -> None:
        metadata = found["metadata"]
        is_deleted = await objects.delete_if_exists(
            self._runtime.cluster,
            resource,
            metadata["name"],
            grace_seconds=grace_seconds,
            uid=metadata["uid"],
        )
        if is_deleted:
            logger.info("Reaped %s %s.", resource, metadata["name"])


def _session_id(found: Object) -> str:
    labels = found["metadata"].get("labels") or {}
    return str(labels.get(objects.SESSION_ID_LABEL) or "")


def _mounts(pod: Object) -> list[str]:
    volumes = reading.section(pod, "spec").get("volumes") or []
    return [reading.section(volume, "configMap").get("name") or "" for volume in volumes]


def _age(found: Object, now: datetime) -> timedelta:
    created_at = reading.time(found["metadata"].get("creationTimestamp"))
    return now - created_at if created_at is not None else timedelta()
