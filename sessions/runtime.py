"""The one runtime of this process: what views and consumers reach log, bus and cluster by.

`telorunner.lifespan` sets it at start and clears it at the end; it owns everything in it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from routing.router import Router, inactive_router
from sessions.bus import Bus
from sessions.log import SessionLog
from sessions.reachability import MAX_DIALS
from telorunner.conf import Settings
from telorunner.errors import Stopping
from telorunner.kube.client import Cluster
from telorunner.kube.informer import Informer


class EngineState(Protocol):
    """What others may know of the process's engine; see `sessions.engine.Engine`."""

    @property
    def is_working(self) -> bool:
        """Whether the engine runs and may decide."""


class SelfUrl:
    """The base URL that pods reach this runner at: configured, or known once it listens."""

    def __init__(self, configured: str = "") -> None:
        self._url = configured
        self._is_known = asyncio.Event()
        if configured:
            self._is_known.set()

    def listening_at(self, url: str) -> None:
        """Take the address that the server listens on, unless another was configured."""
        self._url = self._url or url
        self._is_known.set()

    async def get(self) -> str:
        """Return the URL, as soon as it is known."""
        await self._is_known.wait()
        return self._url


class ListenPort:
    """The port that this process answers HTTP at, known once it listens."""

    def __init__(self) -> None:
        self._port = 0
        self._is_known = asyncio.Event()

    def listening_at(self, port: int) -> None:
        """Take the port that the server listens on."""
        self._port = port
        self._is_known.set()

    async def get(self) -> int:
        """Return the port, as soon as it is known."""
        await self._is_known.wait()
        return self._port


def _no_router() -> Router:
    return inactive_router("Nothing has decided on it.")


@dataclass
class Runtime:
    """What a running process works with; `stopping` is set when the process begins to go down.

    `dials` bounds how many sockets look at once whether ports of pods can be reached. `router`
    publishes ports, and is worked by the engine.

    `engine` is None where the process has none; `log` and `pods` are then empty.
    """

    config: Settings
    log: SessionLog
    bus: Bus
    cluster: Cluster
    pods: Informer
    loop: asyncio.AbstractEventLoop
    engine: EngineState | None = None
    router: Router = field(default_factory=_no_router)
    self_url: SelfUrl = field(default_factory=SelfUrl)
    listen_port: ListenPort = field(default_factory=ListenPort)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    dials: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_DIALS))


_current: Runtime | None = None


def current() -> Runtime:
    """Return the process's runtime.

    Raises:
        Stopping: There is none: the process has not started yet, or is going down.
    """
    if _current is None or _current.stopping.is_set():
        raise Stopping
    return _current


@contextmanager
def installed(runtime: Runtime) -> Iterator[Runtime]:
    """Make a runtime the current one for the length of the context."""
    global _current
    _current = runtime
    try:
        yield runtime
    finally:
        _current = None
