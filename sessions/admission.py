"""Who may start: the ceilings of limits, the cap on sessions, and what is evicted for it.

It decides under the lock of one row, so that caps are exact however many processes admit at once.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from sessions import store
from sessions.models import Limits as LimitsRow
from sessions.models import Session
from sessions.spec import Limits
from sessions.states import TERMINAL
from sessions.store.retention import evict
from sessions.store.rows import ID_ALPHABET, ID_LENGTH
from telorunner.errors import CapacityExceeded


@dataclass(frozen=True)
class RequestedLimits:
    """Limits as a client asked for them; None is "not asked for"."""

    cpu_millis: int | None = None
    memory_bytes: int | None = None
    ephemeral_storage_bytes: int | None = None
    ttl_seconds: int | None = None


def clamp_limits(requested: RequestedLimits, ceiling: Limits) -> Limits:
    """Return the smaller of each requested limit and its ceiling; a request can only go down."""
    return Limits(
        cpu_millis=_clamp(requested.cpu_millis, ceiling.cpu_millis),
        memory_bytes=_clamp(requested.memory_bytes, ceiling.memory_bytes),
        ephemeral_storage_bytes=_clamp(
            requested.ephemeral_storage_bytes, ceiling.ephemeral_storage_bytes
        ),
        ttl_seconds=_clamp(requested.ttl_seconds, ceiling.ttl_seconds),
    )


def _clamp(requested: int | None, ceiling: int) -> int:
    return ceiling if requested is None else min(requested, ceiling)


def random_id() -> str:
    """Return an id that nobody can guess: 60 bits."""
    return "".join(secrets.choice(ID_ALPHABET) for _ in range(ID_LENGTH))


@dataclass(frozen=True)
class Admitted:
    """A session that was written down, and those that were evicted for it."""

    session_id: str
    evicted_ids: tuple[str, ...]


def admit(
    new: store.NewSession, *, max_sessions: int, new_id: Callable[[], str] = random_id
) -> Admitted:
    """Write a new session down under an id of its own; the caller holds the transaction.

    At the cap the sessions that ended first are evicted; a live one never is.

    Raises:
        CapacityExceeded: Every retained session is live, and there are as many as may be.
    """
    _lock()
    evicted = _make_room(max_sessions)
    session_id = new_id()
    # An id of the history would bring an old session's row back to life.
    while store.is_taken(session_id):
        session_id = new_id()
    store.insert(replace(new, spec=replace(new.spec, session_id=session_id)))
    return Admitted(session_id, tuple(evicted))


def _lock() -> None:
    """Wait for the lock that every admission holds until its transaction ends.

    On SQLite the transaction itself is that lock: it began as a writing one.
    """
    if LimitsRow.objects.select_for_update().first() is None:
        LimitsRow.objects.bulk_create([LimitsRow(id=1)], ignore_conflicts=True)
        LimitsRow.objects.select_for_update().get(id=1)


def _make_room(max_sessions: int) -> list[str]:
    surplus = Session.retained.count() + 1 - max_sessions
    if surplus <= 0:
        return []
    ended = Session.retained.filter(status__in=TERMINAL).order_by("ended_at", "id")
    evicted = list(ended.values_list("id", flat=True)[:surplus])
    if len(evicted) < surplus:
        raise CapacityExceeded
    return evict(evicted)
