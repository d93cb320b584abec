"""The one runtime of this process: what views and consumers reach log, bus and cluster by.

`telorunner.lifespan` sets it at start and clears it at the end; it owns everything in it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from sessions.bus import Bus
from sessions.log import SessionLog
from telorunner.conf import Settings
from telorunner.errors import Stopping
from telorunner.kube.client import Cluster
from telorunner.kube.informer import Informer


class EngineState(Protocol):
    """What others may know of the process's engine; see `sessions.engine.Engine`."""

    @property
    def is_working(self) -> bool:
        """Whether the engine runs and may decide."""


@dataclass
class Runtime:
    """What a running process works with; `stopping` is set when the process begins to go down.

    `engine` is None while the process has no engine.
    """

    config: Settings
    log: SessionLog
    bus: Bus
    cluster: Cluster
    pods: Informer
    loop: asyncio.AbstractEventLoop
    engine: EngineState | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


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
