"""One watch connection: from a resource version to its end, as an iterator of events.

It does not reconnect and does not judge: whoever iterates gets events, the orderly end of the
connection, or an error. Bytes become lines before they become text, so a character that is split
between two packets is no matter.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from telorunner.kube.client import CONNECT_SECONDS, Call, Cluster
from telorunner.kube.errors import NotKubernetesError, from_status
from telorunner.kube.objects import collection_path

# The server ends the watch then.
SERVER_TIMEOUT_SECONDS = 50
# One that has not ended by then is dead, or something on the way keeps it alive without news. Both
# must be noticed within 60 s, the list that follows included.
LONGEST_SECONDS = 55.0
# etcd takes objects of 1.5 MiB; their managed fields can make a line several times as long.
MAX_LINE_BYTES = 16 * 2**20


@dataclass(frozen=True)
class WatchEvent:
    """What a line says: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: dict[str, Any]


class LineSplitter:
    """Cuts a stream of bytes into lines; an unfinished line is kept, within a bound."""

    def __init__(self, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()

    @property
    def has_rest(self) -> bool:
        """Whether a line is unfinished."""
        return bool(self._rest)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that a chunk finishes, without their line ends.

        Raises:
            NotKubernetesError: The unfinished line is longer than the limit.
        """
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line = bytes(self._rest + end) if self._rest else end
            self._rest.clear()
            yield line
        self._rest += rest
        if len(self._rest) > self._limit_bytes:
            raise NotKubernetesError(f"a line of a watch is longer than {self._limit_bytes} bytes")


async def watch(
    cluster: Cluster, resource: str, *, selector: str, version: str
) -> AsyncGenerator[WatchEvent, None]:
    """Yield the events after a resource version until the server ends the watch.

    Raises:
        ResourceExpired: The version is too old (as a status or as an ERROR event); list again.
        ClusterError: The API refused, did not answer, fell silent, was cut off in mid line or sent
            something that is no event.
    """
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(SERVER_TIMEOUT_SECONDS),
    }
    if selector:
        query["labelSelector"] = selector
    call = Call("GET", collection_path(cluster, resource), query)
    limits = aiohttp.ClientTimeout(total=LONGEST_SECONDS, sock_connect=CONNECT_SECONDS)
    async with cluster.open_response(call, limits) as response:
        splitter = LineSplitter()
        async for chunk in response.content.iter_any():
            for line in splitter.feed(chunk):
                yield parse_event(line)
        if splitter.has_rest:
            raise NotKubernetesError("a watch was cut off in mid line")


def parse_event(line: bytes) -> WatchEvent:
    """Parse one line of a watch.

    Raises:
        NotKubernetesError: It is no event.
        ClusterError: It is an ERROR event, whose object is a Status.
    """
    try:
        event = orjson.loads(line)
        kind, thing = event["type"], event["object"]
        metadata = thing if kind == "ERROR" else thing["metadata"]
    except (ValueError, KeyError, TypeError) as exc:
        raise NotKubernetesError("a line of a watch is no event") from exc
    if not isinstance(thing, dict) or not isinstance(metadata, dict):
        raise NotKubernetesError("a watch event holds no object")
    if kind in ("ADDED", "MODIFIED", "DELETED") and not isinstance(metadata.get("name"), str):
        raise NotKubernetesError("a watch event holds an object without a name")
    if kind == "ERROR":
        code = thing.get("code")
        raise from_status(code if isinstance(code, int) else 500, thing, "watch")
    return WatchEvent(str(kind), thing)
