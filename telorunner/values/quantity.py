"""Kubernetes quantities: exact parsing, comparing and the canonical form; pure.

Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

import re
from decimal import Decimal

# Longer texts than this are no amounts that anybody means; the bound keeps parsing cheap.
MAX_QUANTITY_LENGTH = 64

QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?P<suffix>[eE][+-]?[0-9]{1,3}|[KMGTPE]i|[numkMGTPE]?)",
    re.ASCII,
)
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
# Far above every machine: what is larger is a slip, not an amount. (12E, which does not fit into
# 64 bits, is a legal quantity.)
_LARGEST = Decimal(10) ** 30


def parse_quantity(text: str) -> Decimal:
    """Return the exact amount a quantity stands for, in its base unit (cores, bytes).

    Raises:
        ValueError: The text is no Kubernetes quantity, or is larger than 10^30.
    """
    match = QUANTITY.fullmatch(text) if len(text) <= MAX_QUANTITY_LENGTH else None
    if match is None:
        raise ValueError("not a Kubernetes quantity such as 500m, 1.5 or 512Mi")
    number, suffix = Decimal(match["number"]), match["suffix"]
    if suffix in _BINARY:
        amount = number * Decimal(1024) ** _BINARY[suffix]
    elif suffix in _DECIMAL:
        amount = number.scaleb(_DECIMAL[suffix])
    else:
        amount = number.scaleb(int(suffix[1:]))
    if amount > _LARGEST:
        raise ValueError("larger than a Kubernetes quantity can be")
    return -amount if match["sign"] == "-" else amount


def _round_up(amount: Decimal) -> int:
    whole = int(amount)
    return whole if whole == amount else whole + 1


def parse_cpu_millis(text: str) -> int:
    """Return CPU in millicores, rounded up as the API does.

    Raises:
        ValueError: Not a quantity, or below one millicore.
    """
    amount = parse_quantity(text)
    if amount * 1000 < 1:
        raise ValueError("must be at least 1m of CPU")
    return _round_up(amount * 1000)


# Less than this cannot hold any process; a smaller amount is a unit mistake ("100m" is a tenth
# of a byte), and a pod with it would never start.
MIN_BYTES = 4 * 1024 * 1024


def parse_bytes(text: str) -> int:
    """Return an amount of memory or storage in bytes, rounded up.

    Raises:
        ValueError: Not a quantity, or below 4Mi.
    """
    amount = parse_quantity(text)
    if amount < MIN_BYTES:
        raise ValueError("must be at least 4Mi (the suffix m means a thousandth)")
    return _round_up(amount)


def format_cpu(millis: int) -> str:
    """Return the canonical quantity of millicores."""
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


def format_bytes(count: int) -> str:
    """Return the canonical quantity of bytes: the largest binary suffix that divides it."""
    for suffix, power in reversed(_BINARY.items()):
        if count and count % 1024**power == 0:
            return f"{count // 1024**power}{suffix}"
    return str(count)
