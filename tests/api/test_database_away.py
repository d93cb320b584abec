"""Every route while the database cannot be reached, or takes no writes."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any, cast

import httpx
import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from starlette.types import ASGIApp

from catalog.models import BaseImage
from sessions.models import Session
from sessions.runtime import Runtime
from sessions.spec import exited
from tests.builders import create_body
from tests.connections import open_events, open_socket
from tests.engine.world import database_away
from tests.owners import admit, own

pytestmark = [
    pytest.mark.usefixtures("transactional_db"),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="it locks and renames as SQLite does"),
]

UNAVAILABLE = {
    "error": "unavailable",
    "message": "The runner cannot reach its own storage just now. Try again shortly.",
}
# Clients give a DELETE 6 s.
PATIENCE_SECONDS = 6.0


@contextmanager
def locked_database() -> Iterator[None]:
    """Hold the file's write lock, as a backup or another process does."""
    with closing(sqlite3.connect(connection.settings_dict["NAME"], uri=True)) as other:
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@asynccontextmanager
async def answers_to(
    client: httpx.AsyncClient, *asked: tuple[str, str]
) -> AsyncIterator[list[httpx.Response]]:
    """Ask all at once; every answer comes within a client's patience."""

    async def ask(method: str, path: str) -> httpx.Response:
        content = json.dumps(create_body()) if path == "/v1/sessions" else None
        headers = {"content-type": "application/json"}
        return await client.request(method, path, content=content, headers=headers)

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(*one)) for one in asked]
    yield [task.result() for task in tasks]


def assert_unavailable(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()) == (503, UNAVAILABLE)
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["access-control-allow-origin"] == "*"


async def test_every_route_says_that_it_is_unavailable(
    app: ASGIApp, client: httpx.AsyncClient, running: Runtime
) -> None:
    session_id = await admit()
    running.pods = cast(Any, type("Fresh", (), {"is_fresh": True}))
    asked = [
        ("POST", "/v1/sessions"),
        ("GET", f"/v1/sessions/{session_id}"),
        ("DELETE", f"/v1/sessions/{session_id}"),
        ("GET", "/readyz"),
        ("GET", "/v1/health"),
        ("GET", "/v1/capabilities"),
    ]
    with database_away():
        async with answers_to(client, *asked) as (created, read, stopped, ready, *others):
            for answer in (created, read, stopped):
                assert_unavailable(answer)
            assert ready.status_code == 503
            assert ready.json()["checks"]["database"] == "unreachable"
            # These need none of these tables.
            assert [answer.status_code for answer in others] == [200, 200]
        async with open_events(app, session_id) as stream:
            assert (stream.status, json.loads(await stream.read_to_end())) == (503, UNAVAILABLE)
            assert int(stream.headers["retry-after"]) > 0
            assert stream.headers["access-control-allow-origin"] == "*"
        async with open_socket(app, session_id) as socket:
            assert await socket.read_to_close() == 1013
    # Nothing has to be repaired afterwards.
    async with answers_to(client, *asked[:4]) as after:
        assert [answer.status_code for answer in after] == [201, 200, 204, 200]


async def test_a_database_that_takes_no_writes_is_read_on(
    app: ASGIApp, client: httpx.AsyncClient, running: Runtime
) -> None:
    session_id = await admit()
    await own(session_id)
    running.pods = cast(Any, type("Fresh", (), {"is_fresh": True}))
    asked = [
        ("POST", "/v1/sessions"),
        ("DELETE", f"/v1/sessions/{session_id}"),
        ("GET", "/readyz"),
        ("GET", f"/v1/sessions/{session_id}"),
    ]
    with locked_database():
        async with answers_to(client, *asked) as (created, stopped, ready, read):
            assert_unavailable(created)
            assert_unavailable(stopped)
            assert ready.json()["checks"]["database"] == "unreachable"
            assert read.status_code == 200
        async with open_events(app, session_id) as stream:
            await stream.read_until("starting")
        async with open_socket(app, session_id) as socket:
            assert (await socket.read_text())["type"] == "seq"
    async with answers_to(client, *asked[1:]) as after:
        assert [answer.status_code for answer in after] == [204, 200, 200]
    # What was refused did not happen after all.
    assert await Session.objects.acount() == 1


async def test_open_streams_go_on_without_the_database(app: ASGIApp) -> None:
    session_id = await admit()
    owner = await own(session_id)
    async with open_events(app, session_id) as stream, open_socket(app, session_id) as socket:
        await stream.read_until("starting")
        await socket.read_text()
        with database_away():
            await owner.say(b"still here")
            await socket.read_until(b"still here")
        await owner.become(exited(0))
        assert await socket.read_to_close() == 1000
        await stream.read_to_end()


@pytest.fixture
def logged_in(transactional_db: None) -> Iterator[str]:
    """The cookie of a member of staff; pytest-django's fixture for one would empty all tables."""
    user = get_user_model().objects.create_superuser("root")
    browser = Client()
    browser.force_login(user)
    yield browser.cookies["sessionid"].value
    browser.logout()
    user.delete()


@pytest.fixture
async def staff(app: ASGIApp, logged_in: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the whole application that is logged in to the admin, and may send its forms."""
    token = "t" * 32
    cookies = {"sessionid": logged_in, "csrftoken": token}
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://x", cookies=cookies, headers={"x-csrftoken": token}
    ) as client:
        yield client


def assert_admin_unavailable(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()) == (503, UNAVAILABLE)
    assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize("is_debug", [False, True])
async def test_the_admin_says_that_it_is_unavailable_and_leaks_nothing(
    settings: Any, staff: httpx.AsyncClient, is_debug: bool
) -> None:
    settings.DEBUG = is_debug
    path = "/admin/runner_sessions/session/"
    assert (await staff.get(path)).status_code == 200
    with database_away():
        assert_admin_unavailable(await staff.get(path))
    assert (await staff.get(path)).status_code == 200


@pytest.mark.parametrize("is_debug", [False, True])
async def test_the_admin_changes_nothing_in_a_database_that_takes_no_writes(
    settings: Any, staff: httpx.AsyncClient, is_debug: bool
) -> None:
    settings.DEBUG = is_debug
    path = "/admin/catalog/baseimage/add/"
    form = {"reference": "own.example/image:1", "position": "0", "enabled": "on"}
    with locked_database():
        async with asyncio.timeout(PATIENCE_SECONDS):
            answer = await staff.post(path, data=form)
    assert_admin_unavailable(answer)
    assert not await BaseImage.objects.aexists()
    assert (await staff.post(path, data=form)).status_code == 302
    assert await BaseImage.objects.acount() == 1
