"""Resource quantities as the Kubernetes API adds them up and writes them. Pure.

`telorunner.values.quantity` reads them and writes what operators set; this keeps the canonical form
that the API answers with for any amount: "0.1" becomes "100m", "1024Mi" becomes "1Gi".
"""

from collections.abc import Iterable
from decimal import Decimal

from telorunner.values.quantity import parse_quantity

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")


def render(amount: Decimal, *, binary: bool = False) -> str:
    """Return an amount in canonical form: the largest suffix that leaves a whole number."""
    if binary and amount == amount.to_integral_value():
        for power in range(len(_BINARY) - 1, 0, -1):
            if amount and amount % 1024**power == 0:
                return f"{int(amount // 1024**power)}{_BINARY[power]}"
        return str(int(amount))
    for index in range(len(_DECIMAL) - 1, -1, -1):
        scaled = amount.scaleb(-3 * (index - 3))
        if amount and scaled == scaled.to_integral_value():
            return f"{int(scaled)}{_DECIMAL[index]}"
    return "0"


def canonical(text: str) -> str:
    """Return a quantity as the API would write it.

    Raises:
        ValueError: It is not a quantity.
    """
    return render(parse_quantity(text), binary=text.endswith("i"))


def total(texts: Iterable[str]) -> str:
    """Return the sum of quantities, in powers of 1024 where one of them is."""
    quantities = list(texts)
    binary = any(text.endswith("i") for text in quantities)
    return render(sum(map(parse_quantity, quantities), Decimal(0)), binary=binary)
