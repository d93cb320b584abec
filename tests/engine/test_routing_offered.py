"""What the cluster offers for public routes, and what is made of answers that say nothing."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from routing.layer import IngressClass, Offered, RoutingSettings
from routing.offered import discover
from telorunner.errors import ClusterUnavailable, Forbidden
from telorunner.kube.client import Cluster
from tests.fakes import FakeApi, Handler, cut, refuse

AUTO = RoutingSettings(base_domain="apps.test")


def serving(**versions: tuple[str, ...]) -> Handler:
    """Return a handler of discovery: the kinds of each version of the Gateway API."""
    served = [{"version": version} for version in versions]
    groups = [{"name": "apps", "versions": [{"version": "v1"}]}]
    if served:
        groups.append({"name": "gateway.networking.k8s.io", "versions": served})

    async def handler(request: web.Request) -> web.StreamResponse:
        version = request.path.rpartition("/")[2]
        if version == "apis":
            return web.json_response({"kind": "APIGroupList", "groups": groups})
        if version not in versions:
            # As a real API server does.
            return web.Response(text="404 page not found\n", status=404)
        return web.json_response({"resources": [{"name": name} for name in versions[version]]})

    return handler


def put_class(api: FakeApi, name: str, **annotations: str) -> None:
    more: dict[str, Any] = {"metadata": {"annotations": annotations}} if annotations else {}
    api.put(name, "ingressclasses", **more)


@pytest.mark.parametrize(
    ("served", "versions"),
    [
        ({}, ()),
        ({"v1": ("gateways", "httproutes")}, ("v1",)),
        ({"v1beta1": ("httproutes",)}, ("v1beta1",)),
        ({"v1": ("httproutes",), "v1beta1": ("httproutes",)}, ("v1", "v1beta1")),
        ({"v1": ("gateways",), "v1beta1": ("httproutes",)}, ("v1beta1",)),
        ({"v1alpha2": ("httproutes",)}, ()),
        ({"v1": ()}, ()),
    ],
)
async def test_the_versions_are_those_that_have_httproutes(
    fake: tuple[FakeApi, Cluster], served: dict[str, tuple[str, ...]], versions: tuple[str, ...]
) -> None:
    api, cluster = fake
    api.script("get", *[serving(**served)] * 3)
    assert await discover(cluster, AUTO) == Offered((), None, versions, None)


async def test_ingress_classes_are_told_with_the_mark_of_the_default_one(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    api.script("get", *[serving()] * 2)
    put_class(api, "nginx")
    put_class(api, "traefik", **{"ingressclass.kubernetes.io/is-default-class": "true"})
    put_class(api, "other", **{"ingressclass.kubernetes.io/is-default-class": "false"})
    found = await discover(cluster, AUTO)
    assert found.ingress_classes == (
        IngressClass("nginx"),
        IngressClass("traefik", is_default=True),
        IngressClass("other"),
    )


async def test_what_may_not_be_read_is_a_failure_and_no_absence(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    api.script("list", refuse(403, "Forbidden"))
    api.script("get", refuse(403, "Forbidden"))
    found = await discover(cluster, AUTO)
    assert found.ingress_classes is None
    assert isinstance(found.ingress_failure, Forbidden)
    assert found.gateway_versions == ()
    assert isinstance(found.gateway_failure, Forbidden)


@pytest.mark.parametrize(("mode", "verb"), [("ingress", "list"), ("gateway", "get")])
async def test_only_what_is_open_is_asked_for(
    fake: tuple[FakeApi, Cluster], mode: Any, verb: str
) -> None:
    api, cluster = fake
    api.script("get", *[serving(v1=("httproutes",))] * 3)
    await discover(cluster, RoutingSettings(mode=mode, base_domain="apps.test"))
    assert {seen.verb for seen in api.requests} == {verb}


@pytest.mark.looptime
async def test_an_api_server_that_restarts_is_waited_for(
    fake: tuple[FakeApi, Cluster], looptime: float
) -> None:
    api, cluster = fake
    put_class(api, "nginx")
    # The HTTP client repeats a GET once where a connection that was kept is closed.
    api.script("list", refuse(503), cut, cut, refuse(500))
    api.script("get", refuse(503), *[serving()] * 2)
    found = await discover(cluster, AUTO)
    assert found == Offered((IngressClass("nginx"),), None, (), None)
    assert looptime < 8


@pytest.mark.looptime
async def test_an_api_server_that_stays_away_is_a_failure_after_seconds(
    fake: tuple[FakeApi, Cluster], looptime: float
) -> None:
    api, cluster = fake
    api.script("list", *[refuse(503)] * 20)
    api.script("get", *[refuse(503)] * 20)
    async with asyncio.timeout(30):
        found = await discover(cluster, AUTO)
    assert isinstance(found.ingress_failure, ClusterUnavailable)
    assert isinstance(found.gateway_failure, ClusterUnavailable)
    assert looptime < 20
