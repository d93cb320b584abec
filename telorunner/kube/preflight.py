"""What `probe` asks of the cluster: does it answer, and is what sessions need there?

It only reads. What the runner is not permitted to read is no problem: a session that really misses
it fails with its own reason.
"""

import asyncio

from telorunner.errors import ClusterError, ClusterUnavailable, ObjectNotFound, Unauthorized
from telorunner.kube.client import Cluster
from telorunner.kube.objects import get

# A client of /v1/probe is promised an answer inside 3 s, whatever the cluster does.
PREFLIGHT_SECONDS = 2.0


async def check(
    cluster: Cluster, *, image_pull_secret: str = "", runtime_class: str = ""
) -> list[tuple[str, str]]:
    """Return what sessions need and the cluster lacks: the setting's path and a sentence.

    Args:
        cluster: Where.
        image_pull_secret: Name of a Secret in the session namespace; empty means none is used.
        runtime_class: Name of a RuntimeClass; empty means the cluster's own.

    Raises:
        ClusterUnavailable: The API does not answer in time, or not to these credentials.
    """
    wanted = [("namespaces", cluster.namespace, "/namespace", "namespace")]
    if image_pull_secret:
        wanted.append(("secrets", image_pull_secret, "/imagePullSecret", "image pull secret"))
    if runtime_class:
        wanted.append(("runtimeclasses", runtime_class, "/runtimeClass", "runtime class"))
    try:
        async with asyncio.timeout(PREFLIGHT_SECONDS):
            return [
                (path, f'The {kind} "{name}" does not exist.')
                for resource, name, path, kind in wanted
                if not await _exists(cluster, resource, name)
            ]
    except TimeoutError as exc:
        raise ClusterUnavailable from exc


async def _exists(cluster: Cluster, resource: str, name: str) -> bool:
    try:
        await get(cluster, resource, name)
    except ObjectNotFound:
        return False
    except Unauthorized as exc:
        raise ClusterUnavailable(exc.message, status=exc.status, reason=exc.reason) from exc
    except ClusterUnavailable:
        raise
    except ClusterError:
        return True
    return True
