"""The child's end of `bench.child`: commands in, answers out."""

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import IO, Any


def parse_command(line: str) -> tuple[str, dict[str, Any]]:
    """Return a command's name and arguments."""
    arguments = json.loads(line)
    return arguments.pop("command"), arguments


def read_commands(source: IO[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield commands until the input ends."""
    for line in source:
        yield parse_command(line)


def result_line(result: Any) -> str:
    """Return the line that says what came out."""
    return json.dumps({"result": result}) + "\n"


def failure_line(failure: BaseException) -> str:
    """Return the line that says that it could not be done."""
    return json.dumps({"failure": f"{type(failure).__name__}: {failure}"}) + "\n"


def obey_in_turn(target: object) -> None:
    """Answer commands, a method of the target each that may block, until the input ends."""
    for name, arguments in read_commands(sys.stdin):
        try:
            answer = result_line(getattr(target, name)(**arguments))
        except Exception as exc:
            answer = failure_line(exc)
        sys.stdout.write(answer)
        sys.stdout.flush()


async def obey(target: object) -> None:
    """Answer commands, a method of the target each, until the input ends."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    while line := await lines.readline():
        name, arguments = parse_command(line.decode())
        try:
            answer = result_line(await getattr(target, name)(**arguments))
        except Exception as exc:
            answer = failure_line(exc)
        sys.stdout.write(answer)
        sys.stdout.flush()
