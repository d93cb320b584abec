"""What a session's row says, read into the values that travel; no I/O."""

import re

from sessions.models import Session
from sessions.spec import Status
from sessions.states import StatusKind

ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
ID_LENGTH = 12

_ID = re.compile(f"[{ID_ALPHABET}]{{{ID_LENGTH}}}", re.ASCII)


def is_session_id(text: str) -> bool:
    """Tell whether the text has the form of a session id: anything else names no session."""
    return _ID.fullmatch(text) is not None


def status_of(row: Session) -> Status:
    """Return the status that a row records; endpoints belong to `running` only."""
    kind = StatusKind(row.status)
    return Status(
        kind,
        code=row.exit_code,
        message=row.message if kind is StatusKind.FAILED else None,
        endpoints=tuple(row.endpoints) if kind is StatusKind.RUNNING else (),
    )


def storable(text: str) -> str:
    """Return text as every database takes it: PostgreSQL has no NUL in text."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
