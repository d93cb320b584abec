"""`serve` and `serve --no-engine` side by side on one PostgreSQL database."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest

from telorunner.database.exclusive import LOCK_KEY
from tests.clients import Client
from tests.clusters import LOCAL_IMAGE, ClusterUnderTest, local_cluster
from tests.postgres import own_database
from tests.serving import MANAGE, START_SECONDS, Platform, Process, refusal

pytestmark = pytest.mark.cluster

# What is promised of a change in another process.
SEEN_SECONDS = 1.0
END_SECONDS = 30.0
LISTENING = re.compile(r"Listening on (http://127\.0\.0\.1:[0-9]+)$")
USER = {"DJANGO_SUPERUSER_USERNAME": "root", "DJANGO_SUPERUSER_PASSWORD": "a-long-password"}
STAYS = "import time; print('here', flush=True); time.sleep(600)\n"


@dataclass(frozen=True)
class Both:
    """Two processes of one runner: one runs sessions, the other only serves."""

    engine: Platform
    web: Platform
    cluster: ClusterUnderTest
    database_url: str


@pytest.fixture(scope="module")
def database_url() -> Iterator[str]:
    with own_database("no_engine") as url:
        yield url


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    with local_cluster(tmp_path_factory.mktemp("platform")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def both(database_url: str, cluster: ClusterUnderTest) -> Iterator[Both]:
    """Both processes, booted at once; they end cleanly, and without a traceback in their logs."""
    environment = {**cluster.environment, "DATABASE_URL": database_url, "PYTHONWARNINGS": "error"}
    engine = Platform(cluster.data_dir, environment)
    web = Platform(cluster.data_dir, environment, "--no-engine")
    with ThreadPoolExecutor(2) as boots:
        for boot in [boots.submit(one.start) for one in (engine, web)]:
            boot.result()
    processes = [one.process for one in (engine, web) if one.process is not None]
    make_user(environment)
    yield Both(engine, web, cluster, database_url)
    assert [one.stop() for one in (web, engine)] == [0, 0]
    for process in processes:
        assert "Traceback" not in "".join(process.output)


@pytest.fixture
async def clients(both: Both) -> AsyncIterator[tuple[Client, Client]]:
    """A client of the engine's process, and one of the other."""
    found = Client(both.engine.url, LOCAL_IMAGE), Client(both.web.url, LOCAL_IMAGE)
    yield found
    for client in found:
        await client.close()


def make_user(environment: dict[str, str]) -> None:
    subprocess.run(
        [sys.executable, str(MANAGE), "createsuperuser", "--noinput", "--email", ""],
        env={"PATH": os.environ["PATH"], **environment, **USER},
        check=True,
        capture_output=True,
        timeout=START_SECONDS,
    )


@contextmanager
def logged_in(url: str) -> Iterator[httpx.Client]:
    """Open the admin of a process."""
    with httpx.Client(base_url=url, trust_env=False, follow_redirects=True, timeout=30) as admin:
        admin.get("/admin/login/")
        form = {"username": "root", "password": USER["DJANGO_SUPERUSER_PASSWORD"]}
        assert submit(admin, "/admin/login/", {**form, "next": "/admin/"}).url.path == "/admin/"
        yield admin


def submit(admin: httpx.Client, path: str, form: dict[str, str]) -> httpx.Response:
    token = {"csrfmiddlewaretoken": admin.cookies["csrftoken"]}
    return admin.post(path, data={**token, **form})


def add_image(admin: httpx.Client, reference: str) -> None:
    form = {"reference": reference, "position": "0", "enabled": "on"}
    page = submit(admin, "/admin/catalog/baseimage/add/", form)
    assert page.url.path == "/admin/catalog/baseimage/", page.text


def images(url: str) -> list[str]:
    answer = httpx.get(f"{url}/v1/capabilities", trust_env=False, timeout=30)
    assert answer.status_code == 200, answer.text
    offered: list[str] = answer.json()["config"]["schema"]["properties"]["image"]["enum"]
    return offered


def until(condition: Callable[[], bool]) -> float:
    """Ask until something is so; return how long that took."""
    began_at = time.monotonic()
    while not condition():
        assert time.monotonic() - began_at < END_SECONDS
    return time.monotonic() - began_at


@pytest.mark.parametrize("changed_at", ["engine", "web"])
def test_a_change_in_one_process_shows_in_the_other_within_a_second(
    both: Both, changed_at: str
) -> None:
    own, other = both.engine.url, both.web.url
    if changed_at == "web":
        own, other = other, own
    with logged_in(own) as admin:
        for number in range(3):
            reference = f"own.example/{changed_at}:{number}"
            # Both have just looked.
            assert reference not in images(own)
            assert reference not in images(other)
            add_image(admin, reference)
            assert reference in images(own)
            assert until(lambda reference=reference: reference in images(other)) <= SEEN_SECONDS


