"""What a session's pod is on a real node: how it is confined, and what it knows."""

from collections.abc import AsyncIterator

import orjson
import pytest

from tests.clusters import ClusterUnderTest
from tests.e2e.conftest import Served, Serving
from tests.realcluster import kubectl

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

CONFINEMENT = """
import json, os
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
def can_write(path):
    try:
        open(path + "/probe", "w").close()
    except OSError:
        return False
    return True
print("[" + json.dumps({
    "ids": [os.getuid(), os.getgid()],
    "capabilities": [int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "no_new_privileges": status["NoNewPrivs"],
    "seccomp": status["Seccomp"],
    "writable": [path for path in ("/", "/usr", "/etc", "/bundle", "/app", "/work", "/tmp",
                                   "/home/telo", "/telo-cache") if can_write(path)],
    "account": os.path.exists("/var/run/secrets/kubernetes.io"),
    "folder": os.getcwd(),
    "services": sorted(name for name in os.environ if "_SERVICE_" in name or "_PORT" in name),
}) + "]")
"""


@pytest.fixture
async def client(serve: Serving) -> AsyncIterator[Served]:
    async with serve() as client:
        yield client


async def test_a_session_is_confined_and_knows_of_no_neighbour(
    client: Served, prepared: ClusterUnderTest
) -> None:
    neighbour = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "neighbour", "namespace": prepared.namespace},
        "spec": {"ports": [{"port": 80}], "selector": {"telo.run/session-id": "another"}},
    }
    kubectl("create", "-f", "-", manifest=neighbour)
    session = await client.create(CONFINEMENT)
    assert await client.status(session) == {"kind": "exited", "code": 0}
    printed = await client.replay(session)
    (found,) = orjson.loads(printed)
    services = found.pop("services")
    assert found == {
        "ids": [1000, 1000],
        "capabilities": [0, 0, 0, 0],
        "no_new_privileges": "1",
        "seccomp": "2",
        "writable": ["/app", "/work", "/tmp", "/home/telo", "/telo-cache"],  # noqa: S108 - the pod's own
        "account": False,
        "folder": "/work",
    }
    # The cluster's own, which the kubelet gives to every pod.
    assert [name for name in services if not name.startswith("KUBERNETES_")] == []
