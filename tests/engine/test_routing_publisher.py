"""Objects that publish a session: made, kept at what is wanted, and taken away."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from routing.gateway import GatewayTarget, build_httproute
from routing.ingress import IngressTarget, build_ingress
from routing.publisher import Publisher
from routing.routes import ProbeBackend, RoutedPort, SessionRoutes
from routing.service import build_service
from telorunner.errors import AlreadyExists, ClusterUnavailable, Conflict, Forbidden
from telorunner.kube.client import Cluster
from tests.engine.gateways import BASE_DOMAIN, PATH, SESSION_ID, make_routes
from tests.fakes import FakeApi, cut, refuse

pytestmark = pytest.mark.looptime

NAME = f"telo-run-{SESSION_ID}"
INGRESS = IngressTarget("nginx", "", BASE_DOMAIN)
GATEWAY = GatewayTarget("public", "edge", "", "v1", BASE_DOMAIN)
PROBE = ProbeBackend("fake-runner-route-probe", 80, PATH)
TCP, OTHER_TCP, UDP = RoutedPort(8080), RoutedPort(9090), RoutedPort(5353, is_tcp=False)


def stored(api: FakeApi, resource: str) -> dict[str, Any]:
    """Return what the cluster has of a kind, as it was asked for."""
    found = {}
    for name, thing in api.objects[resource].items():
        kept = ("name", "labels", "ownerReferences")
        metadata = {key: thing["metadata"][key] for key in kept if key in thing["metadata"]}
        found[name] = {**thing, "metadata": metadata}
    return found


def writes(api: FakeApi) -> list[tuple[str, str, str]]:
    return [
        (seen.verb, seen.resource, seen.name)
        for seen in api.requests
        if seen.verb in ("create", "update", "delete")
    ]


async def test_an_ingress_and_a_service_publish_a_session(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    routes = make_routes(TCP, OTHER_TCP, UDP)
    await Publisher(cluster, INGRESS, PROBE).publish(routes)
    assert stored(api, "services") == {NAME: build_service(routes)}
    assert stored(api, "ingresses") == {NAME: build_ingress(routes, INGRESS, PROBE)}
    # Nobody looks for what cannot be there, and the Service is there before what needs it.
    assert [(seen.verb, seen.resource) for seen in api.requests] == [
        ("create", "services"),
        ("create", "ingresses"),
    ]


async def test_a_route_for_each_tcp_port_publishes_a_session(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    routes = make_routes(TCP, OTHER_TCP, UDP)
    await Publisher(cluster, GATEWAY, None).publish(routes)
    assert stored(api, "services") == {NAME: build_service(routes)}
    assert stored(api, "httproutes") == {
        f"{NAME}-8080": build_httproute(routes, 8080, GATEWAY, None),
        f"{NAME}-9090": build_httproute(routes, 9090, GATEWAY, None),
    }


async def test_routes_go_to_the_version_of_the_gateway_api_that_is_served(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    asked = []

    async def note(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return await api.behave(request)

    cluster.gateway_version = "v1beta1"
    api.script("create", api.behave, note)
    target = GatewayTarget("public", "edge", "", "v1beta1", BASE_DOMAIN)
    await Publisher(cluster, target, None).publish(make_routes())
    assert asked == ["/apis/gateway.networking.k8s.io/v1beta1/namespaces/sessions/httproutes"]
    (route,) = stored(api, "httproutes").values()
    assert route["apiVersion"] == "gateway.networking.k8s.io/v1beta1"


async def test_a_service_that_is_there_keeps_what_the_cluster_gave_it(
    fake: tuple[FakeApi, Cluster],
) -> None:
    """Between reading and writing somebody else writes: what is kept is read again."""
    api, cluster = fake
    given = {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ipFamilies": ["IPv4"]}
    labels = dict(make_routes().labels)
    api.put(NAME, "services", labels=labels, spec=given | {"type": "ClusterIP", "ports": []})

    async def overtaken(request: web.Request) -> web.StreamResponse:
        later = given | {"type": "NodePort", "ports": [{"port": 8080, "nodePort": 30_001}]}
        api.put(NAME, "services", labels=labels, spec=later)
        return await api.behave(request)

    api.script("update", overtaken)
    routes = make_routes(TCP, UDP)
    await Publisher(cluster, INGRESS, None).publish(routes)
    wanted = build_service(routes)
    (service,) = stored(api, "services").values()
    assert service == {**wanted, "spec": wanted["spec"] | given}
    first, second = (seen for seen in api.requests if seen.verb == "update")
    assert first.body["metadata"]["resourceVersion"] != second.body["metadata"]["resourceVersion"]
    assert first.body["spec"]["clusterIP"] == second.body["spec"]["clusterIP"] == "10.0.0.7"


@pytest.mark.parametrize("target", [INGRESS, GATEWAY], ids=["ingress", "gateway"])
async def test_what_others_have_added_to_an_object_stays(
    fake: tuple[FakeApi, Cluster], target: IngressTarget | GatewayTarget
) -> None:
    """Without its finalizer, what a controller has made in a cloud would never be taken away."""
    api, cluster = fake
    publisher = Publisher(cluster, target, PROBE)
    routes = make_routes(TCP)
    await publisher.publish(routes)
    theirs = {
        "annotations": {"cloud.example/forwarding-rule": "fr-1"},
        "finalizers": ["cloud.example/load-balancer"],
        "ownerReferences": [{"kind": "Pod", "name": "another", "uid": "9"}],
    }
    expected = {}
    for resource in ("services", publisher.resource):
        ((name, thing),) = api.objects[resource].items()
        spec = {**thing["spec"], "ports": []} if resource == "services" else thing["spec"]
        labels = {**routes.labels, "cloud.example/zone": "a"}
        status = {"of": "theirs"}
        thing = api.put(name, resource, labels=labels, metadata=theirs, spec=spec, status=status)
        expected[resource] = thing["metadata"] | {"ownerReferences": [dict(routes.owner)]}

    await publisher.publish(routes)
    for resource, metadata in expected.items():
        (thing,) = api.objects[resource].values()
        version = thing["metadata"]["resourceVersion"]
        assert thing["metadata"] == metadata | {"resourceVersion": version}
        assert thing["status"] == {"of": "theirs"}
    assert stored(api, "services")[NAME]["spec"] == build_service(routes)["spec"]


async def test_an_ingress_keeps_the_class_that_the_cluster_gave_it(
    fake: tuple[FakeApi, Cluster],
) -> None:
    """The cluster gives a default class only to an Ingress that is created."""
    api, cluster = fake
    publisher = Publisher(cluster, IngressTarget("", "", BASE_DOMAIN), None)
    await publisher.publish(make_routes(TCP))
    given = api.objects["ingresses"][NAME]
    given["spec"]["ingressClassName"] = "nginx"
    await publisher.publish(make_routes(TCP, OTHER_TCP))
    wanted = build_ingress(make_routes(TCP, OTHER_TCP), INGRESS, None)
    assert api.objects["ingresses"][NAME]["spec"] == wanted["spec"]
    # One that an operator has set since then counts.
    await Publisher(cluster, IngressTarget("other", "", BASE_DOMAIN), None).publish(make_routes())
    assert api.objects["ingresses"][NAME]["spec"]["ingressClassName"] == "other"


async def test_publishing_again_changes_nothing(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    publisher = Publisher(cluster, GATEWAY, PROBE)
    await publisher.publish(make_routes(TCP, UDP))
    before = stored(api, "services"), stored(api, "httproutes")
    await publisher.publish(make_routes(TCP, UDP))
    assert (stored(api, "services"), stored(api, "httproutes")) == before
    assert [verb for verb, _, _ in writes(api)[2:]] == ["create", "update"] * 2


async def test_other_ports_create_replace_and_delete(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    publisher = Publisher(cluster, GATEWAY, PROBE)
    await publisher.publish(make_routes(TCP, UDP))
    changed = make_routes(OTHER_TCP, RoutedPort(7070))
    await publisher.publish(changed)
    assert stored(api, "services") == {NAME: build_service(changed)}
    assert set(stored(api, "httproutes")) == {f"{NAME}-9090", f"{NAME}-7070"}
    assert ("delete", "httproutes", f"{NAME}-8080") in writes(api)


@pytest.mark.parametrize("target", [INGRESS, GATEWAY], ids=["ingress", "gateway"])
async def test_without_tcp_ports_there_is_no_route_and_without_ports_nothing(
    fake: tuple[FakeApi, Cluster], target: IngressTarget | GatewayTarget
) -> None:
    api, cluster = fake
    publisher = Publisher(cluster, target, PROBE)
    await publisher.publish(make_routes(TCP))
    await publisher.publish(make_routes(UDP))
    assert stored(api, "services") == {NAME: build_service(make_routes(UDP))}
    assert stored(api, publisher.resource) == {}
    labels, owner = make_routes().labels, make_routes().owner

    await publisher.publish(SessionRoutes(SESSION_ID, labels, owner, ()))
    assert stored(api, "services") == {}


async def test_two_that_publish_at_once_end_with_the_later_ports(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    publisher = Publisher(cluster, GATEWAY, None)
    async with asyncio.TaskGroup() as group:
        group.create_task(publisher.publish(make_routes(TCP)))
        await asyncio.sleep(0)
        group.create_task(publisher.publish(make_routes(OTHER_TCP)))
    assert stored(api, "services") == {NAME: build_service(make_routes(OTHER_TCP))}
    assert set(stored(api, "httproutes")) == {f"{NAME}-9090"}
    assert not publisher._locks


async def test_what_is_not_the_sessions_own_stays_untouched(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    foreign = {"app.kubernetes.io/managed-by": "Helm"}
    api.put(NAME, "services", labels=foreign, spec={"ports": []})
    before = stored(api, "services")
    publisher = Publisher(cluster, INGRESS, None)
    with pytest.raises(AlreadyExists):
        await publisher.publish(make_routes())
    await publisher.withdraw(SESSION_ID)
    assert stored(api, "services") == before


async def test_two_releases_share_a_namespace(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    theirs = {"app.kubernetes.io/managed-by": "staging", "telo.run/session-id": SESSION_ID}
    for resource, name in (("services", "theirs"), ("httproutes", "theirs-8080")):
        api.put(name, resource, labels=theirs, spec={})
    publisher = Publisher(cluster, GATEWAY, PROBE)
    await publisher.publish(make_routes())
    assert await publisher.session_ids() == {SESSION_ID}
    await publisher.withdraw(SESSION_ID)
    assert await publisher.session_ids() == set()
    assert set(stored(api, "services")) == {"theirs"}
    assert set(stored(api, "httproutes")) == {"theirs-8080"}


async def test_what_belongs_to_no_session_is_not_told_as_one(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    api.put("fake-runner-route-probe", "services", spec={})
    assert await Publisher(cluster, INGRESS, PROBE).session_ids() == set()


async def test_what_waits_for_somebody_elses_finalizer_is_not_told_any_more(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    publisher = Publisher(cluster, INGRESS, PROBE)
    await publisher.publish(make_routes())
    for resource in ("services", "ingresses"):
        for name, thing in stored(api, resource).items():
            metadata = {**thing["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            api.put(name, resource, metadata=metadata, labels=metadata["labels"])
    assert await publisher.session_ids() == set()


async def test_one_kind_that_cannot_be_deleted_does_not_spare_the_other(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    publisher = Publisher(cluster, INGRESS, None)
    await publisher.publish(make_routes())
    api.script("delete", refuse(403, "Forbidden"))
    with pytest.raises(Forbidden):
        await publisher.withdraw(SESSION_ID)
    assert stored(api, "services") == {}
    await publisher.withdraw(SESSION_ID)
    assert stored(api, "ingresses") == {}


async def test_withdrawing_nothing_is_no_failure(fake: tuple[FakeApi, Cluster]) -> None:
    _, cluster = fake
    await Publisher(cluster, GATEWAY, None).withdraw(SESSION_ID)


async def test_a_refusal_is_the_callers(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    api.script("create", refuse(403, "Forbidden"), cut)
    publisher = Publisher(cluster, INGRESS, None)
    with pytest.raises(Forbidden):
        await publisher.publish(make_routes())
    with pytest.raises(ClusterUnavailable):
        await publisher.publish(make_routes())
    await publisher.publish(make_routes())
    assert set(stored(api, "ingresses")) == {NAME}


async def test_somebody_who_writes_for_ever_is_not_waited_for(
    fake: tuple[FakeApi, Cluster], looptime: float
) -> None:
    api, cluster = fake
    publisher = Publisher(cluster, INGRESS, None)
    await publisher.publish(make_routes())
    api.script("update", *[refuse(409, "Conflict")] * 20)
    with pytest.raises(Conflict):
        await publisher.publish(make_routes())
    assert api.count("update") == 5
    assert looptime < 3


async def test_one_that_is_being_deleted_is_made_anew(fake: tuple[FakeApi, Cluster]) -> None:
    """The old pod's Service is on its way out: what is put in its place would go with it."""
    api, cluster = fake
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    labels = dict(make_routes().labels)
    api.put(NAME, "services", labels=labels, spec={"ports": []}, metadata=going)

    async def gone(request: web.Request) -> web.StreamResponse:
        answer = await api.behave(request)
        api.remove(NAME, "services")
        return answer

    api.script("get", gone)
    await Publisher(cluster, INGRESS, None).publish(make_routes())
    assert stored(api, "services") == {NAME: build_service(make_routes())}
    assert api.count("update") == 0


async def test_one_that_vanishes_under_the_hand_is_made_anew(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    api.script("create", refuse(409, "AlreadyExists"))
    await Publisher(cluster, INGRESS, None).publish(make_routes())
    assert stored(api, "services") == {NAME: build_service(make_routes())}
