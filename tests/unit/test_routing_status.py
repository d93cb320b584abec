"""What is read off the status of an Ingress or an HTTPRoute, and what is not believed."""

from typing import Any

import pytest

from routing.gateway import GatewayTarget, build_httproute
from routing.ingress import IngressTarget, build_ingress
from routing.routes import RoutedPort, SessionRoutes
from routing.status import Standing, Verdict, verdict

DOMAIN = "apps.example.com"
ROUTES = SessionRoutes("abcdefghijkl", {}, {}, (RoutedPort(8080),))
INGRESS = IngressTarget("nginx", "", DOMAIN)
NAMESPACE = "telo-sessions"
GENERATION = 4

PENDING = Verdict(Standing.PENDING)
PROGRAMMED = Verdict(Standing.PROGRAMMED)


def rejected(reason: str, *, may_pass: bool = False) -> Verdict:
    return Verdict(Standing.REJECTED, reason, may_pass)


def gateway(*, namespace: str = "infra", section: str = "") -> GatewayTarget:
    return GatewayTarget("public", namespace, section, "v1", DOMAIN)


def condition(
    kind: str, status: str, reason: str = "", message: str = "", **more: Any
) -> dict[str, Any]:
    said = {"type": kind, "status": status, "reason": reason, "message": message}
    return {**said, "observedGeneration": GENERATION, **more}


def parent(
    *conditions: dict[str, Any], controller: str = "example.com/gateway", **reference: Any
) -> dict[str, Any]:
    parent_ref = {"name": "public", "namespace": "infra", **reference}
    parent_ref = {key: value for key, value in parent_ref.items() if value is not None}
    return {"parentRef": parent_ref, "controllerName": controller, "conditions": [*conditions]}


ACCEPTED = condition("Accepted", "True", "Accepted")
RESOLVED = condition("ResolvedRefs", "True", "ResolvedRefs")
NOT_ACCEPTED = condition("Accepted", "False", "NotAllowedByListeners", "Not from there.")
NOT_RESOLVED = condition("ResolvedRefs", "False", "BackendNotFound", "No such Service.")
OTHERS = {"name": "private"}

# What the parents of a route say, of a Gateway `public` in `infra` without a listener's name.
SAID: list[tuple[str, list[dict[str, Any]], Verdict]] = [
    ("nothing", [], PENDING),
    ("no condition", [parent()], PENDING),
    ("both are good", [parent(ACCEPTED, RESOLVED)], PROGRAMMED),
    (
        "in another order, with more",
        [parent(condition("X", "False"), RESOLVED, ACCEPTED)],
        PROGRAMMED,
    ),
    ("accepted alone", [parent(ACCEPTED)], PENDING),
    ("resolved alone", [parent(RESOLVED)], PENDING),
    (
        "refused by the listener",
        [parent(NOT_ACCEPTED, RESOLVED)],
        rejected("NotAllowedByListeners: Not from there."),
    ),
    (
        "accepted, but its Service is not found",
        [parent(ACCEPTED, NOT_RESOLVED)],
        rejected("BackendNotFound: No such Service.", may_pass=True),
    ),
    (
        "a reference that is not permitted, said alone",
        [parent(condition("ResolvedRefs", "False", "RefNotPermitted"))],
        rejected("RefNotPermitted"),
    ),
    (
        "both are bad",
        [parent(NOT_RESOLVED, NOT_ACCEPTED)],
        rejected("NotAllowedByListeners: Not from there."),
    ),
    ("not decided", [parent(condition("Accepted", "Unknown", "Pending"), RESOLVED)], PENDING),
    (
        "no words",
        [parent(condition("Accepted", "False"))],
        rejected("Accepted is False"),
    ),
    (
        "a message without a reason",
        [parent(condition("Accepted", "False", "", " on two\n lines "))],
        rejected("on two lines"),
    ),
    ("of an earlier version", [parent(ACCEPTED | {"observedGeneration": 3}, RESOLVED)], PENDING),
    (
        "refused in an earlier version",
        [parent(NOT_ACCEPTED | {"observedGeneration": 3}, RESOLVED)],
        PENDING,
    ),
    (
        "its Service was not found in an earlier version",
        [parent(ACCEPTED, NOT_RESOLVED | {"observedGeneration": 3})],
        PENDING,
    ),
    (
        "of a version that is newer than ours",
        [parent(ACCEPTED | {"observedGeneration": 5}, RESOLVED | {"observedGeneration": 5})],
        PROGRAMMED,
    ),
    (
        "of no version",
        [
            parent(
                {"type": "Accepted", "status": "True"},
                {"type": "ResolvedRefs", "status": "True", "observedGeneration": None},
            )
        ],
        PROGRAMMED,
    ),
    (
        "a foreign one is bad, ours good",
        [parent(NOT_ACCEPTED, **OTHERS), parent(ACCEPTED, RESOLVED)],
        PROGRAMMED,
    ),
    (
        "a foreign one is good, ours bad",
        [parent(ACCEPTED, RESOLVED, **OTHERS), parent(NOT_ACCEPTED)],
        rejected("NotAllowedByListeners: Not from there."),
    ),
    ("a foreign one is good, ours silent", [parent(ACCEPTED, RESOLVED, **OTHERS)], PENDING),
    ("a foreign one is bad, ours silent", [parent(NOT_ACCEPTED, **OTHERS)], PENDING),
    ("of another namespace", [parent(ACCEPTED, RESOLVED, namespace="x")], PENDING),
    (
        "of no namespace, which is the route's",
        [parent(ACCEPTED, RESOLVED, namespace=None)],
        PENDING,
    ),
    ("of another kind", [parent(ACCEPTED, RESOLVED, kind="ListenerSet")], PENDING),
    ("of another group", [parent(ACCEPTED, RESOLVED, group="example.com")], PENDING),
    (
        "with the defaults written out",
        [parent(ACCEPTED, RESOLVED, group="gateway.networking.k8s.io", kind="Gateway")],
        PROGRAMMED,
    ),
    ("of one listener", [parent(ACCEPTED, RESOLVED, sectionName="https")], PENDING),
    ("of one port", [parent(ACCEPTED, RESOLVED, port=443)], PENDING),
    (
        "two controllers, of which one is good",
        [parent(NOT_ACCEPTED, controller="a"), parent(ACCEPTED, RESOLVED, controller="b")],
        PROGRAMMED,
    ),
    (
        "two controllers, of which one is undecided",
        [parent(ACCEPTED, controller="a"), parent(NOT_ACCEPTED, controller="b")],
        rejected("NotAllowedByListeners: Not from there."),
    ),
]


