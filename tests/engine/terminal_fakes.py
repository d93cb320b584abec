"""A container, its pod's status and a log's writer, as far as a terminal sees them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sessions.bus import Inbox
from sessions.bus.memory import MemoryBus
from sessions.pods.script import START_MARK
from sessions.states import IoMode
from sessions.terminal import TerminalTarget
from sessions.terminal.link import TerminalLink
from telorunner import aio
from telorunner.errors import ClusterError, ClusterUnavailable, NotReady
from telorunner.kube.logs import ContainerLog


class FakePod:
    """The status of a container, which mostly comes later than the container itself."""

    def __init__(self, *, is_running: bool = False) -> None:
        self.is_running = is_running
        self.is_terminated = False
        self.is_attach_worth_trying = True
        self._news = asyncio.Event()

    async def changed(self) -> None:
        await self._news.wait()
        self._news.clear()

    def say(self, **facts: bool) -> None:
        for name, value in facts.items():
            setattr(self, name, value)
        self._news.set()

    def say_running(self) -> None:
        self.say(is_running=True)

    def say_terminated(self) -> None:
        self.say(is_running=False, is_terminated=True, is_attach_worth_trying=False)


class FakeAttach:
    """One attach; `sent` is what the container got: sizes and bytes in order."""

    def __init__(self, *, is_proof: bool, on_resize: Callable[[], None]) -> None:
        self._on_resize = on_resize
        self.is_proof = is_proof
        self.is_complete = False
        self.is_closed = False
        self.is_input_confirmed = True
        self.takes_input = asyncio.Event()
        self.takes_input.set()
        self.sent: list[tuple[int, int] | bytes] = []
        self._frames: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        self._is_broken = False

    @property
    def is_open(self) -> bool:
        return not self._is_broken

    async def read(self) -> tuple[int, bytes] | None:
        return await self._frames.get()

    async def write(self, data: bytes) -> None:
        self.is_input_confirmed = False
        await self.takes_input.wait()
        self._check()
        self.sent.append(data)
        self.is_input_confirmed = True

    async def resize(self, columns: int, rows: int) -> None:
        self._check()
        self.sent.append((columns, rows))
        self._on_resize()

    def bring(self, channel: int, data: bytes) -> None:
        self._frames.put_nowait((channel, data))

    def end(self, *, is_orderly: bool) -> None:
        self.is_complete = is_orderly
        self._is_broken = not is_orderly
        self._frames.put_nowait(None)

    def _check(self) -> None:
        if self._is_broken:
            raise ClusterUnavailable("The connection to the terminal has ended.")


class FakeContainer:
    """A container with a log as a kubelet keeps it: no CR before LF, an unfinished line back.

    With `has_gate` its start text prints the mark at the first resize.
    """

    def __init__(self, *, is_running: bool = False) -> None:
        self.log_limit_bytes = 5_000_000
        self.is_running = is_running
        self.is_proof = True
        self.has_gate = True
        self.attach_error: ClusterError | None = None
        self.log_error: ClusterError | None = None
        self.attempts: list[float] = []
        self.attaches: list[FakeAttach] = []
        self.log_reads = 0
        self._written = b""
        self._has_ended = False

    @asynccontextmanager
    async def open_attach(self) -> AsyncIterator[FakeAttach]:
        self.attempts.append(asyncio.get_running_loop().time())
        if self.attach_error is not None:
            raise self.attach_error
        if not self.is_running and self.is_proof:
            raise NotReady
        attach = FakeAttach(is_proof=self.is_proof, on_resize=self._open_gate)
        self.attaches.append(attach)
        if not self.is_running:
            # As a server does that has to ask for the container only after the handshake.
            attach.end(is_orderly=False)
        try:
            yield attach
        finally:
            attach.is_closed = True

    def _open_gate(self) -> None:
        if self.has_gate:
            self.has_gate = False
            self.write(START_MARK)

    async def read_log(self, last_lines: int | None = None) -> ContainerLog:
        self.log_reads += 1
        if self.log_error is not None:
            raise self.log_error
        end = len(self._written) if self._has_ended else self._written.rfind(b"\n") + 1
        log = self._written[:end].replace(b"\r\n", b"\n")
        if last_lines is not None and log.count(b"\n") >= last_lines:
            return ContainerLog(b"".join(log.splitlines(keepends=True)[-last_lines:]), is_part=True)
        cut = max(0, len(log) - self.log_limit_bytes)
        return ContainerLog(log[cut:], cut - log[:cut].count(b"\r"))

    def write(self, data: bytes, channel: int = 1) -> None:
        """Write to the log and to every attach that is open."""
        self._written += data
        for attach in self.attaches:
            if not attach.is_closed:
                attach.bring(channel, data)

    def write_to_log_only(self, data: bytes) -> None:
        """Write what no attach brings."""
        self._written += data

    def end(self) -> None:
        """Exit: attaches end in an orderly way."""
        self.is_running = False
        self._has_ended = True
        for attach in self.attaches:
            attach.end(is_orderly=True)


class Recorder:
    """A writer that keeps what it is given; gaps are in `items` as None."""

    def __init__(self) -> None:
        self.items: list[tuple[int, bytes] | None] = []
        self.error: Exception | None = None
        self.news = asyncio.Event()

    async def publish_output(self, app: str, stream: int, data: bytes) -> int:
        if self.error is not None:
            raise self.error
        self.items.append((stream, data))
        self.news.set()
        return len(self.items)

    async def mark_gap(self, app: str) -> None:
        self.items.append(None)

    @property
    def text(self) -> bytes:
        return b"".join(item[1] for item in self.items if item is not None)

    @property
    def gaps(self) -> int:
        return self.items.count(None)

    def on(self, stream: int) -> bytes:
        return b"".join(item[1] for item in self.items if item is not None and item[0] == stream)


class Terminal:
    """A link under test with everything around it."""

    def __init__(
        self, container: FakeContainer, pod: FakePod, inbox: Inbox, bus: MemoryBus
    ) -> None:
        self.container = container
        self.pod = pod
        self.inbox = inbox
        self.bus = bus
        self.recorder = Recorder()

    def link(self, target: TerminalTarget, *, has_stty: bool = True) -> TerminalLink:
        """Return a link; without `stty` the container's gate does not work, and says nothing."""
        self.container.has_gate = has_stty and bool(target.start_mark) and not target.is_adopted
        return TerminalLink(
            target, self.container, self.pod, inbox=self.inbox, writer=self.recorder
        )

    async def type(self, data: bytes) -> None:
        await self.bus.push_input("s", "app", data)


def target(
    *, io: IoMode = IoMode.TTY, has_start_gate: bool = True, is_adopted: bool = False
) -> TerminalTarget:
    mark = START_MARK if has_start_gate else b""
    return TerminalTarget("s", "app", "pod", "session", io, mark, is_adopted)


@asynccontextmanager
async def open_terminal(
    *, runs: bool = False, status_says_so: bool = False
) -> AsyncIterator[Terminal]:
    bus = MemoryBus()
    async with bus.open_inbox("s", "app") as inbox:
        yield Terminal(
            FakeContainer(is_running=runs), FakePod(is_running=status_says_so), inbox, bus
        )


@asynccontextmanager
async def running(link: TerminalLink) -> AsyncIterator["asyncio.Task[None]"]:
    """Run a link beside the test; a link that the test has not seen end is cancelled."""
    task = aio.start(link.run(), name="terminal")
    try:
        yield task
    finally:
        await aio.stop(task)
