"""Which rule of the local ingress takes a request, and the rules that objects make."""

from typing import Any

import h11
import pytest

from routing.ingress import IngressTarget, build_ingress
from routing.routes import ProbeBackend, ProbePath, RoutedPort, SessionRoutes, hostname
from telorunner.localcluster.ingress import headers
from telorunner.localcluster.ingress.headers import Visitor
from telorunner.localcluster.ingress.ingresses import (
    default_rules,
    ingress_rules,
    ingress_secrets,
    is_local,
    local_classes,
)
from telorunner.localcluster.ingress.table import (
    HTTP,
    HTTPS,
    Asked,
    Backend,
    Rule,
    SecretName,
    Table,
    normal_host,
)
from telorunner.localcluster.networkdefaults import LOCAL_CONTROLLER

Object = dict[str, Any]


def rule(name: str, host: str = "", path: str = "/", **more: Any) -> Rule:
    return Rule(host=host, path=path, backends=(Backend("ns", name, 80),), **more)


def taken(table: Table, host: str, path: str = "/", **more: Any) -> str | None:
    """Return the name of the Service that a request goes to."""
    found = table.find(Asked(more.pop("scheme", HTTP), host, path, **more))
    return found and found.backends[0].service


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("a.test", "exact"),
        ("b.test", "star"),
        # The star of an Ingress is one label.
        ("x.b.test", "any"),
        ("test", "any"),
        ("", "any"),
        ("x.deep.test", "deep"),
        ("y.x.deep.test", "deep"),
        ("deep.test", "star"),
        ("one.x.deep.test", "one"),
    ],
)
def test_the_most_specific_host_decides(host: str, expected: str) -> None:
    table = Table(
        [
            rule("any"),
            rule("star", "*.test"),
            rule("deep", "*.deep.test", is_deep=True),
            rule("one", "one.x.deep.test"),
            rule("exact", "a.test"),
        ]
    )
    assert taken(table, host) == expected


def test_what_is_too_long_for_a_name_is_no_host() -> None:
    # Each label of a head's 64 KiB would cost a copy of the rest: seconds, for one request.
    table = Table([rule("deep", "*.deep.test", is_deep=True), rule("any")])
    assert taken(table, f"{'a.' * 121}deep.test") == "deep"
    assert taken(table, f"{'a.' * 123}deep.test") == "any"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "root"),
        ("/foobar", "root"),
        ("/foo", "foo"),
        ("/foo/", "foo"),
        ("/foo/x", "foo"),
        ("/foo/bar", "exact"),
        ("/foo/bar/", "slash"),
        ("/foo/bar/x", "slash"),
        ("/Foo", "root"),
        ("/foo/%62ar", "foo"),
        ("", "root"),
    ],
)
def test_of_paths_the_exact_one_wins_and_then_the_longest(path: str, expected: str) -> None:
    table = Table(
        [
            rule("root", "a.test", "/"),
            rule("foo", "a.test", "/foo"),
            rule("slash", "a.test", "/foo/bar/"),
            rule("exact", "a.test", "/foo/bar", is_exact=True),
        ]
    )
    assert taken(table, "a.test", path) == expected


def test_a_host_whose_paths_do_not_match_asks_no_other_host_but_a_default_backend() -> None:
    rules = [rule("any"), rule("foo", "a.test", "/foo")]
    assert taken(Table(rules), "a.test", "/bar") is None
    assert taken(Table(rules, defaults=[rule("last")]), "a.test", "/bar") == "last"
    assert taken(Table(defaults=[rule("last")]), "b.test") == "last"


def test_of_rules_that_say_the_same_the_oldest_wins() -> None:
    rules = [rule("new", "a.test", age=("2026-01-02",)), rule("old", "a.test", age=("2026-01-01",))]
    assert taken(Table(rules), "a.test") == "old"
    assert taken(Table(reversed(rules)), "a.test") == "old"


def test_methods_headers_and_schemes_narrow_a_rule() -> None:
    table = Table(
        [
            rule("all", "a.test"),
            rule("post", "a.test", method="POST"),
            rule("head", "a.test", headers=(("x-v", "2"),)),
            rule("secure", "b.test", schemes=frozenset({HTTPS})),
        ]
    )
    assert taken(table, "a.test") == "all"
    assert taken(table, "a.test", method="POST", headers={"x-v": "2"}) == "post"
    assert taken(table, "a.test", headers={"x-v": "2"}) == "head"
    assert taken(table, "a.test", headers={"x-v": "3"}) == "all"
    assert taken(table, "b.test") is None
    assert taken(table, "b.test", scheme=HTTPS) == "secure"


def test_a_certificate_is_found_by_its_host_or_by_what_stands_for_it() -> None:
    one, star = SecretName("ns", "one"), SecretName("ns", "star")
    table = Table(secrets={"a.test": one, "*.test": star})
    assert table.secret_for("a.test") == one
    assert table.secret_for("b.test") == star
    assert table.secret_for("other") is None


