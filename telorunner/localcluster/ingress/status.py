"""The status of routing objects, as the controller of a real cluster writes it. Pure.

A condition that stays as it was keeps the time of its last change.

Source: https://gateway-api.sigs.k8s.io/reference/spec/#gatewaystatus
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from telorunner.localcluster.ingress.gateways import Attachment, listener_secret, scheme_of
from telorunner.localcluster.ingress.table import HTTPS
from telorunner.localcluster.networkdefaults import LOCAL_CONTROLLER
from telorunner.localcluster.resources import GATEWAY_GROUP
from telorunner.localcluster.statefolder import HOST

Object = dict[str, Any]


@dataclass(frozen=True)
class Fact:
    """A condition: what holds or does not, and why."""

    type: str
    is_true: bool
    reason: str
    message: str = ""


def ingress_status() -> Object:
    """Return the status of an Ingress that is routed."""
    return {"loadBalancer": {"ingress": [{"ip": HOST}]}}


def class_status(gateway_class: Object, now: str) -> Object:
    """Return the status of a GatewayClass of this cluster."""
    accepted = Fact("Accepted", True, "Accepted", "Gateways of this class are served.")
    old = gateway_class.get("status") or {}
    return {**old, "conditions": _conditions(gateway_class, old, [accepted], now)}


def gateway_status(
    gateway: Object, attached: Mapping[str, int], unusable: Iterable[str], now: str
) -> Object:
    """Return the status of a Gateway of this cluster.

    `attached` is how many routes each listener has; `unusable` names the listeners whose
    certificate is missing.
    """
    old = gateway.get("status") or {}
    known = {one["name"]: one for one in old.get("listeners") or []}
    broken = frozenset(unusable)
    listeners = [
        _listener_status(gateway, one, known.get(one["name"], {}), broken, now)
        for one in gateway["spec"]["listeners"]
    ]
    facts = [
        Fact("Accepted", True, "Accepted", "The local cluster serves this Gateway."),
        Fact("Programmed", True, "Programmed", "Requests are routed."),
    ]
    return {
        **old,
        "addresses": [{"type": "IPAddress", "value": HOST}],
        "conditions": _conditions(gateway, old, facts, now),
        "listeners": [{**one, "attachedRoutes": attached.get(one["name"], 0)} for one in listeners],
    }


def _listener_status(
    gateway: Object, listener: Object, old: Object, broken: frozenset[str], now: str
) -> Object:
    scheme = scheme_of(listener)
    accepted = Fact("Accepted", True, "Accepted")
    if not scheme:
        why = "Only HTTP, and HTTPS that ends here, are served."
        accepted = Fact("Accepted", False, "UnsupportedProtocol", why)
    resolved = Fact("ResolvedRefs", True, "ResolvedRefs")
    if scheme == HTTPS and listener["name"] in broken:
        why = "There is no Secret of this namespace with a certificate and its key."
        if listener_secret(gateway, listener) is None and listener.get("tls"):
            why = "Only a Secret of this namespace can be used as a certificate."
        resolved = Fact("ResolvedRefs", False, "InvalidCertificateRef", why)
    is_good = accepted.is_true and resolved.is_true
    facts = [
        accepted,
        Fact("Conflicted", False, "NoConflicts"),
        resolved,
        Fact("Programmed", is_good, "Programmed" if is_good else "Invalid"),
    ]
    kinds = [{"group": GATEWAY_GROUP, "kind": "HTTPRoute"}] if scheme else []
    conditions = _conditions(gateway, old, facts, now)
    return {"name": listener["name"], "supportedKinds": kinds, "conditions": conditions}


def route_status(
    route: Object, attachments: Iterable[Attachment], resolved: Fact, now: str
) -> Object:
    """Return the status of an HTTPRoute; what other controllers say of it stays."""
    status = route.get("status") or {}
    entries = status.get("parents") or []
    own = [one for one in entries if one["controllerName"] == LOCAL_CONTROLLER]
    parents = [one for one in entries if one["controllerName"] != LOCAL_CONTROLLER]
    for attachment in attachments:
        old: Object = next((one for one in own if one["parentRef"] == attachment.parent), {})
        accepted = Fact("Accepted", True, "Accepted", "The Gateway routes for it.")
        if attachment.reason:
            accepted = Fact("Accepted", False, attachment.reason, attachment.message)
        parents.append(
            {
                "parentRef": dict(attachment.parent),
                "controllerName": LOCAL_CONTROLLER,
                "conditions": _conditions(route, old, [accepted, resolved], now),
            }
        )
    return {**status, "parents": parents}


def _conditions(obj: Object, old: Object, facts: Sequence[Fact], now: str) -> list[Object]:
    known = {one["type"]: one for one in old.get("conditions") or []}
    conditions = []
    for fact in facts:
        status = "True" if fact.is_true else "False"
        before = known.get(fact.type, {})
        is_same = before.get("status") == status
        conditions.append(
            {
                "type": fact.type,
                "status": status,
                "reason": fact.reason,
                "message": fact.message,
                "observedGeneration": obj["metadata"].get("generation", 1),
                "lastTransitionTime": before["lastTransitionTime"] if is_same else now,
            }
        )
    return conditions
