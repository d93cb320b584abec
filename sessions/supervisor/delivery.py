"""Whether the ConfigMap with a session's bundle is still there while its pod is to mount it.

A kubelet that misses it waits for ever and says so in events only, which the runner has no right to
read: the pod's status looks like that of any start. `watch_config_map()` is a task of the
supervisor's.
"""

import asyncio
import logging

from sessions.pods import failures
from sessions.pods.run import object_name
from sessions.states import Delivery, StatusKind
from sessions.supervisor.podview import PodView
from sessions.supervisor.session import Session
from telorunner.errors import ClusterError
from telorunner.kube import objects
from telorunner.kube.errors import cut

logger = logging.getLogger(__name__)

# A kubelet mounts volumes within a second; a pod that still waits then is a rare one, and one
# request in this time for each of those floods nobody.
LOOK_SECONDS = 5.0


async def watch_config_map(session: Session, view: PodView, owned: "asyncio.Task[None]") -> None:
    """Fail the start once the ConfigMap is gone and the pod has not mounted it.

    `owned` is the task that gives it its owner, and makes it again if it is gone by then. Returns
    when the session has started or will not; cancelling does nothing else.
    """
    if session.row.spec.delivery is not Delivery.INLINE:
        return
    await asyncio.wait({owned})
    while session.status is StatusKind.STARTING:
        await asyncio.sleep(LOOK_SECONDS)
        if _is_waiting(session, view) and await _is_gone(session) and _is_waiting(session, view):
            session.fail_start(failures.BUNDLE_DELETED)
            return


def _is_waiting(session: Session, view: PodView) -> bool:
    """Tell whether the pod may still have to mount it, by a status that is not an old one."""
    return session.runtime.pods.is_fresh and view.is_mounting


async def _is_gone(session: Session) -> bool:
    cluster, name = session.runtime.cluster, object_name(session.session_id)
    try:
        return await objects.find(cluster, "configmaps", name) is None
    except ClusterError as exc:
        reason = cut(str(exc.__cause__ or exc))
        logger.info("The ConfigMap cannot be read: %s", reason, extra=session.log_extra)
        return False
