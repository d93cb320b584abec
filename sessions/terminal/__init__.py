"""A container's terminal: its output on the way to the log, its input on the way to the container.

Here is what the parts of this package ask of others, so that they need to know none of them: the
log's writer, the bus's inbox, an attach stream and the supervisor's view of the pod have this form.
"""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sessions.states import IoMode
from telorunner.kube.logs import ContainerLog


@dataclass(frozen=True)
class TerminalTarget:
    """The container whose terminal it is.

    `start_mark`: what a start text prints right before the application where an attach opened its
    gate; b"" if there is none. `is_adopted`: it has been running already, and what it wrote is in
    its log only; an unfinished line not even there, so that a gap stands where that may be missing.
    """

    session_id: str
    app: str
    pod_name: str
    container: str
    io: IoMode = IoMode.TTY
    start_mark: bytes = b""
    is_adopted: bool = False

    @property
    def is_tty(self) -> bool:
        """Whether the container has a PTY: one output, and a size."""
        return self.io is IoMode.TTY


class TerminalSize(Protocol):
    """A size in characters."""

    @property
    def columns(self) -> int:
        """The width."""

    @property
    def rows(self) -> int:
        """The height."""


class PendingInput(Protocol):
    """A new size and the next bytes; either may be missing."""

    @property
    def size(self) -> TerminalSize | None:
        """The size, if it is newer than the last one committed."""

    @property
    def data(self) -> bytes:
        """The bytes."""


P = TypeVar("P", bound=PendingInput)


class InputSource(Protocol[P]):
    """Where input waits; see `sessions.bus.Inbox`."""

    @property
    def size(self) -> TerminalSize | None:
        """The last size asked for."""

    async def peek(self) -> P:
        """Wait for input, leave it where it is."""

    def commit(self, pending: P) -> None:
        """Take it out: it is on its way to the container."""


class OutputSink(Protocol):
    """Where output goes; see `sessions.log.Writer`."""

    async def publish_output(self, app: str, stream: int, data: bytes) -> int:
        """Append output."""

    async def mark_gap(self, app: str) -> None:
        """Say that output was lost here."""


class AttachStream(Protocol):
    """An open attach; see `telorunner.kube.attach.AttachStream`."""

    @property
    def is_proof(self) -> bool:
        """Whether it proves that the container runs."""

    @property
    def is_open(self) -> bool:
        """Whether what is written now is sent."""

    @property
    def is_input_confirmed(self) -> bool:
        """Whether all input is known to have been handed on."""

    @property
    def is_complete(self) -> bool:
        """Whether the server ended it in an orderly way."""

    async def read(self) -> tuple[int, bytes] | None:
        """Return channel 1 or 2 and its bytes; None at the end."""

    async def write(self, data: bytes) -> None:
        """Send input; wait while the container reads too slowly."""

    async def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size."""


class Container(Protocol):
    """The ways to a container; see `sessions.terminal.container.ClusterContainer`."""

    def open_attach(self) -> AbstractAsyncContextManager[AttachStream]:
        """Attach to it; raises NotReady, ObjectNotFound or another ClusterError."""

    async def read_log(self, last_lines: int | None = None) -> ContainerLog:
        """Return the end of its log, of no more lines than these; raises as `open_attach` does."""


class PodView(Protocol):
    """What the supervisor knows of the container; one task waits on it."""

    @property
    def is_running(self) -> bool:
        """Whether the pod's status says that the container runs."""

    @property
    def is_terminated(self) -> bool:
        """Whether the container has ended for good, or the pod is gone."""

    @property
    def is_attach_worth_trying(self) -> bool:
        """Whether the container may run before the status says so.

        The pod is scheduled, and the container's waiting reason, if any, is ContainerCreating or
        PodInitializing.
        """

    async def changed(self) -> None:
        """Wait for anything newer than at the last return (the first time: since the start)."""
