"""The decision at boot: which layer publishes sessions, or the sentence that refuses to start."""

import re
from typing import Any

import pytest

from routing.layer import (
    Decision,
    IngressClass,
    Offered,
    RoutingSettings,
    decide,
    needs_cluster,
    routing_settings,
)
from routing.routes import Layer
from telorunner.conf.routing import ProbeAddress
from telorunner.errors import ClusterError, ClusterUnavailable, ConfigError, Forbidden, Unauthorized
from tests.builders import make_settings

NGINX = IngressClass("nginx")
TRAEFIK = IngressClass("traefik")
DEFAULT = IngressClass("main", is_default=True)

API = "the Gateway API (HTTPRoutes of gateway.networking.k8s.io, v1 or v1beta1)"
FORBIDDEN = Forbidden(status=403, reason="Forbidden")
NOT_PERMITTED = "the runner is not permitted to do this (Forbidden, HTTP 403)"

NOT_LISTED = Offered(ingress_failure=FORBIDDEN)


def offered(*classes: IngressClass, gateway: tuple[str, ...] = ()) -> Offered:
    return Offered(ingress_classes=classes, gateway_versions=gateway)


BARE = offered()
GATEWAY_API = offered(gateway=("v1beta1", "v1"))
OLD_GATEWAY_API = offered(gateway=("v1alpha2", "v1beta1"))
NO_HTTPROUTES = offered(gateway=("v1alpha2",))
BOTH = offered(TRAEFIK, NGINX, gateway=("v1",))
BOTH_WITH_DEFAULT = offered(NGINX, DEFAULT, gateway=("v1",))

MODE_IS_INGRESS = "SESSION_ROUTING_MODE is ingress."
MODE_IS_GATEWAY = "SESSION_ROUTING_MODE is gateway."
NO_DEFAULT = "Ingresses name no class, and the cluster has no default (SESSION_INGRESS_CLASS)."


def none(why: str) -> Decision:
    return Decision(Layer.NONE, why)


def ingress(name: str, why: str) -> Decision:
    return Decision(Layer.INGRESS, why, ingress_class=name)


def gateway(version: str, why: str) -> Decision:
    return Decision(Layer.GATEWAY, why, gateway_version=version)


def of(name: str) -> str:
    return f"Ingresses are of the class {name}."


