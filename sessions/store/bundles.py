"""Archives in their rows: read by the engine, fetched by pods, dropped when nothing needs them.

A row with a token is one that a pod may still fetch: the token goes with the archive, once that was
fetched, was not fetched in time, or its session has ended. Whoever sends an archive claims it
before the last piece, so that of several transfers at once one can complete, in whatever processes
they are. No tasks are owned here.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from sessions.models import Bundle
from sessions.states import LIVE
from sessions.store.environment import open_token
from telorunner import aio, secretbox
from telorunner.database.access import aread, awrite
from telorunner.errors import NotFound

# The contract's: a bundle that nobody has fetched by then is dropped.
FETCH_WITHIN = timedelta(minutes=5)
# A claim that its transfer neither uses nor gives back (see `sessions.consumers.bundle`) is one of
# a process that was killed; another transfer may then complete. By the database's clock: a process
# whose own is fast would take the claim of one that is still at work.
CLAIM_FOR = timedelta(seconds=20)

GONE = "the session's bundle is gone: it was fetched already, or not within 5 minutes"

# What is empty is no archive: one of no files has some bytes too.
_DROPPED: Mapping[str, object] = {
    "archive": b"",
    "token_sealed": b"",
    "claim": "",
    "claimed_at": None,
}
_HAS_TOKEN = ~Q(token_sealed=b"")


async def load_bundle(session_id: str) -> bytes:
    """Return the session's archive.

    Raises:
        NotFound: It has been dropped.
    """
    archive = await aread(_column, session_id, "archive")
    if not archive:
        raise NotFound("The session's bundle is gone.")
    return archive


async def load_token(session_id: str) -> str:
    """Return the token that the session's pod fetches the archive with.

    Raises:
        NotFound: The bundle was fetched or dropped.
        secretbox.CannotOpen: It was sealed with a key that is gone.
    """
    sealed = await aread(_column, session_id, "token_sealed")
    if not sealed:
        raise NotFound(GONE)
    return open_token(sealed)


async def redeem(session_id: str, token: str) -> bytes:
    """Return the archive that a token is for; nothing is spent by that.

    While another transfer is at its end, how that comes out is waited for.

    Raises:
        NotFound: The token is wrong or spent, there is no such session, or it has ended; which of
            these it is cannot be told from outside.
    """
    backoff = _claim_backoff()
    while True:
        offer = await aread(_offer, session_id)
        is_right = hmac.compare_digest(_opened(offer).encode(), token.encode(errors="replace"))
        if offer is None or not is_right:
            raise NotFound
        if not offer.is_claimed:
            break
        await backoff.wait()
    archive = await aread(_column, session_id, "archive")
    if not archive:
        raise NotFound
    return archive


def _claim_backoff() -> aio.Backoff:
    # The transfer may be another process's: only looking again tells when it is over.
    return aio.Backoff(first_seconds=0.02, cap_seconds=0.5)


@dataclass(frozen=True)
class _Offer:
    """A bundle that may be fetched."""

    token_sealed: bytes = field(repr=False)
    is_claimed: bool


def _offer(session_id: str) -> _Offer | None:
    row = (
        Bundle.objects.filter(_HAS_TOKEN, session=session_id, session__status__in=LIVE)
        .filter(session__created_at__gt=timezone.now() - FETCH_WITHIN)
        .annotate(is_free=ExpressionWrapper(_is_free(), output_field=BooleanField()))
        .values_list("token_sealed", "is_free")
        .first()
    )
    if row is None:
        return None
    sealed, is_free = row
    # psycopg returns a memoryview.
    return _Offer(bytes(sealed), is_claimed=not is_free)


def _is_free() -> Q:
    """Return the condition that no transfer is at its end."""
    return Q(claim="") | Q(claimed_at__lt=Now() - CLAIM_FOR)


def _opened(offer: _Offer | None) -> str:
    # Whatever there is not, something is compared.
    nothing = "-"
    try:
        return open_token(offer.token_sealed) if offer is not None else nothing
    except secretbox.CannotOpen:
        return nothing


def _column(session_id: str, name: str) -> bytes:
    """Return a column of bytes; empty where it was emptied or there is no row."""
    found = Bundle.objects.filter(session=session_id).values_list(name, flat=True).first()
    return bytes(found or b"")


async def claim_fetch(session_id: str, claim: str) -> bool:
    """Claim the end of a transfer, once no other is at its own; False: the bundle is gone."""
    backoff = _claim_backoff()
    while (is_claimed := await awrite(_claim_fetch, session_id, claim)) is None:
        await backoff.wait()
    return is_claimed


def _claim_fetch(session_id: str, claim: str) -> bool | None:
    """Return None while another transfer has the claim."""
    # NB: conditions on this one table only, so that the second of two at once looks again.
    rows = Bundle.objects.filter(_HAS_TOKEN, session=session_id)
    if rows.filter(_is_free()).update(claim=claim, claimed_at=Now()) == 1:
        return True
    return None if rows.exists() else False


async def release_fetch(session_id: str, claim: str) -> None:
    """Give a claim back: its transfer broke off."""
    await awrite(_update_claimed, session_id, claim, {"claim": "", "claimed_at": None})


async def complete_fetch(session_id: str, claim: str) -> None:
    """Consume the bundle: a transfer was complete."""
    await awrite(_update_claimed, session_id, claim, _DROPPED)


def _update_claimed(session_id: str, claim: str, changes: Mapping[str, object]) -> None:
    Bundle.objects.filter(session=session_id, claim=claim).update(**changes)


async def drop_unfetched(now: datetime) -> list[str]:
    """Drop bundles that were not fetched in time; return their sessions' ids."""
    return await awrite(_drop_unfetched, now)


def _drop_unfetched(now: datetime) -> list[str]:
    rows = Bundle.objects.filter(_HAS_TOKEN, session__created_at__lte=now - FETCH_WITHIN)
    session_ids = list(rows.values_list("session_id", flat=True))
    drop(Bundle.objects.filter(session__in=session_ids))
    return session_ids


def drop(rows: "QuerySet[Bundle]") -> None:
    """Empty archives and forget their tokens; the lists of files stay, for staff."""
    rows.update(**_DROPPED)
