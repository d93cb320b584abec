"""The Service, Ingress and HTTPRoutes of a session, as whole manifests."""

import dataclasses
from typing import Any

import pytest

from routing.gateway import GatewayTarget, build_httproute
from routing.ingress import IngressTarget, build_ingress
from routing.routes import ProbeBackend, ProbePath, RoutedPort, SessionRoutes
from routing.service import build_service
from telorunner.kube.objects import owner_reference, session_labels

SESSION_ID = "abcdefghijkl"
NAME = f"telo-run-{SESSION_ID}"
DOMAIN = "apps.example.com"
HOST_8080 = f"8080-{SESSION_ID}.{DOMAIN}"
HOST_9090 = f"9090-{SESSION_ID}.{DOMAIN}"

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME, "uid": "the-uid"}}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": NAME, "uid": "the-uid"}
LABELS = {"app.kubernetes.io/managed-by": "telo-k8s-runner", "telo.run/session-id": SESSION_ID}

# What the reserved paths of the two hosts begin with, under this secret.
PROBE = ProbeBackend("telo-k8s-runner-route-probe", 8062, ProbePath(b"secret"))
PATH_8080 = "/.well-known/telo-route/neo42a4erp2e4vfbgzdp3xfoic"
PATH_9090 = "/.well-known/telo-route/tiwrnir6ukwkvu5qlpepmlxtd7"

INGRESS = IngressTarget(class_name="nginx", tls_secret="wildcard", base_domain=DOMAIN)
GATEWAY = GatewayTarget(
    name="public",
    namespace="infra",
    section_name="https",
    api_version="v1",
    base_domain=DOMAIN,
)

THREE = (RoutedPort(8080), RoutedPort(9090), RoutedPort(5353, is_tcp=False))


def make_routes(*ports: RoutedPort) -> SessionRoutes:
    labels = session_labels("telo-k8s-runner", SESSION_ID)
    return SessionRoutes(SESSION_ID, labels, owner_reference(POD), ports)


def metadata(name: str) -> dict[str, Any]:
    return {"name": name, "labels": LABELS, "ownerReferences": [OWNER]}


def service_port(name: str, port: int, protocol: str) -> dict[str, Any]:
    return {"name": name, "port": port, "targetPort": port, "protocol": protocol}


def ingress_path(path: str, service: str, port: dict[str, Any]) -> dict[str, Any]:
    backend = {"service": {"name": service, "port": port}}
    return {"path": path, "pathType": "Prefix", "backend": backend}


def route_rule(path: str, service: str, port: int) -> dict[str, Any]:
    return {
        "matches": [{"path": {"type": "PathPrefix", "value": path}}],
        "backendRefs": [{"name": service, "port": port}],
    }


def test_a_service_has_every_declared_port() -> None:
    assert build_service(make_routes(*THREE)) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(NAME),
        "spec": {
            "type": "ClusterIP",
            "selector": {"telo.run/session-id": SESSION_ID},
            "ports": [
                service_port("p8080", 8080, "TCP"),
                service_port("p9090", 9090, "TCP"),
                service_port("p5353", 5353, "UDP"),
            ],
        },
    }


def test_a_number_for_tcp_and_udp_is_two_ports_of_which_the_tcp_one_comes_first() -> None:
    routes = make_routes(RoutedPort(53, is_tcp=False), RoutedPort(53), RoutedPort(53))
    assert build_service(routes)["spec"]["ports"] == [
        service_port("p53", 53, "TCP"),
        service_port("p53-udp", 53, "UDP"),
    ]
    (rule,) = build_ingress(routes, INGRESS, None)["spec"]["rules"]
    assert rule["http"]["paths"] == [ingress_path("/", NAME, {"name": "p53"})]


def test_a_session_with_udp_ports_alone_has_a_service() -> None:
    ports = build_service(make_routes(RoutedPort(5353, is_tcp=False)))["spec"]["ports"]
    assert ports == [service_port("p5353", 5353, "UDP")]


