"""From a row to a pod: a ConfigMap with the bundle, the pod, or the pod that is there already.

Every step can be repeated: what an attempt without an answer may have made is looked for and
taken. Nothing of anybody else's is ever changed. No tasks are owned here.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from sessions import bundles, store
from sessions.pods import failures, progress, reading
from sessions.pods.app import build_app_pod
from sessions.pods.run import build_bundle_config_map, build_run_pod, object_name
from sessions.spec import RunPodSpec
from sessions.states import Delivery, StatusKind
from sessions.supervisor.session import Session
from telorunner import aio, secretbox
from telorunner.conf import ClusterKind
from telorunner.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    NotFound,
    ObjectNotFound,
    StartFailed,
    Unauthorized,
    Unavailable,
)
from telorunner.kube import objects
from telorunner.kube.errors import cut, describe

logger = logging.getLogger(__name__)

T = TypeVar("T")
Object = dict[str, Any]

# The contract's: a pod that does not run by then fails the session.
START_SECONDS = 180.0
# A call that is under way at a stop is waited for: what it makes can only be deleted once it is
# there. This much, so that the rest of the bound of a stop is left for the deletion.
ANSWER_SECONDS = 5.0
# A server that is not listening by then is not of this process.
SELF_URL_SECONDS = 10.0

_POD = "create: could not create the session pod"
_CONFIG_MAP = "create: could not create the bundle's ConfigMap"
_LOOK = "get: could not look for the session pod"
_NO_URL = (
    "create: the bundle is to be fetched by the pod, but the runner does not know its own address; "
    "RUNNER_SELF_URL must be set"
)
_SEALED = (
    "the session's environment cannot be opened: the runner's secret key was changed, and the old "
    "one is not among DJANGO_SECRET_KEY_FALLBACKS"
)


class StopAsked(Exception):
    """The session is to stop before its pod is there."""


async def ensure_pod(session: Session, deadline: float) -> Object:
    """Return the session's pod, made or found; `deadline` is a time of the event loop.

    Raises:
        StopAsked: The session is to stop; what was made so far is the caller's to remove.
        StartFailed: There is no pod and there will be none; the message is for clients.
    """
    if session.is_taken_over:
        # A session that runs is not ended by an API that is away, however long.
        is_starting = session.status is StatusKind.STARTING
        until = deadline if is_starting else math.inf
        if pod := await _attempt(session, until, _LOOK, _find):
            session.is_adopted = True
            return _adopted(session, pod)
    if session.status is not StatusKind.STARTING or session.pod_uid:
        raise StartFailed(_why_gone(session), stage="adopt")
    if session.stop_asked.is_set():
        raise StopAsked
    session.may_have_objects = True
    if session.row.spec.delivery is Delivery.INLINE:
        await session.say(progress.DELIVERING)
        await _attempt(session, deadline, _CONFIG_MAP, _create_config_map)
    pod = await _attempt(session, deadline, _POD, _create_pod)
    return _adopted(session, pod)


async def _attempt(
    session: Session,
    deadline: float,
    operation: str,
    action: Callable[[Session], Awaitable[T]],
) -> T:
    """Do something until it works or is refused; an API or a database that is away is waited for.

    Raises:
        StopAsked: The session is to stop.
        StartFailed: It was refused, or there was no answer up to the deadline.
    """
    backoff = aio.Backoff(cap_seconds=3.0)
    while True:
        if session.stop_asked.is_set():
            raise StopAsked
        wanted_pause_seconds = 0.0
        try:
            return await _answered(session, action)
        except Unavailable:
            sentence = f"{operation}: the runner's database cannot be reached."
        except NotFound as exc:
            raise StartFailed(exc.message, stage=operation) from exc
        except ClusterError as exc:
            wanted_pause_seconds = exc.retry_after_seconds
            sentence = describe(exc, operation)
            if deadline < math.inf and not (exc.is_retryable or isinstance(exc, Unauthorized)):
                logger.warning("%s", sentence, extra=session.log_extra, exc_info=exc)
                raise StartFailed(sentence, stage=operation) from exc
            # One line: in an outage every session that starts comes here every few seconds.
            reason = cut(str(exc.__cause__ or exc))
            logger.info("%s Trying again (%s).", sentence, reason, extra=session.log_extra)
        delay = backoff.next_delay(wanted_pause_seconds)
        if asyncio.get_running_loop().time() + delay > deadline:
            raise StartFailed(sentence, stage=operation)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await session.stop_asked.wait()


async def _answered(session: Session, action: Callable[[Session], Awaitable[T]]) -> T:
    """Do something that may hang; once the session is to stop, not for much longer.

    Raises:
        StopAsked: The session is to stop, and there was no answer.
    """

    async def hurry() -> None:
        await session.stop_asked.wait()
        patience.reschedule(asyncio.get_running_loop().time() + ANSWER_SECONDS)

    try:
        async with asyncio.timeout(None) as patience:
            hurrying = aio.start(hurry(), name=f"hurry-{session.session_id}")
            try:
                return await action(session)
            finally:
                await aio.stop(hurrying)
    except TimeoutError:
        if not patience.expired():
            raise
        raise StopAsked from None


async def _find(session: Session) -> Object | None:
    """Return the pod of the session's name, None if there is none."""
    return await objects.find(session.runtime.cluster, "pods", object_name(session.session_id))


