"""The end of a session: the pod gone or drained, the last status, and nothing left in the cluster.

Asked to stop: the pod goes first, then `stopped` is said. Ended by itself: all output is out first,
then the status is said, then the pod goes. What cannot be deleted here is the reaper's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from sessions.pods import failures
from sessions.pods.hardening import GRACE_SECONDS
from sessions.pods.run import object_name
from sessions.spec import STOPPED, Status
from sessions.states import Delivery, Phase, StatusKind
from sessions.supervisor.routing import withdraw
from sessions.supervisor.session import Session
from sessions.supervisor.start import is_own
from telorunner import aio
from telorunner.errors import ClusterError
from telorunner.kube import objects
from telorunner.kube.errors import cut
from telorunner.kube.informer import Subscription

logger = logging.getLogger(__name__)

# A watch that is late or broken must not make a stop last; then the pod is asked for by name.
LOOK_AGAIN_SECONDS = 3.0
CLEAN_UP_SECONDS = 30.0


class Drain(Protocol):
    """What may still bring something of a container that has ended: terminal and network."""

    async def end_routes(self) -> None:
        """Publish nothing more, and tell nothing more of public routes."""

    async def drain(self) -> None:
        """Return once it is all in the log, or cannot be had; bounded."""


async def finish(
    session: Session, status: Status, subscription: Subscription, outlets: Drain | None
) -> None:
    """Bring the session to its end.

    Cancelling leaves a session without a terminal status as it is, for the next owner.

    Raises:
        StaleFence: Another engine owns the session by now.
    """
    if outlets is not None:
        # NB: first. Routes go with the pod, which is no news of theirs, and one that is made from
        # now on might be left.
        await outlets.end_routes()
    if session.stop_asked.is_set():
        status = STOPPED
    if status.kind is StatusKind.STOPPED:
        await _remove(session, subscription)
    if outlets is not None:
        await outlets.drain()
    if session.stop_asked.is_set():
        status = STOPPED
    if status.kind is StatusKind.EXITED and subscription.last is not None:
        remark = failures.remark(subscription.last)
        if remark is not None:
            await session.say(remark, Phase.BOOT)
    await session.advance(status)
    await clean_up(session)


async def _remove(session: Session, subscription: Subscription) -> None:
    """Delete everything and wait, within the bound, until the pod is gone.

    A pod whose creation had no answer may come later still; the reaper sees it then.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout_at(session.stop_deadline):
            await session.owner.lease.wait_held()
            if await _insist(session, _delete_pod):
                await _gone(session, subscription)
            await _insist(session, _delete_config_map)
            return
    logger.warning("The pod is still there after a stop.", extra=session.log_extra)


async def clean_up(session: Session) -> None:
    """Delete the session's pod, ConfigMap and routes, trying again for a while."""
    try:
        async with asyncio.timeout(CLEAN_UP_SECONDS):
            await session.owner.lease.wait_held()
            await _insist(session, _delete_pod)
            await _insist(session, _delete_config_map)
            await _insist(session, withdraw)
    except TimeoutError:
        logger.warning("The session's objects are left to the reaper.", extra=session.log_extra)


async def _insist(session: Session, delete: Callable[[Session], Awaitable[bool]]) -> bool:
    """Delete something, however often that fails; return whether something was there."""
    backoff = aio.Backoff(cap_seconds=3.0)
    while True:
        try:
            return await delete(session)
        except ClusterError as exc:
            reason = cut(str(exc.__cause__ or exc))
            logger.info("A deletion failed: %s", reason, extra=session.log_extra)
            await backoff.wait(exc.retry_after_seconds)


async def _delete_pod(session: Session) -> bool:
    if not session.pod_uid and not await _take_uid(session):
        return False
    return await objects.delete_if_exists(
        session.runtime.cluster,
        "pods",
        object_name(session.session_id),
        grace_seconds=GRACE_SECONDS,
        uid=session.pod_uid,
    )


async def _take_uid(session: Session) -> bool:
    """Look whether an attempt that had no answer has made a pod all the same."""
    if not session.may_have_objects:
        return False
    pod = await objects.find(session.runtime.cluster, "pods", object_name(session.session_id))
    if pod is not None and is_own(session, pod):
        session.pod_uid = pod["metadata"]["uid"]
    return bool(session.pod_uid)


async def _delete_config_map(session: Session) -> bool:
    if not session.may_have_objects or session.row.spec.delivery is not Delivery.INLINE:
        return False
    cluster, name = session.runtime.cluster, object_name(session.session_id)
    found = await objects.find(cluster, "configmaps", name)
    if found is None or not is_own(session, found):
        return False
    uid = found["metadata"]["uid"]
    return await objects.delete_if_exists(cluster, "configmaps", name, uid=uid)


async def _gone(session: Session, subscription: Subscription) -> None:
    """Wait until the pod does not exist any more."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                await _vanished(session, subscription)
                return
        if await _is_gone(session):
            return


async def _vanished(session: Session, subscription: Subscription) -> None:
    while not _has_vanished(session, subscription):
        session.wake.clear()
        await session.wake.wait()


def _has_vanished(session: Session, subscription: Subscription) -> bool:
    """Tell whether the informer has seen the pod and sees it no longer."""
    last, now = subscription.last, subscription.object
    was_seen = last is not None and last["metadata"].get("uid") == session.pod_uid
    is_there = now is not None and now["metadata"].get("uid") == session.pod_uid
    return was_seen and not is_there


async def _is_gone(session: Session) -> bool:
    try:
        pod = await objects.find(session.runtime.cluster, "pods", object_name(session.session_id))
    except ClusterError as exc:
        reason = cut(str(exc.__cause__ or exc))
        logger.info("The pod cannot be read: %s", reason, extra=session.log_extra)
        return False
    return pod is None or bool(pod["metadata"].get("uid") != session.pod_uid)
