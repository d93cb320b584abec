"""Which listeners of a Gateway take a route, for which hosts, and the statuses that say so."""

from typing import Any

import pytest

from routing.gateway import GatewayTarget, build_httproute
from routing.routes import RoutedPort, SessionRoutes
from routing.status import Standing, verdict
from telorunner.localcluster import customkinds
from telorunner.localcluster.ingress import gateways, status
from telorunner.localcluster.ingress.gateways import Attachment, attach, route_rules
from telorunner.localcluster.ingress.status import Fact
from telorunner.localcluster.ingress.table import HTTP, HTTPS, Asked, Backend, SecretName, Table
from telorunner.localcluster.networkdefaults import LOCAL_CONTROLLER

Object = dict[str, Any]
RESOLVED = Fact("ResolvedRefs", True, "ResolvedRefs")


def listener(name: str = "http", protocol: str = "HTTP", **more: Any) -> Object:
    return {"name": name, "port": 80, "protocol": protocol, **more}


def gateway(*listeners: Object) -> Object:
    metadata = {"name": "gw", "namespace": "infra", "generation": 2}
    every = {"namespaces": {"from": "All"}}
    return {
        "metadata": metadata,
        "spec": {
            "gatewayClassName": "telorunner-local",
            "listeners": [{"allowedRoutes": every, **one} for one in listeners],
        },
    }


def route(*hosts: str, **spec: Any) -> Object:
    found = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {
            "name": "r",
            "namespace": "apps",
            "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"hostnames": list(hosts), "rules": [{"backendRefs": []}], **spec},
    }
    return customkinds.with_defaults("httproutes", found)


PARENT = {"name": "gw", "namespace": "infra"}


def attached(
    the_route: Object, *listeners: Object, labels: dict[str, str] | None = None, **parent: Any
) -> Attachment:
    return attach(the_route, {**PARENT, **parent}, gateway(*listeners), labels or {})


@pytest.mark.parametrize(
    ("own", "asked", "hosts"),
    [
        ("", (), ("",)),
        ("", ("a.test",), ("a.test",)),
        ("*.test", (), ("*.test",)),
        ("*.test", ("a.test", "b.a.test", "a.other"), ("a.test", "b.a.test")),
        ("*.test", ("*.a.test",), ("*.a.test",)),
        ("a.test", ("*.test",), ("a.test",)),
        ("a.test", ("a.test",), ("a.test",)),
    ],
)
def test_a_route_has_the_hosts_that_it_shares_with_a_listener(
    own: str, asked: tuple[str, ...], hosts: tuple[str, ...]
) -> None:
    found = attached(route(*asked), listener(**({"hostname": own} if own else {})))
    assert found.hosts == tuple((HTTP, host) for host in hosts)
    assert (found.reason, found.listeners) == ("", ("http",))


def test_a_route_without_a_host_in_common_is_not_accepted() -> None:
    found = attached(route("test"), listener(hostname="*.test"))
    assert found.reason == "NoMatchingListenerHostname"


def test_a_parent_may_name_its_listener() -> None:
    both = (listener(), listener("tls", "HTTPS", port=443))
    assert attached(route("a.test"), *both).hosts == ((HTTP, "a.test"), (HTTPS, "a.test"))
    assert attached(route("a.test"), *both, sectionName="tls").hosts == ((HTTPS, "a.test"),)
    assert attached(route("a.test"), *both, port=443).hosts == ((HTTPS, "a.test"),)
    assert attached(route("a.test"), *both, sectionName="x").reason == "NoMatchingParent"


@pytest.mark.parametrize(
    "unserved",
    [
        listener("tcp", "TCP"),
        listener("tls", "TLS"),
        listener("pass", "HTTPS", tls={"mode": "Passthrough"}),
    ],
)
def test_a_listener_of_another_protocol_takes_nothing(unserved: Object) -> None:
    assert attached(route("a.test"), unserved).reason == "NoMatchingParent"


@pytest.mark.parametrize(
    ("allowed", "is_taken"),
    [
        ({}, False),
        ({"namespaces": {"from": "Same"}}, False),
        ({"namespaces": {"from": "All"}}, True),
        ({"namespaces": {"from": "All"}, "kinds": [{"kind": "TCPRoute"}]}, False),
        ({"namespaces": {"from": "All"}, "kinds": [{"kind": "HTTPRoute"}]}, True),
        ({"namespaces": {"from": "Selector", "selector": {"matchLabels": {"a": "b"}}}}, True),
        ({"namespaces": {"from": "Selector", "selector": {"matchLabels": {"a": "c"}}}}, False),
        (
            {
                "namespaces": {
                    "from": "Selector",
                    "selector": {
                        "matchExpressions": [
                            {"key": "a", "operator": "In", "values": ["b", "c"]},
                            {"key": "d", "operator": "DoesNotExist"},
                        ]
                    },
                }
            },
            True,
        ),
        (
            {
                "namespaces": {
                    "from": "Selector",
                    "selector": {
                        "matchExpressions": [{"key": "a", "operator": "Is", "values": []}]
                    },
                }
            },
            False,
        ),
    ],
)
def test_a_listener_says_whose_routes_it_takes(allowed: Object, is_taken: bool) -> None:
    found = attached(route("a.test"), listener(allowedRoutes=allowed), labels={"a": "b"})
    assert found.reason == ("" if is_taken else "NotAllowedByListeners")


