"""A form's field for an app's variables: names are shown, values are only ever taken.

No value leaves the server: what is stored is not in the page, and what was typed is not sent back
with a form that had errors; its row asks for it again.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.views.decorators.debug import sensitive_variables

from catalog.variables import EnvChange
from telorunner.values import env

BLANK_ROWS = 3

_NEW_KEY = re.compile(r"new-([0-9]{1,4})-(?:name|value|empty)")

BOTH_PROBLEM = "{name}: type a new value or tick “remove”, not both."
NAMELESS_PROBLEM = "New variable {number}: it needs a name."
NAME_PROBLEM = "New variable {number}: {problem}."
VALUELESS_PROBLEM = "{name}: type a value, or tick “empty value”."
EMPTY_PROBLEM = "{name}: type a value or tick “empty value”, not both."
TWICE_PROBLEM = "{name}: it is there twice."
SET_PROBLEM = "{name}: it is set already; type its new value in its own row."


@dataclass(frozen=True)
class NewRow:
    """What was typed into one of the rows for new variables."""

    name: str
    value: str = field(repr=False)
    is_empty: bool

    @property
    def shown_name(self) -> str:
        """The name as a page may repeat it: what is no name may be a value."""
        return "" if env.name_problem(self.name) else self.name


@dataclass(frozen=True)
class TypedEnv:
    """What a form was sent: new values and removals by name, and the rows for new variables."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    removed: frozenset[str] = frozenset()
    added: tuple[NewRow, ...] = ()


class EnvWidget(forms.Widget):
    """A row for each variable that is stored, then rows for new ones."""

    template_name = "catalog/env.html"
    use_fieldset = True

    class Media:
        css = {"all": ["catalog/admin.css"]}
        js = ["catalog/env.js"]

    def __init__(self) -> None:
        super().__init__()
        # Of the app that the form is about: names, and those whose values no key opens.
        self.stored: tuple[str, ...] = ()
        self.unreadable: frozenset[str] = frozenset()

    def id_for_label(self, _id: str) -> str:
        """Return nothing: there is no one input that a label would be for."""
        return ""

    @sensitive_variables()
    def value_from_datadict(self, data: Mapping[str, Any], _files: Any, name: str) -> TypedEnv:
        """Read the rows off a submitted form."""
        sent = {
            key.removeprefix(f"{name}-"): str(value)
            for key, value in data.items()
            if key.startswith(f"{name}-")
        }
        values = {
            key.removeprefix("value:"): _lines(value)
            for key, value in sent.items()
            if key.startswith("value:") and value
        }
        removed = {key.removeprefix("remove:") for key in sent if key.startswith("remove:")}
        numbers = sorted({int(m[1]) for key in sent if (m := _NEW_KEY.fullmatch(key))})
        rows = [_new_row(sent, number) for number in numbers]
        added = tuple(row for row in rows if row.name or row.value or row.is_empty)
        return TypedEnv(values, frozenset(removed), added)

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        """Return what the rows are made of; no value is in it."""
        typed = value if isinstance(value, TypedEnv) else TypedEnv()
        names = dict.fromkeys([*self.stored, *typed.values])
        stored = [
            {
                "name": one,
                "is_removed": one in typed.removed,
                "is_lost": one in typed.values,
                "is_unreadable": one in self.unreadable,
            }
            for one in names
            if not env.name_problem(one)
        ]
        added = [
            {"name": row.shown_name, "is_empty": row.is_empty, "is_lost": bool(row.value)}
            for row in typed.added
        ]
        blank = [{"name": "", "is_empty": False, "is_lost": False}] * BLANK_ROWS
        context = super().get_context(name, None, attrs)
        return {**context, "stored": stored, "added": [*added, *blank]}


class EnvField(forms.Field):
    """Turns what was typed into an `EnvChange`."""

    widget = EnvWidget

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.stored: tuple[str, ...] = ()

    def set_stored(self, stored: Collection[str], unreadable: Collection[str]) -> None:
        """Take the names that the app has, and those whose values no key opens."""
        self.stored = tuple(sorted(stored))
        # Its type is that of the class attribute, which Django makes an object of.
        widget: Any = self.widget
        widget.stored, widget.unreadable = self.stored, frozenset(unreadable)

    @sensitive_variables()
    def clean(self, value: TypedEnv) -> EnvChange:
        """Return the change.

        Raises:
            ValidationError: What was typed contradicts itself; no sentence repeats a value.
        """
        problems = [
            BOTH_PROBLEM.format(name=name) for name in value.values if name in value.removed
        ]
        values = dict(value.values)
        taken = {*self.stored, *values} - value.removed
        for number, row in enumerate(value.added, start=1):
            if problem := _row_problem(row, number):
                problems.append(problem)
            elif row.name in taken:
                is_stored = row.name in self.stored
                problems.append((SET_PROBLEM if is_stored else TWICE_PROBLEM).format(name=row.name))
            else:
                values[row.name] = row.value
                taken.add(row.name)
        if problems:
            raise ValidationError(problems)
        # NB: only names that are there, for the history repeats them.
        return EnvChange(values, value.removed.intersection(self.stored) - values.keys())

    def has_changed(self, _initial: Any, data: TypedEnv | None) -> bool:
        """Tell whether anything was typed or ticked."""
        return data is not None and bool(data.values or data.removed or data.added)


def _new_row(sent: Mapping[str, str], number: int) -> NewRow:
    return NewRow(
        name=sent.get(f"new-{number}-name", "").strip(),
        value=_lines(sent.get(f"new-{number}-value", "")),
        is_empty=f"new-{number}-empty" in sent,
    )


def _row_problem(row: NewRow, number: int) -> str:
    """Return what is wrong with a row by itself; empty: nothing."""
    if not row.name:
        return NAMELESS_PROBLEM.format(number=number)
    if problem := env.name_problem(row.name):
        return NAME_PROBLEM.format(number=number, problem=problem)
    if row.value and row.is_empty:
        return EMPTY_PROBLEM.format(name=row.name)
    if not row.value and not row.is_empty:
        return VALUELESS_PROBLEM.format(name=row.name)
    return ""


def _lines(value: str) -> str:
    """Return a value with LF line ends: browsers send CRLF, which was never typed."""
    return value.replace("\r\n", "\n")
