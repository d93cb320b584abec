"""`serve` on PostgreSQL that goes away or hangs: refusals in time, and nothing to repair."""

import asyncio
import os
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import psycopg
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from catalog.cache import LOOK_SECONDS
from tests.api.test_server_process import environment
from tests.builders import create_body
from tests.serving import Process

URL = os.environ.get("TELORUNNER_TEST_POSTGRES_URL", "")
pytestmark = pytest.mark.skipif(not URL, reason="TELORUNNER_TEST_POSTGRES_URL names no server")

# Clients give a DELETE 6 s; what is in the pool of connections makes it no longer.
PATIENCE_SECONDS = 6.0
# Clients of a probe are promised this much, whatever hangs.
PROBE_SECONDS = 3.0
LISTENING = re.compile(r"Listening on (http://127\.0\.0\.1:[0-9]+)$")
UNAVAILABLE = {
    "error": "unavailable",
    "message": "The runner cannot reach its own storage just now. Try again shortly.",
}
UNKNOWN = "aaaaaaaaaaaa"


class Proxy:
    """Stands between the runner and its database.

    `cut()` takes the database away, `freeze()` lets it answer no more until `thaw()`.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()

    def cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self._is_cut = False

    def freeze(self) -> None:
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(*self._target)
        self._writers |= {writer, back}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(reader, back))
                group.create_task(self._carry(there, writer))
        finally:
            self._writers -= {writer, back}

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def proxied_database() -> AsyncIterator[tuple[Proxy, str]]:
    """A database of the test's own, reached through a proxy."""
    name = f"away_{secrets.token_hex(6)}"
    parts = urlsplit(URL)
    proxy = Proxy(parts.hostname or "127.0.0.1", parts.port or 5432)
    user = parts.netloc.rpartition("@")[0]
    await asyncio.to_thread(run_sql, f'CREATE DATABASE "{name}"')
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield proxy, urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port}", path=f"/{name}"))
    finally:
        proxy.cut()
        server.close()
        await server.wait_closed()
        await asyncio.to_thread(run_sql, f'DROP DATABASE "{name}" WITH (FORCE)')


def run_sql(statement: str) -> None:
    with psycopg.connect(URL, autocommit=True) as database:
        database.execute(statement)


@asynccontextmanager
async def serving(folder: Path, **variables: str) -> AsyncIterator[httpx.AsyncClient]:
    process = await asyncio.to_thread(
        lambda: Process("serve", environment=environment(folder, **variables))
    )
    try:
        url = (await asyncio.to_thread(process.wait_for, LISTENING))[1]
        async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) as client:
            yield client
    finally:
        code = await asyncio.to_thread(process.stop)
    assert code == 0, "".join(process.output)


async def ask_everything(client: httpx.AsyncClient) -> dict[str, httpx.Response]:
    """Ask every route at once, each of which answers within a client's patience."""
    body: dict[str, Any] = create_body()
    asked = {
        "create": client.post("/v1/sessions", json=body),
        "read": client.get(f"/v1/sessions/{UNKNOWN}"),
        "stop": client.delete(f"/v1/sessions/{UNKNOWN}"),
        "events": client.get(f"/v1/sessions/{UNKNOWN}/events"),
        "ready": client.get("/readyz"),
        "health": client.get("/v1/health"),
        "capabilities": client.get("/v1/capabilities"),
        "probe": client.post("/v1/probe", json={"config": body["config"]}),
        # Whether that log-in is one, the database knows.
        "admin": client.get("/admin/", headers={"cookie": f"sessionid={'a' * 32}"}),
    }
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(request) for name, request in asked.items()}
    return {name: task.result() for name, task in tasks.items()}


async def close_code(client: httpx.AsyncClient) -> int:
    address = f"{client.base_url}".replace("http", "ws", 1).rstrip("/")
    async with connect(f"{address}/v1/sessions/{UNKNOWN}/io", proxy=None) as socket:
        try:
            await socket.recv()
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else 1006
    return 0


async def test_an_outage_is_told_in_time_and_needs_no_repair(tmp_path: Path) -> None:
    async with (
        proxied_database() as (proxy, database_url),
        serving(tmp_path, DATABASE_URL=database_url) as client,
    ):
        await assert_all_works(client)
        # A short break fails no request that comes after it, though pooled connections broke.
        proxy.cut()
        proxy.mend()
        for _ in range(2):
            await assert_all_works(client)
        proxy.cut()
        # What the catalog's cache has read before is believed for no longer.
        await asyncio.sleep(LOOK_SECONDS)
        answers = await ask_everything(client)
        for name in ("create", "read", "stop", "events", "capabilities", "probe", "admin"):
            assert (name, answers[name].status_code) == (name, 503)
            assert answers[name].json() == UNAVAILABLE
            assert int(answers[name].headers["retry-after"]) > 0
        assert answers["ready"].json()["checks"]["database"] == "unreachable"
        assert answers["health"].status_code == 200
        assert await close_code(client) == 1013
        proxy.mend()
        # As any client does that is told when to come back.
        await asyncio.sleep(int(answers["read"].headers["retry-after"]))
        await assert_all_works(client)
        assert await close_code(client) == 4404


async def assert_all_works(client: httpx.AsyncClient) -> None:
    answers = await ask_everything(client)
    found = {name: answer.status_code for name, answer in answers.items()}
    assert found["create"] == 201
    assert (found["read"], found["stop"], found["events"]) == (404, 204, 404)
    assert found["admin"] == 302
    assert answers["ready"].json()["checks"]["database"] == "ok"


async def test_a_database_that_hangs_keeps_no_probe_waiting(tmp_path: Path) -> None:
    async with (
        proxied_database() as (proxy, database_url),
        serving(tmp_path, DATABASE_URL=database_url) as client,
    ):
        body = {"config": create_body()["config"]}
        # The cluster is away: it is asked, and does not answer.
        assert (await client.post("/v1/probe", json=body)).json()["status"] == "unavailable"
        proxy.freeze()
        # As above.
        await asyncio.sleep(LOOK_SECONDS)
        try:
            # More than there are threads for it, and again when those are all taken.
            for count in (10, 1):
                async with asyncio.timeout(PROBE_SECONDS), asyncio.TaskGroup() as group:
                    asked = [
                        group.create_task(client.post("/v1/probe", json=body)) for _ in range(count)
                    ]
                for one in asked:
                    assert (one.result().status_code, one.result().json()) == (503, UNAVAILABLE)
        finally:
            proxy.thaw()
        await asyncio.sleep(int(asked[0].result().headers["retry-after"]))
        assert (await client.post("/v1/probe", json=body)).status_code == 200
        await assert_all_works(client)