@pytest.mark.parametrize(
    "rule",
    [
        {"filters": [{"type": "URLRewrite"}]},
        {"backendRefs": [{"name": "x", "port": 1, "filters": [{"type": "URLRewrite"}]}]},
        {"matches": [{"path": {"type": "RegularExpression", "value": "/.*"}}]},
        {"matches": [{"headers": [{"type": "RegularExpression", "name": "a", "value": "b"}]}]},
        {"matches": [{"queryParams": [{"name": "a", "value": "b"}]}]},
    ],
)
def test_a_route_that_asks_for_more_than_there_is_is_not_half_served(rule: Object) -> None:
    found = attached(route("a.test", rules=[rule]), listener())
    assert found.reason == "UnsupportedValue"
    assert found.message.endswith("not supported.")
    assert list(route_rules(route("a.test", rules=[rule]), [found])) == []


def test_the_rules_of_a_route_are_those_of_its_matches() -> None:
    refs = [
        {"name": "one", "port": 80, "weight": 3},
        {"name": "other", "port": 80, "namespace": "elsewhere"},
        {"name": "kind", "kind": "Bucket"},
    ]
    matches = [
        {"path": {"type": "Exact", "value": "/x"}, "method": "POST"},
        {"headers": [{"name": "X-V", "value": "2"}]},
    ]
    the_route = route("a.test", rules=[{"backendRefs": refs, "matches": matches}])
    table = Table(route_rules(the_route, [attached(the_route, listener())]))
    found = table.find(Asked(HTTP, "a.test", "/x", "POST"))
    assert found is not None
    assert found.backends == (Backend("apps", "one", 80, 3),)
    assert table.find(Asked(HTTP, "a.test", "/x")) is None
    assert table.find(Asked(HTTP, "a.test", "/y", headers={"x-v": "2"})) is not None
    assert table.find(Asked(HTTPS, "a.test", "/x", "POST")) is None


def test_the_certificate_of_a_listener_is_a_secret_beside_its_gateway() -> None:
    def listening(**reference: str) -> Object:
        tls = {"certificateRefs": [{"name": "s", **reference}]}
        return gateway(listener("tls", "HTTPS", hostname="*.test", tls=tls))

    expected = [("*.test", SecretName("infra", "s"))]
    assert list(gateways.gateway_secrets(listening())) == expected
    assert list(gateways.gateway_secrets(listening(namespace="infra"))) == expected
    assert list(gateways.gateway_secrets(listening(namespace="apps"))) == []
    assert list(gateways.gateway_secrets(listening(kind="ConfigMap"))) == []


def test_the_runner_reads_that_its_route_was_programmed() -> None:
    target = GatewayTarget("gw", "infra", "http", "v1", "apps.localhost")
    routes = SessionRoutes("abc", {}, {}, (RoutedPort(8080),))
    manifest = build_httproute(routes, 8080, target, None)
    metadata = {**manifest["metadata"], "namespace": "apps", "generation": 1}
    the_route = customkinds.with_defaults("httproutes", {**manifest, "metadata": metadata})
    (parent,) = the_route["spec"]["parentRefs"]
    found = attach(the_route, parent, gateway(listener()), {})
    written = status.route_status(the_route, [found], RESOLVED, "2026-01-01T00:00:00Z")
    told = {**the_route, "status": written}
    assert customkinds.faults("httproutes", told) == []
    assert verdict(told, target).state is Standing.PROGRAMMED


def test_a_refused_route_says_why_and_other_controllers_words_stay() -> None:
    foreign = {
        "parentRef": {"name": "other"},
        "controllerName": "example.com/x",
        "conditions": [
            {
                "type": "Accepted",
                "status": "True",
                "reason": "Accepted",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
    gone = {**foreign, "controllerName": LOCAL_CONTROLLER}
    the_route = {**route("a.test"), "status": {"parents": [foreign, gone]}}
    refused = Attachment(PARENT, "NotAllowedByListeners", "No.")
    written = status.route_status(the_route, [refused], RESOLVED, "2026-01-02T00:00:00Z")
    assert written["parents"][0] == foreign
    (own,) = written["parents"][1:]
    assert (own["parentRef"], own["controllerName"]) == (PARENT, LOCAL_CONTROLLER)
    assert own["conditions"][0] == {
        "type": "Accepted",
        "status": "False",
        "reason": "NotAllowedByListeners",
        "message": "No.",
        "observedGeneration": 3,
        "lastTransitionTime": "2026-01-02T00:00:00Z",
    }


def test_a_condition_that_stays_keeps_the_time_of_its_change() -> None:
    first = status.class_status({"metadata": {"generation": 1}}, "2026-01-01T00:00:00Z")
    again = {"metadata": {"generation": 1}, "status": first}
    assert status.class_status(again, "2026-01-02T00:00:00Z") == first


def test_a_gateway_tells_how_its_listeners_stand() -> None:
    tls = {"certificateRefs": [{"name": "s"}]}
    the_gateway = gateway(
        listener(), listener("tls", "HTTPS", port=443, tls=tls), listener("tcp", "TCP", port=1)
    )
    written = status.gateway_status(the_gateway, {"http": 2}, ["tls"], "2026-01-01T00:00:00Z")
    whole = customkinds.with_defaults("gateways", {**the_gateway, "status": written})
    assert customkinds.faults("gateways", whole) == []
    assert written["addresses"] == [{"type": "IPAddress", "value": "127.0.0.1"}]
    assert [(one["type"], one["status"]) for one in written["conditions"]] == [
        ("Accepted", "True"),
        ("Programmed", "True"),
    ]
    found = {
        one["name"]: (
            one["attachedRoutes"],
            {each["type"]: each["reason"] for each in one["conditions"]},
        )
        for one in written["listeners"]
    }
    assert found["http"] == (
        2,
        {
            "Accepted": "Accepted",
            "Conflicted": "NoConflicts",
            "ResolvedRefs": "ResolvedRefs",
            "Programmed": "Programmed",
        },
    )
    assert found["tls"][1]["ResolvedRefs"] == "InvalidCertificateRef"
    assert found["tcp"][1]["Accepted"] == "UnsupportedProtocol"
