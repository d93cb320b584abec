"""Reads what a container has written so far; does not follow.

The kubelet keeps no CR before LF and holds an unfinished line back; joining a log to what an attach
brought is the terminal's matter.
"""

from dataclasses import dataclass, replace

import aiohttp

from telorunner.errors import ClusterError, NotReady
from telorunner.kube.client import CONNECT_SECONDS, Call, Cluster
from telorunner.kube.objects import object_path

# A log is cut at the kubelet's rotation (10 MiB by default), which takes a moment to travel.
LOG_SECONDS = 30.0


@dataclass(frozen=True)
class ContainerLog:
    """The end of what a container has written so far, as its log tells it.

    `skipped_bytes` came before `data` and were not kept; no CR is counted, as the log tells only
    some of them. What a kubelet has rotated away is not told at all, and counted nowhere. With
    `is_part` it begins at any line, and what came before is counted nowhere either.
    """

    data: bytes
    skipped_bytes: int = 0
    is_part: bool = False


async def read_log(
    cluster: Cluster,
    pod_name: str,
    container: str,
    *,
    limit_bytes: int,
    last_lines: int | None = None,
) -> ContainerLog:
    """Return the last `limit_bytes` of a container's log; no more than that is kept in memory.

    With `last_lines` no more than these are sent: a server sends each line by itself, which takes
    seconds for some hundred thousand.

    Raises:
        NotReady: The container does not run yet, or the kubelet has not reported it yet.
        ObjectNotFound: The pod is gone.
        ClusterError: The API refused or did not answer.
    """
    path = f"{object_path(cluster, 'pods', pod_name)}/log"
    query = {"container": container}
    if last_lines is not None:
        query["tailLines"] = str(last_lines)
    call = Call("GET", path, query, accept="*/*")
    limits = aiohttp.ClientTimeout(total=LOG_SECONDS, sock_connect=CONNECT_SECONDS)
    try:
        async with cluster.open_response(call, limits) as response:
            if response.status == 204:  # the pod has no node yet
                raise NotReady(status=204)
            log = await _read_tail(response, limit_bytes)
    except ClusterError as exc:
        if exc.status == 400:
            raise NotReady(status=400, reason=exc.reason) from exc
        raise
    if last_lines is None:
        return log
    return replace(log, is_part=log.skipped_bytes > 0 or log.data.count(b"\n") >= last_lines)


async def _read_tail(response: aiohttp.ClientResponse, limit_bytes: int) -> ContainerLog:
    tail, skipped_bytes = bytearray(), 0
    async for chunk in response.content.iter_any():
        tail += chunk
        # Cut only once in a while: each cut moves all that is kept.
        if len(tail) > 2 * limit_bytes:
            skipped_bytes += _cut(tail, limit_bytes)
    skipped_bytes += _cut(tail, limit_bytes)
    return ContainerLog(bytes(tail), skipped_bytes)


def _cut(tail: bytearray, limit_bytes: int) -> int:
    """Leave the last `limit_bytes`; return how many bytes that are no CR went."""
    excess = max(0, len(tail) - limit_bytes)
    skipped_bytes = excess - tail.count(b"\r", 0, excess)
    del tail[:excess]
    return skipped_bytes
