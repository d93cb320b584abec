"""The database settings; pure.

SQLite in the data folder by default, PostgreSQL by DATABASE_URL.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dj_database_url

from telorunner import datadir
from telorunner.errors import ConfigError

SQLITE = "django.db.backends.sqlite3"
# Waiting for a writer outside of this process, such as a backup. Together with the wait for the
# turn to write (sessions.store) it is less than the 6 s that clients give a DELETE.
SQLITE_BUSY_SECONDS = 3
# WAL lets readers and the writer pass each other; NORMAL loses at most the last commits on a power
# cut, never consistency.
SQLITE_PRAGMAS = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;"

POSTGRES_CONNECT_SECONDS = 5
POSTGRES_STATEMENT_SECONDS = 15
POSTGRES_POOL_SIZE = 16
# A host that vanishes without a word: what is sent to it is acknowledged in this time, and so are
# the probes while an answer is waited for, or the connection is broken. Else a thread would hang
# for as long as the kernel sends again: a quarter of an hour. Source: the PostgreSQL manual, libpq,
# "Parameter Key Words".
POSTGRES_VANISHED = {
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
# Time to get a connection out of the pool: less than a client waits for an answer.
POSTGRES_POOL_SECONDS = 5
# How long the pool tries by itself to connect anew. It waits longer and longer between its tries,
# so that after an outage of minutes it would be minutes late; each request begins anew instead.
POSTGRES_RECONNECT_SECONDS = 1

_PROBLEM = "DATABASE_URL: must be a URL such as postgresql://user:password@host:5432/name"


def configure(database_url: str, data_dir: Path) -> dict[str, Any]:
    """Return Django's settings of the one database.

    Raises:
        ConfigError: The URL is of another database, or none at all.
    """
    if not database_url:
        return _sqlite(str(data_dir / datadir.DATABASE_FILE))
    try:
        parsed: dict[str, Any] = dict(dj_database_url.parse(database_url))
    except ValueError as exc:
        # The parser's sentence may quote the URL, password included.
        raise ConfigError(_PROBLEM) from exc
    if parsed["ENGINE"] == SQLITE:
        return _sqlite(str(parsed["NAME"]))
    if parsed["ENGINE"] == "django.db.backends.postgresql" and parsed["NAME"]:
        return _postgres(parsed)
    raise ConfigError(_PROBLEM)


def sqlite_file(database: Mapping[str, Any]) -> Path | None:
    """Return the file of an SQLite database; None: it is another database, or in memory."""
    name = str(database["NAME"])
    if database["ENGINE"] != SQLITE or name.startswith(("file:", ":memory:")):
        return None
    return Path(name)


def _sqlite(name: str) -> dict[str, Any]:
    return {
        "ENGINE": SQLITE,
        "NAME": name,
        "OPTIONS": {
            "timeout": SQLITE_BUSY_SECONDS,
            # A transaction that begins as a reader and then writes fails at once when another
            # wrote meanwhile; one that begins as a writer waits.
            "transaction_mode": "IMMEDIATE",
            "init_command": SQLITE_PRAGMAS,
        },
    }


def _postgres(parsed: dict[str, Any]) -> dict[str, Any]:
    options = dict(parsed.get("OPTIONS", {}))
    for name, value in {"connect_timeout": POSTGRES_CONNECT_SECONDS, **POSTGRES_VANISHED}.items():
        options.setdefault(name, value)
    timeout = f"-c statement_timeout={POSTGRES_STATEMENT_SECONDS * 1000}"
    options["options"] = f"{options['options']} {timeout}" if "options" in options else timeout
    options["pool"] = {
        "min_size": 1,
        "max_size": POSTGRES_POOL_SIZE,
        "timeout": POSTGRES_POOL_SECONDS,
        "reconnect_timeout": POSTGRES_RECONNECT_SECONDS,
    }
    # The pool keeps connections; Django's own keeping must be off beside it. One that broke while
    # it was idle is noticed when it is taken, and fails nobody's request.
    return {**parsed, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": True, "OPTIONS": options}
