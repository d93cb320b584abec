"""Services and routes of the local cluster as kubectl sees them."""

from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from telorunner.localcluster.cluster import ClusterSettings, open_local_cluster
from telorunner.localcluster.networkdefaults import add_local_classes
from tests.cluster.test_localcluster_kubectl import KUBECTL, Kubectl
from tests.conformance.networking import make_ingress, make_route, make_service, make_slice

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH")


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    settings = ClusterSettings(data_dir=tmp_path, gateway_versions=("v1", "v1beta1"))
    async with open_local_cluster(settings) as cluster:
        # The class without an ingress, which would write statuses meanwhile.
        add_local_classes(cluster.store, has_gateways=True)
        yield Kubectl(cluster, tmp_path)


async def apply(kubectl: Kubectl, obj: dict[str, object]) -> str:
    return await kubectl("apply", "-f", "-", stdin=orjson.dumps(obj))


async def test_a_service_is_applied_twice_and_keeps_its_address(kubectl: Kubectl) -> None:
    assert await apply(kubectl, make_service()) == "service/web created\n"
    address = await kubectl("get", "svc", "web", "-o", "jsonpath={.spec.clusterIP}")
    body = make_service("web", {"name": "p81", "port": 81}, {"name": "p82", "port": 82})
    assert await apply(kubectl, body) == "service/web configured\n"
    assert await apply(kubectl, body) == "service/web unchanged\n"
    line = (await kubectl("get", "svc", "web", "--no-headers")).split()
    assert line[:5] == ["web", "ClusterIP", address, "<none>", "81/TCP,82/TCP"]
    told = await kubectl("describe", "svc", "web")
    assert "Selector:                 app=nobody" in told
    assert (await kubectl("delete", "svc", "web")).startswith('service "web" deleted')


async def test_an_ingress_has_the_class_of_the_cluster(kubectl: Kubectl) -> None:
    body = make_ingress()
    del body["spec"]["ingressClassName"]
    assert await apply(kubectl, body) == "ingress.networking.k8s.io/web created\n"
    line = (await kubectl("get", "ing", "--no-headers")).split()
    assert line[:4] == ["web", "telorunner-local", "a.example", "80"]
    assert "telo.run/local-ingress" in await kubectl("get", "ingressclass")
    assert "a.example" in await kubectl("describe", "ing", "web")
    body["spec"]["rules"] = []
    refused = await kubectl("create", "-f", "-", stdin=orjson.dumps(body), code=1)
    assert "either `defaultBackend` or `rules` must be specified" in refused


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_route_is_applied_in_either_version(kubectl: Kubectl, version: str) -> None:
    created = "httproute.gateway.networking.k8s.io/web created\n"
    assert await apply(kubectl, make_route(version=version)) == created
    changed = make_route(version=version, hostnames=["b.example"])
    assert "configured" in await apply(kubectl, changed)
    assert '["b.example"]' in await kubectl("get", "httproute")
    shown = await kubectl("get", "httproute", "web", "-o", "jsonpath={.apiVersion}")
    assert shown == "gateway.networking.k8s.io/v1"
    assert "telorunner-local" in await kubectl("get", "gc")


async def test_slices_are_listed_and_watched(kubectl: Kubectl) -> None:
    async with kubectl.start("get", "endpointslices", "--watch", "-o", "name") as process:
        assert process.stdout is not None
        assert "created" in await apply(kubectl, make_slice())
        line = await process.stdout.readline()
        assert line == b"endpointslice.discovery.k8s.io/web-1\n"
    line_of = (await kubectl("get", "endpointslices", "--no-headers")).split()
    assert line_of[:4] == ["web-1", "IPv4", "8080", "192.0.2.1"]
