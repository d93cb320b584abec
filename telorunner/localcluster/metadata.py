"""An object's metadata: what clients may say and what is wrong, in the real API's words. Pure.

What is wrong with the rest of an object is in `validation` and `podvalidation`.
"""

import re
from typing import Any

import orjson

from telorunner.localcluster.names import service_name_problems
from telorunner.localcluster.resources import ResourceKind
from telorunner.localcluster.validation import (
    LABEL_VALUE,
    MAX_ANNOTATION_BYTES,
    MAX_LABEL_LENGTH,
    MAX_SUBDOMAIN_LENGTH,
    NAME_PART,
    NOT_A_LABEL_VALUE,
    NOT_A_SUBDOMAIN,
    SUBDOMAIN,
    Fault,
    label_faults,
    not_allowed,
    required,
    too_long,
    too_many_bytes,
    wrong,
)

_NAME_EXAMPLES = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an"
    " alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for"
    f" validation is '{NAME_PART}')"
)
_STANDARD_FINALIZERS = ("foregroundDeletion", "kubernetes", "orphan")
_METADATA_OF_THE_API = (
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)
# How often the real API says the same fault of an update; it checks metadata in several places.
_TIMES_IN_UPDATES = 4


def given_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return what a client may say about an object, without what is empty."""
    return {
        field: value
        for field, value in metadata.items()
        if field not in _METADATA_OF_THE_API and value not in (None, {}, [])
    }


def merged_metadata(old: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of an update: what a client gives, and what only the API sets."""
    kept = ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "generateName")
    return {**given_metadata(given), **{field: old[field] for field in kept if field in old}}


def new_faults(kind: ResourceKind, obj: dict[str, Any]) -> list[Fault]:
    """Return what is wrong with a new object's name, labels, annotations and owners."""
    metadata = obj["metadata"]
    name = metadata.get("name")
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    return [
        *_generate_name_faults(kind, metadata),
        *_name_faults(kind, "metadata.name", name),
        *_map_and_owner_faults(metadata),
        *_finalizer_faults(kind, metadata.get("finalizers") or []),
    ]


def update_faults(
    kind: ResourceKind, old: dict[str, Any], new: dict[str, Any], *, uid: str | None = None
) -> list[Fault]:
    """Return what is wrong with the metadata of an update, as often as the real API says it.

    `uid` is another uid that a patch gave the object.
    """
    before, after = old["metadata"], new["metadata"]
    twice = [] if uid is None else [wrong("metadata.uid", uid, "field is immutable")]
    finalizers = after.get("finalizers") or []
    added = [one for one in finalizers if one not in (before.get("finalizers") or [])]
    if added and "deletionTimestamp" in before:
        shown = ", ".join(f'"{one}"' for one in added)
        why = (
            "no new finalizers can be added if the object is being deleted, found new finalizers"
            f" []string{{{shown}}}"
        )
        twice.append(not_allowed("metadata.finalizers", why))
    return [
        *twice * 2,
        *_map_and_owner_faults(after) * _TIMES_IN_UPDATES,
        *_finalizer_faults(kind, finalizers) * 2,
        *_generate_name_faults(kind, after),
    ]


def qualified_name_problems(key: str) -> list[str]:
    """Return what keeps a text from being a name with an optional prefix, as label keys are."""
    parts = key.split("/")
    if len(parts) > 2:
        return [
            f"a qualified name {_NAME_EXAMPLES} with an optional DNS subdomain prefix and '/'"
            " (e.g. 'example.com/MyName')"
        ]
    problems = []
    *prefix, name = parts
    if prefix == [""]:
        problems.append("prefix part must be non-empty")
    elif prefix:
        if len(prefix[0]) > MAX_SUBDOMAIN_LENGTH:
            problems.append(f"prefix part must be no more than {MAX_SUBDOMAIN_LENGTH} characters")
        if not re.fullmatch(SUBDOMAIN, prefix[0]):
            problems.append(f"prefix part {NOT_A_SUBDOMAIN}")
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > MAX_LABEL_LENGTH:
        problems.append(f"name part must be no more than {MAX_LABEL_LENGTH} characters")
    if not re.fullmatch(NAME_PART, name):
        problems.append(f"name part {_NAME_EXAMPLES}")
    return problems


