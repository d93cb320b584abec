"""The reserved paths of public hosts: answered before anything else, to who knows the key."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from routing.layer import Decision, RoutingSettings
from routing.router import Router, open_router
from routing.routes import PROOF_HEADER, Layer, ProbePath
from sessions.runtime import Runtime
from telorunner.conf.routing import ProbeAddress

HOST = "8080-abcdefghijkl.apps.test"
SECRET = b"the runner's secret"
PATH = ProbePath(SECRET)
NONCE = f"{PATH.key(HOST)}/a-nonce"
ADDRESS = f"{PATH.prefix(HOST)}/a-nonce"


@pytest.fixture
async def probing(running: Runtime) -> AsyncIterator[Router]:
    """A router that asks hosts, in the runtime of the process."""
    settings = RoutingSettings(
        base_domain="apps.test",
        is_probing=True,
        probe_address=ProbeAddress("http", "127.0.0.1", 1),
    )
    cluster: Any = SimpleNamespace(managed_by="runner")
    decision = Decision(Layer.INGRESS, "")
    opened = open_router(cluster, settings, decision, secret=SECRET, listen_port=None)
    async with opened as running.router:
        yield running.router


async def ask(client: httpx.AsyncClient, path: str = ADDRESS, host: str = HOST) -> httpx.Response:
    return await client.get(path, headers={"host": host})


@pytest.mark.usefixtures("probing")
async def test_a_hosts_own_path_is_answered_with_nonce_and_proof(
    client: httpx.AsyncClient,
) -> None:
    # No database is there: the rest of the application is not asked.
    answer = await ask(client)
    assert (answer.status_code, answer.text) == (200, NONCE)
    assert answer.headers[PROOF_HEADER] == PATH.proof(HOST, NONCE)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.usefixtures("probing", "transactional_db")
@pytest.mark.parametrize(
    ("path", "host"),
    [
        (ADDRESS, "8080-abcdefghijkm.apps.test"),
        (ADDRESS, "runner"),
        (f"/.well-known/telo-route/{'a' * 26}/a-nonce", HOST),
        (f"{PATH.prefix(HOST)}/", HOST),
        (f"{ADDRESS}/more", HOST),
        ("/.well-known/telo-route/", HOST),
    ],
)
async def test_anything_else_is_not_found_as_everywhere(
    client: httpx.AsyncClient, path: str, host: str
) -> None:
    answer = await ask(client, path, host)
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
    assert PROOF_HEADER not in answer.headers


@pytest.mark.usefixtures("probing", "transactional_db")
async def test_only_reading_is_answered(client: httpx.AsyncClient) -> None:
    answer = await client.post(ADDRESS, headers={"host": HOST})
    assert answer.status_code == 404


@pytest.mark.usefixtures("transactional_db")
async def test_a_runner_that_probes_nothing_has_no_reserved_paths(
    client: httpx.AsyncClient,
) -> None:
    assert (await ask(client)).status_code == 404


@pytest.mark.usefixtures("probing")
async def test_a_process_that_goes_down_answers_no_probe(
    client: httpx.AsyncClient, running: Runtime
) -> None:
    running.stopping.set()
    answer = await ask(client)
    assert (answer.status_code, answer.json()["error"]) == (503, "stopping")
