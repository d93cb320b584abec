"""Following a session: its events, and the terminal of one of its applications."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sessions import runtime, store
from sessions.actions.read import find
from sessions.bus import Bus, Size
from sessions.log import Reader, SessionLog
from sessions.models import Session
from sessions.spec import App, SessionSpec
from sessions.states import IoMode, StatusKind
from telorunner.errors import NotFound, NothingToReplay, ResizeUnsupported

MAX_TERMINAL_SIDE = 10_000
# More digits than this do not fit into 64 bits: such a number is beyond whatever is numbered here.
MAX_CURSOR_DIGITS = 18
_CURSOR = re.compile(r"0*([0-9]+)", re.ASCII)


def parse_cursor(text: str | None) -> int:
    """Return the number to read after: 0, from the beginning, for all but decimal digits."""
    match = _CURSOR.fullmatch(text or "")
    if match is None:
        return 0
    return int(match[1]) if len(match[1]) <= MAX_CURSOR_DIGITS else 10**MAX_CURSOR_DIGITS


@asynccontextmanager
async def follow_events(session_id: str, last_event_id: str | None) -> AsyncIterator[Reader]:
    """Open a reader of a session's events, counted as somebody who watches it.

    Raises:
        NotFound: No session of this id is retained.
        Stopping: The process is going down.
        Unavailable: The database or the log cannot be reached.
    """
    running = runtime.current()
    await _retained(session_id)
    async with running.log.read_events(session_id, parse_cursor(last_event_id)) as reader:
        # NB: looked at again now that the reader is there. A session that was evicted between the
        # two would be waited for in a log that never comes.
        await _retained(session_id)
        with running.bus.attend(session_id):
            yield reader


@dataclass(frozen=True)
class Terminal:
    """One viewer's terminal of an application; `after` is the number it reads after.

    `is_live` says that the session had not ended when the terminal was opened.
    """

    session_id: str
    app: str
    io: IoMode
    after: int
    is_live: bool
    reader: Reader
    _bus: Bus = field(repr=False)
    _log: SessionLog = field(repr=False)

    async def type(self, data: bytes) -> None:
        """Hand keystrokes to the application, waiting while it takes no more.

        What is typed at a session that has ended goes nowhere.

        Raises:
            OwnerUnreachable: The engine that owns the session cannot be reached.
        """
        if self.is_live:
            await self._bus.push_input(self.session_id, self.app, data)

    async def resize(self, columns: int, rows: int) -> None:
        """Ask for a size, clamped to 1..10000 each.

        Raises:
            ResizeUnsupported: The application has streams, not a terminal.
        """
        if self.io is IoMode.STREAMS:
            raise ResizeUnsupported(io=str(self.io))
        if self.is_live:
            await self._bus.push_size(self.session_id, self.app, Size(_side(columns), _side(rows)))

    async def wait_ended(self) -> None:
        """Wait until the session has ended and all it will ever tell is in the log."""
        async with self._log.read_events(self.session_id, 0) as events:
            while not (await events.next()).is_end:
                pass


def _side(cells: int) -> int:
    return max(1, min(cells, MAX_TERMINAL_SIDE))


@asynccontextmanager
async def open_terminal(
    session_id: str, app_name: str | None, last_seq: str | None
) -> AsyncIterator[Terminal]:
    """Open an application's terminal, counted as somebody who watches the session.

    `app_name` None is the session's only app.

    Raises:
        NotFound: No such session, no such app, or none named while there are several.
        NothingToReplay: The session has ended and left no output of the app.
        Stopping: The process is going down.
        Unavailable: The database or the log cannot be reached.
    """
    running = runtime.current()
    app = _app(await _retained(session_id), app_name)
    after = parse_cursor(last_seq)
    async with running.log.read_output(session_id, app.name, after) as reader:
        # As in follow_events; and a session that is live by this row ends only in the reader.
        row = await _retained(session_id)
        is_live = not StatusKind(row.status).is_terminal
        if not is_live and not await running.log.has_output(session_id, app.name):
            raise NothingToReplay
        with running.bus.attend(session_id):
            yield Terminal(
                session_id=session_id,
                app=app.name,
                io=app.io,
                after=after,
                is_live=is_live,
                reader=reader,
                _bus=running.bus,
                _log=running.log,
            )


def _app(row: Session, name: str | None) -> App:
    apps = SessionSpec.from_json(row.id, row.mode, row.spec).apps
    if name is None and len(apps) == 1:
        return apps[0]
    for app in apps:
        if app.name == name:
            return app
    raise NotFound("The session has no such app.")


async def _retained(session_id: str) -> Session:
    row = await store.aread(find, session_id) if store.is_session_id(session_id) else None
    if row is None:
        raise NotFound("There is no such session.")
    return row
