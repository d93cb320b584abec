"""One API after the other: the local cluster's always, a real one's with --with-e2e.

The clusters are processes that outlive the tests of all modules: a test makes what it needs in a
namespace of its own.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import orjson
import pytest

from tests.clusters import local_cluster
from tests.conformance.client import WAIT_SECONDS, Access, Api, open_api, read_access
from tests.conformance.fates import record_stories
from tests.conformance.objects import make_name
from tests.conformance.pods import Story, own_loop


@pytest.fixture(scope="session", params=["local", pytest.param("real", marks=pytest.mark.e2e)])
def access(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Access]:
    """How an administrator gets into the cluster."""
    folder = tmp_path_factory.mktemp("conformance")
    if request.param == "real":
        yield read_access("real", Path(os.environ["KUBECONFIG"]), folder)
        return
    with local_cluster(folder, RUNNER_LOCAL_GATEWAY_API="true") as cluster:
        yield read_access("local", cluster.kubeconfig, folder)


@pytest.fixture(scope="module")
def standing_namespace(access: Access) -> Iterator[str]:
    """The name of a namespace for the tests of a module that leave nothing in it; it takes pods."""
    name = make_name()
    _ask(access, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    # The first line of a watch is there when the account is.
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    _ask(access, "GET", f"{accounts}?watch=1&fieldSelector=metadata.name%3Ddefault")
    yield name
    _ask(access, "DELETE", f"/api/v1/namespaces/{name}")


def _ask(access: Access, method: str, path: str, body: object = None) -> None:
    """Make a request outside of any event loop; return once the first line is answered."""
    headers = {"Content-Type": "application/json", **access.headers}
    data = None if body is None else orjson.dumps(body)
    request = Request(f"{access.url}{path}", data, headers, method=method)  # noqa: S310 - https
    with urlopen(request, context=access.tls, timeout=WAIT_SECONDS) as answer:  # noqa: S310 - https
        assert answer.readline()


@pytest.fixture
async def api(access: Access) -> AsyncIterator[Api]:
    """An administrator's client of the cluster."""
    async with open_api(access) as api:
        yield api


@pytest.fixture
async def anonymous(access: Access) -> AsyncIterator[Api]:
    """A client of the cluster that shows no credentials."""
    async with open_api(access, is_anonymous=True) as api:
        yield api


@pytest.fixture
async def namespace(api: Api) -> AsyncIterator[str]:
    """The name of a namespace of the test's own that takes pods."""
    name = make_name()
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    async with api.watch(accounts, fieldSelector="metadata.name=default") as watch:
        await watch.until("ADDED", "default")
    yield name
    # Nobody waits for what is in it to go.
    await api.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def stories(access: Access) -> dict[str, Story]:
    """What was told of a pod of every fate, by its name; all ran at once."""
    with own_loop() as runner:
        return runner.run(record_stories(access))
