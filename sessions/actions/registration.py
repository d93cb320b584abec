"""What both ways to create a session have in common: terms, env, and writing it down."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime

from catalog.actions import count_acceptance
from catalog.offer import Offer
from sessions import admission, runtime, store
from telorunner.conf import Settings
from telorunner.errors import TermsRequired

logger = logging.getLogger(__name__)

REGISTRY_VARIABLE = "TELO_REGISTRY_URL"
# The pod has a folder of its own for the module cache.
CACHE_VARIABLE = "TELO_CACHE_DIR"


@dataclass(frozen=True)
class Created:
    """A session that was registered."""

    session_id: str
    created_at: datetime


def require_terms(accepted: str, offer: Offer) -> str:
    """Return the version of the terms that a client has accepted; empty: there are none.

    `accepted` is the header as it came, several of it joined; only the current version passes.

    Raises:
        TermsRequired: There are terms, and it is anything else; the error has the terms.
    """
    if offer.terms is None:
        return ""
    if accepted != offer.terms.version:
        raise TermsRequired(terms=offer.terms.to_json())
    return offer.terms.version


def clients_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return what counts of a client's env."""
    return {name: value for name, value in env.items() if name != CACHE_VARIABLE}


def with_registry(env: Mapping[str, str], registry_url: str) -> dict[str, str]:
    """Return an env with the module registry, where one is known and env names none."""
    return {**({REGISTRY_VARIABLE: registry_url} if registry_url else {}), **env}


def register(
    running: runtime.Runtime,
    config: Settings,
    new: store.NewSession,
    *,
    first: Callable[[], None] | None = None,
) -> Created:
    """Write a session down in one transaction, `first` before it, and wake the engines.

    Raises:
        CapacityExceeded: There is no room.
        Unavailable: The database cannot be reached.
    """
    admitted = store.write(_admit, new, config.max_sessions, first)
    _forget(running, admitted.evicted_ids)
    running.bus.wake(admitted.session_id)
    registered = {"session": admitted.session_id, "action": "session_registered"}
    logger.info("Session registered.", extra=registered)
    return Created(admitted.session_id, new.created_at)


def _admit(
    new: store.NewSession, max_sessions: int, first: Callable[[], None] | None
) -> admission.Admitted:
    if first is not None:
        first()
    admitted = admission.admit(new, max_sessions=max_sessions)
    if new.terms_version:
        count_acceptance(new.terms_version)
    return admitted


def _forget(running: runtime.Runtime, session_ids: Sequence[str]) -> None:
    """Drop the logs of evicted sessions, without waiting: their rows are hidden already."""
    for session_id in session_ids:
        dropped = asyncio.run_coroutine_threadsafe(running.log.drop(session_id), running.loop)
        dropped.add_done_callback(_report)


def _report(dropped: "Future[None]") -> None:
    if not dropped.cancelled() and (failure := dropped.exception()) is not None:
        logger.warning("An evicted session's log could not be dropped.", exc_info=failure)