def label_value_faults(field: str, value: str) -> list[Fault]:
    """Return what keeps a text from being the value of a label."""
    faults = too_long(field, value, MAX_LABEL_LENGTH)
    if not re.fullmatch(LABEL_VALUE, value):
        faults.append(wrong(field, value, NOT_A_LABEL_VALUE))
    return faults


def _generate_name_faults(kind: ResourceKind, metadata: dict[str, Any]) -> list[Fault]:
    base = metadata.get("generateName")
    # Of some kinds the real API looks at the name alone.
    if not base or kind.plural == "endpointslices" or kind.is_custom:
        return []
    # What follows makes a dash at the end right.
    faults = _name_faults(kind, "metadata.generateName", re.sub("-+$", "a", base))
    return [wrong(fault["field"], base, fault["message"].split(": ", 2)[2]) for fault in faults]


def _name_faults(kind: ResourceKind, field: str, name: str) -> list[Fault]:
    if kind.plural == "namespaces":
        if "." in name:
            return [wrong(field, name, "must not contain dots")]
        return label_faults(field, name)
    if kind.plural == "services":
        return [wrong(field, name, why) for why in service_name_problems(name)]
    faults = too_long(field, name, MAX_SUBDOMAIN_LENGTH)
    return (
        faults if re.fullmatch(SUBDOMAIN, name) else [*faults, wrong(field, name, NOT_A_SUBDOMAIN)]
    )


def _map_and_owner_faults(metadata: dict[str, Any]) -> list[Fault]:
    faults = []
    for key, value in (metadata.get("labels") or {}).items():
        faults += [wrong("metadata.labels", key, why) for why in qualified_name_problems(key)]
        faults += label_value_faults("metadata.labels", value)
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        # Their keys may have capitals in the prefix, by which they are told from labels.
        problems = qualified_name_problems(key.lower())
        faults += [wrong("metadata.annotations", key, why) for why in problems]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > MAX_ANNOTATION_BYTES:
        faults.append(too_many_bytes("metadata.annotations", MAX_ANNOTATION_BYTES))
    return [*faults, *_owner_faults(metadata.get("ownerReferences") or [])]


def _owner_faults(owners: list[dict[str, Any]]) -> list[Fault]:
    field = "metadata.ownerReferences"
    faults = []
    for owner in owners:
        version = owner.get("apiVersion") or ""
        if not version or version.count("/") > 1:
            faults.append(wrong(f"{field}.apiVersion", version, "version must not be empty"))
        faults += [
            wrong(f"{field}.{part}", "", "must not be empty")
            for part in ("kind", "name", "uid")
            if not owner.get(part)
        ]
    controllers = [owner for owner in owners if owner.get("controller")]
    for another in controllers[1:]:
        first = controllers[0]
        why = (
            'Only one reference can have Controller set to true. Found "true" in references for'
            f" {first['kind']}/{first['name']} and {another['kind']}/{another['name']}"
        )
        message = f"Invalid value: {orjson.dumps(owners).decode()}: {why}"
        faults.append({"reason": "FieldValueInvalid", "message": message, "field": field})
    return faults


def _finalizer_faults(kind: ResourceKind, finalizers: list[str]) -> list[Fault]:
    field = "metadata.finalizers"
    faults = [
        wrong(field, one, problem) for one in finalizers for problem in qualified_name_problems(one)
    ]
    if kind.is_custom:
        return faults
    why = "name is neither a standard finalizer name nor is it fully qualified"
    return faults + [
        wrong(f"{field}[{index}]", one, why)
        for index, one in enumerate(finalizers)
        if "/" not in one and one not in _STANDARD_FINALIZERS
    ]
