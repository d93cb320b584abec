"""The error bodies: one component for each code that a client of /v1 can be told.

Codes, statuses and sentences come from the error tree, so that none is written down twice.
"""

from collections.abc import Iterable
from typing import Any

from telorunner import errors
from telorunner.errors import RunnerError

Schema = dict[str, Any]
ErrorClasses = tuple[type[RunnerError], ...]

# What the server itself may answer, whatever the address: a request that is no HTTP or has a body
# over the limit, a failure of ours, a storage or a process that is away.
ALWAYS: ErrorClasses = (
    errors.InvalidRequest,
    errors.BundleTooLarge,
    errors.InternalError,
    errors.Unavailable,
    errors.Stopping,
)
BODY: ErrorClasses = (errors.InvalidJson, errors.UnsupportedMediaType)
# Of both ways to create a session.
START: ErrorClasses = (errors.TermsRequired, errors.CapacityExceeded)
CREATE: ErrorClasses = (
    *START,
    errors.InvalidBundle,
    errors.InvalidConfig,
    errors.WatchDisabled,
    errors.AgentRequiresWatch,
    errors.InvalidAppName,
    errors.ReservedAppName,
    errors.DuplicateAppName,
)
CREATE_APP: ErrorClasses = (*START, errors.UnknownApp)
# What any address answers that is not described, and any method that is not.
ELSEWHERE: ErrorClasses = (errors.NotFound, errors.MethodNotAllowed)
_OTHERS: ErrorClasses = (errors.OriginNotAllowed, errors.StopFailed, errors.UnknownApp)

ALL: ErrorClasses = (*ALWAYS, *BODY, *CREATE, *ELSEWHERE, *_OTHERS)

_EXTRA_KEYS: dict[type[RunnerError], dict[str, Schema]] = {
    errors.InvalidRequest: {
        "issues": {
            "type": "array",
            "minItems": 1,
            "items": {"$ref": "#/components/schemas/Issue"},
            "description": "What is wrong, and where; at most the first hundred.",
        }
    },
    errors.TermsRequired: {"terms": {"$ref": "#/components/schemas/Terms"}},
}

_RETRY_AFTER = {
    "Retry-After": {
        "required": True,
        "description": "Seconds to wait before the same request is sent again.",
        "schema": {"type": "integer", "minimum": 1},
    }
}
_ALLOW = {
    "Allow": {
        "required": True,
        "description": "The methods that the address takes.",
        "schema": {"type": "string"},
    }
}


def component_name(error: type[RunnerError]) -> str:
    """Return the name of an error's component."""
    return error.__name__.removesuffix("Error") + "Error"


def components() -> dict[str, Schema]:
    """Return the component of each error body, and those they refer to."""
    described = {component_name(error): _body(error) for error in ALL}
    return {"Issue": _ISSUE, **described}


def responses(listed: Iterable[type[RunnerError]]) -> dict[str, Schema]:
    """Return the response objects that tell these errors, by HTTP status."""
    by_status: dict[int, list[type[RunnerError]]] = {}
    for error in listed:
        by_status.setdefault(error.http_status, []).append(error)
    return {str(status): _response(found) for status, found in sorted(by_status.items())}


_ISSUE: Schema = {
    "type": "object",
    "required": ["path", "message"],
    "properties": {
        "path": {
            "type": "string",
            "format": "json-pointer",
            "pattern": "^(/([^~/]|~[01])*)*$",
            "description": "JSON Pointer of the value; empty for the request as a whole.",
            "examples": ["/bundle/files/0/relativePath"],
        },
        "message": {"type": "string", "minLength": 1, "examples": ["is required"]},
    },
}


def _body(error: type[RunnerError]) -> Schema:
    extra = _EXTRA_KEYS.get(error, {})
    sentence = error().message
    return {
        "type": "object",
        "description": sentence,
        "required": ["error", "message", *extra],
        "properties": {
            "error": {"type": "string", "const": error.code},
            "message": {
                "type": "string",
                "minLength": 1,
                "description": "A sentence for people; it may change.",
                "examples": [sentence],
            },
            **extra,
        },
    }


def _response(listed: list[type[RunnerError]]) -> Schema:
    references = {error.code: _reference(error) for error in listed}
    schema: Schema = {"$ref": next(iter(references.values()))}
    if len(listed) > 1:
        schema = {
            "oneOf": [{"$ref": reference} for reference in references.values()],
            "discriminator": {"propertyName": "error", "mapping": references},
        }
    response: Schema = {
        "description": ", ".join(f"`{code}`" for code in references),
        "content": {"application/json": {"schema": schema}},
    }
    if listed[0].http_status == errors.Unavailable.http_status:
        response["headers"] = _RETRY_AFTER
    if errors.MethodNotAllowed in listed:
        response["headers"] = _ALLOW
    return response


def _reference(error: type[RunnerError]) -> str:
    return f"#/components/schemas/{component_name(error)}"
