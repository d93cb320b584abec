"""A session namespace that is deleted while sessions run: told in words, and the runner stays."""

import asyncio

import httpx
import pytest

from telorunner.kube import objects
from tests.clients import Client
from tests.clusters import ClusterUnderTest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# The namespace controller asks for every kind that there is before and after it deletes, on a busy
# machine for a while.
TOLD_SECONDS = 50.0
WAITS = 'import time\nprint("ready", flush=True)\ntime.sleep(600)\n'


async def test_a_deleted_namespace_ends_its_sessions_and_no_runner(
    client: Client, cluster: ClusterUnderTest
) -> None:
    session = await client.create(WAITS)
    await client.until_running(session)
    async with cluster.opened() as kube:
        assert await objects.delete_if_exists(kube, "namespaces", cluster.namespace)
        async with asyncio.timeout(TOLD_SECONDS):
            status = await client.status(session)
    assert status["kind"] == "failed"
    assert "the pod was deleted" in status["message"]
    status = await client.status(await client.create(WAITS))
    assert status["kind"] == "failed"
    assert status["message"].startswith("create: could not create the bundle's ConfigMap: ")
    async with httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(f"{client.url}/v1/health")).status_code == 200
