"""From a parsed JSON body to what is wanted, or to the issues that a client reads."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sessions.actions.create import Wanted
from sessions.actions.create_app import WantedApp
from sessions.pods.size import fits_into_a_pod
from sessions.requests.bodies import CreateAppSession, CreateSession, Patience, Port, Probe
from sessions.requests.values import REFUSED
from telorunner.errors import InvalidRequest
from telorunner.values.env import MAX_TOTAL_BYTES, size_bytes, size_problem

MAX_ISSUES = 100
# A key that the client made up is told back to it, but not a page of it.
MAX_SEGMENT_LENGTH = 256

# By pydantic's error types; what it would say itself is in the words of Python's types.
_MESSAGES = {
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be an array",
    "string_type": "must be a string",
    "string_unicode": "holds half of a surrogate pair",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must not be empty",
    "too_long": "must be at most {max_length} characters long",
    "extra_forbidden": "is no key of this object",
    "missing": "is required",
}
_OTHERWISE = "is not valid"

Model = TypeVar("Model", bound=BaseModel)
Issue = dict[str, str]


def parse_create(body: Any) -> Wanted:
    """Return what the body of POST /v1/sessions asks for.

    Raises:
        InvalidRequest: The body has the wrong shape; `issues` names each value.
    """
    request = _validated(CreateSession, body)
    issues = [*_env_issues(request.env), *_app_count_issues(request)]
    issues += _port_issues(request.ports, "/ports")
    for index, app in enumerate(request.apps):
        issues += _port_issues(app.ports, f"/apps/{index}/ports")
    if issues:
        raise InvalidRequest(issues=issues[:MAX_ISSUES])
    return request.wanted()


def parse_create_app(body: Any) -> WantedApp:
    """Return what the body of POST /v1/apps/{name}/sessions asks for.

    Raises:
        InvalidRequest: The body has the wrong shape; `issues` names each value.
    """
    request = _validated(CreateAppSession, body)
    issues = [*_env_issues(request.env), *_port_issues(request.ports, "/ports")]
    if issues:
        raise InvalidRequest(issues=issues[:MAX_ISSUES])
    return request.wanted()


def parse_probe(body: Any) -> str:
    """Return the image that the body of POST /v1/probe asks about.

    Raises:
        InvalidRequest: The body has the wrong shape.
    """
    return _validated(Probe, body).config.image


def _validated(model: type[Model], body: Any) -> Model:
    try:
        return model.model_validate(body, context=Patience())
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_input=False)
        raise InvalidRequest(issues=[_issue(error) for error in errors[:MAX_ISSUES]]) from None


def _issue(error: ErrorDetails) -> Issue:
    location = error["loc"]
    message = _message(error)
    if location[:1] == ("env",) and len(location) > 1:
        name = str(location[1])[:MAX_SEGMENT_LENGTH] or '""'
        message = f"{name}: {message}"
    return {"path": _pointer(location), "message": message}


def _message(error: ErrorDetails) -> str:
    """Return the sentence for an error; what this package refused it has worded itself."""
    if error["type"] == REFUSED:
        return error["msg"]
    return _MESSAGES.get(error["type"], _OTHERWISE).format_map(error.get("ctx", {}))


def _pointer(location: Sequence[int | str]) -> str:
    """Return the JSON Pointer of a value; pydantic marks a key itself by a last "[key]".

    Source: RFC 6901, section 3.
    """
    if location and location[-1] == "[key]":
        location = location[:-1]
    return "".join(f"/{_escaped(str(segment))}" for segment in location)


def _escaped(segment: str) -> str:
    return segment[:MAX_SEGMENT_LENGTH].replace("~", "~0").replace("/", "~1")


def _env_issues(env: Mapping[str, str]) -> Iterator[Issue]:
    """Yield what is too large for `exec`; names only, never values."""
    total_bytes = 0
    for name, value in env.items():
        total_bytes += size_bytes(name, value)
        if problem := size_problem(name, value):
            yield {"path": f"/env/{_escaped(name)}", "message": f"{name}: {problem}"}
    if total_bytes > MAX_TOTAL_BYTES:
        largest = max(env, key=lambda name: len(env[name]))
        message = f"all of it must be at most 1 MiB; {largest} is the largest"
        yield {"path": "/env", "message": message}
    elif not fits_into_a_pod(env):
        message = "too large for a pod: many variables, or many $ or control characters"
        yield {"path": "/env", "message": message}


def _app_count_issues(request: CreateSession) -> Iterator[Issue]:
    if request.mode == "run" and "apps" in request.model_fields_set and len(request.apps) != 1:
        yield {"path": "/apps", "message": "a run session has exactly one app"}


def _port_issues(ports: Sequence[Port], path: str) -> Iterator[Issue]:
    seen: set[tuple[int, str]] = set()
    for index, port in enumerate(ports):
        if (port.port, port.protocol) in seen:
            message = f"{port.port}/{port.protocol} is declared twice"
            yield {"path": f"{path}/{index}", "message": message}
        seen.add((port.port, port.protocol))
