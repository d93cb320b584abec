"""The types of single values in request bodies, each refusing what nothing further down can take.

Messages never repeat a value: it may be a secret.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from telorunner.values import env
from telorunner.values.port import MAX_PORT
from telorunner.values.quantity import (
    MAX_QUANTITY_LENGTH,
    QUANTITY,
    parse_bytes,
    parse_cpu_millis,
)

# The type of every error that is made here: its message is written for clients.
REFUSED = "refused"

# Far above what any application reads; it keeps the work for one request small.
MAX_VARIABLES = 10_000


def refused(problem: str) -> PydanticCustomError:
    """Return the error that says what is wrong with a value."""
    return PydanticCustomError(REFUSED, "{problem}", {"problem": problem})


def _whole_text(value: str) -> str:
    """Refuse lone surrogates: JSON can spell them, but no encoding can."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise refused("holds half of a surrogate pair") from None
    return value


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise refused("holds a NUL")
    return value


def _free_of(problem_of: Callable[[str], str]) -> Callable[[str], str]:
    """Refuse a text that has a problem."""

    def checked(value: str) -> str:
        if problem := problem_of(value):
            raise refused(problem)
        return value

    return checked


def at_most(count: int) -> BeforeValidator:
    """Refuse a crowd before anybody looks at its members."""

    def checked(value: Any) -> Any:
        if isinstance(value, list | dict) and len(value) > count:
            raise refused(f"must have at most {count} items")
        return value

    return BeforeValidator(checked)


def _quantity(parse: Callable[[str], int]) -> Callable[[str], str]:
    def checked(value: str) -> str:
        try:
            parse(value)
        except ValueError as exc:
            raise refused(str(exc)) from None
        return value

    return checked


def _public(pattern: re.Pattern[str]) -> str:
    """Return a pattern as JSON Schema writes it: anchored, and without Python's group names."""
    return "^(?:" + re.sub(r"\(\?P<\w+>", "(", pattern.pattern) + ")$"


Text = Annotated[str, AfterValidator(_whole_text)]
PlainText = Annotated[Text, AfterValidator(_without_nul)]
Environment = Annotated[
    dict[
        Annotated[Text, AfterValidator(_free_of(env.name_problem))],
        Annotated[Text, AfterValidator(_free_of(env.value_problem))],
    ],
    at_most(MAX_VARIABLES),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": MAX_VARIABLES,
            "propertyNames": {"pattern": _public(env.NAME), "maxLength": env.MAX_NAME_LENGTH},
            "additionalProperties": {"type": "string"},
        }
    ),
]
_QUANTITY_SCHEMA: dict[str, Any] = {
    "pattern": _public(QUANTITY),
    "maxLength": MAX_QUANTITY_LENGTH,
}
CpuQuantity = Annotated[
    str,
    AfterValidator(_quantity(parse_cpu_millis)),
    Field(examples=["500m", "1.5"], json_schema_extra=_QUANTITY_SCHEMA),
]
BytesQuantity = Annotated[
    str,
    AfterValidator(_quantity(parse_bytes)),
    Field(examples=["512Mi", "1Gi"], json_schema_extra=_QUANTITY_SCHEMA),
]
PortNumber = Annotated[int, Field(ge=1, le=MAX_PORT)]
