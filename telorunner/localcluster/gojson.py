"""Reads JSON and says what is wrong with it in the words of Go's decoder, which clients get. Pure.

Source: https://pkg.go.dev/encoding/json (scanner.go), whose messages the API server passes on.
"""

import json
import re
from typing import Any, NoReturn

# What Go decodes an object into to see what it is.
HEAD_TYPE = (
    'Go value of type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string'
    ' "json:\\"kind,omitempty\\"" }'
)
_NUMBER = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SPACE = b" \t\r\n"
_LITERALS = {b"t"[0]: b"true", b"f"[0]: b"false", b"n"[0]: b"null"}
_ESCAPED = b'"\\/bfnrt'
_HEXADECIMAL = b"0123456789abcdefABCDEF"
_NAMES = {bool: "bool", str: "string", list: "array", int: "number", float: "number"}
_VALUE = "looking for beginning of value"
_KEY = "looking for beginning of object key string"


class GoJsonError(ValueError):
    """The text is no JSON; the message is Go's."""


class Members(dict[str, Any]):
    """A JSON object that remembers which of its keys came more than once."""

    duplicates: tuple[str, ...] = ()


def loads(body: bytes) -> Any:
    """Return the value that a text stands for; its objects are `Members`.

    Raises:
        GoJsonError: It is no JSON.
    """
    try:
        return json.loads(
            body.decode("utf-8", "replace"),
            object_pairs_hook=_members,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError) as exc:
        raise GoJsonError(explain(body)) from exc


def kind_of_value(value: Any) -> str:
    """Return what Go calls a JSON value in a message: `number`, `array`, `object` ..."""
    return _NAMES.get(type(value), "object")


def explain(body: bytes) -> str:
    """Return what Go's decoder says of a text that is no JSON."""
    try:
        _Scanner(body).document()
    except GoJsonError as exc:
        return str(exc)
    return "exceeded max depth"


def _members(pairs: list[tuple[str, Any]]) -> Members:
    found = Members(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        found.duplicates = tuple(name for name in found if names.count(name) > 1)
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


class _Scanner:
    """Looks for the first byte that Go would not take."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def document(self) -> None:
        """Read the whole text.

        Raises:
            GoJsonError: It is no JSON.
        """
        self._value()
        self._skip_space()
        if self._at < len(self._body):
            self._fail("after top-level value")

    def _skip_space(self) -> None:
        while self._at < len(self._body) and self._body[self._at] in _SPACE:
            self._at += 1

    def _peek(self) -> int:
        if self._at >= len(self._body):
            raise GoJsonError("unexpected end of JSON input")
        return self._body[self._at]

    def _within(self) -> int:
        """Return the byte at hand in a token; at its end the text counts as followed by a space."""
        return self._body[self._at] if self._at < len(self._body) else ord(" ")

    def _next(self) -> int:
        """Return the next byte that is no space, without taking it."""
        self._skip_space()
        return self._peek()

    def _fail(self, where: str) -> NoReturn:
        character = chr(self._within())
        shown = {"'": "\\'", '"': '"'}.get(character) or _quoted(character)
        raise GoJsonError(f"invalid character '{shown}' {where}")

    def _value(self) -> None:
        first = self._next()
        match chr(first):
            case "{":
                self._object()
            case "[":
                self._array()
            case '"':
                self._string()
            case "t" | "f" | "n":
                self._literal(_LITERALS[first].decode())
            case character if character == "-" or character.isdigit():
                self._number()
            case _:
                self._fail(_VALUE)

    def _object(self) -> None:
        self._at += 1
        if self._next() == ord("}"):
            self._at += 1
            return
        while True:
            if self._next() != ord('"'):
                self._fail(_KEY)
            self._string()
            if self._next() != ord(":"):
                self._fail("after object key")
            self._at += 1
            self._value()
            if self._ends("}", "after object key:value pair"):
                return

    def _array(self) -> None:
        self._at += 1
        if self._next() == ord("]"):
            self._at += 1
            return
        while True:
            self._value()
            if self._ends("]", "after array element"):
                return

    def _ends(self, closing: str, where: str) -> bool:
        """Take what follows a member; say whether it was the last one."""
        found = chr(self._next())
        if found not in (",", closing):
            self._fail(where)
        self._at += 1
        return found == closing

    def _string(self) -> None:
        self._at += 1
        while (byte := self._peek()) != ord('"'):
            if byte < 0x20:
                self._fail("in string literal")
            self._at += 1
            if byte == ord("\\"):
                self._escape()
        self._at += 1

    def _escape(self) -> None:
        byte = self._within()
        if byte != ord("u"):
            if byte not in _ESCAPED:
                self._fail("in string escape code")
            self._at += 1
            return
        for _ in range(4):
            self._at += 1
            if self._within() not in _HEXADECIMAL:
                self._fail("in \\u hexadecimal character escape")
        self._at += 1

    def _literal(self, word: str) -> None:
        for expected in word:
            if self._within() != ord(expected):
                self._fail(f"in literal {word} (expecting '{expected}')")
            self._at += 1

    def _number(self) -> None:
        match = _NUMBER.match(self._body, self._at)
        if match is None:
            self._at += 1
            self._fail("in numeric literal")
        self._at = match.end()
        if self._body[self._at : self._at + 1] == b".":
            self._at += 1
            self._fail("after decimal point in numeric literal")


def quoted(text: str) -> str:
    """Return a text as Go quotes it."""
    inner = "".join('\\"' if character == '"' else _quoted(character) for character in text)
    return f'"{inner}"'


def _quoted(character: str) -> str:
    """Return a character as Go quotes it."""
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\\": "\\\\"}
    if character in short:
        return short[character]
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return character if character.isprintable() else f"\\u{code:04x}"