# What is set, what the cluster has, and what follows: a decision, or the sentence of a refusal.
MATRIX: list[tuple[dict[str, Any], Offered, Decision | str]] = [
    # None, whatever there is.
    ({"mode": "none"}, BOTH, none("SESSION_ROUTING_MODE is none.")),
    *(
        (
            {"mode": mode, "base_domain": "", "gateway_name": "public", "tls_secret": "wildcard"},
            BOTH,
            none("SESSION_ROUTING_BASE_DOMAIN is not set."),
        )
        for mode in ("auto", "ingress", "gateway")
    ),
    # Ingress was asked for.
    (
        {"mode": "ingress", "ingress_class": "nginx", "gateway_name": "public"},
        BOTH_WITH_DEFAULT,
        ingress("nginx", f"{MODE_IS_INGRESS} {of('nginx')}"),
    ),
    (
        {"mode": "ingress", "ingress_class": "other", "tls_secret": "wildcard"},
        BOTH,
        ingress(
            "other",
            f"{MODE_IS_INGRESS} Ingresses are of the class other, which the cluster does not list.",
        ),
    ),
    (
        {"mode": "ingress", "ingress_class": "other"},
        NOT_LISTED,
        ingress("other", f"{MODE_IS_INGRESS} {of('other')}"),
    ),
    (
        {"mode": "ingress"},
        BOTH_WITH_DEFAULT,
        ingress("main", f"{MODE_IS_INGRESS} {of('main')}"),
    ),
    ({"mode": "ingress"}, BOTH, ingress("", f"{MODE_IS_INGRESS} {NO_DEFAULT}")),
    ({"mode": "ingress"}, BARE, ingress("", f"{MODE_IS_INGRESS} {NO_DEFAULT}")),
    (
        {"mode": "ingress"},
        Offered(),
        ingress("", f"{MODE_IS_INGRESS} Ingresses name no class (SESSION_INGRESS_CLASS)."),
    ),
    (
        {"mode": "ingress"},
        NOT_LISTED,
        ingress(
            "",
            f"{MODE_IS_INGRESS} Ingresses name no class (SESSION_INGRESS_CLASS). "
            f"IngressClasses could not be listed, because {NOT_PERMITTED}.",
        ),
    ),
    # A Gateway was asked for.
    (
        {"mode": "gateway", "gateway_name": "public", "ingress_class": "nginx"},
        BOTH_WITH_DEFAULT,
        gateway("v1", MODE_IS_GATEWAY),
    ),
    ({"mode": "gateway", "gateway_name": "public"}, GATEWAY_API, gateway("v1", MODE_IS_GATEWAY)),
    (
        {"mode": "gateway", "gateway_name": "public"},
        OLD_GATEWAY_API,
        gateway("v1beta1", MODE_IS_GATEWAY),
    ),
    (
        {"mode": "gateway", "gateway_name": "public"},
        Offered(ingress_failure=FORBIDDEN, gateway_versions=("v1",)),
        gateway("v1", MODE_IS_GATEWAY),
    ),
    (
        {"mode": "gateway"},
        GATEWAY_API,
        "SESSION_GATEWAY_NAME: must name the Gateway that publishes sessions, because "
        "SESSION_ROUTING_MODE is gateway",
    ),
    *(
        (
            {"mode": "gateway", "gateway_name": "public"},
            there,
            f"SESSION_ROUTING_MODE: asks for a Gateway, but the cluster does not serve {API}; "
            "install it, or set SESSION_ROUTING_MODE to ingress or none",
        )
        for there in (BARE, NO_HTTPROUTES, offered(DEFAULT))
    ),
    (
        {"mode": "gateway", "gateway_name": "public"},
        Offered(ingress_classes=(DEFAULT,), gateway_failure=FORBIDDEN),
        "SESSION_ROUTING_MODE: asks for a Gateway, but whether the cluster serves the Gateway API "
        f"could not be asked, because {NOT_PERMITTED}",
    ),
    # A certificate for Ingresses, where there will be none.
    *(
        (
            {"mode": mode, "gateway_name": "public", "tls_secret": "wildcard"},
            BOTH,
            "SESSION_INGRESS_TLS_SECRET: must not be set where a Gateway publishes sessions: its "
            "listener holds the certificate; unset it, or set SESSION_ROUTING_MODE to ingress",
        )
        for mode in ("gateway", "auto")
    ),
    # Automatic, with something named: the Gateway before the class before what is there.
    (
        {"gateway_name": "public", "ingress_class": "nginx"},
        BOTH_WITH_DEFAULT,
        gateway("v1", "SESSION_GATEWAY_NAME names a Gateway."),
    ),
    (
        {"gateway_name": "public"},
        OLD_GATEWAY_API,
        gateway("v1beta1", "SESSION_GATEWAY_NAME names a Gateway."),
    ),
    (
        {"gateway_name": "public", "ingress_class": "nginx"},
        offered(DEFAULT),
        f"SESSION_GATEWAY_NAME: asks for a Gateway, but the cluster does not serve {API}; install "
        "it, or set SESSION_ROUTING_MODE to ingress or none",
    ),
    (
        {"gateway_name": "public"},
        Offered(gateway_failure=ClusterUnavailable()),
        "SESSION_GATEWAY_NAME: asks for a Gateway, but whether the cluster serves the Gateway API "
        "could not be asked, because the Kubernetes API cannot be reached",
    ),
    (
        {"ingress_class": "nginx", "tls_secret": "wildcard"},
        BOTH_WITH_DEFAULT,
        ingress("nginx", f"SESSION_INGRESS_CLASS names a class. {of('nginx')}"),
    ),
    (
        {"ingress_class": "nginx"},
        NOT_LISTED,
        ingress("nginx", f"SESSION_INGRESS_CLASS names a class. {of('nginx')}"),
    ),
    # Automatic, with a class that the cluster marks.
    (
        {"tls_secret": "wildcard"},
        BOTH_WITH_DEFAULT,
        ingress("main", f"The cluster has a default IngressClass. {of('main')}"),
    ),
    (
        {},
        offered(DEFAULT, IngressClass("also", is_default=True)),
        ingress("also", f"The cluster has a default IngressClass. {of('also')}"),
    ),
    (
        {},
        Offered(ingress_classes=(DEFAULT,), gateway_failure=FORBIDDEN),
        ingress("main", f"The cluster has a default IngressClass. {of('main')}"),
    ),
    # Automatic, by what is there.
    (
        {},
        BOTH,
        "SESSION_ROUTING_MODE: auto cannot decide between Ingress and Gateway: the cluster has "
        "IngressClasses (nginx, traefik), none of them the default, and the Gateway API; set "
        "SESSION_INGRESS_CLASS or SESSION_GATEWAY_NAME",
    ),
    (
        {},
        offered(*(IngressClass(f"c{number}") for number in range(7)), gateway=("v1",)),
        "SESSION_ROUTING_MODE: auto cannot decide between Ingress and Gateway: the cluster has "
        "IngressClasses (c0, c1, c2, c3, c4 and 2 more), none of them the default, and the Gateway "
        "API; set SESSION_INGRESS_CLASS or SESSION_GATEWAY_NAME",
    ),
    (
        {},
        GATEWAY_API,
        "SESSION_GATEWAY_NAME: must name the Gateway that publishes sessions: the cluster has the "
        "Gateway API and no IngressClass; or set SESSION_ROUTING_MODE to none",
    ),
    (
        {},
        offered(NGINX),
        ingress("nginx", f"The cluster has IngressClasses and no Gateway API. {of('nginx')}"),
    ),
    (
        {},
        offered(NGINX, TRAEFIK, gateway=("v1alpha2",)),
        ingress("", f"The cluster has IngressClasses and no Gateway API. {NO_DEFAULT}"),
    ),
    *(
        (
            {},
            there,
            "SESSION_ROUTING_MODE: auto finds nothing that could publish sessions: the cluster has "
            f"no IngressClass and does not serve {API}; install one of them, or set "
            "SESSION_ROUTING_MODE to none",
        )
        for there in (BARE, NO_HTTPROUTES)
    ),
    # Automatic, without knowing what is there: that is no absence.
    *(
        (
            {},
            there,
            "SESSION_ROUTING_MODE: auto cannot decide without knowing what the cluster has: its "
            f"IngressClasses could not be listed, because {NOT_PERMITTED}; mend that, or set "
            "SESSION_INGRESS_CLASS or SESSION_GATEWAY_NAME",
        )
        for there in (NOT_LISTED, Offered(ingress_failure=FORBIDDEN, gateway_versions=("v1",)))
    ),
    *(
        (
            {},
            Offered(ingress_classes=classes, gateway_failure=Unauthorized(status=401)),
            "SESSION_ROUTING_MODE: auto cannot decide without knowing what the cluster has: "
            "whether it serves the Gateway API could not be asked, because the runner is not "
            "permitted to do this (HTTP 401); mend that, or set SESSION_INGRESS_CLASS or "
            "SESSION_GATEWAY_NAME",
        )
        for classes in ((), (NGINX,))
    ),
    (
        {},
        Offered(
            ingress_failure=ClusterError(status=400, reason="BadRequest"),
            gateway_failure=ClusterUnavailable(),
        ),
        "SESSION_ROUTING_MODE: auto cannot decide without knowing what the cluster has: its "
        "IngressClasses could not be listed, because the Kubernetes API rejected the request "
        "(BadRequest, HTTP 400) and whether it serves the Gateway API could not be asked, because "
        "the Kubernetes API cannot be reached; mend that, or set SESSION_INGRESS_CLASS or "
        "SESSION_GATEWAY_NAME",
    ),
]


