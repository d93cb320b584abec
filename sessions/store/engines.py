"""Which engine lives, and which sessions it owns: leases by the database's own clock."""

import secrets
from datetime import timedelta

from django.db import connection
from django.db.models import F, Q
from django.db.models.functions import Now

from sessions.models import Engine, Session
from sessions.states import LIVE
from telorunner.database.access import awrite
from telorunner.errors import StaleFence

# Three renewals fit into a lease, so that one or two slow ones lose nothing.
LEASE_SECONDS = 15
RENEW_SECONDS = 5
# Rows of engines that were killed; their sessions have long been taken over.
FORGET_ENGINE_AFTER = timedelta(days=1)

_LEASE = timedelta(seconds=LEASE_SECONDS)


async def register_engine() -> str:
    """Make a row for this engine and return its id; rows of engines long dead are dropped."""
    return await awrite(_register_engine)


def _register_engine() -> str:
    Engine.objects.filter(expires_at__lt=Now() - FORGET_ENGINE_AFTER).delete()
    engine_id = secrets.token_hex(8)
    Engine.objects.create(id=engine_id, expires_at=Now() + _LEASE)
    return engine_id


async def renew_engine(engine_id: str) -> None:
    """Lengthen the engine's lease.

    An engine whose lease ran out while nobody took its sessions goes on with them.

    Raises:
        StaleFence: The row is gone: others have taken what it owned.
    """
    if not await awrite(_renew_engine, engine_id):
        raise StaleFence


def _renew_engine(engine_id: str) -> int:
    return Engine.objects.filter(id=engine_id).update(expires_at=Now() + _LEASE)


async def retire_engine(engine_id: str) -> None:
    """Hand all the engine's sessions over at once and drop its row."""
    await awrite(_retire_engine, engine_id)


def _retire_engine(engine_id: str) -> None:
    # NB: locked first. A claim of this engine that is still under way in a thread is waited for
    # here, or fails: it would leave a session that names an engine without a row.
    Engine.objects.select_for_update().filter(id=engine_id).first()
    Session.objects.filter(engine=engine_id).update(engine=None)
    Engine.objects.filter(id=engine_id).delete()


async def check_writable() -> None:
    """Write nothing, in the way that everything is written.

    It waits for nobody's row; a database that is read-only, or whose writer is stuck, shows.

    Raises:
        Unavailable: The database takes no writes.
    """
    await awrite(Engine.objects.filter(id="").update, expires_at=Now())


async def claim(engine_id: str, *, limit: int, is_sole_engine: bool = False) -> list[str]:
    """Take up to `limit` live sessions that no living engine owns, oldest first.

    Each one's fence rises, so that whatever the engine before still writes is refused.
    `is_sole_engine` says that nobody else can be alive, so that leases need not run out first.

    Raises:
        StaleFence: This engine has no row.
    """
    return await awrite(_claim, engine_id, limit, is_sole_engine)


def _claim(engine_id: str, limit: int, is_sole_engine: bool) -> list[str]:
    if not Engine.objects.filter(id=engine_id).exists():
        raise StaleFence
    if is_sole_engine:
        is_free = Q(engine=None) | ~Q(engine=engine_id)
    else:
        is_free = Q(engine=None) | Q(engine__in=Engine.objects.filter(expires_at__lt=Now()))
    free = Session.objects.filter(is_free, status__in=LIVE).order_by("created_at", "id")
    if connection.features.has_select_for_update_skip_locked:
        # Two engines that look at once share the sessions instead of waiting for each other.
        free = free.select_for_update(skip_locked=True, of=("self",))
    claimed = list(free.values_list("id", flat=True)[:limit])
    Session.objects.filter(id__in=claimed).update(engine=engine_id, fence=F("fence") + 1)
    return claimed
