"""Failures of the local cluster and the Status objects that tell of them.

The wording is the real API's, because clients and people match on it. What is raised where is the
business of the modules that raise it.
"""

from typing import Any

import orjson

from telorunner.localcluster.resources import KINDS_BY_PLURAL, ResourceKind

# Where a real cluster keeps the objects of some kinds, as its words about them tell.
_KEPT_AT = {"ingresses": "ingress", "services": "services/specs"}


class StoreError(Exception):
    """A request that the API refuses: HTTP status, one-word reason, message and details.

    `reason` is "" where the real API gives none.
    """

    def __init__(
        self,
        status_code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.reason = reason
        self.message = message
        self.details = details
        self.list_metadata: dict[str, str] = {}

    def to_status(self) -> dict[str, Any]:
        """Return the Status object that the API answers with."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.list_metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.status_code
        return status


def success(kind: ResourceKind, name: str, uid: str) -> dict[str, Any]:
    """Return the Status that answers a deletion which left nothing behind."""
    details: dict[str, Any] = {"name": name}
    if kind.group:
        details["group"] = kind.group
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {**details, "kind": kind.plural, "uid": uid},
    }


def _details(kind: ResourceKind, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    return details


def kind_of(resource: str) -> ResourceKind:
    """Return the kind with that plural name.

    Raises:
        StoreError: 404, the resource is not known.
    """
    kind = KINDS_BY_PLURAL.get(resource)
    if kind is None:
        raise unknown_path()
    return kind


def unknown_path() -> StoreError:
    """Return the answer for a path that is not served."""
    message = "the server could not find the requested resource"
    return StoreError(404, "NotFound", message, {})


def not_found(kind: ResourceKind, name: str) -> StoreError:
    """Return 404 for one object."""
    message = f'{kind.qualified} "{name}" not found'
    return StoreError(404, "NotFound", message, _details(kind, name))


def already_exists(kind: ResourceKind, name: str, *, is_deleted: bool = False) -> StoreError:
    """Return 409 for a name that is taken, perhaps by an object on its way out."""
    message = f'{kind.qualified} "{name}" already exists'
    if is_deleted:
        message = f"object is being deleted: {message}"
    return StoreError(409, "AlreadyExists", message, _details(kind, name))


def conflict(kind: ResourceKind, name: str, why: str) -> StoreError:
    """Return 409 for an operation that another change overtook."""
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return StoreError(409, "Conflict", message, _details(kind, name))


def other_uid(kind: ResourceKind, metadata: dict[str, Any], given: str) -> StoreError:
    """Return 409 for an update that means another object of that name."""
    kept_at = _KEPT_AT.get(kind.plural, f"{kind.group}/{kind.plural}" if kind.is_custom else "")
    parts = ("/registry", kept_at or kind.plural, metadata.get("namespace", ""), metadata["name"])
    why = (
        f"StorageError: invalid object, Code: 4, Key: {'/'.join(filter(None, parts))},"
        " ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition:"
        f" {given}, UID in object meta: {metadata['uid']}"
    )
    return conflict(kind, metadata["name"], why)


def modified(kind: ResourceKind, name: str) -> StoreError:
    """Return 409 for a stale resourceVersion."""
    why = (
        "the object has been modified; please apply your changes to the latest version"
        " and try again"
    )
    return conflict(kind, name, why)


def forbidden(kind: ResourceKind, name: str, why: str) -> StoreError:
    """Return 403 with the reason in the message, as admission does."""
    message = f'{kind.qualified} "{name}" is forbidden: {why}'
    return StoreError(403, "Forbidden", message, _details(kind, name))


def bad_request(message: str) -> StoreError:
    """Return 400."""
    return StoreError(400, "BadRequest", message)


def expired(message: str) -> StoreError:
    """Return 410 for a resource version that is no longer in the history."""
    return StoreError(410, "Expired", message)


def too_old(asked: int, oldest: int) -> StoreError:
    """Return 410 for a watch that begins before the history does."""
    return expired(f"too old resource version: {asked} ({oldest})")


def unauthorized() -> StoreError:
    """Return 401 for a missing or wrong token."""
    return StoreError(401, "Unauthorized", "Unauthorized")


def invalid(kind: ResourceKind, name: str, causes: list[dict[str, str]]) -> StoreError:
    """Return 422 for an object with faults.

    `causes` are dicts with `reason`, `message` and `field`, as in `status.details.causes`.
    """
    # A fault that was found twice is told once in the message.
    parts = list(dict.fromkeys(f"{cause['field']}: {cause['message']}" for cause in causes))
    text = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
    shown = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details: dict[str, Any] = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details |= {"kind": kind.kind, "causes": causes}
    return StoreError(422, "Invalid", f'{shown} "{name}" is invalid: {text}', details)


def invalid_patch(shown: str, why: str) -> StoreError:
    """Return 422 for a patch that leaves no object; `shown` is it or what it leaves, as text."""
    quoted = orjson.dumps(shown).decode()
    message = f"Invalid value: {quoted}: {why}"
    cause = {"reason": "FieldValueInvalid", "message": message, "field": "patch"}
    return StoreError(422, "Invalid", f' "" is invalid: patch: {message}', {"causes": [cause]})
