"""What the catalog offers, kept by each process until a change is noticed.

A process notices what it has committed itself at the next request; for what others did it looks at
the number of `Revision` again after half a second. Requests that come while one of them looks wait
for what it finds.
"""

import time
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock

from django.db import connection

from catalog import changes
from catalog.models import Revision
from catalog.offer import Offer, read_offer
from telorunner.conf import Settings
from telorunner.database import access
from telorunner.errors import Unavailable

# A change shows everywhere within a second.
LOOK_SECONDS = 0.5
# How long a request waits for another one's look. One that hangs for longer, such as on a
# connection that broke without a word, is left to itself, and the next request looks anew.
PATIENCE_SECONDS = 5.0


@dataclass(frozen=True)
class _Kept:
    """An offer, what it was read for, and when its age was looked at last."""

    offer: Offer
    config: Settings
    revision: int
    own_changes: int
    looked_at: float

    def is_young(self, config: Settings) -> bool:
        return (
            config is self.config
            and self.own_changes == changes.newest()
            and time.monotonic() - self.looked_at < LOOK_SECONDS
        )


class _Look:
    """One request's look at the rows; the others wait for its end, or fail with it."""

    def __init__(self) -> None:
        self.ended: Future[None] = Future()
        self._began_at = time.monotonic()

    @property
    def is_given_up(self) -> bool:
        return time.monotonic() - self._began_at >= PATIENCE_SECONDS


_lock = Lock()
_kept: _Kept | None = None
_look: _Look | None = None


def current_offer(config: Settings) -> Offer:
    """Return what is offered now; any thread may ask.

    Inside a transaction it is read for the caller alone: what that changed may be rolled back.

    Raises:
        Unavailable: The database cannot be reached.
    """
    global _look
    if connection.in_atomic_block:
        return access.read(read_offer, config)
    while True:
        # NB: one looks at a time, for a crowd of requests would all read the same.
        with _lock:
            if _kept is not None and _kept.is_young(config):
                return _kept.offer
            look, is_own = _look, _look is None or _look.is_given_up
            if look is None or is_own:
                look = _look = _Look()
        if is_own:
            return _perform(look, config).offer
        try:
            look.ended.result(PATIENCE_SECONDS)
        except TimeoutError:
            raise Unavailable from None


def forget() -> None:
    """Read everything anew at the next request."""
    global _kept, _look
    with _lock:
        _kept = _look = None


def _perform(look: _Look, config: Settings) -> _Kept:
    """Look at the rows, and let those who wait go on, or fail as the caller does."""
    try:
        kept = access.read(_read, _kept, config)
    except BaseException as exc:
        _conclude(look, None)
        look.ended.set_exception(exc)
        raise
    _conclude(look, kept)
    look.ended.set_result(None)
    return kept


def _conclude(look: _Look, kept: _Kept | None) -> None:
    global _kept, _look
    with _lock:
        # NB: not so for one that was given up: others have looked since then.
        if _look is look:
            _look = None
            _kept = kept or _kept


def _read(kept: _Kept | None, config: Settings) -> _Kept:
    # NB: all three before the rows: what changes while they are read is read again.
    looked_at, own_changes = time.monotonic(), changes.newest()
    revision = Revision.objects.filter(id=1).values_list("number", flat=True).first() or 0
    is_same = kept is not None and kept.config is config and kept.revision == revision
    offer = kept.offer if kept is not None and is_same else read_offer(config)
    return _Kept(offer, config, revision, own_changes, looked_at)