async def _create_config_map(session: Session) -> None:
    cluster = session.runtime.cluster
    manifest = await _config_map(session)
    try:
        await objects.create(cluster, "configmaps", manifest)
    except AlreadyExists as exc:
        try:
            found = await objects.get(cluster, "configmaps", object_name(session.session_id))
        except ObjectNotFound:
            # It went with an earlier pod at this very moment: the next attempt makes it.
            raise Conflict(status=exc.status, reason=exc.reason) from exc
        if not is_own(session, found):
            raise StartFailed(_foreign("ConfigMap", session), stage=_CONFIG_MAP) from None


async def _config_map(session: Session) -> Object:
    cluster = session.runtime.cluster
    archive = await store.load_bundle(session.session_id)
    return build_bundle_config_map(
        session.session_id, cluster.namespace, cluster.managed_by, archive
    )


async def _create_pod(session: Session) -> Object:
    cluster, config = session.runtime.cluster, session.runtime.config
    if session.row.env is None:
        raise StartFailed(_SEALED, stage=_POD)
    try:
        bundle_url = await _bundle_url(session)
    except NotFound:
        # An attempt that had no answer may have made the pod, which has fetched its bundle since.
        if pod := await _find(session):
            return pod
        raise
    spec = RunPodSpec(
        session=session.row.spec,
        namespace=cluster.namespace,
        managed_by=cluster.managed_by,
        env=session.row.env,
        init_image=config.init_image,
        bundle_url=bundle_url,
        image_pull_secret=config.image_pull_secret,
        runtime_class=config.runtime_class,
    )
    is_app = spec.session.delivery is Delivery.NONE
    manifest = build_app_pod(spec) if is_app else build_run_pod(spec)
    try:
        return await objects.create(cluster, "pods", manifest)
    except AlreadyExists:
        return await objects.get(cluster, "pods", object_name(session.session_id))


async def _bundle_url(session: Session) -> str:
    """Return where the pod fetches its bundle, the same at every attempt; empty: it does not."""
    if session.row.spec.delivery is not Delivery.FETCH:
        return ""
    try:
        token = await store.load_token(session.session_id)
        async with asyncio.timeout(SELF_URL_SECONDS):
            self_url = await session.runtime.self_url.get()
    except secretbox.CannotOpen:
        raise StartFailed(_SEALED, stage=_POD) from None
    except TimeoutError:
        raise StartFailed(_NO_URL, stage=_POD) from None
    return bundles.fetch_url(self_url, session.session_id, token)


def _adopted(session: Session, pod: Object) -> Object:
    """Remember the pod as the session's own.

    One that is being deleted or has ended is the session's too: it may have begun to run, and no
    session runs twice.

    Raises:
        StartFailed: It is somebody else's.
    """
    if not is_own(session, pod):
        raise StartFailed(_foreign("pod", session), stage="adopt")
    uid = pod["metadata"]["uid"]
    if session.pod_uid and session.pod_uid != uid:
        # Labelled like the session's, but its own is gone: what runs there, nobody knows.
        raise StartFailed(_why_gone(session), stage="adopt")
    if session.pod_uid != uid:
        session.pod_uid = uid
        session.ledger.note_pod(pod["metadata"]["name"], uid)
    return pod


def is_own(session: Session, found: Object) -> bool:
    """Tell whether an object of the session's name was made by the runner for this session."""
    cluster = session.runtime.cluster
    labels = found["metadata"].get("labels") or {}
    expected = objects.session_labels(cluster.managed_by, session.session_id)
    return all(labels.get(name) == value for name, value in expected.items())


def _foreign(kind: str, session: Session) -> str:
    name = object_name(session.session_id)
    return f"create: there is a {kind} named {name} that is not this session's; it was left alone."


def _why_gone(session: Session) -> str:
    """Return why a session that had a pod has none, in words."""
    if session.runtime.config.cluster is ClusterKind.LOCAL:
        why = "the local cluster that it ran in was stopped"
    else:
        why = "it was deleted while no runner was watching"
    return f"{failures.POD_DISAPPEARED}: {why}"


async def own_config_map(session: Session, pod: Object) -> None:
    """Let the ConfigMap vanish with the pod; if that fails it is deleted by name at the end.

    One that is gone before the pod has begun to run is made again: that of an earlier pod goes with
    that pod, be it a moment after this one was made.
    """
    if session.row.spec.delivery is not Delivery.INLINE:
        return
    cluster, name = session.runtime.cluster, object_name(session.session_id)
    owners = [objects.owner_reference(pod)]
    try:
        try:
            if session.is_adopted:
                metadata = (await objects.get(cluster, "configmaps", name))["metadata"]
                if metadata.get("ownerReferences") or not is_own(session, {"metadata": metadata}):
                    return
            changes = {"metadata": {"ownerReferences": owners}}
            await objects.patch(cluster, "configmaps", name, changes)
        except ObjectNotFound:
            if session.stop_asked.is_set() or not _may_begin(pod):
                return
            manifest = await _config_map(session)
            manifest["metadata"]["ownerReferences"] = owners
            await objects.create(cluster, "configmaps", manifest)
            logger.info("The ConfigMap was gone and is made again.", extra=session.log_extra)
    except (ClusterError, NotFound, Unavailable) as exc:
        logger.info("The ConfigMap has no owner yet.", extra=session.log_extra, exc_info=exc)


def _may_begin(pod: Object) -> bool:
    """Tell whether a pod has not begun to run yet, and nobody wants it to end."""
    return reading.phase(pod) == "Pending" and reading.deletion_asked_at(pod) is None
