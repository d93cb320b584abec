"""The members of the Console module: lines out, lines in."""

import sys
from collections.abc import Mapping
from typing import Any

from telo_standin.cel import text_of
from telo_standin.errors import RunError


def write(text: str) -> None:
    """Write text at once, whatever stdout is connected to."""
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def write_line(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Write ``output`` and a line end."""
    if "output" not in inputs:
        raise RunError("Console.writeLine has no input 'output'")
    write(text_of(inputs["output"]) + "\n")
    return {}


def read_line(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Show ``prompt`` and return the next line as ``value``.

    Raises:
        RunError: the input has ended.
    """
    write(text_of(inputs.get("prompt", "")))
    line = sys.stdin.buffer.readline() if sys.stdin is not None else b""
    if not line:
        raise RunError("Console.readLine: the input has ended")
    return {"value": line.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")}


MEMBERS = {"writeLine": write_line, "readLine": read_line}