@pytest.mark.parametrize(("given", "there", "expected"), MATRIX)
def test_what_is_set_and_what_is_there_decide(
    given: dict[str, Any], there: Offered, expected: Decision | str
) -> None:
    settings = RoutingSettings(**{"base_domain": "apps.example.com", **given})
    if isinstance(expected, Decision):
        assert decide(settings, there) == expected
        return
    with pytest.raises(ConfigError) as caught:
        decide(settings, there)
    assert str(caught.value) == expected


def test_each_refusal_is_one_line_that_begins_with_the_variable_to_change() -> None:
    refusals = [expected for _, _, expected in MATRIX if isinstance(expected, str)]
    assert len(set(refusals)) >= 12
    for sentence in refusals:
        assert re.match(r"SESSION_(ROUTING_MODE|GATEWAY_NAME|INGRESS_TLS_SECRET): ", sentence)
        assert "\n" not in sentence


@pytest.mark.parametrize(
    ("mode", "base_domain", "is_needed"),
    [
        ("none", "apps.example.com", False),
        ("auto", "", False),
        ("ingress", "", False),
        ("gateway", "", False),
        ("auto", "apps.example.com", True),
        ("ingress", "apps.example.com", True),
        ("gateway", "apps.example.com", True),
    ],
)
def test_the_cluster_is_asked_only_where_sessions_will_be_published(
    mode: Any, base_domain: str, is_needed: bool
) -> None:
    settings = RoutingSettings(mode=mode, base_domain=base_domain)
    assert needs_cluster(settings) is is_needed
    # What need not be asked is decided without it.
    assert is_needed or decide(settings, Offered()).layer is Layer.NONE


def test_the_configuration_gives_all_settings() -> None:
    address = ProbeAddress("https", "gateway.example", 443)
    config = make_settings(
        routing_mode="gateway",
        routing_base_domain="apps.example.com",
        route_ready_timeout_seconds=5,
        route_probe_address=address,
        ingress_class="nginx",
        ingress_tls_secret="wildcard",
        gateway_name="public",
        gateway_namespace="infra",
        gateway_section_name="https",
    )
    assert routing_settings(config) == RoutingSettings(
        mode="gateway",
        base_domain="apps.example.com",
        ready_timeout_seconds=5,
        is_probing=True,
        probe_address=address,
        ingress_class="nginx",
        tls_secret="wildcard",
        gateway_name="public",
        gateway_namespace="infra",
        gateway_section_name="https",
    )


def test_a_gateway_is_in_the_sessions_namespace_unless_another_is_named() -> None:
    config = make_settings(session_namespace="theirs", gateway_name="public")
    assert routing_settings(config) == RoutingSettings(
        gateway_name="public", gateway_namespace="theirs"
    )
