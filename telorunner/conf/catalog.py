"""What the environment may seed the catalog with: the apps of RUNNER_APPS.

Messages name the app and the key, never a value: env values are secrets.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import ErrorDetails
from pydantic_settings import NoDecode

from telorunner.conf.types import AppDescription, Image, Title, Whole
from telorunner.values import env
from telorunner.values.dns import is_dns_label
from telorunner.values.port import MAX_PORT

# A key that is wrong is named, but not a page of it.
MAX_SHOWN_LENGTH = 64

_PROBLEM = 'must be JSON such as {"name": {"image": "registry.example/team/app:1.2"}}'
_PLAIN = re.compile(r"[-\w./]+", re.ASCII)
# By pydantic's error types; what it would say itself is in the words of Python's types.
_MESSAGES = {
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "extra_forbidden": "is no key of this object",
    "missing": "is required",
}
_OTHERWISE = "is not valid"


class SeededApp(BaseModel):
    """An app of the catalog as the environment gives it."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, hide_input_in_errors=True, populate_by_name=True
    )

    image: Image
    env: Annotated[dict[str, Whole], Field(repr=False)] = {}
    pull_policy: Literal["missing", "always", "never"] = Field("missing", alias="pullPolicy")
    port: Annotated[int, Field(ge=1, le=MAX_PORT)] | None = None
    title: Title = ""
    description: AppDescription = ""


class _Object(dict[str, object]):
    """An object of JSON, which knows whether one of its keys was there twice."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs)
        self.doubled = next((key for key, count in counts.items() if count > 1), None)


_TABLE = TypeAdapter(dict[str, SeededApp])


def _apps(value: object) -> object:
    if not isinstance(value, str):
        return value
    table = _parsed(value)
    for name in table:
        if not is_dns_label(name):
            problem = "an app's name must be a lower-case DNS label of at most 63 characters"
            raise ValueError(f"{json.dumps(_cut(name))}: {problem}")
    try:
        # NB: not by the fields' own names, which are no keys of the JSON.
        apps = _TABLE.validate_python(table, by_alias=True, by_name=False)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        where = [part for part in error["loc"] if part != "[key]"]
        raise ValueError(_sentence(where, _message(error))) from None
    for name, app in apps.items():
        if len(app.env) > env.MAX_APP_VARIABLES:
            problem = f"must have at most {env.MAX_APP_VARIABLES} variables"
            raise ValueError(_sentence([name, "env"], problem))
        for variable, text in app.env.items():
            if problem := _env_problem(variable, text):
                raise ValueError(_sentence([name, "env", variable], problem))
    return apps


def _parsed(text: str) -> dict[str, object]:
    try:
        table = json.loads(text, object_pairs_hook=_Object)
        doubled = _first_doubled(table)
    except (ValueError, RecursionError):
        # NB: without the cause, whose `doc` is the whole value.
        raise ValueError(_PROBLEM) from None
    if doubled:
        raise ValueError(_sentence(doubled, "is there twice"))
    if not isinstance(table, _Object):
        raise ValueError(_PROBLEM)
    return table


def _first_doubled(value: object) -> list[str]:
    """Return where a key is there twice: one of the two would be lost without a word."""
    if not isinstance(value, _Object):
        return []
    if value.doubled is not None:
        return [value.doubled]
    for key, part in value.items():
        if inside := _first_doubled(part):
            return [key, *inside]
    return []


def _env_problem(name: str, value: str) -> str:
    return env.name_problem(name) or env.value_problem(value) or env.size_problem(name, value)


def _message(error: ErrorDetails) -> str:
    if error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    return _MESSAGES.get(error["type"], _OTHERWISE).format_map(error.get("ctx", {}))


def _sentence(where: Iterable[int | str], problem: str) -> str:
    """Return the names of a place and what is wrong there, in one line of plain characters."""
    return f"{'.'.join(_shown(str(part)) for part in where)}: {problem}"


def _shown(name: str) -> str:
    return _cut(name) if _PLAIN.fullmatch(name) else json.dumps(_cut(name))


def _cut(name: str) -> str:
    return name if len(name) <= MAX_SHOWN_LENGTH else f"{name[:MAX_SHOWN_LENGTH]}..."


SeededApps = Annotated[dict[str, SeededApp], NoDecode, BeforeValidator(_apps)]
