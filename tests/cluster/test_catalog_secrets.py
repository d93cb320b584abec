"""Marked env values of apps go through a whole platform by each way that there is.

Then all that it left is searched for them: every page of the admin, every answer, event and log
line, the database's files and its dump. What must have them is left out: the pods' manifests.
"""

import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.evidence import (
    Admin,
    Evidence,
    Watched,
    cluster,
    make_superuser,
    manage,
    manifests,
    new_mark,
    platform,
    search_files,
)
from tests.serving import KERNEL_DIR

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

# By RUNNER_APPS, by the form, by the form again, by a form that is refused, and by a client.
SEEDED, TYPED, RETYPED, REFUSED, CLIENTS = MARKS = (
    new_mark("seedmark"),
    new_mark("formmark"),
    new_mark("nextmark"),
    new_mark("wrongmark"),
    new_mark("sentmark"),
)
IMAGE = "registry.example/team/app:1.0"
# It has its values, and says so without repeating them.
PROGRAM = 'test -n "$SECRET" && test -n "$OTHER" && echo it has them; exec sleep 600'
SAID = b"it has them"
APPS = "/admin/catalog/app/"
ADD = f"{APPS}add/"
TYPED_APP = {
    "name": "typed",
    "image": IMAGE,
    "variables-new-1-name": "SECRET",
    "variables-new-1-value": TYPED,
}


async def start(client: Watched, app: str, **env: str) -> str:
    """Start an app with a secret of the client's own."""
    body = {"env": {"OTHER": CLIENTS, **env}}
    answer = await client.http.post(f"/v1/apps/{app}/sessions", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["sessionId"])


async def stop(client: Watched, session: str) -> bytes:
    """Stop a session and read all that clients can of it; return its output."""
    await client.http.delete(f"/v1/sessions/{session}")
    return await client.look(session)


async def ask_wrongly(client: Watched) -> None:
    """Send secrets where they do not belong, and ask for everything else there is."""
    wrong: list[Any] = [CLIENTS, [CLIENTS], {"A": [CLIENTS]}, {"A": {"B": CLIENTS}}]
    wrong += [{"A": f"{CLIENTS}\0"}, {"A": CLIENTS * 9000}]
    for app in ("seeded", "nobody"):
        for env in wrong:
            answer = await client.http.post(f"/v1/apps/{app}/sessions", json={"env": env})
            assert answer.status_code in {400, 404}, answer.text
    await client.http.post("/v1/apps/seeded/sessions", content=f'{{"env": {CLIENTS}')
    for path in ("/v1/capabilities", "/v1/health", "/readyz", "/v1/openapi.json", "/v1/docs"):
        assert (await client.http.get(path)).status_code == 200, path
    config = {"config": {"image": IMAGE, "pullPolicy": "missing"}}
    await client.http.post("/v1/probe", json=config)


async def curate(admin: Admin) -> None:
    """Save the form of an app in each way, and have it refused."""
    saved = await admin.submit(ADD, **TYPED_APP)
    assert "was added successfully" in saved.text
    page = admin.page_of(saved, APPS, "typed")
    spare = {"variables-new-1-name": "SPARE", "variables-new-1-value": TYPED}
    for changes in (
        {"title": "Typed"},
        spare,
        {"variables-value:SECRET": RETYPED},
        {"variables-remove:SPARE": "on"},
    ):
        changed = await admin.submit(page, **changes)
        assert "was changed successfully" in changed.text, changes
    for name, value in (
        ("no name!", REFUSED),
        ("", REFUSED),
        ("SECRET", REFUSED),
        ("NUL", f"{REFUSED}\0"),
        ("LONG", REFUSED * 9000),
        (f"SECRET={REFUSED}", ""),
    ):
        typed = {"variables-new-1-name": name, "variables-new-1-value": value}
        for more in ({}, {"variables-value:SECRET": REFUSED}, {"port": "0"}):
            refused = await admin.submit(page, **typed, **more)
            assert "errornote" in refused.text, name[:20]
    both = {"variables-value:SECRET": REFUSED, "variables-remove:SECRET": "on"}
    for path, changes in (
        (page, both),
        (ADD, {**TYPED_APP, "variables-new-1-value": REFUSED}),  # its name is taken
    ):
        assert "errornote" in (await admin.submit(path, **changes)).text


@contextmanager
def broken(database: Path, table: str) -> Iterator[None]:
    """Take a table away, so that whoever asks for it fails inside."""
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        connection.execute(f"ALTER TABLE {table} RENAME TO away")
        connection.commit()
        try:
            yield
        finally:
            connection.execute(f"ALTER TABLE away RENAME TO {table}")
            connection.commit()


