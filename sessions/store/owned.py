"""What the engine that owns a session reads and writes of its row.

Every write names the fence it was made under: after a take-over the row has a higher one, and the
write changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Value
from django.db.models.functions import Greatest
from django.utils import timezone

from sessions.models import Bundle, Session
from sessions.spec import STOPPED, SessionSpec, Status, failed
from sessions.states import LIVE, Phase, StatusKind, allowed_before
from sessions.store.bundles import drop
from sessions.store.environment import open_env
from sessions.store.rows import status_of, storable
from telorunner import secretbox
from telorunner.database.access import aread, awrite

# SQLite takes 999 values in a statement at least, PostgreSQL 65,535.
IDS_AT_ONCE = 500


@dataclass(frozen=True)
class OwnedSession:
    """A live session as its owner takes it up.

    `env` is unsealed and never shows in a repr; None: it was sealed with a key that is gone.
    `stop_requested_at` is when somebody first asked to stop it, None if nobody has. `is_published`
    says that an owner has noted public hosts of it.
    """

    spec: SessionSpec
    status: StatusKind
    fence: int
    env: Mapping[str, str] | None = field(repr=False)
    stop_requested_at: datetime | None
    pod_name: str
    pod_uid: str
    created_at: datetime
    event_numbers: int
    output_numbers: int
    progress: tuple[Phase, str] | None
    endpoints: tuple[Mapping[str, Any], ...]
    is_published: bool = False

    @property
    def is_stop_requested(self) -> bool:
        """Whether somebody has asked to stop the session."""
        return self.stop_requested_at is not None


async def load(engine_id: str, session_id: str) -> OwnedSession | None:
    """Return a live session that the engine owns; None: it is not (any more)."""
    row = await aread(_owned_row, engine_id, session_id)
    if row is None:
        return None
    progress = (Phase(row.progress_phase), row.progress_message) if row.progress_phase else None
    return OwnedSession(
        spec=SessionSpec.from_json(row.id, row.mode, row.spec),
        status=StatusKind(row.status),
        fence=row.fence,
        env=_env(row),
        stop_requested_at=row.stop_requested_at,
        pod_name=row.pod_name,
        pod_uid=row.pod_uid,
        created_at=row.created_at,
        event_numbers=row.event_numbers,
        output_numbers=row.output_numbers,
        progress=progress,
        endpoints=status_of(row).endpoints,
        is_published=bool(row.routes),
    )


def _env(row: Session) -> Mapping[str, str] | None:
    try:
        return open_env(bytes(row.env_sealed))
    except secretbox.CannotOpen:
        return None


def _owned_row(engine_id: str, session_id: str) -> Session | None:
    return Session.objects.filter(id=session_id, engine=engine_id, status__in=LIVE).first()


async def transition(engine_id: str, session_id: str, fence: int, status: Status) -> bool:
    """Write a status, if the engine owns the session and the status may follow the row's.

    Returns False where it was refused: another engine owns the session, it has ended, or somebody
    has asked to stop it, so that it can end as `stopped` only.
    """
    return await awrite(_transition, engine_id, session_id, fence, status)


def _transition(engine_id: str, session_id: str, fence: int, status: Status) -> bool:
    now = timezone.now()
    changes: dict[str, Any] = {"status": status.kind}
    if status.kind is StatusKind.RUNNING:
        changes["started_at"] = now
        changes["endpoints"] = [dict(endpoint) for endpoint in status.endpoints]
    if status.kind.is_terminal:
        # What the session was given is erased with its end; nobody owns it any more, and it runs
        # no app of the catalog.
        changes |= {
            "ended_at": now,
            "exit_code": status.code,
            "message": storable(status.message or ""),
            "env_sealed": b"",
            "engine": None,
            "catalog_app": None,
        }
    rows = Session.objects.filter(
        id=session_id, engine=engine_id, fence=fence, status__in=allowed_before(status.kind)
    )
    if status.kind in (StatusKind.EXITED, StatusKind.FAILED):
        rows = rows.filter(stop_requested_at=None)
    is_written = rows.update(**changes) == 1
    if is_written and status.kind.is_terminal:
        drop(Bundle.objects.filter(session=session_id))
    return is_written


async def fail(engine_id: str, session_id: str, message: str) -> bool:
    """Fail a session of the engine's whose row cannot be supervised, whatever its fence.

    One that somebody has asked to stop becomes `stopped`. Returns False where the engine does not
    own it, or it has ended.
    """
    return await awrite(_fail, engine_id, session_id, message)


def _fail(engine_id: str, session_id: str, message: str) -> bool:
    rows = Session.objects.filter(id=session_id, engine=engine_id)
    row = rows.only("fence", "stop_requested_at").first()
    if row is None:
        return False
    status = failed(message) if row.stop_requested_at is None else STOPPED
    return _transition(engine_id, session_id, row.fence, status)


async def record_pod(session_id: str, fence: int, pod_name: str, pod_uid: str) -> bool:
    """Remember which pod the session runs in; False: the fence is stale."""
    return await awrite(_update, session_id, fence, pod_name=pod_name, pod_uid=pod_uid)


async def record_progress(session_id: str, fence: int, phase: Phase, message: str) -> bool:
    """Remember the last progress, to tell it again after a restart; False: the fence is stale."""
    return await awrite(
        _update, session_id, fence, progress_phase=phase, progress_message=storable(message)
    )


async def record_endpoints(
    session_id: str, fence: int, endpoints: Sequence[Mapping[str, Any]]
) -> bool:
    """Correct where a running session's ports are; False: the fence is stale."""
    return await awrite(_update, session_id, fence, endpoints=[dict(one) for one in endpoints])


