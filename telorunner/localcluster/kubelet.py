"""What the API server asks of the node agent, and which container a request means.

The protocols are what `node.agent` offers; tests put smaller nodes behind them.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from telorunner.localcluster import statuses
from telorunner.localcluster.node.logs import LogRequest


class Attachment(Protocol):
    """One reader and writer of a container's streams."""

    async def read(self) -> tuple[int, bytes] | None:
        """Return (1 for stdout or 2 for stderr, bytes), None after the last output."""

    async def write_stdin(self, data: bytes) -> None:
        """Write to the container, waiting while it does not read."""

    async def close_stdin(self) -> None:
        """End the container's input."""


class Container(Protocol):
    """A running container."""

    @property
    def tty(self) -> bool:
        """Say whether it has a terminal."""

    def attach(self) -> AbstractAsyncContextManager[Attachment]:
        """Attach to its streams."""

    def resize(self, columns: int, rows: int) -> None:
        """Give its terminal a size."""


class Node(Protocol):
    """The node agent."""

    async def run(self) -> None:
        """Run pods until cancelled."""

    def container(self, namespace: str, pod: str, container: str | None) -> Container:
        """Return a running container, or raise ContainerUnavailable."""

    def read_log(self, request: LogRequest) -> AsyncIterator[bytes]:
        """Return a container's log, or raise ContainerUnavailable."""


def container_name(pod: dict[str, Any], asked: str) -> str:
    """Return the name of the container that a request means; "" asks for the only one.

    Raises:
        StoreError: 400, there is none of that name, or several to choose from.
    """
    spec, name = pod["spec"], pod["metadata"]["name"]
    groups = (spec.get("initContainers") or [], spec["containers"])
    names = [container["name"] for group in groups for container in group]
    if not asked:
        if len(spec["containers"]) == 1:
            return str(names[-1])
        message = (
            f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
        )
        raise statuses.bad_request(message)
    if asked not in names:
        raise statuses.bad_request(f"container {asked} is not valid for pod {name}")
    return asked
