"""``telorunner run``: start a session, attend it, end as the application ends.

The session is the client's own: it is stopped when the client is told to end. The local terminal is
given back on every way out.
"""

import asyncio
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from telorunner import aio
from telorunner.cli.api import REQUEST_SECONDS, RunnerApi, open_api
from telorunner.cli.failures import ClientFailure
from telorunner.cli.input import CTRL_C, InterruptKey, PendingInput, Press, count_presses
from telorunner.cli.packing import Bundle, pack
from telorunner.cli.progress import describe
from telorunner.cli.stream import EventFeed, TerminalLink
from telorunner.cli.terminal import LocalTerminal

# The runner drains for 2 s; a broken connection has to be made again first.
OUTPUT_DRAIN_SECONDS = 10.0
# The runner's own bound for a stop is 15 s.
STOP_WAIT_SECONDS = 20.0
STOP_REQUEST_SECONDS = 6.0
INTERRUPTED = 128 + signal.SIGINT
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_EXIT_CODE = re.compile(r"\(exit code (\d+)\)")


@dataclass(frozen=True)
class RunOptions:
    """What a ``run`` command asks for; ``env`` is never shown."""

    target: Path
    url: str
    image: str | None = None
    ports: tuple[dict[str, Any], ...] = ()
    env: dict[str, str] = field(default_factory=dict, repr=False)
    inspect: bool = False
    accepted_terms: str | None = None


async def run(options: RunOptions, terminal: LocalTerminal) -> int:
    """Run a folder or file to its end and return the exit code.

    Cancelling before the session is attended stops the session that it may have started.

    Raises:
        ClientFailure: it could not be started, or not be followed to its end.
    """
    bundle = pack(options.target)
    for path in bundle.skipped:
        terminal.notice(f"left out, as it is no file of the folder: {path}")
    async with open_api(options.url) as api:
        image = options.image or await api.default_image()
        session_id = await _create(api, options, bundle, image)
        count = len(bundle.files)
        terminal.notice(
            f"session {session_id}: {count} file{'' if count == 1 else 's'}, "
            f"{bundle.size_bytes:,} bytes, image {image}"
        )
        return await Attendance(api, session_id, terminal).run()


def _request(options: RunOptions, bundle: Bundle, image: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "bundle": bundle.body(),
        "env": options.env,
        "config": {"image": image, "pullPolicy": "missing"},
    }
    if options.ports:
        body["ports"] = list(options.ports)
    if options.inspect:
        body["inspect"] = True
    return body


async def _create(api: RunnerApi, options: RunOptions, bundle: Bundle, image: str) -> str:
    created: list[str] = []

    async def create() -> None:
        body = _request(options, bundle, image)
        created.append(await api.create(body, options.accepted_terms))

    try:
        # Held back, a Ctrl-C leaves no session behind that nobody knows of.
        await aio.finish(create(), name="create", timeout_seconds=2 * REQUEST_SECONDS)
    except asyncio.CancelledError:
        for session_id in created:
            await aio.finish(
                api.stop(session_id), name="stop", timeout_seconds=STOP_REQUEST_SECONDS
            )
        raise
    except TimeoutError as exc:
        raise ClientFailure(f"the runner at {api.url} does not answer") from exc
    return created[0]


