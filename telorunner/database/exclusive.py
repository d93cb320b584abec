"""Having the database to oneself while it is prepared: migrated and seeded.

Several processes that boot at once on one PostgreSQL would run the same migration at once. On
SQLite the lock on the data folder has seen to that.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, connections

logger = logging.getLogger(__name__)

# What the runner's processes agree on: the bytes of "telorun".
LOCK_KEY = int.from_bytes(b"telorun")
# NB: looked at again and again instead of waited for inside a statement, which the statement's
# time limit would end, and which a CREATE INDEX CONCURRENTLY of the other process would wait for.
LOOK_SECONDS = 0.2


@contextmanager
def prepared_by_one() -> Iterator[None]:
    """Wait until no other process prepares the database, and keep them waiting meanwhile.

    The calling thread's connection holds the lock: it goes with the process, however that ends.
    Its statements may take as long as they need: an index of millions of rows, or a table that an
    older process has not let go of yet.

    Raises:
        OperationalError: The database cannot be reached.
    """
    try:
        if connection.vendor != "postgresql":
            yield
            return
        _lock()
        try:
            _execute("SET statement_timeout = 0")
            yield
        finally:
            # A connection that broke has let go by itself.
            if connection.is_usable():
                # Back to what it was opened with: the pool lends it to others.
                _execute("RESET statement_timeout")
                _ask("SELECT pg_advisory_unlock(%s)")
    finally:
        # The thread needs no connection any more, and the pool has only so many.
        connections.close_all()


def _lock() -> None:
    is_waiting = False
    while not _ask("SELECT pg_try_advisory_lock(%s)"):
        if not is_waiting:
            logger.info("Waiting for another process to prepare the database.")
        is_waiting = True
        time.sleep(LOOK_SECONDS)


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _ask(statement: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(statement, [LOCK_KEY])
        return bool(cursor.fetchone()[0])
