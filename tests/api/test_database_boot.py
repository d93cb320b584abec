"""The database while a process boots: its connections, and having it to oneself for a while."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.utils import ConnectionHandler

from telorunner.database import settings as database_settings
from telorunner.database.exclusive import prepared_by_one

URL = os.environ.get("TELORUNNER_TEST_POSTGRES_URL", "")
TIMEOUT = "SHOW statement_timeout"
HELD = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"


def ask(raw: Any, statement: str) -> str:
    """Ask a driver's own connection, whoever has it by now."""
    (answer,) = raw.execute(statement).fetchone()
    return str(answer)


@pytest.mark.skipif(not URL, reason="TELORUNNER_TEST_POSTGRES_URL names no server")
@pytest.mark.django_db
def test_a_pooled_connection_notices_that_its_host_has_vanished() -> None:
    # NB: pools are kept by alias, process-wide; this one is the test's own.
    settings = {"default": {}, "own": database_settings.configure(URL, Path("/"))}
    database: Any = ConnectionHandler(settings)["own"]
    try:
        database.ensure_connection()
        raw = database.connection
        with socket.socket(fileno=os.dup(raw.fileno())) as opened:
            found = [
                opened.getsockopt(socket.IPPROTO_TCP, option)
                for option in (
                    socket.TCP_USER_TIMEOUT,
                    socket.TCP_KEEPIDLE,
                    socket.TCP_KEEPINTVL,
                    socket.TCP_KEEPCNT,
                )
            ]
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    finally:
        database.close()
        database.close_pool()
    assert found == [10_000, 5, 2, 3]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no such limit")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_failing", [False, True])
def test_preparing_the_database_has_no_time_limit_and_leaves_it_to_others(is_failing: bool) -> None:
    connection.ensure_connection()
    raw: Any = connection.connection
    assert ask(raw, TIMEOUT) == "15s"
    try:
        with prepared_by_one():
            # It is this very connection that goes back to the pool.
            assert connection.connection is raw
            assert (ask(raw, TIMEOUT), ask(raw, HELD)) == ("0", "1")
            if is_failing:
                raise RuntimeError("a migration")
    except RuntimeError:
        assert is_failing
    assert connection.connection is None
    assert ask(raw, TIMEOUT) == "15s"
    assert ask(raw, HELD) == "0"


@pytest.mark.skipif(connection.vendor != "sqlite", reason="it asks for nothing on SQLite")
@pytest.mark.django_db(transaction=True)
def test_on_sqlite_there_is_nothing_to_lift() -> None:
    with prepared_by_one():
        connection.ensure_connection()
        assert connection.is_usable()
