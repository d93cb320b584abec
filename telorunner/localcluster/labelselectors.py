"""Parses label selectors and says what is wrong with one, in the words of the real API. Pure.

Source: k8s.io/apimachinery/pkg/labels/selector.go, whose grammar and messages these are.
"""

import re
from dataclasses import dataclass

from telorunner.localcluster import statuses
from telorunner.localcluster.metadata import label_value_faults, qualified_name_problems
from telorunner.localcluster.validation import Fault, wrong

_SYMBOL = re.compile(r"\s*(==|!=|=|!|\(|\)|,|<|>|[^\s=!(),<>]+)")
_SPECIAL = ("==", "!=", "=", "!", "(", ")", ",", "<", ">")
_OPERATORS = "in, notin, =, ==, !=, gt, lt"
_END = ""


@dataclass(frozen=True)
class Requirement:
    """One condition of a label selector; `operator` is in, notin, exists, !, gt or lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: dict[str, str]) -> bool:
        """Say whether an object with those labels satisfies the condition."""
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case _:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        bound = int(next(iter(self.values)))
        if value is None or not re.fullmatch(r"-?\d+", value):
            return False
        return int(value) > bound if self.operator == "gt" else int(value) < bound


def parse_labels(text: str) -> list[Requirement]:
    """Return the conditions of a label selector, none for an empty one.

    Raises:
        StoreError: 400, it cannot be read.
    """
    return _Parser(text).conditions()


class _Parser:
    """Reads one selector from left to right."""

    def __init__(self, text: str) -> None:
        self._symbols = _SYMBOL.findall(text)
        self._position = 0

    def conditions(self) -> list[Requirement]:
        found: list[Requirement] = []
        while (symbol := self._peek()) != _END:
            if not (_is_word(symbol) or symbol == "!"):
                raise _unexpected(symbol, ", expected: !, identifier, or 'end of string'")
            found.append(self._condition())
            symbol = self._take()
            if symbol == _END:
                break
            if symbol != ",":
                raise _unexpected(symbol, ", expected: ',' or 'end of string'")
            after = self._peek()
            if not (_is_word(after) or after == "!"):
                raise _unexpected(after, ", expected: identifier after ','")
        return found

    def _peek(self) -> str:
        rest: list[str] = self._symbols[self._position : self._position + 1]
        return rest[0] if rest else _END

    def _take(self) -> str:
        symbol = self._peek()
        self._position += 1
        return symbol

    def _condition(self) -> Requirement:
        symbol, operator = self._take(), ""
        if symbol == "!":
            symbol, operator = self._take(), "!"
        if not _is_word(symbol):
            raise _unreadable(f"found '{symbol}', expected: identifier")
        key = symbol
        for problem in qualified_name_problems(key):
            fault = wrong("<nil>", key, problem)
            raise _unreadable(f"{fault['field']}: {fault['message']}")
        if operator == "!" or self._peek() in (_END, ","):
            return Requirement(key, operator or "exists")
        sign = self._take()
        if sign in ("in", "notin"):
            return _checked(Requirement(key, sign, self._values()))
        name = {"=": "in", "==": "in", "!=": "notin", ">": "gt", "<": "lt"}.get(sign)
        if name is None:
            raise _unreadable(f"found '{sign}', expected: {_OPERATORS}")
        return _checked(Requirement(key, name, frozenset((self._value(),))))

    def _value(self) -> str:
        if self._peek() in (_END, ","):
            # An equals sign with nothing after it asks for the empty value.
            return ""
        symbol = self._take()
        if not _is_word(symbol):
            raise _unreadable(f"found '{symbol}', expected: identifier")
        return symbol

    def _values(self) -> frozenset[str]:
        symbol = self._take()
        if symbol != "(":
            raise _unreadable(f"found '{symbol}' expected: '('")
        values: list[str] = []
        last = ","
        while (symbol := self._take()) != ")":
            if symbol == ",":
                values += [""] if last == "," else []
            elif not _is_word(symbol):
                raise _unreadable(f"found '{symbol}', expected: {_expected(last, values)}")
            elif last != ",":
                raise _unreadable(f"found '{symbol}', expected: ',' or ')'")
            else:
                values.append(symbol)
            last = symbol
        return frozenset([*values, ""] if last == "," else values)


def _expected(last: str, values: list[str]) -> str:
    if last != ",":
        return "',' or ')'"
    return "',', or identifier" if values else "',', ')' or identifier"


def _is_word(symbol: str) -> bool:
    return symbol != _END and symbol not in _SPECIAL


def _checked(requirement: Requirement) -> Requirement:
    """Return a condition whose values may be such.

    Raises:
        StoreError: 400, they may not.
    """
    faults: list[Fault] = []
    for index, value in enumerate(sorted(requirement.values)):
        if requirement.operator in ("gt", "lt") and not re.fullmatch(r"[+-]?\d{1,18}", value):
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            faults.append(wrong(f"values[{index}]", value, why))
        faults += label_value_faults(f"values[{index}][{requirement.key}]", value)
    if faults:
        parts = [f"{fault['field']}: {fault['message']}" for fault in faults]
        raise _unreadable(parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]")
    return requirement


def _unexpected(symbol: str, wanted: str) -> statuses.StoreError:
    return statuses.bad_request(f"found '{symbol}'{wanted}")


def _unreadable(why: str) -> statuses.StoreError:
    return statuses.bad_request(f"unable to parse requirement: {why}")
