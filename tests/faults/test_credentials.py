"""The runner's token is replaced while it works, as a projected token is."""

import asyncio
import os
import subprocess
import time
import uuid
from pathlib import Path

import httpx
import pytest
import yaml

from tests.clients import Client
from tests.clusters import ClusterUnderTest, real_cluster
from tests.faulty import Faulty
from tests.realcluster import ACCOUNT, kubectl
from tests.serving import Platform

pytestmark = pytest.mark.cluster

ECHO = "import sys\nprint('ready', flush=True)\nfor line in sys.stdin:\n    print('heard', line)\n"
HELLO = "print('hello')\n"
# An API server remembers for some seconds whom it has let in.
FORGET_SECONDS = 60.0


async def probe(client: Client) -> httpx.Response:
    config = {"image": client.image, "pullPolicy": "missing"}
    return await client.http.post("/v1/probe", json={"config": config})


async def test_a_token_that_is_refused_is_read_again_until_it_is_right(
    faulty: Faulty, client: Client
) -> None:
    """The API server takes the new token before the file has it: everything waits for that."""
    proxy = faulty.proxy
    lasting = await client.create(ECHO)
    async with client.terminal(lasting) as terminal:
        await terminal.until(b"ready")
        await client.until_running(lasting)
        proxy.forget()
        proxy.rotate(is_written=False)
        proxy.cut(verb="watch")
        proxy.cut(verb="attach")
        late = await client.create(HELLO)
        await proxy.until(lambda: proxy.count("create") >= 3 and proxy.count("list", "pods") >= 3)
        assert (await probe(client)).json()["status"] == "unavailable"
        for session, kind in ((lasting, "running"), (late, "starting")):
            document = (await client.http.get(f"/v1/sessions/{session}")).json()
            assert document["status"]["kind"] == kind
        refused_for = time.monotonic() - proxy.asked()[0].at
        # Ever longer pauses: a few requests of each kind at first, one in some seconds later.
        assert proxy.count() < 40 + 5 * refused_for
        proxy.write_token()
        assert await client.status(late) == {"kind": "exited", "code": 0}
        await terminal.socket.send(b"again\r")
        await terminal.until(b"heard again")
    assert (await probe(client)).json() == {"status": "ready"}
    await proxy.until(lambda: proxy.live("watch") == 1)
    assert (await client.http.delete(f"/v1/sessions/{lasting}")).status_code == 204
    assert await client.status(lasting) == {"kind": "stopped"}
    await faulty.until_nothing_is_left()


async def test_a_token_that_was_replaced_in_time_costs_nothing(
    faulty: Faulty, client: Client
) -> None:
    """The old token gets one 401, whoever it is that asks."""
    proxy = faulty.proxy
    # The token file is not read twice within a second.
    await asyncio.sleep(1)
    old = f"bearer {proxy.token}"
    # The test before may have been tidied up with it, which was right then.
    proxy.forget()
    proxy.rotate()
    session = await client.create(HELLO)
    assert await client.status(session) == {"kind": "exited", "code": 0}
    with_old = [one for one in proxy.asked() if one.authorization.lower() == old.lower()]
    assert len(with_old) == 1
    assert proxy.count("create") == 3


def renew_account(cluster: ClusterUnderTest) -> None:
    """Make the runner's account anew; return once its old token is refused."""
    here = ("-n", cluster.namespace)
    kubectl("delete", "serviceaccount", ACCOUNT, *here)
    kubectl("create", "serviceaccount", ACCOUNT, *here)
    until = time.monotonic() + FORGET_SECONDS
    while time.monotonic() < until:
        try:
            kubectl("get", "pods", *here, "--kubeconfig", cluster.environment["KUBECONFIG"])
        except subprocess.CalledProcessError:
            return
        time.sleep(0.5)
    raise AssertionError("the old token is still taken")


def write_new_token(cluster: ClusterUnderTest) -> None:
    config = yaml.safe_load(Path(cluster.environment["KUBECONFIG"]).read_text())
    token = kubectl("create", "token", ACCOUNT, "-n", cluster.namespace, "--duration=3600s")
    Path(config["users"][0]["user"]["tokenFile"]).write_text(token)


@pytest.mark.e2e
@pytest.mark.timeout(240)
async def test_an_account_that_was_made_anew_goes_on_with_its_new_token(tmp_path: Path) -> None:
    """The real API server refuses the tokens of an account that was deleted."""
    if not os.environ.get("TELORUNNER_TEST_KERNEL_IMAGE"):
        pytest.skip("TELORUNNER_TEST_KERNEL_IMAGE names no image on the real cluster")
    with real_cluster(tmp_path, f"telo-{uuid.uuid4().hex[:8]}") as cluster:
        platform = Platform(tmp_path / "data", cluster.environment)
        await asyncio.to_thread(platform.start)
        client = Client(platform.url, cluster.image)
        try:
            await it_outlives_its_token(cluster, client)
        finally:
            await client.close()
            assert await asyncio.to_thread(platform.stop) == 0
        # What a session had goes after its last status, and on a node not at once.
        await cluster.until_nothing_is_left()


async def it_outlives_its_token(cluster: ClusterUnderTest, client: Client) -> None:
    lasting = await client.create(ECHO)
    async with client.terminal(lasting) as terminal:
        await terminal.until(b"ready")
        await asyncio.to_thread(renew_account, cluster)
        late = await client.create(HELLO)
        assert (await probe(client)).json()["status"] == "unavailable"
        await asyncio.to_thread(write_new_token, cluster)
        assert await client.status(late) == {"kind": "exited", "code": 0}
        await terminal.socket.send(b"again\r")
        await terminal.until(b"heard again")
        assert (await client.http.delete(f"/v1/sessions/{lasting}")).status_code == 204
        assert await client.status(lasting) == {"kind": "stopped"}
