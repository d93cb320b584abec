"""What a write may ask for beside its object: dry runs, strictness, how it deletes. Pure.

The options of lists and watches are in `queries`.
"""

from typing import Any

from multidict import MultiMapping

from telorunner.localcluster import gojson, statuses
from telorunner.localcluster.deletion import DeleteOptions
from telorunner.localcluster.queries import check_options, integer
from telorunner.localcluster.validation import Fault, too_many_bytes, unsupported, wrong

_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_POLICIES = ("Foreground", "Background", "Orphan", "nil")
# Source: k8s.io/apimachinery/pkg/apis/meta/v1/validation.
_MAX_MANAGER_BYTES = 128

Query = MultiMapping[str]


def check_write_options(verb: str, query: Query) -> None:
    """Check the options of a write; `verb` is Create, Update or Patch.

    Raises:
        StoreError: 422, they ask for what there is not.
    """
    faults = [
        *_manager_faults(query.get("fieldManager", "")),
        *_dry_run_faults(query.getall("dryRun", [])),
    ]
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        faults.append(unsupported("fieldValidation", validation, _VALIDATIONS))
    check_options(f"{verb}Options", faults)


def delete_options(body: bytes, query: Query) -> DeleteOptions:
    """Return the options of a deletion: those of the body, else those of the query.

    Raises:
        StoreError: 500, the body is no DeleteOptions, as the real API answers it; 422, it asks for
            what there is not.
    """
    given = _decoded(body) if body else _from_query(query)
    policy, orphans = given.get("propagationPolicy"), given.get("orphanDependents")
    faults = []
    if policy is not None and orphans is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        faults.append(wrong("propagationPolicy", policy, why))
    elif policy is not None and policy not in _POLICIES[:3]:
        faults.append(unsupported("propagationPolicy", policy, _POLICIES))
    faults += _dry_run_faults(given.get("dryRun") or [])
    check_options("DeleteOptions", faults)
    preconditions = given.get("preconditions") or {}
    return DeleteOptions(
        grace_seconds=given.get("gracePeriodSeconds"),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        policy="Orphan" if orphans else policy or "",
        is_dry_run=bool(given.get("dryRun")),
    )


def _from_query(query: Query) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if (seconds := integer(query, "gracePeriodSeconds")) is not None:
        given["gracePeriodSeconds"] = seconds
    if "propagationPolicy" in query:
        given["propagationPolicy"] = query["propagationPolicy"]
    if "orphanDependents" in query:
        given["orphanDependents"] = query["orphanDependents"].lower() not in ("", "0", "false")
    return {**given, "dryRun": query.getall("dryRun", [])}


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        given = gojson.loads(body)
    except gojson.GoJsonError as exc:
        raise _unreadable(f"couldn't get version/kind; json parse error: {exc}") from exc
    if not isinstance(given, dict):
        what = gojson.kind_of_value(given)
        raise _unreadable(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {what} into"
            f" {gojson.HEAD_TYPE}"
        )
    kind, version = given.get("kind", "DeleteOptions"), given.get("apiVersion", "v1")
    if kind != "DeleteOptions":
        raise _unreadable(
            f'no kind "{kind}" is registered for version "{version}" in scheme'
            ' "pkg/runtime/scheme.go:110"'
        )
    for field, (type_, wanted) in _TYPES.items():
        value = given.get(field)
        if not isinstance(value, wanted | None) or (wanted is int and isinstance(value, bool)):
            what = gojson.kind_of_value(value)
            raise _unreadable(
                f"json: cannot unmarshal {what} into Go struct field DeleteOptions.{field} of type"
                f" {type_}"
            )
    return {field: value for field, value in given.items() if value is not None}


_TYPES: dict[str, tuple[str, type]] = {
    "gracePeriodSeconds": ("int64", int),
    "preconditions": ("v1.Preconditions", dict),
    "orphanDependents": ("bool", bool),
    "propagationPolicy": ("v1.DeletionPropagation", str),
    "dryRun": ("[]string", list),
}


def _unreadable(message: str) -> statuses.StoreError:
    # The real API passes this one on as it is, so it has no reason and is a 500.
    return statuses.StoreError(500, "", message)


def _dry_run_faults(values: list[str]) -> list[Fault]:
    if all(value == "All" for value in values):
        return []
    shown = ",".join(f'"{value}"' for value in values)
    message = f'Unsupported value: [{shown}]: supported values: "All"'
    return [{"reason": "FieldValueNotSupported", "message": message, "field": "dryRun"}]


def _manager_faults(manager: str) -> list[Fault]:
    if len(manager.encode()) > _MAX_MANAGER_BYTES:
        return [too_many_bytes("fieldManager", _MAX_MANAGER_BYTES)]
    return []
