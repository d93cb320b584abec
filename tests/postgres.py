"""Databases of a test's own on the PostgreSQL server that TELORUNNER_TEST_POSTGRES_URL names."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

URL = os.environ.get("TELORUNNER_TEST_POSTGRES_URL", "")


@contextmanager
def own_database(prefix: str) -> Iterator[str]:
    """Make a database for the length of the block; return its URL. Skip where no server is."""
    if not URL:
        pytest.skip("TELORUNNER_TEST_POSTGRES_URL names no server")
    name = f"{prefix}_{secrets.token_hex(6)}"
    run_sql(f'CREATE DATABASE "{name}"')
    try:
        yield urlunsplit(urlsplit(URL)._replace(path=f"/{name}"))
    finally:
        run_sql(f'DROP DATABASE "{name}" WITH (FORCE)')


def run_sql(statement: str, url: str = URL) -> None:
    """Run one statement by itself."""
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(statement)