@contextmanager
def garbled(database: Path) -> Iterator[None]:
    """Make the apps' variables what no form can have written: a defect, not an outage."""
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        kept = connection.execute("SELECT env, id FROM catalog_app").fetchall()
        connection.execute("UPDATE catalog_app SET env = '\"nothing\"'")
        connection.commit()
        try:
            yield
        finally:
            connection.executemany("UPDATE catalog_app SET env = ? WHERE id = ?", kept)
            connection.commit()


async def provoke(admin: Admin, client: Watched, database: Path) -> None:
    """Fail inside, in debug mode, while values are on their way."""
    page = admin.page_of(await admin.http.get(APPS), APPS, "typed")
    for table in ("catalog_revision", "django_admin_log"):
        for path, changes in (
            (page, {"variables-value:SECRET": REFUSED}),
            (ADD, {**TYPED_APP, "name": "other", "variables-new-1-value": REFUSED}),
        ):
            form = await admin.form(path)
            with broken(database, table):
                failed = await admin.http.post(path, data={**form, **changes})
            assert failed.status_code == 503, path
    form = await admin.form(page)
    with garbled(database):
        failed = await admin.http.post(page, data={**form, "variables-value:SECRET": REFUSED})
    assert failed.status_code == 500
    with broken(database, "catalog_app"):
        assert (await admin.http.get(page)).status_code == 503
        assert (await client.http.get("/v1/apps/typed/sessions")).status_code == 405
    with broken(database, "runner_sessions_session"):
        body = {"env": {"OTHER": CLIENTS}}
        failed = await client.http.post("/v1/apps/typed/sessions", json=body)
        assert failed.status_code >= 500, failed.text
    assert (await admin.http.get("/admin/nothing/")).status_code == 404


async def test_an_apps_env_value_stands_nowhere(tmp_path: Path) -> None:
    evidence = Evidence(set(MARKS))
    secret = {"SECRET": SEEDED, "URL": f"https://user:{SEEDED}@host/"}
    environment = {
        "RUNNER_CLUSTER": "local",
        "RUNNER_DATA_DIR": str(tmp_path),
        "RUNNER_APPS": json.dumps({"seeded": {"image": IMAGE, "env": secret}}),
        "RUNNER_LOCAL_IMAGES": json.dumps({IMAGE: ["sh", "-c", PROGRAM]}),
        "LOG_LEVEL": "debug",
        "PATH": f"{KERNEL_DIR}:{os.environ['PATH']}",
        "PORT": "0",
    }
    async with AsyncExitStack() as stack:
        kubeconfig = stack.enter_context(cluster(environment, evidence))
        with platform(tmp_path, environment, evidence) as first:
            make_superuser(environment)
            client = await stack.enter_async_context(Watched(first.url, evidence))
            async with Admin(first.url, evidence) as admin:
                await curate(admin)
                running = [await start(client, app, SECRET=CLIENTS) for app in ("seeded", "typed")]
                for session in running:
                    await client.until_running(session)
                    async with client.terminal(session) as terminal:
                        await terminal.until(SAID)
                # They did go through, and the operator's stand before the client's.
                pods = await manifests(kubeconfig)
                assert [pods.count(mark) > 0 for mark in MARKS] == [True, False, True, False, True]
                await ask_wrongly(client)
                search_files(tmp_path, evidence)
                assert await admin.read_all() > 20
            evidence.keep("the dump", manage(environment, "dumpdata"))
            for session in running:
                assert SAID in await stop(client, session)
        # In debug mode, with errors; then with another key, and images that cannot be pulled.
        debug = {**environment, "DJANGO_DEBUG": "true"}
        with platform(tmp_path, debug, evidence) as second:
            client = await stack.enter_async_context(Watched(second.url, evidence))
            async with Admin(second.url, evidence) as admin:
                await provoke(admin, client, tmp_path / "telorunner.sqlite3")
        changed = {
            "DJANGO_SECRET_KEY": secrets.token_hex(32),
            "RUNNER_LOCAL_IMAGES": "",
            "RUNNER_IMAGE_PULL_GRACE_SECONDS": "0",
        }
        with platform(tmp_path, {**environment, **changed}, evidence) as third:
            client = await stack.enter_async_context(Watched(third.url, evidence))
            await stop(client, await start(client, "seeded"))
            answer = await client.http.post("/v1/apps/typed/sessions")
            assert answer.status_code >= 400, "its key is gone"
            async with Admin(third.url, evidence) as admin:
                await admin.read_all()
            search_files(tmp_path, evidence)
    assert evidence.leaks() == []
    for name in (
        "the output of serve",
        "the output of runcluster",
        "the file telorunner.sqlite3",
        "the dump",
        "event 1",
        f"the page GET {APPS}1/history/",
        "GET /v1/openapi.json",
    ):
        assert evidence.has(name), name
