"""Decodes objects into the types of their kind, as the real API server does. Pure.

Fields that a type does not have are dropped and told, values of another type refused, in the words
of the real decoder. What a value must be beyond its type is the business of `validation`.
"""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from telorunner.localcluster import gatewayschema, gojson, schema, structural
from telorunner.localcluster.gojson import Members
from telorunner.localcluster.resources import ResourceKind

_PLAIN: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "bool": bool,
    "int32": int,
    "int64": int,
}
_HEAD = ("kind", "apiVersion", "metadata")
_RANGES = {"int32": 2**31, "int64": 2**63}
_QUANTITY = r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)"
_TIME = r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d([.]\d+)?([Zz]|[-+]\d\d:\d\d)"
_TIME_LAYOUTS = {
    "v1.MicroTime": "2006-01-02T15:04:05.000000Z07:00",
    "v1.Time": "2006-01-02T15:04:05Z07:00",
}


class Undecodable(ValueError):
    """A value is not of the type of its field; the message is the real decoder's."""


@dataclass
class _Place:
    """Where the decoder is: the Go struct around and the path from the object's root."""

    struct: str
    # Without the positions in lists, as Go's messages have it, and with them, as warnings do.
    path: str
    exact: str


@dataclass
class _Decoder:
    faults: list[str] = field(default_factory=list)

    def value(self, given: Any, type_: str, place: _Place) -> Any:
        if given is None or type_ == "any":
            return given
        if type_ in _OWN_DECODERS:
            return _OWN_DECODERS[type_](given, type_, place)
        if type_.startswith("[]"):
            _expect(given, list, type_, place)
            inner = type_[2:]
            return [
                self.value(
                    _zero(inner) if member is None else member,
                    inner,
                    _Place(place.struct, place.path, f"{place.exact}[{index}]"),
                )
                for index, member in enumerate(given)
            ]
        if type_.startswith("map[string]"):
            _expect(given, dict, type_, place)
            self._note_duplicates(given, place)
            inner = type_.removeprefix("map[string]")
            return {
                key: self.value(
                    member, inner, _Place(place.struct, place.path, f"{place.exact}.{key}")
                )
                for key, member in given.items()
            }
        if type_ in _PLAIN:
            return _plain(given, type_, place)
        _expect(given, dict, type_, place)
        return self.struct(given, type_, place)

    def struct(self, given: dict[str, Any], type_: str, place: _Place) -> dict[str, Any]:
        fields = schema.types()[type_]
        struct = type_.rpartition(".")[2]
        self._note_duplicates(given, place)
        found = {}
        for name, member in given.items():
            path, exact = _joined(place.path, name), _joined(place.exact, name)
            if name in fields:
                found[name] = self.value(member, fields[name], _Place(struct, path, exact))
            else:
                self.faults.append(f'unknown field "{exact}"')
        return found

    def _note_duplicates(self, given: dict[str, Any], place: _Place) -> None:
        if isinstance(given, Members):
            self.faults += [
                f'duplicate field "{_joined(place.exact, name)}"' for name in given.duplicates
            ]


def decode(kind: ResourceKind, obj: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return an object with the fields that its kind has, and what is to be said of the others.

    Raises:
        Undecodable: A value is not of the type of its field.
    """
    decoder = _Decoder()
    type_ = schema.type_of(kind)
    if type_ is not None:
        return decoder.struct(obj, type_, _Place(kind.kind, "", "")), decoder.faults
    place = _Place(kind.kind, "", "metadata")
    metadata = decoder.value(obj.get("metadata") or {}, schema.METADATA_TYPE, place)
    rest = {field: value for field, value in obj.items() if field not in _HEAD}
    found, unknown = structural.pruned(gatewayschema.SCHEMAS[kind.plural], rest)
    decoder.faults += [f'unknown field "{path}"' for path in unknown]
    head = {field: obj[field] for field in ("kind", "apiVersion") if field in obj}
    return {**head, "metadata": metadata, **found}, decoder.faults


def _zero(type_: str) -> Any:
    """Return what Go has for null in a list of values of a type."""
    if type_ in _PLAIN:
        wanted = _PLAIN[type_]
        return wanted() if isinstance(wanted, type) else None
    return {} if type_ in schema.types() and type_ not in _OWN_DECODERS else None


def _bytes(given: Any, type_: str, place: _Place) -> Any:
    if not isinstance(given, str):
        raise _mismatch(given, type_, place)
    try:
        base64.b64decode(given, validate=True)
    except ValueError as exc:
        raise Undecodable(f"illegal base64 data at input byte {_bad_position(given)}") from exc
    return given


def _quantity(given: Any, _: str, __: _Place) -> Any:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number and not (isinstance(given, str) and re.fullmatch(_QUANTITY, given)):
        raise Undecodable(f"quantities must match the regular expression '^{_QUANTITY}$'")
    return given


def _int_or_string(given: Any, _: str, place: _Place) -> Any:
    return given if isinstance(given, str) else _plain(given, "int32", place)


def _time(given: Any, type_: str, place: _Place) -> Any:
    text = _plain(given, "string", place)
    if not re.fullmatch(_TIME, text):
        layout = _TIME_LAYOUTS[type_]
        raise Undecodable(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"')
    return text


_OWN_DECODERS: dict[str, Callable[[Any, str, _Place], Any]] = {
    "[]uint8": _bytes,
    "intstr.IntOrString": _int_or_string,
    "resource.Quantity": _quantity,
    "v1.MicroTime": _time,
    "v1.Time": _time,
}


def _plain(given: Any, type_: str, place: _Place) -> Any:
    wanted = _PLAIN[type_]
    is_right = isinstance(given, wanted) and (wanted is bool or not isinstance(given, bool))
    if is_right and type_ in _RANGES and not -_RANGES[type_] <= given < _RANGES[type_]:
        is_right = False
    if is_right:
        return given
    if type_ in _RANGES and isinstance(given, float) and given.is_integer():
        return int(given)
    raise _mismatch(given, type_, place)


def _expect(given: Any, wanted: type, type_: str, place: _Place) -> None:
    if not isinstance(given, wanted):
        raise _mismatch(given, type_, place)


def _mismatch(given: Any, type_: str, place: _Place) -> Undecodable:
    value = gojson.kind_of_value(given)
    if value == "number" and type_ in _RANGES:
        value = f"number {given}"
    where = f"Go struct field {place.struct}.{place.path}"
    return Undecodable(f"json: cannot unmarshal {value} into {where} of type {type_}")


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _bad_position(text: str) -> int:
    """Return the position at which Go's decoder stops: the first byte that is no base64."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
    for position, character in enumerate(text):
        if character not in alphabet:
            return position
    return len(text) // 4 * 4
