"""The variables of public routes: what is taken, what is refused, and in which words."""

from collections.abc import Iterator
from typing import Any

import pytest

from telorunner import conf
from telorunner.conf import Settings
from telorunner.conf.routing import ProbeAddress
from telorunner.errors import ConfigError

VARIABLES = sorted(str(field.validation_alias) for field in Settings.model_fields.values())

ADDRESS_FORM = (
    "must be host:port of what takes requests for public hosts, such as gateway.example:443 or "
    "http://10.0.0.1:8080, or resolve to ask DNS for each host"
)
OBJECT_FORM = "must be the name of a Kubernetes object"
DOMAIN_FORM = "must be a domain such as apps.example.com"

REFUSED: list[tuple[str, list[str], str]] = [
    (
        "SESSION_ROUTING_MODE",
        ["Gateway", "service", "true"],
        "input should be 'auto', 'ingress', 'gateway' or 'none'",
    ),
    ("SESSION_ROUTING_BASE_DOMAIN", ["Apps.example.com"], f"{DOMAIN_FORM}, in lower case"),
    (
        "SESSION_ROUTING_BASE_DOMAIN",
        ["apps.example.com.", ".apps.example.com", "apps..example.com"],
        f"{DOMAIN_FORM}, without a dot at its ends or two in a row",
    ),
    (
        "SESSION_ROUTING_BASE_DOMAIN",
        ["*.apps.example.com"],
        f"{DOMAIN_FORM}, without *: a host for each session is put in front of it",
    ),
    (
        "SESSION_ROUTING_BASE_DOMAIN",
        ["my_apps.example.com", "https://apps.example.com", " apps.example.com"],
        f"{DOMAIN_FORM}: letters, digits and '-' between dots, without scheme, port or path",
    ),
    (
        "SESSION_ROUTING_BASE_DOMAIN",
        [f"{'a' * 60}." * 3 + "a" * 57],
        f"{DOMAIN_FORM}, of at most 234 characters: with a session's port and id in front a host "
        "has at most 253",
    ),
    (
        "SESSION_ROUTE_READY_TIMEOUT_SECONDS",
        ["-1", "1.5", "1m"],
        "must be a whole number, such as 32",
    ),
    ("SESSION_ROUTE_READY_TIMEOUT_SECONDS", ["0"], "input should be greater than or equal to 1"),
    (
        "SESSION_ROUTE_READY_TIMEOUT_SECONDS",
        ["86401"],
        "input should be less than or equal to 86400",
    ),
    ("SESSION_ROUTE_PROBE", ["perhaps"], "must be true or false"),
    ("SESSION_ROUTE_PROBE", ["true"], "cannot be true unless SESSION_ROUTE_PROBE_ADDRESS is set"),
    (
        "SESSION_ROUTE_PROBE_ADDRESS",
        [
            "gateway.example",
            "https://gateway.example",
            "gateway.example:0",
            "gateway.example:65536",
            "gateway.example:https",
            "gateway.example:443/",
            "ftp://gateway.example:21",
            "https://user:secret-word@gateway.example:443",
            "my_gateway:443",
            "-gateway:443",
            "gateway..example:443",
            "gateway.example.:443",
            "300.1.1.1:443",
            "fd00::1:443",
            "[fd00:::1]:443",
            "[10.0.0.1]:443",
            "[]:443",
            ":443",
            "Resolve",
            "true",
            f"{'a.' * 127}aa:443",
        ],
        ADDRESS_FORM,
    ),
    ("SESSION_INGRESS_CLASS", ["Nginx", "a b", "a" * 254], OBJECT_FORM),
    ("SESSION_INGRESS_TLS_SECRET", ["a/b", "wild_card"], OBJECT_FORM),
    ("SESSION_GATEWAY_NAME", ["infra/public", "Public"], OBJECT_FORM),
    (
        "SESSION_GATEWAY_NAMESPACE",
        ["a.b", "Infra", "a" * 64],
        "must be a namespace: a lower-case DNS label of at most 63 characters",
    ),
    ("SESSION_GATEWAY_SECTION_NAME", ["HTTPS", "a b"], OBJECT_FORM),
]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """An environment without any of the runner's variables."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [(name, value, problem) for name, values, problem in REFUSED for value in values],
)
def test_a_value_that_cannot_be_used_is_refused_by_name_and_not_repeated(
    environment: pytest.MonkeyPatch, variable: str, value: str, problem: str
) -> None:
    environment.setenv(variable, value)
    with pytest.raises(ConfigError) as caught:
        conf.load()
    assert str(caught.value) == f"{variable}: {problem}"


def test_the_defaults_of_routing_are_the_documented_ones() -> None:
    settings = conf.load()
    assert (settings.routing_mode, settings.routing_base_domain) == ("auto", "")
    assert settings.route_ready_timeout_seconds == 60
    assert (settings.route_probe, settings.route_probe_address) == (None, None)
    assert not settings.is_route_probing
    assert (settings.ingress_class, settings.ingress_tls_secret) == ("", "")
    assert (settings.gateway_name, settings.gateway_section_name) == ("", "")
    # The sessions' own.
    assert settings.gateway_namespace is None


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("SESSION_ROUTING_MODE", "gateway", "routing_mode", "gateway"),
        ("SESSION_ROUTING_BASE_DOMAIN", "localhost", "routing_base_domain", "localhost"),
        ("SESSION_ROUTE_READY_TIMEOUT_SECONDS", "86400", "route_ready_timeout_seconds", 86_400),
        ("SESSION_ROUTE_PROBE", "false", "route_probe", False),
        ("SESSION_INGRESS_CLASS", "nginx.internal", "ingress_class", "nginx.internal"),
        ("SESSION_INGRESS_TLS_SECRET", "a" * 63, "ingress_tls_secret", "a" * 63),
        ("SESSION_GATEWAY_NAME", "public", "gateway_name", "public"),
        ("SESSION_GATEWAY_NAMESPACE", "a" * 63, "gateway_namespace", "a" * 63),
        ("SESSION_GATEWAY_SECTION_NAME", "https", "gateway_section_name", "https"),
    ],
)
def test_values_of_routing_are_read(
    environment: pytest.MonkeyPatch, variable: str, value: str, field: str, expected: Any
) -> None:
    environment.setenv(variable, value)
    assert getattr(conf.load(), field) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("resolve", ProbeAddress("https", "", 443)),
        ("gateway.example:443", ProbeAddress("https", "gateway.example", 443)),
        ("Gateway.Example:1", ProbeAddress("https", "Gateway.Example", 1)),
        ("http://127.0.0.1:18080", ProbeAddress("http", "127.0.0.1", 18_080)),
        ("https://10.0.0.1:65535", ProbeAddress("https", "10.0.0.1", 65_535)),
        ("http://[fd00::1]:8080", ProbeAddress("http", "fd00::1", 8080)),
        ("[::ffff:10.0.0.1]:8443", ProbeAddress("https", "::ffff:10.0.0.1", 8443)),
        ("resolve:8443", ProbeAddress("https", "resolve", 8443)),
    ],
)
def test_the_address_that_hosts_are_asked_at_is_read(
    environment: pytest.MonkeyPatch, value: str, expected: ProbeAddress
) -> None:
    environment.setenv("SESSION_ROUTE_PROBE_ADDRESS", value)
    settings = conf.load()
    assert settings.route_probe_address == expected
    assert settings.is_route_probing


@pytest.mark.parametrize(
    ("flag", "address", "is_probing"),
    [
        ("", "", False),
        ("false", "", False),
        ("", "resolve", True),
        ("true", "resolve", True),
        ("false", "resolve", False),
    ],
)
def test_hosts_are_asked_where_an_address_is_set_unless_it_is_turned_off(
    environment: pytest.MonkeyPatch, flag: str, address: str, is_probing: bool
) -> None:
    environment.setenv("SESSION_ROUTE_PROBE", flag)
    environment.setenv("SESSION_ROUTE_PROBE_ADDRESS", address)
    assert conf.load().is_route_probing is is_probing


def test_an_address_that_is_refused_is_not_also_missed(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("SESSION_ROUTE_PROBE", "true")
    environment.setenv("SESSION_ROUTE_PROBE_ADDRESS", "nowhere")
    with pytest.raises(ConfigError) as caught:
        conf.load()
    assert str(caught.value) == f"SESSION_ROUTE_PROBE_ADDRESS: {ADDRESS_FORM}"