@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("A.Test", "a.test"),
        ("a.test:8080", "a.test"),
        ("a.test.", "a.test"),
        ("a.test.:80", "a.test"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("[a.test]", "[a.test]"),
        ("[::1]evil", "[::1]evil"),
        ("", ""),
    ],
)
def test_the_host_of_a_request_is_written_in_one_way(authority: str, host: str) -> None:
    assert normal_host(authority) == host


def stored(manifest: Object) -> Object:
    """Return an object as the API keeps it."""
    metadata = {
        "namespace": "ns",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        **manifest["metadata"],
    }
    return {**manifest, "metadata": metadata}


def test_an_ingress_of_a_session_leads_to_its_ports_and_its_reserved_path_to_the_runner() -> None:
    routes = SessionRoutes("abc", {}, {}, (RoutedPort(8080), RoutedPort(53, is_tcp=False)))
    probe = ProbeBackend("probe", 80, ProbePath(b"secret"))
    target = IngressTarget("telorunner-local", "certificate", "apps.localhost")
    ingress = stored(build_ingress(routes, target, probe))
    table = Table(ingress_rules(ingress), secrets=dict(ingress_secrets(ingress)))
    host = hostname(8080, "abc", "apps.localhost")
    for path, backend in (
        ("/", Backend("ns", "telo-run-abc", "p8080")),
        ("/.well-known/telo-route/other/x", Backend("ns", "telo-run-abc", "p8080")),
        (f"{probe.path.prefix(host)}/nonce", Backend("ns", "probe", 80)),
    ):
        found = table.find(Asked(HTTP, host, path))
        assert found is not None
        assert found.backends == (backend,)
    assert table.secret_for(host) == SecretName("ns", "certificate")


def test_what_an_ingress_leaves_open_is_filled_in() -> None:
    backend = {"service": {"name": "last", "port": {"number": 80}}}
    ingress = stored(
        {
            "metadata": {"name": "x"},
            "spec": {
                "defaultBackend": backend,
                "rules": [{"host": "named.test"}],
                "tls": [{"secretName": "s"}, {"hosts": ["h.test"]}],
            },
        }
    )
    table = Table(ingress_rules(ingress), defaults=default_rules(ingress))
    assert taken(table, "named.test", "/x") == "last"
    assert taken(table, "other.test") == "last"
    assert dict(ingress_secrets(ingress)) == {"named.test": SecretName("ns", "s")}


def test_only_ingresses_of_the_local_class_are_routed() -> None:
    classes = local_classes(
        [
            {"metadata": {"name": "mine"}, "spec": {"controller": LOCAL_CONTROLLER}},
            {"metadata": {"name": "other"}, "spec": {"controller": "example.com/other"}},
        ]
    )

    def ingress(annotation: str = "", **spec: str) -> Object:
        annotations = {"kubernetes.io/ingress.class": annotation} if annotation else {}
        return {"metadata": {"name": "x", "annotations": annotations}, "spec": spec}

    assert is_local(ingress(ingressClassName="mine"), classes)
    assert is_local(ingress("mine"), classes)
    assert not is_local(ingress(ingressClassName="other"), classes)
    assert not is_local(ingress("mine", ingressClassName="other"), classes)
    assert not is_local(ingress(), classes)


@pytest.mark.parametrize(
    ("target", "path", "authority"),
    [
        ("/a?b", "/a?b", "a.test"),
        ("http://b.test:81/x?y#z", "/x?y", "b.test:81"),
        ("HTTPS://me@b.test?y", "/?y", "b.test"),
        ("http://b.test", "/", "b.test"),
        ("*", "*", "a.test"),
    ],
)
def test_a_target_that_names_a_host_is_taken_by_its_word(
    target: str, path: str, authority: str
) -> None:
    request = h11.Request(method="GET", target=target, headers=[("Host", "a.test")])
    heading = headers.read_heading(request)
    assert heading == headers.Heading(path.encode(), authority.encode())
    passed = headers.request_for(request, heading, Visitor("10.0.0.1", HTTPS))
    assert passed.target == path.encode()
    assert dict(passed.headers)[b"host"] == authority.encode()
    assert dict(passed.headers)[b"x-forwarded-proto"] == b"https"


@pytest.mark.parametrize(
    ("fields", "is_upgrade"),
    [
        ([("Upgrade", "WebSocket"), ("Connection", "keep-alive, upgrade")], True),
        ([("Upgrade", "websocket")], False),
        ([("Connection", "upgrade")], False),
        # It would be spoken past the rules of the routes.
        ([("Upgrade", "h2c"), ("Connection", "upgrade")], False),
        ([("Upgrade", "websocket, h2c"), ("Connection", "upgrade")], False),
    ],
)
def test_only_websocket_is_spoken_beside_http(
    fields: list[tuple[str, str]], is_upgrade: bool
) -> None:
    request = h11.Request(method="GET", target="/", headers=[("Host", "a.test"), *fields])
    assert headers.is_upgrade(request) is is_upgrade
