"""The stand-in kernel's expressions."""

import sys
from pathlib import Path
from typing import Any

import pytest

# The stand-in is no package of the product: it is copied as a folder, and found as one.
sys.path.insert(0, str(Path(__file__).parents[2] / "standin"))

from telo_standin import cel_syntax
from telo_standin.errors import EvaluationError, ManifestError
from telo_standin.expressions import Expression, read_template, resolve

SCOPE: dict[str, Any] = {
    "variables": {"root": "/workspace", "count": 3, "on": True, "items": ["a", "b"]},
    "request": {"body": {"write": None, "n": 1.5}, "query": {}},
    "steps": {"who": {"result": {"value": "Ada"}}},
}


def evaluate(text: str) -> Any:
    return cel_syntax.parse(text).evaluate(SCOPE)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("variables.root", "/workspace"),
        ("steps.who.result.value + '!'", "Ada!"),
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 2 - 3", 5),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("1 + 1.5", 2.5),
        ("variables.count == 3 && !false", True),
        ("false || variables.on", True),
        ("true || missing", True),
        ("false && missing", False),
        ("1 < 2", True),
        ("'a' > 'b'", False),
        ("1 != 2 ? 'yes' : 'no'", "yes"),
        ("false ? 1 : true ? 2 : 3", 2),
        ("has(request.body.write)", True),
        ("has(request.body.delete)", False),
        ("variables.items[1]", "b"),
        ("variables['root']", "/workspace"),
        ("['a', 'b'] + ['c']", ["a", "b", "c"]),
        ("'a' in variables.items", True),
        ("'root' in variables", True),
        ("1 == true", False),
        ("null == null", True),
        ("string(12) + string(true) + string('x')", "12truex"),
        ("int('12') + int(3.9)", 15),
        ("double('1.5')", 1.5),
        ("size('four') + variables.items.size()", 6),
        (r"'a\n\'\\'", "a\n'\\"),
        ("'\\u00e9'", "é"),
        ('"quo\\"te"', 'quo"te'),
        ("!!true", True),
        ("- -1", 1),
    ],
)
def test_an_expression_has_its_value(text: str, value: object) -> None:
    found = evaluate(text)

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "missing",
        "variables.missing",
        "variables.items[2]",
        "variables.items[-1]",
        "variables.root.deeper",
        "1 + 'a'",
        "true + true",
        "1 / 0",
        "1 % 0",
        "1.0 / 0",
        "1 && true",
        "!1",
        "-'a'",
        "'yes' ? 1 : 2",
        "int('twelve')",
        "int('١٢')",
        "int(null)",
        "size(3)",
        "1 < 'a'",
        "1 in 2",
    ],
)
def test_an_expression_without_a_value_says_so(text: str) -> None:
    with pytest.raises(EvaluationError):
        evaluate(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "a b",
        "(1",
        "[1, ",
        "a.1",
        "'open",
        "a ? b",
        "1 # 2",
        "{'a': 1}",
        "has(a)",
        "a.matches('x')",
        "__import__('os')",
        "'\\q'",
        "(" * 200 + "1" + ")" * 200,
    ],
)
def test_what_is_no_known_expression_is_refused_before_anything_runs(text: str) -> None:
    with pytest.raises(ManifestError):
        cel_syntax.parse(text)


def test_an_unknown_function_is_refused_by_name() -> None:
    with pytest.raises(ManifestError, match=r"does not know the CEL function matches\(\)"):
        cel_syntax.parse("variables.root.matches('x')")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${{ variables.count }}", 3),
        ("${{ variables.count }} of ${{ 2 + 2 }}", "3 of 4"),
        ("<${{ variables.items }}>", '<["a","b"]>'),
        ("${{ '}}' }} and ${{ variables.on }}", "}} and true"),
    ],
)
def test_a_template_keeps_the_type_of_a_lone_expression(text: str, value: object) -> None:
    template = read_template(text)

    assert isinstance(template, Expression)
    assert template.evaluate(SCOPE) == value


def test_a_text_without_an_expression_stays_what_it_is() -> None:
    assert read_template("costs $5 {not} {{ this }}") == "costs $5 {not} {{ this }}"


def test_expressions_are_resolved_wherever_they_stand() -> None:
    value = {"a": [read_template("${{ variables.count }}"), {"b": read_template("x")}]}

    assert resolve(value, SCOPE) == {"a": [3, {"b": "x"}]}
