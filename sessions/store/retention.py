"""Sessions that have ended: how long clients can read them, and how long staff can."""

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from sessions.models import Bundle, Session
from sessions.spec import Status
from sessions.states import TERMINAL
from sessions.store.rows import status_of
from telorunner.database.access import aread, awrite


@dataclass(frozen=True)
class Unlogged:
    """An ended session whose log has to end with its status, whatever became of the log."""

    session_id: str
    status: Status
    fence: int
    apps: tuple[str, ...]
    event_numbers: int
    output_numbers: int


async def unlogged() -> list[Unlogged]:
    """Return every ended session that clients can still read, oldest end first."""
    return await aread(_unlogged)


def _unlogged() -> list[Unlogged]:
    rows = Session.retained.filter(status__in=TERMINAL).defer("env_sealed").order_by("ended_at")
    return [
        Unlogged(
            session_id=row.id,
            status=status_of(row),
            fence=row.fence,
            apps=tuple(app["name"] for app in row.spec["apps"]),
            event_numbers=row.event_numbers,
            output_numbers=row.output_numbers,
        )
        for row in rows
    ]


async def evict_ended(before: datetime) -> list[str]:
    """Hide sessions that ended before a time from clients; return their ids.

    Their bundles and env go; their logs are the caller's to drop.
    """
    return await awrite(_evict_ended, before)


def _evict_ended(before: datetime) -> list[str]:
    rows = Session.retained.filter(status__in=TERMINAL, ended_at__lt=before)
    return evict(list(rows.order_by("ended_at").values_list("id", flat=True)))


async def evicted_since(moment: datetime) -> list[str]:
    """Return the sessions that were hidden from clients since a time, by whatever process."""
    return await aread(_evicted_since, moment)


def _evicted_since(moment: datetime) -> list[str]:
    # NB: in no order; for the default one the whole history would be gone through.
    rows = Session.objects.filter(evicted_at__gte=moment).order_by()
    return list(rows.values_list("id", flat=True))


def evict(session_ids: list[str]) -> list[str]:
    """Hide ended sessions from clients and drop what only they needed; return the ids."""
    for start in range(0, len(session_ids), EVICT_BATCH):
        batch = session_ids[start : start + EVICT_BATCH]
        Session.objects.filter(id__in=batch).update(evicted_at=timezone.now(), env_sealed=b"")
        Bundle.objects.filter(session__in=batch).delete()
    return session_ids


# Below the number of parameters that every SQLite takes in one statement.
EVICT_BATCH = 500


async def purge_history(before: datetime) -> int:
    """Delete the rows of evicted sessions that ended before a time; return how many."""
    return await awrite(_purge_history, before)


def _purge_history(before: datetime) -> int:
    rows = Session.objects.filter(evicted_at__isnull=False, ended_at__lt=before)
    _, counts = rows.delete()
    return counts.get(Session._meta.label, 0)
