"""How a session is put into words for staff; no I/O.

Everything of a client's in them is escaped, and long text is cut.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from routing.router import RouteState
from sessions.models import Session
from sessions.states import StatusKind

# A failure's message can be a page of container output; the list shows its beginning.
MAX_REASON_LENGTH = 80

# A shape for each status, so that it is told apart without colour and before it is read.
_MARKS = {
    StatusKind.STARTING: "◔",
    StatusKind.RUNNING: "▶",
    StatusKind.EXITED: "✓",
    StatusKind.FAILED: "✕",
    StatusKind.STOPPED: "■",
}
# An exit code other than zero is no failure of the runner's, but staff look for it.
_EXITED_BADLY = "!"

UNKNOWN_ROUTE = "not published yet"
_ROUTE_STATES = {
    RouteState.PENDING: "not known yet whether it works",
    RouteState.PROGRAMMED: "works",
    RouteState.UNPROGRAMMED: "does not work, or nobody can tell",
}

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_BYTE_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_KIBI = 1024


def status_badge(session: Session) -> SafeString:
    """Return the status in words, with a mark and a class for its colour."""
    kind = StatusKind(session.status)
    is_bad = kind is StatusKind.EXITED and session.exit_code != 0
    return format_html(
        '<span class="session-status session-status-{}"><span aria-hidden="true">{}</span> {}'
        "</span>",
        f"{kind}-badly" if is_bad else kind,
        _EXITED_BADLY if is_bad else _MARKS[kind],
        kind,
    )


def end_reason(session: Session) -> str:
    """Return why the session ended, or that it is about to; empty while it just runs."""
    match StatusKind(session.status):
        case StatusKind.EXITED:
            return f"exit code {session.exit_code}"
        case StatusKind.FAILED:
            return cut(session.message)
        case StatusKind.STOPPED:
            return f"stopped by {stopper(session)}"
    if session.stop_requested_at is not None:
        return f"is being stopped by {stopper(session)}"
    return ""


def stopper(session: Session) -> str:
    """Return who asked the session to stop."""
    if session.stop_requested_at is None:
        return "the runner, which went down"
    return session.stop_requested_by or "its client"


def cut(text: str) -> str:
    """Return the beginning of a text, on one line."""
    # Only as much is looked at as may be shown, however long the text is.
    line = " ".join(text[: MAX_REASON_LENGTH * 4].split())
    return line if len(line) <= MAX_REASON_LENGTH else f"{line[:MAX_REASON_LENGTH]}…"


def route_state(route: Mapping[str, str]) -> str:
    """Return how a public host stands: its state in words, and why."""
    words = f"{route['state']} ({_ROUTE_STATES[RouteState(route['state'])]})"
    return f"{words}: {route['reason']}" if route["reason"] else words


def age(session: Session) -> str:
    """Return how long a live session has been there, or how long an ended one was."""
    return duration((session.ended_at or timezone.now()) - session.created_at)


def duration(length: timedelta) -> str:
    """Return a length of time in its two largest units."""
    # Clocks of several processes may differ: a session is never younger than nothing.
    seconds = max(0, int(length.total_seconds()))
    parts: list[str] = []
    for unit, size in _UNITS:
        if seconds >= size or (unit == "s" and not parts):
            parts.append(f"{seconds // size} {unit}")
            seconds %= size
        elif parts:
            break
    return " ".join(parts[:2])


def cpu(millis: int) -> str:
    """Return an amount of CPU in cores."""
    cores = f"{millis / 1000:.3f}".rstrip("0").rstrip(".")
    return f"{cores} {'core' if cores == '1' else 'cores'}"


def size(count: int) -> str:
    """Return an amount of bytes in the largest unit that leaves a number of at least one."""
    amount, step = float(count), 0
    while amount >= _KIBI and step < len(_BYTE_UNITS) - 1:
        amount /= _KIBI
        step += 1
    number = f"{amount:.1f}".removesuffix(".0")
    return f"{number} {_BYTE_UNITS[step]}"


def moment(time: datetime | None) -> str:
    """Return a point in time to the second; empty where there is none."""
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"
