"""All SQL of the engine, and the one way to the database.

The coroutines are what the engine's side calls; `read`, `write` and their asynchronous twins are
the way of everybody else. Nothing here talks to the cluster, to the log or to the bus.
"""

from sessions.store.bundles import (
    claim_fetch,
    complete_fetch,
    drop_unfetched,
    load_bundle,
    load_token,
    redeem,
    release_fetch,
)
from sessions.store.engines import (
    LEASE_SECONDS,
    RENEW_SECONDS,
    check_writable,
    claim,
    register_engine,
    renew_engine,
    retire_engine,
)
from sessions.store.environment import open_env, seal_env, seal_token
from sessions.store.owned import (
    OwnedSession,
    fail,
    known_ids,
    live_ids,
    load,
    record_endpoints,
    record_pod,
    record_progress,
    record_routes,
    release,
    reserve_numbers,
    stop_wishes,
    transition,
)
from sessions.store.registration import NewSession, insert, is_taken
from sessions.store.retention import Unlogged, evict_ended, evicted_since, purge_history, unlogged
from sessions.store.rows import is_session_id, status_of
from telorunner.database.access import aread, awrite, read, write

__all__ = [
    "LEASE_SECONDS",
    "RENEW_SECONDS",
    "NewSession",
    "OwnedSession",
    "Unlogged",
    "aread",
    "awrite",
    "check_writable",
    "claim",
    "claim_fetch",
    "complete_fetch",
    "drop_unfetched",
    "evict_ended",
    "evicted_since",
    "fail",
    "insert",
    "is_session_id",
    "is_taken",
    "known_ids",
    "live_ids",
    "load",
    "load_bundle",
    "load_token",
    "open_env",
    "purge_history",
    "read",
    "record_endpoints",
    "record_pod",
    "record_progress",
    "record_routes",
    "redeem",
    "register_engine",
    "release",
    "release_fetch",
    "renew_engine",
    "reserve_numbers",
    "retire_engine",
    "seal_env",
    "seal_token",
    "status_of",
    "stop_wishes",
    "transition",
    "unlogged",
    "write",
]
