"""The admin's list of sessions in a long history: a few queries, each of which reads an index."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from sessions.admission import random_id
from sessions.models import Session
from sessions.store import retention
from tests.sessionrows import make_row, save_row

pytestmark = pytest.mark.django_db

LIST_URL = "/admin/runner_sessions/session/"
TABLE = Session._meta.db_table
NOW = datetime.now(UTC)
ROWS = 100_000
QUICK_ROWS = 5_000
RARE_APP = "app-3"
RARE_IMAGE = "registry.example/team/image:7"
# The list, each filter, search, the last page that there is, and filters together. Where a query
# has an index that it must take, its name.
QUERIES: dict[str, tuple[dict[str, str], str]] = {
    "newest first": ({}, "session_created"),
    "oldest first": ({"o": "6"}, "session_created"),
    "the last page": ({"p": "100"}, "session_created"),
    "a common status": ({"status": "exited"}, "session_by_status"),
    "a rare status": ({"status": "failed"}, "session_by_status"),
    "live": ({"status": "live"}, "session_by_status"),
    "a status that none has": ({"status": "starting"}, "session_by_status"),
    "mode": ({"mode": "run"}, "session_by_mode"),
    "a mode that none has": ({"mode": "none"}, "session_by_mode"),
    "app": ({"app_name": RARE_APP}, "session_by_app"),
    "image": ({"image": RARE_IMAGE}, "session_by_image"),
    "day": ({"day": (NOW - timedelta(days=9)).date().isoformat()}, "session_created"),
    "status and day": (
        {"status": "failed", "day": (NOW - timedelta(days=2)).date().isoformat()},
        "session_by_status",
    ),
    "the beginning of an id": ({"q": "k3v7"}, ""),
    "an id": ({"q": "k3v7q2m5xabc"}, ""),
    "an app, searched": ({"q": RARE_APP}, "session_by_app"),
    "an image, searched": ({"q": RARE_IMAGE}, "session_by_image"),
    "nothing that is there": ({"q": "Nowhere"}, ""),
}
# What a page may read of the table: 5000 rows are counted for the pager, the last page lies behind
# as many, and PostgreSQL walks the newest ones where enough of them match.
MAX_ROWS_READ = 20_000
# The last page takes 240,000 steps of SQLite's machine; to count all rows takes a million.
MAX_STEPS = 400_000


def fill(count: int) -> None:
    """Insert a history over thirty days: mostly exited, some failed, few live.

    Past the models, which would take minutes for it.
    """
    fields, prototype = Session._meta.concrete_fields, make_row("exited")
    common = {one.name: _stored(one.name, getattr(prototype, one.attname)) for one in fields}
    names = ", ".join(f'"{one.column}"' for one in fields)
    marks = ", ".join("%s" for _ in fields)
    rows = [list({**common, **_changes(number, count)}.values()) for number in range(count)]
    with connection.cursor() as cursor:
        insert = f'INSERT INTO "{TABLE}" ({names}) VALUES ({marks})'  # noqa: S608 - the model's
        cursor.executemany(insert, rows)
        if connection.vendor == "postgresql":
            # The server does so by itself, a minute later.
            cursor.execute(f"ANALYZE {TABLE}")
    save_row("exited", id="k3v7q2m5xabc", created_at=NOW - timedelta(days=20))


def _stored(name: str, value: Any) -> Any:
    return Session._meta.get_field(name).get_db_prep_save(value, connection)


def _changes(number: int, count: int) -> dict[str, Any]:
    """Return what a row of the history has of its own, as the database stores it."""
    changes: dict[str, Any] = {
        "id": random_id(),
        "image": RARE_IMAGE if number % 5000 == 7 else f"registry.example/image:{number % 20}",
        "app_name": f"app-{number % 40}" if number % 50 == 3 else "",
        "created_at": _stored("created_at", NOW - timedelta(days=30) / count * number),
    }
    if number < 5:
        return {**changes, "status": "running", "exit_code": None, "ended_at": None}
    changes["evicted_at"] = _stored("evicted_at", NOW)
    if number % 500 == 9:
        return {**changes, "status": "failed", "exit_code": None}
    return changes


@pytest.fixture
def history(db: None, times: Callable[[int, int], int]) -> int:
    """A long history; how long it is."""
    count = times(ROWS, QUICK_ROWS)
    fill(count)
    return count


def ask(client: Client, query: dict[str, str]) -> list[str]:
    """Return the statements about sessions that a page of the list takes."""
    with CaptureQueriesContext(
        connection,
    ) as asked:
        page = client.get(LIST_URL, query)
    assert page.status_code == 200, page
    return [one["sql"] for one in asked.captured_queries if TABLE in one["sql"]]


def explain(statement: str) -> list[str]:
    """Return the lines of SQLite's plan."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {statement}".replace("%", "%%"), [])
        return [row[3] for row in cursor.fetchall()]


