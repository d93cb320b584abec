"""Example applications use only what every Telo kernel that runs here is known to have."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*/telo.yaml"))
NAMES = {"hello", "console", "http-api", "failing", "megabyte"}

IMPORTS = {
    "Console": "oci://ghcr.io/telorun/console@0.17.3"
    "#sha256-KaCBcFJ13vtXO6I-N06kpjRFm85AcemNEbdVN4tgDhQ",
    "Http": "oci://ghcr.io/telorun/http-server@0.26.0"
    "#sha256-qCiZuU7_9wnxCn2QuA0oKM0H7OyvSd2aFcoXSv3vgFo",
    "Run": "oci://ghcr.io/telorun/run@0.26.0#sha256-ZhW56yiMCImqBh0wJ4mVaUvh5WuUVIaWErASFx--wCY",
}
MEMBERS = {"Console.writeLine", "Console.readLine"}
STEP = {"name": None, "invoke": None, "inputs": {"output": None, "prompt": None}}
ANSWER = {"status": None, "content": {"application/json": {"body": "any"}}}
ROUTE = {
    "request": {"path": None, "method": None, "schema": "any"},
    "handler": None,
    "inputs": "any",
    "returns": [ANSWER],
    "catches": [ANSWER],
}
NAMED = {"name": None, "version": None}
# Per kind, the fields that a document may have; "any" is the application's own data.
FIELDS: dict[str, dict[str, Any]] = {
    "Telo.Application": {
        "metadata": NAMED,
        "imports": "any",
        "ports": "settings",
        "variables": "settings",
        "targets": [STEP],
    },
    "Http.Server": {
        "metadata": NAMED,
        "port": None,
        "host": None,
        "mounts": [{"path": None, "mount": None}],
    },
    "Http.Api": {"metadata": NAMED, "routes": [ROUTE]},
    "Run.Sequence": {"metadata": NAMED, "steps": [STEP], "outputs": "any"},
}
SETTING = {"env": None, "type": None, "protocol": None, "default": None}


class Reference(str):
    """The target of a ``!ref``."""


class Loader(yaml.SafeLoader):
    """Reads references as such and expressions as texts."""


Loader.add_constructor("!ref", lambda loader, node: Reference(loader.construct_scalar(node)))
Loader.add_constructor("!cel", lambda loader, node: str(loader.construct_scalar(node)))


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.load_all(path.read_text(), Loader))


def unknown(value: Any, allowed: Any, where: str) -> list[str]:
    """Return the fields of a value that are not allowed, each with its place."""
    if allowed == "any" or isinstance(value, Reference):
        return []
    if allowed == "settings":
        allowed = dict.fromkeys(value, SETTING)
    if isinstance(allowed, list):
        return [found for item in value for found in unknown(item, allowed[0], where)]
    if not isinstance(value, dict):
        return [where] if isinstance(allowed, dict) else []
    if allowed is None:
        return [where]
    return [
        found
        for key, item in value.items()
        for found in (
            unknown(item, allowed[key], f"{where}.{key}") if key in allowed else [f"{where}.{key}"]
        )
    ]


def references(value: Any) -> list[str]:
    if isinstance(value, Reference):
        return [str(value)]
    children = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (dict, list)):
        return []
    return [found for child in children for found in references(child)]


def complaints(found: list[dict[str, Any]]) -> list[str]:
    """Return what a manifest uses that it may not use."""
    if found[0].get("kind") != "Telo.Application":
        return ["no Telo.Application"]
    bad = [f"import {a}" for a, ref in found[0].get("imports", {}).items() if IMPORTS.get(a) != ref]
    names = {document["metadata"]["name"] for document in found[1:]}
    for document in found:
        kind = document["kind"]
        if kind not in FIELDS:
            bad.append(f"kind {kind}")
            continue
        fields = {key: value for key, value in document.items() if key != "kind"}
        bad += unknown(fields, FIELDS[kind], kind)
        bad += [f"!ref {ref}" for ref in references(fields) if ref not in MEMBERS | names]
    return bad


def test_the_promised_examples_are_there() -> None:
    assert {path.parent.name for path in EXAMPLES} == NAMES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_uses_nothing_but_the_agreed_kinds_fields_and_references(path: Path) -> None:
    assert complaints(documents(path)) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_stand_in_kernel_finds_no_fault_in_an_example(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "standin" / "telo"), "check", str(path)],
        capture_output=True,
        timeout=30,
        env={"PATH": os.environ["PATH"]},
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kind: Sql.Query\nmetadata: {name: q}", "kind Sql.Query"),
        ("kind: Run.Sequence\nmetadata: {name: s}\nwith: []", "Run.Sequence.with"),
        (
            "kind: Run.Sequence\nmetadata: {name: s}\nsteps: [{invoke: !ref nobody}]",
            "!ref nobody",
        ),
        (
            "kind: Http.Api\nmetadata: {name: a}\nroutes: [{returns: [{when: 1}]}]",
            "Http.Api.routes.returns.when",
        ),
    ],
)
def test_a_use_of_something_else_would_be_found(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "telo.yaml"
    path.write_text(f"kind: Telo.Application\nmetadata: {{name: x}}\n---\n{text}\n")

    assert complaints(documents(path)) == [complaint]