async def record_routes(session_id: str, fence: int, routes: Sequence[Mapping[str, Any]]) -> bool:
    """Remember how a session's public hosts stand, for staff; False: the fence is stale."""
    told = [{**one, "reason": storable(one["reason"])} for one in routes]
    return await awrite(_update, session_id, fence, routes=told)


async def reserve_numbers(session_id: str, fence: int, *, events: int, output: int) -> bool:
    """Note that numbers up to these may be given to clients; False: the fence is stale.

    The row's numbers never fall.
    """
    return await awrite(
        _update,
        session_id,
        fence,
        event_numbers=Greatest("event_numbers", Value(events)),
        output_numbers=Greatest("output_numbers", Value(output)),
    )


async def release(session_id: str, fence: int) -> bool:
    """Hand the session over: any engine may take it up; False: one has already."""
    return await awrite(_update, session_id, fence, engine=None)


def _update(session_id: str, fence: int, **changes: Any) -> bool:
    return Session.objects.filter(id=session_id, fence=fence).update(**changes) == 1


async def stop_wishes(engine_id: str) -> set[str]:
    """Return the engine's live sessions that somebody asked to stop."""
    return await aread(_stop_wishes, engine_id)


def _stop_wishes(engine_id: str) -> set[str]:
    wished = Session.objects.filter(
        engine=engine_id, status__in=LIVE, stop_requested_at__isnull=False
    )
    return set(wished.values_list("id", flat=True))


async def live_ids() -> set[str]:
    """Return every live session, whoever owns it: what the reaper must leave alone."""
    return await aread(_live_ids)


async def known_ids(session_ids: set[str]) -> set[str]:
    """Return those of the sessions that this database has, be it in its history only."""
    return await aread(_known_ids, session_ids)


def _known_ids(session_ids: set[str]) -> set[str]:
    listed, known = sorted(session_ids), set[str]()
    for first in range(0, len(listed), IDS_AT_ONCE):
        rows = Session.objects.filter(id__in=listed[first : first + IDS_AT_ONCE])
        known.update(rows.values_list("id", flat=True))
    return known


def _live_ids() -> set[str]:
    return set(Session.objects.filter(status__in=LIVE).values_list("id", flat=True))
