"""What the status of a routing object says about its routes; pure.

Of an HTTPRoute only what was said about our Gateway counts, and about the route as it is now: a
Gateway of somebody else, and words about an earlier version of the route, prove nothing.

Source: https://gateway-api.sigs.k8s.io/reference/spec/#routeparentstatus
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from routing.gateway import GatewayTarget
from routing.ingress import IngressTarget
from telorunner.kube.errors import cut
from telorunner.kube.objects import GATEWAY_GROUP

# Both must hold: a listener took the route, and what it points to was found.
CONDITIONS = ("Accepted", "ResolvedRefs")
# Some controllers say so until the addresses of a Service are there, which others write.
_NOT_FOUND = "BackendNotFound"


class Standing(StrEnum):
    """What a controller has said of a route."""

    PENDING = "pending"
    PROGRAMMED = "programmed"
    REJECTED = "rejected"


@dataclass(frozen=True)
class Verdict:
    """Where a route stands; a rejected one with the controller's words, `reason: message`.

    One that `may_pass` only says that what the route leads to is not there, or not yet.
    """

    state: Standing
    reason: str = ""
    may_pass: bool = False


_PENDING = Verdict(Standing.PENDING)
_PROGRAMMED = Verdict(Standing.PROGRAMMED)


def verdict(manifest: Mapping[str, Any], target: IngressTarget | GatewayTarget) -> Verdict:
    """Return where the routes of an Ingress, or the route of an HTTPRoute, stand."""
    if isinstance(target, IngressTarget):
        return _ingress(manifest)
    return _httproute(manifest, target)


def _ingress(manifest: Mapping[str, Any]) -> Verdict:
    """An Ingress is never rejected: its status has no place to say so."""
    status = manifest.get("status") or {}
    balancer = status.get("loadBalancer") or {}
    return _PROGRAMMED if balancer.get("ingress") else _PENDING


def _httproute(manifest: Mapping[str, Any], target: GatewayTarget) -> Verdict:
    """One good parent wins; without one, a rejection counts before what is not decided yet.

    Several controllers may speak of the same parent, each in an entry of its own.
    """
    status = manifest.get("status") or {}
    verdicts = [
        _parent(parent.get("conditions") or (), manifest)
        for parent in status.get("parents") or ()
        if _is_ours(parent.get("parentRef") or {}, manifest, target)
    ]
    if _PROGRAMMED in verdicts:
        return _PROGRAMMED
    rejected = (one for one in verdicts if one.state is Standing.REJECTED)
    return next(rejected, _PENDING)


def _is_ours(
    reference: Mapping[str, Any], manifest: Mapping[str, Any], target: GatewayTarget
) -> bool:
    """Tell whether a parent is our Gateway, and the listener that we asked for."""
    return (
        reference.get("group", GATEWAY_GROUP) == GATEWAY_GROUP
        and reference.get("kind", "Gateway") == "Gateway"
        and (reference.get("namespace") or manifest["metadata"].get("namespace"))
        == target.namespace
        and reference.get("name") == target.name
        and (reference.get("sectionName") or "") == target.section_name
        # We never ask for a port of the Gateway.
        and not reference.get("port")
    )


def _parent(conditions: Iterable[Mapping[str, Any]], manifest: Mapping[str, Any]) -> Verdict:
    generation = manifest["metadata"].get("generation") or 0
    current = {
        str(condition.get("type")): condition
        for condition in conditions
        # A controller that does not say what it has seen is believed.
        if (condition.get("observedGeneration") or generation) >= generation
    }
    found = [current[name] for name in CONDITIONS if name in current]
    for condition in found:
        if condition.get("status") == "False":
            is_missing = condition.get("reason") == _NOT_FOUND
            return Verdict(Standing.REJECTED, _words(condition), may_pass=is_missing)
    is_good = all(condition.get("status") == "True" for condition in found)
    return _PROGRAMMED if is_good and len(found) == len(CONDITIONS) else _PENDING


def _words(condition: Mapping[str, Any]) -> str:
    """Return what a controller gives as its reason, in one line and short enough to show."""
    parts = (str(condition.get(name) or "").strip() for name in ("reason", "message"))
    words = ": ".join(part for part in parts if part)
    return cut(words) or f"{condition.get('type')} is False"
