"""Changes of an app's variables: what is set and cleared, what is wrong with it, what is stored.

It keeps nothing. Values are in the clear here only while one function runs.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from django.views.decorators.debug import sensitive_variables

from catalog import sealed
from telorunner.secretbox import CannotOpen
from telorunner.values import env

TOTAL_PROBLEM = "All variables together, with their names, must be at most 1 MiB."
NUMBER_PROBLEM = f"There must be at most {env.MAX_APP_VARIABLES} variables."


@dataclass(frozen=True)
class EnvChange:
    """What becomes of an app's variables; those that are in neither are kept."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    cleared: Collection[str] = ()


NO_CHANGE = EnvChange()


@sensitive_variables()
def problems(stored: Mapping[str, str], change: EnvChange) -> list[str]:
    """Return what is wrong with a change of what is stored; no sentence repeats a value."""
    found = []
    for name, value in change.values.items():
        if problem := env.name_problem(name):
            # NB: not told which: it may be a value that slipped into the wrong field.
            found.append(f"A variable: {problem}.")
        elif problem := env.value_problem(value) or env.size_problem(name, value):
            found.append(f"{name}: {problem}.")
    kept = {name: _open(text) or "" for name, text in _kept(stored, change).items()}
    whole = {**kept, **change.values}
    if len(whole) > env.MAX_APP_VARIABLES:
        found.append(NUMBER_PROBLEM)
    sizes = [env.size_bytes(*variable) for variable in whole.items()]
    if sum(sizes) > env.MAX_TOTAL_BYTES:
        found.append(TOTAL_PROBLEM)
    return found


def applied(stored: Mapping[str, str], change: EnvChange) -> dict[str, str]:
    """Return what is to be stored; what is kept is sealed anew, so that a key can be retired."""
    kept = {name: _seal_anew(text) for name, text in _kept(stored, change).items()}
    return {**kept, **{name: sealed.seal_value(value) for name, value in change.values.items()}}


def unreadable(stored: Mapping[str, str]) -> frozenset[str]:
    """Return the names of values that were sealed with a key that is gone."""
    return frozenset(name for name, text in stored.items() if _open(text) is None)


def _kept(stored: Mapping[str, str], change: EnvChange) -> dict[str, str]:
    changed = {*change.values, *change.cleared}
    return {name: text for name, text in stored.items() if name not in changed}


@sensitive_variables()
def _seal_anew(text: str) -> str:
    value = _open(text)
    return text if value is None else sealed.seal_value(value)


@sensitive_variables()
def _open(text: str) -> str | None:
    """Return a value in the clear; None: no key opens it."""
    try:
        return sealed.open_values({"": text})[""]
    except CannotOpen:
        return None
