"""What a measurement says: a figure, its target, and how it came about; pure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


class BrokenMeasurement(Exception):
    """What was measured is not what was meant: the run counts for nothing."""


@dataclass(frozen=True)
class Target:
    """A bound; `is_floor` says that more is better. None as a bound: told, not judged."""

    bound: float | None
    is_floor: bool = False

    def is_met(self, value: float) -> bool:
        """Tell whether a value is on the right side of the bound."""
        if self.bound is None:
            return True
        return value >= self.bound if self.is_floor else value <= self.bound

    def __str__(self) -> str:
        if self.bound is None:
            return "-"
        return f"{'≥' if self.is_floor else '≤'} {self.bound:g}"


NO_TARGET = Target(None)


@dataclass(frozen=True)
class Figure:
    """One line of the table; `detail` names what stands behind the value."""

    name: str
    value: float
    target: Target
    detail: str
    unit: str = ""

    @property
    def verdict(self) -> str:
        """Return what the table says of it."""
        if self.target.bound is None:
            return ""
        return "met" if self.target.is_met(self.value) else "MISSED"


def at_most(bound: float) -> Target:
    """Return the target of a cost."""
    return Target(bound)


def at_least(bound: float) -> Target:
    """Return the target of a yield."""
    return Target(bound, is_floor=True)


def median_ratio(products: Sequence[float], baselines: Sequence[float]) -> float:
    """Return the median of the rounds' ratios.

    Each round's two halves were taken one after the other, so that what else the machine did
    weighs on both.
    """
    return statistics.median(a / b for a, b in zip(products, baselines, strict=True))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
