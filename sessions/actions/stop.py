"""Stopping a session: the wish is recorded, the engine that owns the session does it."""

import logging
from contextlib import suppress

from django.utils import timezone

from sessions import runtime, store
from sessions.models import Session
from sessions.states import LIVE
from telorunner.errors import StopFailed, Stopping, Unavailable

logger = logging.getLogger(__name__)


def stop(session_id: str, *, by: str = "") -> bool:
    """Record that a session shall stop; a session that is unknown or has ended needs nothing.

    `by` is the user name of the member of staff who asks; empty: a client does. Returns whether
    this wish is the one that counts: False where the session needs none, or has one already.

    Raises:
        Unavailable: The database cannot be reached.
        StopFailed: The wish could not be recorded for any other reason.
    """
    if not store.is_session_id(session_id):
        return False
    wish = {"session": session_id, "action": "session_stop"}
    try:
        was_recorded = store.write(_record, session_id, by)
    except Unavailable:
        raise
    except Exception as exc:
        logger.exception("A stop was not recorded.", extra=wish)
        raise StopFailed from exc
    if not was_recorded:
        return False
    logger.info("Stop requested.", extra=wish)
    # Where no process runs, the wish stands in the row: the next one takes it up.
    with suppress(Stopping):
        runtime.current().bus.wake(session_id)
    return True


def _record(session_id: str, by: str) -> bool:
    """Write the wish into a live row; a second wish does not move the first one's time."""
    rows = Session.retained.filter(id=session_id, status__in=LIVE, stop_requested_at__isnull=True)
    return rows.update(stop_requested_at=timezone.now(), stop_requested_by=by) == 1
