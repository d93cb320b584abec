"""From a parsed JSON body to what is wanted, or to the issues that a client reads."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sessions.actions.create import Wanted
from sessions.requests.bodies import CreateSession, Port, Probe
from telorunner.errors import InvalidRequest

MAX_ISSUES = 100
# A key that the client made up is told back to it, but not a page of it.
MAX_SEGMENT_LENGTH = 256

MAX_ENV_NAME_LENGTH = 256
# MAX_ARG_STRLEN of Linux, 128 KiB, counts the "=" and the NUL behind them too.
MAX_VARIABLE_BYTES = 131_072 - 2
MAX_ENV_BYTES = 1_048_576

_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*", re.ASCII)
_MESSAGES = {
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be an array",
    "extra_forbidden": "is no key of this object",
    "missing": "is required",
}

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


def parse_probe(body: Any) -> str:
    """Return the image that the body of POST /v1/probe asks about.

    Raises:
        InvalidRequest: The body has the wrong shape.
    """
    return _validated(Probe, body).config.image


def _validated(model: type[Model], body: Any) -> Model:
    try:
        return model.model_validate(body)
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_input=False, include_context=False)
        raise InvalidRequest(issues=[_issue(error) for error in errors[:MAX_ISSUES]]) from None


def _issue(error: ErrorDetails) -> Issue:
    message = _MESSAGES.get(error["type"], error["msg"])
    return {"path": _pointer(error["loc"]), "message": message}


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
    """Yield what `exec` or the cluster would refuse later; names only, never values."""
    total_bytes = 0
    for name, value in env.items():
        size_bytes = len(name.encode()) + len(value.encode())
        total_bytes += size_bytes
        problem = ""
        if len(name) > MAX_ENV_NAME_LENGTH:
            problem = f"the name has more than {MAX_ENV_NAME_LENGTH} characters"
        elif _ENV_NAME.fullmatch(name) is None:
            problem = "the name must match [-._a-zA-Z][-._a-zA-Z0-9]*"
        elif "\0" in value:
            problem = "the value holds a NUL"
        elif size_bytes > MAX_VARIABLE_BYTES:
            problem = "name and value together must be under 128 KiB"
        if problem:
            shown = name[:MAX_SEGMENT_LENGTH]
            yield {"path": f"/env/{_escaped(name)}", "message": f"{shown}: {problem}"}
    if total_bytes > MAX_ENV_BYTES:
        largest = max(env, key=lambda name: len(env[name]))[:MAX_ENV_NAME_LENGTH]
        message = f"all of it must be at most 1 MiB; {largest} is the largest"
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