async def test_a_session_of_the_web_process_runs_on_the_engine(
    both: Both, clients: tuple[Client, Client]
) -> None:
    engine, web = clients
    session = await web.create(STAYS)
    # An engine looks every second, whoever has written the row.
    async with asyncio.timeout(END_SECONDS):
        await engine.until_running(session)
    async with engine.terminal(session) as terminal:
        await terminal.until(b"here")
    document = (await web.http.get(f"/v1/sessions/{session}")).json()
    assert document == (await engine.http.get(f"/v1/sessions/{session}")).json()
    assert document["status"] == {"kind": "running"}
    # So is the wish to stop it.
    assert (await web.http.delete(f"/v1/sessions/{session}")).status_code == 204
    assert await engine.status(session) == {"kind": "stopped"}
    await both.cluster.until_nothing_is_left()


async def test_an_engine_takes_up_what_another_process_registered_within_a_second(
    both: Both, clients: tuple[Client, Client]
) -> None:
    _, web = clients
    session = await web.create(STAYS)
    query = "SELECT engine_id FROM runner_sessions_session WHERE id = %s"
    began_at = time.monotonic()
    with psycopg.connect(both.database_url, autocommit=True) as database:
        while database.execute(query, [session]).fetchone() == (None,):
            assert time.monotonic() - began_at < END_SECONDS
            await asyncio.sleep(0.02)
    # It looks once a second, and takes its time to do so.
    assert time.monotonic() - began_at <= 2 * SEEN_SECONDS
    assert (await web.http.delete(f"/v1/sessions/{session}")).status_code == 204
    await both.cluster.until_nothing_is_left()


async def test_streams_and_terminals_are_refused_where_no_log_is(
    clients: tuple[Client, Client],
) -> None:
    engine, web = clients
    session = await engine.create("print('over')\n")
    assert await engine.status(session) == {"kind": "exited", "code": 0}
    answer = await web.http.get(f"/v1/sessions/{session}/events")
    assert (answer.status_code, answer.json()) == (
        503,
        {
            "error": "unavailable",
            "message": (
                "This process serves no events and no terminals, another one does. "
                "Try again shortly."
            ),
        },
    )
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["access-control-allow-origin"] == "*"
    async with web.terminal(session) as terminal:
        assert await terminal.drain() == 1013
    assert (terminal.texts, terminal.output) == ([], b"")
    # What does not exist exists nowhere.
    assert (await web.http.get("/v1/sessions/aaaaaaaaaaaa/events")).status_code == 404
    async with web.terminal("aaaaaaaaaaaa") as terminal:
        assert await terminal.drain() == 4404


async def test_the_web_process_is_ready_by_its_database_alone_and_probes_the_cluster(
    clients: tuple[Client, Client],
) -> None:
    engine, web = clients
    ready = await web.http.get("/readyz")
    assert (ready.status_code, ready.json()) == (
        200,
        {"ready": True, "checks": {"database": "ok"}},
    )
    assert (await engine.http.get("/readyz")).json()["checks"]["engine"] == "ok"
    for client in clients:
        body = {"config": {"image": LOCAL_IMAGE, "pullPolicy": "missing"}}
        assert (await client.http.post("/v1/probe", json=body)).json() == {"status": "ready"}


async def test_a_web_process_comes_and_goes_while_sessions_run(
    both: Both, clients: tuple[Client, Client]
) -> None:
    engine, web = clients
    another = Platform(both.cluster.data_dir, both.web.environment, "--no-engine")
    await asyncio.to_thread(another.start)
    client = Client(another.url, LOCAL_IMAGE)
    try:
        session = await client.create(STAYS)
    finally:
        await client.close()
        code = await asyncio.to_thread(another.stop)
    assert code == 0
    await engine.until_running(session)
    async with engine.terminal(session) as terminal:
        await terminal.until(b"here")
        assert (await web.http.delete(f"/v1/sessions/{session}")).status_code == 204
        assert await terminal.drain() == 1000
    assert await engine.status(session) == {"kind": "stopped"}


def test_processes_that_boot_wait_for_the_one_that_prepares_the_database(
    both: Both,
) -> None:
    with own_database("waiting") as url, psycopg.connect(url, autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", [LOCK_KEY])
        environment = {**both.cluster.environment, "DATABASE_URL": url, "PORT": "0"}
        process = Process("serve", "--no-engine", environment=environment)
        try:
            process.wait_for(re.compile(r"Waiting for another process to prepare the database"))
            made = holder.execute("SELECT to_regclass('django_migrations')").fetchone()
            assert made == (None,)
            holder.execute("SELECT pg_advisory_unlock(%s)", [LOCK_KEY])
            process.wait_for(LISTENING)
            # It has let go of it too.
            assert holder.execute("SELECT pg_try_advisory_lock(%s)", [LOCK_KEY]).fetchone() == (
                True,
            )
        finally:
            code = process.stop()
    assert code == 0, "".join(process.output)


def test_it_is_refused_on_sqlite(tmp_path: Path) -> None:
    for variables in ({}, {"DATABASE_URL": f"sqlite:///{tmp_path}/x.sqlite3"}):
        said = refusal(tmp_path, "--no-engine", RUNNER_CLUSTER="local", **variables)
        assert said.startswith("telorunner: DATABASE_URL: must name a PostgreSQL database")
    assert not (tmp_path / "x.sqlite3").exists()
