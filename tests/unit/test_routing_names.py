"""Hosts, names of objects and reserved paths, and the base domains that they fit under."""

import pytest

from routing.routes import (
    ProbePath,
    RoutedPort,
    SessionRoutes,
    hostname,
    object_name,
    route_name,
    url,
)
from sessions.pods.run import object_name as pod_name
from sessions.store.rows import ID_LENGTH
from telorunner.values import publichost
from telorunner.values.publichost import base_domain_problem

SESSION_ID = "abcdefghijkl"
HOST = f"8080-{SESSION_ID}.apps.example.com"
PATH = ProbePath(b"a secret of the runner")
FORM = "must be a domain such as apps.example.com"

# Its labels are as long as they may be.
LONGEST_DOMAIN = ".".join(["a" * 63] * 3 + ["a" * 42])

REFUSED = [
    ("Apps.example.com", f"{FORM}, in lower case"),
    ("*.example.com", f"{FORM}, without *: a host for each session is put in front of it"),
    *(
        (text, f"{FORM}, without a dot at its ends or two in a row")
        for text in ("", "example.com.", ".example.com", "apps..example.com", ".")
    ),
    (f"{'a' * 64}.example", f"{FORM}: between its dots at most 63 characters"),
    *(
        (
            text,
            f"{FORM}: letters, digits and '-' between dots, without scheme, port or path",
        )
        for text in (
            "my_apps.example.com",
            "-apps.example.com",
            "apps-.example.com",
            "https://apps.example.com",
            "apps.example.com:8443",
            "apps.example.com/path",
            "apps.*.com",
            "äpps.example.com",
            "apps example.com",
            "apps.example.com\n",
            "٨.example.com",
            "[::1]",
        )
    ),
    *((text, f"{FORM}, not an address") for text in ("127.0.0.1", "apps.1", "apps.0x7f", "0x")),
    *(
        (
            text,
            f"{FORM}, of at most 234 characters: with a session's port and id in front a host "
            "has at most 253",
        )
        for text in (f"{LONGEST_DOMAIN}a", f"{'a' * 60}." * 3 + "a" * 57)
    ),
]


def make_routes(*ports: RoutedPort) -> SessionRoutes:
    return SessionRoutes(SESSION_ID, {}, {}, ports)


def test_a_host_is_one_label_before_the_base_domain() -> None:
    assert hostname(8080, SESSION_ID, "apps.example.com") == HOST
    assert url(HOST) == f"https://{HOST}"


def test_the_longest_host_is_a_dns_name() -> None:
    assert publichost.SESSION_ID_LENGTH == ID_LENGTH
    host = hostname(65_535, "a" * ID_LENGTH, LONGEST_DOMAIN)
    assert len(host) == 253
    assert max(map(len, host.split("."))) == 63
    # Whatever the base domain, the first label has room.
    assert len(f"65535-{'a' * ID_LENGTH}") <= 63


@pytest.mark.parametrize(
    "domain",
    ["apps.example.com", "localhost", "a", "1.a", "4.a-2.example", "xn--pps-qla.a", LONGEST_DOMAIN],
)
def test_a_domain_that_hosts_fit_under_is_taken(domain: str) -> None:
    assert base_domain_problem(domain) == ""


@pytest.mark.parametrize(("domain", "problem"), REFUSED)
def test_a_base_domain_that_would_give_no_working_host_is_refused(
    domain: str, problem: str
) -> None:
    assert base_domain_problem(domain) == problem


def test_objects_are_named_after_the_session() -> None:
    assert object_name(SESSION_ID) == pod_name(SESSION_ID) == f"telo-run-{SESSION_ID}"
    assert route_name(SESSION_ID, 8080) == f"telo-run-{SESSION_ID}-8080"


def test_only_tcp_ports_have_hosts_and_each_has_one() -> None:
    routes = make_routes(
        RoutedPort(9090),
        RoutedPort(5353, is_tcp=False),
        RoutedPort(8080),
        RoutedPort(9090),
        RoutedPort(8080, is_tcp=False),
    )
    assert routes.tcp_ports == (9090, 8080)
    assert make_routes(RoutedPort(53, is_tcp=False)).tcp_ports == ()


def test_the_reserved_path_is_as_documented() -> None:
    # base32(HMAC-SHA256(secret, host)), and the same with a line feed and the nonce, in hex.
    assert PATH.key(HOST) == "dqczajft5ojdwzqewv3wusjnro"
    assert PATH.prefix(HOST) == "/.well-known/telo-route/dqczajft5ojdwzqewv3wusjnro"
    assert PATH.proof(HOST, "dqczajft5ojdwzqewv3wusjnro/nonce") == (
        "48d1c63b61723570b686ef8f56461fb97047db332471b2f611df308be61b0256"
    )


def test_each_host_and_each_secret_has_a_path_of_its_own() -> None:
    other = f"9090-{SESSION_ID}.apps.example.com"
    keys = {PATH.key(HOST), PATH.key(other), ProbePath(b"another").key(HOST)}
    assert len(keys) == 3
    assert all(len(key) == 26 and key.isalnum() and key == key.lower() for key in keys)


def test_a_proof_is_of_one_host_and_one_nonce() -> None:
    other = f"9090-{SESSION_ID}.apps.example.com"
    proofs = {PATH.proof(HOST, "a"), PATH.proof(HOST, "b"), PATH.proof(other, "a")}
    assert len(proofs) == 3


def test_the_secret_of_the_paths_does_not_show() -> None:
    assert "secret of" not in repr(PATH)
