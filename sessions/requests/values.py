"""The types of single values in request bodies, each refusing what nothing further down can take.

Messages never repeat a value: it may be a secret.
"""

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from telorunner.values.quantity import parse_bytes, parse_cpu_millis


def _whole_text(value: str) -> str:
    """Refuse lone surrogates: JSON can spell them, but no encoding can."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise PydanticCustomError("text", "holds half of a surrogate pair") from None
    return value


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("text", "holds a NUL")
    return value


def _quantity(parse: Callable[[str], int]) -> Callable[[str], str]:
    def checked(value: str) -> str:
        try:
            parse(value)
        except ValueError as exc:
            raise PydanticCustomError("quantity", "{reason}", {"reason": str(exc)}) from None
        return value

    return checked


Text = Annotated[str, AfterValidator(_whole_text)]
PlainText = Annotated[Text, AfterValidator(_without_nul)]
CpuQuantity = Annotated[str, AfterValidator(_quantity(parse_cpu_millis))]
BytesQuantity = Annotated[str, AfterValidator(_quantity(parse_bytes))]
PortNumber = Annotated[int, Field(ge=1, le=65_535)]
