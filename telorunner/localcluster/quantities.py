"""Resource quantities as the Kubernetes API adds them up and writes them. Pure.

`telorunner.values.quantity` reads them and writes what operators set; this keeps the canonical form
that the API answers with for any amount: "0.1" becomes "100m", "1024Mi" becomes "1Gi". A quantity
keeps the way in which it was written: in powers of 1024, with a suffix or with an exponent.

Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from collections.abc import Iterable
from decimal import ROUND_CEILING, Context, Decimal
from enum import Enum
from functools import lru_cache

from telorunner.values.quantity import parse_quantity

NOT_A_QUANTITY = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_EXPONENTS = ("e-9", "e-6", "e-3", "", *(f"e{power}" for power in range(3, 31, 3)))
# Below this an amount is never written in powers of 1024.
_SMALLEST_BINARY = 1024
# The API rounds the amounts of resources up to thousandths.
_FINEST = Decimal("0.001")
# Every amount that can be read has fewer digits, those behind the point included.
_EXACTLY = Context(prec=64)
# What is written in powers of 1024 ends there.
_LARGEST_BINARY = 2**63 - 1


# A cluster's pods ask for the same few amounts over and over, and quotas add them up every time.
amount_of = lru_cache(maxsize=1024)(parse_quantity)


class Notation(Enum):
    """How a quantity is written."""

    BINARY = "1Ki"
    DECIMAL = "1k"
    EXPONENT = "1e3"


def notation_of(text: str) -> Notation:
    """Return how a quantity is written."""
    if text.endswith("i"):
        return Notation.BINARY
    is_exponent = "e" in text or ("E" in text and not text.endswith("E"))
    return Notation.EXPONENT if is_exponent else Notation.DECIMAL


def render(amount: Decimal, notation: Notation = Notation.DECIMAL) -> str:
    """Return an amount in canonical form: the largest suffix that leaves a whole number."""
    if not amount:
        return "0"
    is_whole = amount == amount.to_integral_value()
    if notation is Notation.BINARY and is_whole and abs(amount) >= _SMALLEST_BINARY:
        power = next(n for n in range(len(_BINARY) - 1, -1, -1) if amount % 1024**n == 0)
        return f"{int(amount // 1024**power)}{_BINARY[power]}"
    suffixes = _EXPONENTS if notation is Notation.EXPONENT else _DECIMAL
    for index in range(len(suffixes) - 1, -1, -1):
        scaled = amount.scaleb(-3 * (index - 3))
        if scaled == scaled.to_integral_value():
            return f"{int(scaled)}{suffixes[index]}"
    return "0"


@lru_cache(maxsize=1024)
def canonical(text: str) -> str:
    """Return the amount of a resource as the API would write it.

    Raises:
        ValueError: It is not a quantity.
    """
    amount, notation = amount_of(text), notation_of(text)
    if notation is Notation.BINARY:
        amount = min(amount, Decimal(_LARGEST_BINARY))
    rounded = amount.quantize(_FINEST, rounding=ROUND_CEILING, context=_EXACTLY)
    return render(rounded, notation)


def canonical_amounts(amounts: dict[str, object]) -> dict[str, str]:
    """Return quantities by resource in canonical form, in the order of the resources' names."""
    return {name: canonical(str(amounts[name])) for name in sorted(amounts)}


def total(texts: Iterable[str]) -> str:
    """Return the sum of quantities, written as the first of them that is not zero."""
    summands = [text for text in texts if text != "0"]
    if len(summands) == 1:
        return canonical(summands[0])
    amounts = [amount_of(text) for text in summands]
    first = next((text for text, amount in zip(summands, amounts, strict=True) if amount), "0")
    return render(sum(amounts, Decimal(0)), notation_of(first))


def largest(*texts: str) -> str:
    """Return the largest of quantities, the first of those that are equal."""
    return max(texts, key=amount_of)
