"""Evaluate expressions: the nodes that ``cel_syntax`` builds.

A small part of CEL: literals, members, indexes, lists, arithmetic, comparison, logic, the
conditional and the functions below. Nothing is ever handed to Python's own evaluator.
Unlike CEL, whole numbers and doubles mix freely, because JSON does not tell them apart.
"""

import json
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from telo_standin.errors import EvaluationError

Scope = Mapping[str, Any]


class Node(Protocol):
    """A part of an expression."""

    def evaluate(self, scope: Scope) -> Any:
        """Return the value within a scope.

        Raises:
            EvaluationError: there is none.
        """


class Literal(NamedTuple):
    """A number, a string, true, false or null."""

    value: Any

    def evaluate(self, scope: Scope) -> Any:  # noqa: ARG002 - the protocol's shape
        """Return the constant."""
        return self.value


class ListLiteral(NamedTuple):
    """Values in brackets."""

    items: tuple[Node, ...]

    def evaluate(self, scope: Scope) -> Any:
        """Return the items' values."""
        return [item.evaluate(scope) for item in self.items]


class Name(NamedTuple):
    """A name of the scope, such as ``steps`` or ``request``."""

    name: str

    def evaluate(self, scope: Scope) -> Any:
        """Return what the scope has under the name."""
        if self.name not in scope:
            raise EvaluationError(f"there is no '{self.name}' here")
        return scope[self.name]


class Member(NamedTuple):
    """One member of a map: ``target.name``."""

    target: Node
    name: str

    def evaluate(self, scope: Scope) -> Any:
        """Return the member's value."""
        value = self.target.evaluate(scope)
        if not isinstance(value, Mapping) or self.name not in value:
            raise EvaluationError(f"no such member: {self.name}")
        return value[self.name]

    def is_present(self, scope: Scope) -> bool:
        """Tell whether the map has the member, as ``has()`` asks."""
        value = self.target.evaluate(scope)
        return isinstance(value, Mapping) and self.name in value


class Index(NamedTuple):
    """An element of a list by position, or of a map by key."""

    target: Node
    key: Node

    def evaluate(self, scope: Scope) -> Any:
        """Return the element."""
        value, key = self.target.evaluate(scope), self.key.evaluate(scope)
        if isinstance(value, Mapping) and isinstance(key, (str, int)) and key in value:
            return value[key]
        if isinstance(value, list) and type(key) is int and 0 <= key < len(value):
            return value[key]
        raise EvaluationError(f"no such element: {text_of(key)}")


class Has(NamedTuple):
    """``has(a.b)``: whether a map has a member."""

    member: Member

    def evaluate(self, scope: Scope) -> Any:
        """Return whether the member is there."""
        return self.member.is_present(scope)


class Call(NamedTuple):
    """A function of one value."""

    function: str
    argument: Node

    def evaluate(self, scope: Scope) -> Any:
        """Return what the function makes of the argument."""
        value = self.argument.evaluate(scope)
        try:
            return FUNCTIONS[self.function](value)
        except (TypeError, ValueError, OverflowError) as exc:
            raise EvaluationError(f"{self.function}() cannot take {_type_name(value)}") from exc


class Unary(NamedTuple):
    """``!x`` or ``-x``."""

    symbol: str
    operand: Node

    def evaluate(self, scope: Scope) -> Any:
        """Return the negation."""
        value = self.operand.evaluate(scope)
        if self.symbol == "!" and isinstance(value, bool):
            return not value
        if self.symbol == "-" and _is_number(value):
            return -value
        raise EvaluationError(f"no such overload: {self.symbol}{_type_name(value)}")


class Logic(NamedTuple):
    """``&&`` or ``||``; the right side is looked at only where it decides."""

    symbol: str
    left: Node
    right: Node

    def evaluate(self, scope: Scope) -> Any:
        """Return true or false."""
        left = _boolean(self.left.evaluate(scope), self.symbol)
        if left is (self.symbol == "||"):
            return left
        return _boolean(self.right.evaluate(scope), self.symbol)


class Conditional(NamedTuple):
    """``condition ? then : otherwise``."""

    condition: Node
    then: Node
    otherwise: Node

    def evaluate(self, scope: Scope) -> Any:
        """Return one of the two values; the other is not looked at."""
        chosen = _boolean(self.condition.evaluate(scope), "?:")
        return (self.then if chosen else self.otherwise).evaluate(scope)


class Binary(NamedTuple):
    """Arithmetic, comparison, equality and ``in``."""

    symbol: str
    left: Node
    right: Node

    def evaluate(self, scope: Scope) -> Any:
        """Return what the operator makes of both sides."""
        left, right = self.left.evaluate(scope), self.right.evaluate(scope)
        if self.symbol in ("==", "!="):
            return _equal(left, right) is (self.symbol == "==")
        if self.symbol == "in":
            if isinstance(right, (list, Mapping)):
                return any(_equal(left, item) for item in right)
        elif _may_combine(self.symbol, left, right):
            return _combine(self.symbol, left, right)
        raise EvaluationError(
            f"no such overload: {_type_name(left)} {self.symbol} {_type_name(right)}"
        )


def _combine(symbol: str, left: Any, right: Any) -> Any:
    try:
        if symbol in ("/", "%") and type(left) is int and type(right) is int:
            # CEL cuts towards zero where Python's own operators round down.
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return quotient if symbol == "/" else left - quotient * right
        return OPERATORS[symbol](left, right)
    except ZeroDivisionError as exc:
        raise EvaluationError("division by zero") from exc
    except OverflowError as exc:
        raise EvaluationError("the number is too large") from exc


def _may_combine(symbol: str, left: Any, right: Any) -> bool:
    if _is_number(left) and _is_number(right):
        return True
    if isinstance(left, str) and isinstance(right, str):
        return symbol in ("+", "<", ">", "<=", ">=")
    return isinstance(left, list) and isinstance(right, list) and symbol == "+"


def _equal(left: Any, right: Any) -> bool:
    # Python takes True for 1; CEL does not.
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    return bool(left == right)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _boolean(value: Any, symbol: str) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError(f"{symbol} needs a bool, not {_type_name(value)}")
    return value


def text_of(value: Any) -> str:
    """Return a value as the terminal shows it; maps and lists as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _type_name(value: Any) -> str:
    names = {str: "string", bool: "bool", int: "int", float: "double", list: "list", dict: "map"}
    return names.get(type(value), "null" if value is None else type(value).__name__)


def _integer(value: Any) -> int:
    if isinstance(value, str) and not value.removeprefix("-").isascii():
        raise ValueError(value)
    return int(value)


def _size(value: Any) -> int:
    if not isinstance(value, (str, list, Mapping)):
        raise TypeError(value)
    return len(value)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "string": text_of,
    "int": _integer,
    "double": float,
    "size": _size,
}
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
