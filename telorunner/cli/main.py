"""The command line: arguments in, exit code out.

Exit codes: the application's; 1 where it failed without one; 2 where nothing could be started; 130
after Ctrl-C.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from telorunner import __version__
from telorunner.cli.failures import ClientFailure
from telorunner.cli.run import INTERRUPTED, RunOptions, run
from telorunner.cli.terminal import LocalTerminal
from telorunner.values.port import MAX_PORT

DEFAULT_URL = "http://127.0.0.1:8062"
URL_VARIABLE = "TELORUNNER_URL"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the process's exit code."""
    given = _parser().parse_args(arguments)
    options = RunOptions(
        target=Path(given.target),
        url=given.url or os.environ.get(URL_VARIABLE) or DEFAULT_URL,
        image=given.image,
        ports=tuple(given.port),
        env=dict(given.env),
        inspect=given.inspect,
        accepted_terms=given.accept_terms,
    )
    terminal = LocalTerminal()
    try:
        return asyncio.run(run(options, terminal))
    except ClientFailure as exc:
        for line in exc.lines:
            terminal.notice(line)
        return exc.code
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="telorunner", description="A client of a Telo runner.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("run", help="run an application and attend its terminal")
    command.add_argument(
        "target", metavar="FOLDER|FILE", help="a folder with a telo.yaml, or one manifest"
    )
    command.add_argument(
        "--url", type=_text, help=f"the runner's address (else ${URL_VARIABLE}, else {DEFAULT_URL})"
    )
    command.add_argument("--image", type=_text, help="the kernel image (else the runner's default)")
    command.add_argument(
        "--port",
        action="append",
        default=[],
        type=_port,
        metavar="PORT[/udp]",
        help="a port that the application listens on; may be given several times",
    )
    command.add_argument(
        "--env",
        action="append",
        default=[],
        type=_assignment,
        metavar="NAME=VALUE",
        help="a variable for the application; may be given several times",
    )
    command.add_argument("--inspect", action="store_true", help="ask for the debug stream")
    command.add_argument(
        "--accept-terms",
        type=_text,
        metavar="VERSION",
        help="accept this version of the runner's terms",
    )
    return parser


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("expected UTF-8") from None
    return text


def _port(text: str) -> dict[str, Any]:
    number, _, protocol = text.partition("/")
    is_number = number.isascii() and number.isdecimal() and 1 <= int(number) <= MAX_PORT
    if not is_number or protocol not in ("", "tcp", "udp"):
        raise argparse.ArgumentTypeError(f"{text} is not a port such as 8080 or 5353/udp")
    return {"port": int(number), "protocol": protocol or "tcp"}


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = _text(text).partition("=")
    if not name or not equals:
        # The text may be a secret that lacks its name: it is not repeated.
        raise argparse.ArgumentTypeError("expected NAME=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