def reads_everything(line: str) -> bool:
    """Tell whether a line of a plan goes through the whole table."""
    return line.startswith(f"SCAN {TABLE}") and " USING " not in line


@pytest.mark.parametrize("rows", [1, 200])
def test_a_page_takes_the_same_queries_however_many_sessions_there_are(
    admin_client: Client, rows: int
) -> None:
    Session.objects.bulk_create([make_row("exited", app_name="chat") for _ in range(rows)])
    for query in ({}, {"status": "exited"}, {"q": "k3"}, {"app_name": "chat"}, {"all": ""}):
        with CaptureQueriesContext(connection) as asked:
            assert admin_client.get(LIST_URL, query).status_code == 200
        # Who is logged in (2), apps and images to filter by (2), how many there are, and the page.
        assert len(asked) == 6, [one["sql"][:200] for one in asked.captured_queries]


def test_the_page_of_a_session_takes_a_few_queries(admin_client: Client) -> None:
    session = save_row("running")
    with CaptureQueriesContext(connection) as asked:
        assert admin_client.get(f"{LIST_URL}{session.pk}/change/").status_code == 200
    assert len(asked) <= 8


@pytest.mark.timeout(600)
def test_every_question_of_the_list_has_an_index(admin_client: Client, history: int) -> None:
    for name, (query, index) in QUERIES.items():
        if query.get("p") and history < ROWS:
            continue
        statements = ask(admin_client, query)
        assert len(statements) == 4, name
        if connection.vendor == "sqlite":
            plans = [explain(statement) for statement in statements]
            for plan in plans:
                assert not any(reads_everything(line) for line in plan), (name, plan)
            assert index in "\n".join(plans[-1]), (name, plans[-1])
            assert steps(admin_client, query) < MAX_STEPS, name
        else:
            read = sum(rows_read(statement) for statement in statements)
            assert read < MAX_ROWS_READ, (name, read)


def test_what_was_evicted_since_a_time_has_an_index(history: int) -> None:
    with CaptureQueriesContext(connection) as asked:
        assert retention._evicted_since(NOW + timedelta(minutes=1)) == []
    (statement,) = (one["sql"] for one in asked.captured_queries)
    if connection.vendor == "sqlite":
        assert "session_evicted" in "\n".join(explain(statement))
    else:
        assert rows_read(statement) == 0


def steps(client: Client, query: dict[str, str]) -> int:
    """Return how many steps SQLite's machine takes for a page, to the thousand."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1000
        return 0

    handle = connection.connection
    handle.set_progress_handler(count, 1000)
    try:
        client.get(LIST_URL, query)
    finally:
        handle.set_progress_handler(None, 0)
    return counted


def rows_read(statement: str) -> int:
    """Return how many rows of the sessions' table PostgreSQL reads for a statement."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}".replace("%", "%%"), [])
        (answer,) = cursor.fetchone()
    plan = json.loads(answer) if isinstance(answer, str) else answer
    return _rows_of(plan[0]["Plan"])


def _rows_of(node: dict[str, Any]) -> int:
    read = 0
    if re.search(r"Scan$", node["Node Type"]) and "CTE" not in node["Node Type"]:
        removed = sum(count for key, count in node.items() if key.startswith("Rows Removed"))
        read = (node["Actual Rows"] + removed) * node["Actual Loops"]
    return int(read + sum(_rows_of(child) for child in node.get("Plans", [])))
