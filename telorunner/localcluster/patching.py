"""The three kinds of patch that the API takes, as functions from object to object. Pure.

A strategic merge patch is followed as far as clients use it here: lists whose members have a merge
key are merged by it (containers, env, ports, conditions, owner references ...), with the directives
that `kubectl apply` writes.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from telorunner.localcluster import gojson, statuses
from telorunner.localcluster.resources import KNOWN_KINDS

# Source: patchMergeKey of k8s.io/api/core/v1 and apimachinery's ObjectMeta.
_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "secrets": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
# These lists are told by their names alone within one kind only.
_MERGE_KEYS_OF = {"Pod": {"ports": "containerPort"}, "Service": {"ports": "port"}}
_CUSTOM = frozenset(kind.kind for kind in KNOWN_KINDS if kind.is_custom)
_CUSTOM_PATCHES = (
    "the body of the request was in an unknown format - accepted media types include:"
    " application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
)

Patch = Callable[[dict[str, Any], Any], Any]


def apply_patch(content_type: str, obj: dict[str, Any], body: bytes) -> tuple[dict[str, Any], str]:
    """Return the object with a patch applied, and what refusals show; the given one stays as it is.

    Raises:
        StoreError: 415, the kind of patch is not known; 400 or 422, it cannot be applied.
    """
    media_type = content_type.partition(";")[0].strip()
    patch = _PATCHES.get(media_type)
    is_custom = obj.get("kind") in _CUSTOM
    if is_custom and patch in (None, strategic_merge_patch):
        raise statuses.StoreError(415, "UnsupportedMediaType", _CUSTOM_PATCHES)
    if patch is None:
        message = "415: Unsupported Media Type"
        raise statuses.StoreError(415, "UnsupportedMediaType", message, {})
    change = _decoded(media_type, body)
    try:
        result = patch(copy.deepcopy(obj), change)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as exc:
        message = "the server rejected our request due to an error in our request"
        raise statuses.StoreError(422, "Invalid", message, {}) from exc
    if not isinstance(result, dict):
        raise statuses.bad_request("the patch does not leave an object")
    if patch is strategic_merge_patch:
        # The kind of what is patched is known, whatever the patch says.
        head = {field: obj[field] for field in ("kind", "apiVersion") if field in obj}
        return {**result, **head}, _as_go_map(change)
    return result, orjson.dumps(result).decode()


def _as_go_map(value: Any) -> str:
    """Return a value as Go prints it."""
    if isinstance(value, dict):
        members = (f"{key}:{_as_go_map(member)}" for key, member in sorted(value.items()))
        return f"map[{' '.join(members)}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_as_go_map, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def _decoded(media_type: str, body: bytes) -> Any:
    is_list = _PATCHES[media_type] is json_patch
    shown = "[]handlers.jsonPatchOp" if is_list else "map[string]interface {}"
    try:
        change = gojson.loads(body)
        if isinstance(change, list if is_list else dict):
            return change
        what = gojson.kind_of_value(change)
        problem = f"json: cannot unmarshal {what} into Go value of type {shown}"
    except gojson.GoJsonError as exc:
        problem = str(exc)
    is_strategic = _PATCHES[media_type] is strategic_merge_patch
    raise statuses.bad_request(problem if is_strategic else f"error decoding patch: {problem}")


def merge_patch(target: Any, change: Any) -> Any:
    """Apply an RFC 7386 merge patch; `target` may be changed."""
    return _merge(target, change, {})


def strategic_merge_patch(target: Any, change: Any) -> Any:
    """Apply a strategic merge patch; `target` may be changed."""
    kind = target.get("kind", "") if isinstance(target, dict) else ""
    return _merge(target, change, {**_MERGE_KEYS, **_MERGE_KEYS_OF.get(kind, {})})


def _merge(target: Any, change: Any, merge_keys: Mapping[str, str]) -> Any:
    if not isinstance(change, dict):
        return change
    result = target if isinstance(target, dict) else {}
    if merge_keys and change.get("$patch") == "replace":
        return {key: value for key, value in change.items() if key != "$patch"}
    for key, value in change.items():
        if merge_keys and key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        elif isinstance(value, list) and key in merge_keys:
            result[key] = _merge_list(result.get(key) or [], value, key, merge_keys)
        else:
            result[key] = _merge(result.get(key), value, merge_keys)
    if merge_keys:
        _follow_directives(result, change, merge_keys)
    return result


def _follow_directives(
    result: dict[str, Any], change: dict[str, Any], merge_keys: Mapping[str, str]
) -> None:
    """Do what the `$` fields of a strategic merge patch say of the fields beside them."""
    for directive, value in change.items():
        name, _, field = directive.partition("/")
        if name == "$retainKeys":
            for key in [key for key in result if key not in value]:
                del result[key]
        elif name == "$deleteFromPrimitiveList" and result.get(field):
            result[field] = [member for member in result[field] if member not in value]
        elif name == "$setElementOrder" and result.get(field):
            result[field] = _ordered(result[field], value, merge_keys.get(field))


def _ordered(members: list[Any], order: list[Any], merge_key: str | None) -> list[Any]:
    """Return the members in an order; those that it does not name come behind."""
    if merge_key is None:
        return sorted(members, key=lambda one: order.index(one) if one in order else len(order))
    keys = [one[merge_key] for one in order]
    return sorted(
        members,
        key=lambda one: keys.index(one[merge_key]) if one[merge_key] in keys else len(keys),
    )


def _merge_list(
    target: list[Any], change: list[Any], key: str, merge_keys: Mapping[str, str]
) -> list[Any]:
    merge_key = merge_keys[key]
    if any(member.get("$patch") == "replace" for member in change):
        return [member for member in change if "$patch" not in member]
    members = {member[merge_key]: member for member in target}
    for member in change:
        if member.get("$patch") == "delete":
            members.pop(member[merge_key], None)
        else:
            merged = _merge(members.get(member[merge_key]), member, merge_keys)
            members[member[merge_key]] = merged
    return list(members.values())


def json_patch(target: Any, operations: list[dict[str, Any]]) -> Any:
    """Apply an RFC 6902 patch; `target` may be changed.

    Raises:
        KeyError: A path is not there.
        ValueError: A test failed or the operation is not known.
    """
    document = {"": target}
    for operation in operations:
        name, path = operation["op"], operation["path"]
        match name:
            case "add" | "replace":
                _put(document, path, operation["value"], must_exist=name == "replace")
            case "remove":
                _take(document, path)
            case "move":
                _put(document, path, _take(document, operation["from"]))
            case "copy":
                _put(document, path, copy.deepcopy(_read(document, operation["from"])))
            case "test":
                if _read(document, path) != operation.get("value"):
                    raise ValueError(f"test failed at {path}")
            case _:
                raise ValueError(f"unknown operation {name}")
    return document[""]


def _parent(document: Any, path: str) -> tuple[Any, str]:
    """Return what holds the member that a JSON pointer names, and the member's name."""
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]
    holder = document
    for part in parents:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    return holder, last


def _read(document: Any, path: str) -> Any:
    holder, last = _parent(document, path)
    return holder[int(last)] if isinstance(holder, list) else holder[last]


def _take(document: Any, path: str) -> Any:
    holder, last = _parent(document, path)
    return holder.pop(int(last)) if isinstance(holder, list) else holder.pop(last)


def _put(document: Any, path: str, value: Any, *, must_exist: bool = False) -> None:
    holder, last = _parent(document, path)
    if isinstance(holder, list):
        index = len(holder) if last == "-" else int(last)
        if index > len(holder):
            raise IndexError(path)
        if must_exist:
            holder[index] = value
        else:
            holder.insert(index, value)
        return
    # The real API's library lets a replacement add what is not there.
    holder[last] = value


_PATCHES: dict[str, Patch] = {
    "application/merge-patch+json": merge_patch,
    "application/strategic-merge-patch+json": strategic_merge_patch,
    "application/json-patch+json": json_patch,
}