def httproute(target: GatewayTarget, status: dict[str, Any] | None) -> dict[str, Any]:
    """Return the HTTPRoute as the API has it."""
    manifest = build_httproute(ROUTES, 8080, target, None)
    manifest["metadata"] |= {"namespace": NAMESPACE, "generation": GENERATION}
    return manifest if status is None else {**manifest, "status": status}


@pytest.mark.parametrize(
    ("parents", "expected"),
    [pytest.param(parents, expected, id=name) for name, parents, expected in SAID],
)
def test_an_httproute_stands_where_our_gateways_controller_says(
    parents: list[dict[str, Any]], expected: Verdict
) -> None:
    target = gateway()
    assert verdict(httproute(target, {"parents": parents}), target) == expected


@pytest.mark.parametrize("status", [None, {}, {"parents": None}, {"parents": [{}]}])
def test_an_httproute_that_nobody_has_claimed_is_pending(status: dict[str, Any] | None) -> None:
    target = gateway()
    assert verdict(httproute(target, status), target) == PENDING


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("https", PROGRAMMED),
        ("http", rejected("NotAllowedByListeners: Not from there.")),
        ("", PENDING),
        ("other", PENDING),
    ],
)
def test_only_the_listener_that_was_asked_for_counts(section: str, expected: Verdict) -> None:
    target = gateway(section=section)
    parents = [
        parent(NOT_ACCEPTED, sectionName="http"),
        parent(ACCEPTED, RESOLVED, sectionName="https"),
    ]
    assert verdict(httproute(target, {"parents": parents}), target) == expected


def test_a_parent_without_a_namespace_is_in_the_routes_own() -> None:
    target = gateway(namespace=NAMESPACE)
    parents = [parent(ACCEPTED, RESOLVED, namespace=None)]
    assert verdict(httproute(target, {"parents": parents}), target) == PROGRAMMED


def test_a_controllers_words_are_cut() -> None:
    target = gateway()
    parents = [parent(condition("Accepted", "False", "Refused", "word " * 500))]
    said = verdict(httproute(target, {"parents": parents}), target)
    assert said.reason.startswith("Refused: word word")
    assert len(said.reason) <= 256


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, PENDING),
        ({}, PENDING),
        ({"loadBalancer": None}, PENDING),
        ({"loadBalancer": {}}, PENDING),
        ({"loadBalancer": {"ingress": []}}, PENDING),
        ({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}, PROGRAMMED),
        ({"loadBalancer": {"ingress": [{"hostname": "lb.example"}]}}, PROGRAMMED),
    ],
)
def test_an_ingress_is_programmed_once_it_has_an_address(
    status: dict[str, Any] | None, expected: Verdict
) -> None:
    manifest = build_ingress(ROUTES, INGRESS, None)
    manifest["metadata"] |= {"namespace": NAMESPACE, "generation": GENERATION}
    if status is not None:
        manifest["status"] = status
    assert verdict(manifest, INGRESS) == expected
