"""The three things a manifest's value can be besides plain YAML: a reference, CEL, a template."""

import re
from typing import Any, NamedTuple

from telo_standin import cel
from telo_standin.cel_syntax import parse

_TEMPLATE = re.compile(
    r"""\$\{\{((?:[^}"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\}(?!\}))*)\}\}""", re.DOTALL
)


class Ref(NamedTuple):
    """``!ref name`` or ``!ref Alias.member``."""

    target: str


class Expression(NamedTuple):
    """``!cel "..."`` or a string with ``${{ ... }}`` in it, ready to be evaluated.

    ``parts`` are the template's texts and nodes in order; a lone node keeps its value's type.
    """

    parts: tuple[str | cel.Node, ...]

    def evaluate(self, scope: cel.Scope) -> Any:
        """Return the value; of a template with several parts, the text."""
        values = [part if isinstance(part, str) else part.evaluate(scope) for part in self.parts]
        return values[0] if len(values) == 1 else "".join(cel.text_of(value) for value in values)


def read_cel(text: str) -> Expression:
    """Return the expression of a ``!cel`` scalar."""
    return Expression((parse(text),))


def read_template(text: str) -> str | Expression:
    """Return a string's expression, or the string itself where it holds none."""
    parts: list[str | cel.Node] = []
    position = 0
    for match in _TEMPLATE.finditer(text):
        if match.start() > position:
            parts.append(text[position : match.start()])
        parts.append(parse(match[1]))
        position = match.end()
    if not parts:
        return text
    if position < len(text):
        parts.append(text[position:])
    return Expression(tuple(parts))


def resolve(value: Any, scope: cel.Scope) -> Any:
    """Return plain data: every expression within a value evaluated."""
    if isinstance(value, Expression):
        return value.evaluate(scope)
    if isinstance(value, dict):
        return {key: resolve(item, scope) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve(item, scope) for item in value]
    return value