def test_an_ingress_has_a_rule_for_each_tcp_port() -> None:
    assert build_ingress(make_routes(*THREE), INGRESS, None) == {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": metadata(NAME),
        "spec": {
            "ingressClassName": "nginx",
            "tls": [{"hosts": [HOST_8080, HOST_9090], "secretName": "wildcard"}],
            "rules": [
                {
                    "host": HOST_8080,
                    "http": {"paths": [ingress_path("/", NAME, {"name": "p8080"})]},
                },
                {
                    "host": HOST_9090,
                    "http": {"paths": [ingress_path("/", NAME, {"name": "p9090"})]},
                },
            ],
        },
    }


def test_an_ingress_sends_each_hosts_reserved_path_to_the_runner() -> None:
    assert build_ingress(make_routes(*THREE), INGRESS, PROBE)["spec"]["rules"] == [
        {
            "host": HOST_8080,
            "http": {
                "paths": [
                    ingress_path(PATH_8080, PROBE.service_name, {"number": 8062}),
                    ingress_path("/", NAME, {"name": "p8080"}),
                ]
            },
        },
        {
            "host": HOST_9090,
            "http": {
                "paths": [
                    ingress_path(PATH_9090, PROBE.service_name, {"number": 8062}),
                    ingress_path("/", NAME, {"name": "p9090"}),
                ]
            },
        },
    ]


def test_an_ingress_names_neither_class_nor_certificate_that_was_not_set() -> None:
    target = IngressTarget(class_name="", tls_secret="", base_domain=DOMAIN)
    spec = build_ingress(make_routes(RoutedPort(8080)), target, None)["spec"]
    paths = [ingress_path("/", NAME, {"name": "p8080"})]
    assert spec == {"rules": [{"host": HOST_8080, "http": {"paths": paths}}]}


def test_an_httproute_has_one_host_and_one_port() -> None:
    assert build_httproute(make_routes(*THREE), 9090, GATEWAY, None) == {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": metadata(f"{NAME}-9090"),
        "spec": {
            "parentRefs": [{"name": "public", "namespace": "infra", "sectionName": "https"}],
            "hostnames": [HOST_9090],
            "rules": [route_rule("/", NAME, 9090)],
        },
    }


def test_an_httproute_sends_its_hosts_reserved_path_to_the_runner() -> None:
    routes = make_routes(*THREE)
    assert build_httproute(routes, 8080, GATEWAY, PROBE)["spec"]["rules"] == [
        route_rule(PATH_8080, PROBE.service_name, 8062),
        route_rule("/", NAME, 8080),
    ]
    assert build_httproute(routes, 9090, GATEWAY, PROBE)["spec"]["rules"] == [
        route_rule(PATH_9090, PROBE.service_name, 8062),
        route_rule("/", NAME, 9090),
    ]


def test_an_httproute_is_of_the_served_version_and_names_no_listener_that_was_not_set() -> None:
    target = dataclasses.replace(GATEWAY, api_version="v1beta1", section_name="")
    manifest = build_httproute(make_routes(RoutedPort(8080)), 8080, target, None)
    assert manifest["apiVersion"] == "gateway.networking.k8s.io/v1beta1"
    assert manifest["spec"]["parentRefs"] == [{"name": "public", "namespace": "infra"}]


@pytest.mark.parametrize("probe", [None, PROBE])
def test_manifests_share_nothing_that_could_be_changed(probe: ProbeBackend | None) -> None:
    routes = make_routes(*THREE)
    for build in (
        lambda: build_service(routes),
        lambda: build_ingress(routes, INGRESS, probe),
        lambda: build_httproute(routes, 8080, GATEWAY, probe),
    ):
        changed = build()
        changed["metadata"]["labels"]["a"] = "b"
        changed["metadata"]["ownerReferences"][0]["uid"] = "another"
        changed["spec"].clear()
        again = build()
        assert (again["metadata"]["labels"], again["metadata"]["ownerReferences"]) == (
            LABELS,
            [OWNER],
        )
        assert again["spec"]
