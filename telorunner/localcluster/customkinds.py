"""What the API does with objects of custom kinds, which are the Gateway API's here. Pure.

They are known by their schemas; what may not change is told here, since a schema's rules see one
object alone.
"""

from typing import Any

from telorunner.localcluster import structural
from telorunner.localcluster.gatewayschema import SCHEMAS
from telorunner.localcluster.validation import Fault, wrong


def with_defaults(plural: str, obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the defaults of its schema."""
    found: dict[str, Any] = structural.defaulted(SCHEMAS[plural], obj)
    return found


def faults(plural: str, obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with an object by its schema."""
    return structural.faults(SCHEMAS[plural], obj)


def status_faults(plural: str, obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with the status that an object is given.

    In messages a field is called by its place in the status, as a real cluster has it.
    """
    if "status" not in obj:
        return []
    found = structural.faults(SCHEMAS[plural]["properties"]["status"], obj["status"])
    return [fault if fault["field"] == structural.NOWHERE else _in_status(fault) for fault in found]


def _in_status(fault: Fault) -> Fault:
    return {**fault, "field": f"status.{fault['field']}" if fault["field"] else "status"}


def class_update_faults(old: dict[str, Any], new: dict[str, Any]) -> list[Fault]:
    """Return what a GatewayClass may not become: that of another controller."""
    had, has = (one["spec"].get("controllerName") for one in (old, new))
    return [] if had == has else [wrong("spec.controllerName", "string", "Value is immutable")]