class Attendance:
    """One session and the user in front of it."""

    def __init__(self, api: RunnerApi, session_id: str, terminal: LocalTerminal) -> None:
        self._api = api
        self._session_id = session_id
        self._terminal = terminal
        self._pending = PendingInput()
        self._interrupts = InterruptKey()
        self._link = TerminalLink(api.url, session_id, terminal, self._pending)
        self._feed = EventFeed(api, session_id, self._tell)
        self._is_running = False
        self._stop_asked = asyncio.Event()
        self._leave_asked = asyncio.Event()
        self._stopped_code: int = INTERRUPTED

    async def run(self) -> int:
        """Attend to the end and return the exit code.

        Raises:
            ClientFailure: the session cannot be followed, or the user would not wait.
        """
        failure: ClientFailure | None = None
        status: dict[str, Any] = {}
        with self._signals(), self._terminal.raw():
            try:
                async with asyncio.TaskGroup() as tasks:
                    link = tasks.create_task(self._link.run(), name="terminal")
                    helpers = [
                        tasks.create_task(self._read_input(), name="read input"),
                        tasks.create_task(self._stop_when_asked(), name="stop when asked"),
                    ]
                    status = await self._feed.follow()
                    # The application's last words may still be on their way.
                    await asyncio.wait({link}, timeout=OUTPUT_DRAIN_SECONDS)
                    for task in (link, *helpers):
                        task.cancel()
            except* ClientFailure as group:
                failure = _first_failure(group)
        if failure is not None:
            if not status and not self._stop_asked.is_set():
                await self._stop_quietly()
            raise failure
        return self._conclude(status)

    def _conclude(self, status: dict[str, Any]) -> int:
        if status["kind"] == "exited":
            self._terminal.notice(f"exited with code {status['code']}")
            return int(status["code"])
        if status["kind"] == "stopped":
            self._terminal.notice("stopped")
            return self._stopped_code
        message = str(status.get("message"))
        self._terminal.notice(f"failed: {message}")
        found = _EXIT_CODE.search(message)
        return (int(found[1]) & 0xFF if found else 0) or 1

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGINT: self._interrupt,
            signal.SIGWINCH: self._link.resize,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        for number in _ENDING_SIGNALS:
            loop.add_signal_handler(number, self._end, number)
        try:
            yield
        finally:
            for number in (*handlers, *_ENDING_SIGNALS):
                loop.remove_signal_handler(number)

    def _interrupt(self) -> None:
        if self._press() is Press.INTERRUPT:
            self._pending.add(CTRL_C)

    def _press(self) -> Press:
        press = self._interrupts.press(asyncio.get_running_loop().time())
        if press is Press.STOP:
            self._stop_asked.set()
        elif press is Press.LEAVE:
            self._leave_asked.set()
        elif not self._is_running:
            self._terminal.notice("press Ctrl-C once more within a second to stop the session")
        return press

    def _end(self, number: int) -> None:
        self._stopped_code = 128 + number
        self._stop_asked.set()

    async def _read_input(self) -> None:
        while data := await self._terminal.read():
            if self._terminal.is_interactive:
                for _ in range(count_presses(data)):
                    self._press()
            self._pending.add(data)
            await self._pending.wait_for_room()
        await self._link.is_tty.wait()
        self._pending.add_end()

    async def _stop_when_asked(self) -> None:
        await self._stop_asked.wait()
        self._terminal.notice("stopping the session")
        try:
            async with asyncio.timeout(STOP_REQUEST_SECONDS):
                await self._api.stop(self._session_id)
            async with asyncio.timeout(STOP_WAIT_SECONDS):
                await self._leave_asked.wait()
        except TimeoutError:
            pass
        except ClientFailure as exc:
            raise ClientFailure(*exc.lines, code=self._stopped_code) from exc
        raise ClientFailure(
            f"left session {self._session_id} before its end", code=self._stopped_code
        )

    async def _stop_quietly(self) -> None:
        try:
            async with asyncio.timeout(STOP_REQUEST_SECONDS):
                await self._api.stop(self._session_id)
        except (TimeoutError, ClientFailure):
            self._terminal.notice(f"session {self._session_id} could not be stopped")

    def _tell(self, event: dict[str, Any]) -> None:
        if event.get("type") == "status":
            self._is_running = event["status"]["kind"] == "running"
        line = describe(event)
        if line is not None:
            self._terminal.notice(line)


def _first_failure(group: BaseExceptionGroup[ClientFailure]) -> ClientFailure:
    found: ClientFailure | BaseExceptionGroup[ClientFailure] = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
