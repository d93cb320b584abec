"""The page for client authors: every block that it marks runs, and does what it says."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.serving import ROOT, Platform

pytestmark = pytest.mark.cluster

PAGE = ROOT / "docs" / "clients.md"
# The fence that is for another shell: a runner with terms and an app.
SERVED = re.compile(r"^```\n(RUNNER_TERMS_BODY=.*?)^make run\n```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(sh|python) run(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN_SECONDS = 60.0
SEPARATOR = "=== next block ==="
ID = r"[a-z2-7]{12}"
CREATED = rf'{{"sessionId":"{ID}","streamUrl":"/v1/sessions/{ID}/events","createdAt":"'

# What each block of the shell prints, in the page's order.
EXPECTED = [
    r'{"ok":true,"version":"\d',
    r'{"displayName":"Telo Runner",.*"features":{[^}]*"ports":true.*"terms":{.*'
    r'"apps":\[{"name":"greeter",',
    r'{"status":"ready"}',
    r"[0-9a-f]{12}\n$",
    CREATED,
    r'{"error":"terms_required",.*"terms":{"version":"[0-9a-f]{12}",.*\n428\n$',
    CREATED,
    r"Usage agreement\n\nBe kind to the machines\.\n\nDo you accept(.|\n)*\n[0-9a-f]{12}$",
    r'id: 1\nevent: status\ndata: .*"starting"(.|\n)*"running"(.|\n)*"exited","code":0}}\n\n$',
    r'id: 2\n(.|\n)*"exited","code":0}}\n\n$',
    r'{"type": "status", "status": {"kind": "starting"}}\n(.|\n)*"exited", "code": 0}}\n$',
    rf'{{"sessionId":"{ID}","status":{{"kind":"exited","code":0}},"mode":"run"',
    "$",
    rf"https://(8080-{ID}\.apps\.localhost) pending \nhttps://\1 programmed \n"
    r'.*"endpoints":\[{"host":"\1","port":8080,"protocol":"tcp","url":"https://\1"}\]',
    # What is typed before the application reads it is echoed above the kernel's first line.
    r"(.*\n){0,2}What is your name\? (.|\n)*Greetings to Ada!\s+$",
    r"Hello, Grace!\s+$",
    r'204\n{"type": "status", "status": {"kind": "stopped"}}\n$',
    r'{"error":"invalid_request",.*"/bundle/entryRelativePath".*"/env/A".*"/config".*\n400\n$',
]


@pytest.fixture(scope="module", name="url")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A runner as `make run` serves it, whose local cluster starts the stand-in kernel."""
    yield from serve(tmp_path_factory.mktemp("platform"))


@pytest.fixture(name="curated_url")
def serving_a_catalog(tmp_path: Path) -> Iterator[str]:
    """The runner that the page tells to serve: with terms and an app."""
    [served] = SERVED.findall(PAGE.read_text())
    variables = shlex.split(served.replace("\\\n", " "))
    yield from serve(tmp_path / "platform", dict(one.split("=", 1) for one in variables))


def serve(data_dir: Path, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    embedded = {"RUNNER_CLUSTER": "local", "PATH": os.environ["PATH"]}
    platform = Platform(data_dir, {**embedded, **(environment or {})})
    platform.start()
    yield platform.url
    assert platform.stop() == 0, "serve did not end cleanly"


def write_programs(folder: Path) -> list[str]:
    """Write the page's programs down as it says; return the blocks for the shell."""
    script = []
    for language, name, text in BLOCK.findall(PAGE.read_text()):
        if language == "python":
            (folder / name).write_text(text)
        else:
            script.append(text)
    return script


def environment_of(url: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**inherited, "PATH": path, "RUNNER": url, "PYTHONWARNINGS": "error"}


def test_the_page_for_client_authors_is_right(curated_url: str, tmp_path: Path) -> None:
    script = write_programs(tmp_path)
    assert len(script) == len(EXPECTED)
    done = subprocess.run(
        ["bash", "-euo", "pipefail"],
        input=f"\necho '{SEPARATOR}'\n".join(script),
        env=environment_of(curated_url),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    printed = done.stdout.split(f"{SEPARATOR}\n")
    for text, output, expected in zip(script, printed, EXPECTED, strict=True):
        assert re.match(expected, output), f"{text}\nprinted\n{output}"


def test_no_program_of_the_page_is_left_out() -> None:
    text = PAGE.read_text()
    fences = re.findall(r"^```(\w.*)$", text, re.MULTILINE)
    assert len(fences) == len(BLOCK.findall(text))


class Breaking:
    """A relay to a runner; the first connection breaks off in front of some bytes of an answer."""

    def __init__(self, url: str, moment: bytes) -> None:
        self._host, _, self._port = url.removeprefix("http://").partition(":")
        self._moment = moment
        self.is_broken = False

    @asynccontextmanager
    async def relaying(self) -> AsyncIterator[str]:
        async with asyncio.TaskGroup() as group:
            tasks = []

            def accept(*streams: Any) -> None:
                tasks.append(group.create_task(self._relay(*streams)))

            async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
                yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            for task in tasks:
                task.cancel()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        runner_reader, runner_writer = await asyncio.open_connection(self._host, int(self._port))

        async def ask() -> None:
            with suppress(ConnectionError):
                while data := await reader.read(2**16):
                    runner_writer.write(data)

        try:
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(ask())
                with suppress(ConnectionError):
                    await self._answer(runner_reader, writer)
                asking.cancel()
        finally:
            for one in (writer, runner_writer):
                one.close()
                with suppress(ConnectionError):
                    await one.wait_closed()

    async def _answer(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        relayed = b""
        while data := await source.read(2**16):
            relayed += data
            if not self.is_broken and self._moment in relayed:
                self.is_broken = True
                target.write(data[: relayed.index(self._moment) - len(relayed)])
                await target.drain()
                return
            target.write(data)


@pytest.mark.parametrize(
    ("program", "moment", "expected"),
    [
        ("follow.py", b"id: 2\n", r'.*"starting"(.|\n)*"running"(.|\n)*"exited", "code": 0}}\n$'),
        (
            "terminal.py",
            b"more to do",
            r"(.*\n)*Hello from Telo!\r?\nThis .* nothing more to do\.\s+$",
        ),
    ],
)
async def test_a_program_goes_on_behind_a_connection_that_broke(
    url: str, tmp_path: Path, program: str, moment: bytes, expected: str
) -> None:
    write_programs(tmp_path)
    session = await printed_by(tmp_path, url, "create.py", str(ROOT / "examples" / "hello"))
    await printed_by(tmp_path, url, "follow.py", session)
    breaking = Breaking(url, moment)
    async with breaking.relaying() as relay:
        printed = await printed_by(tmp_path, relay, program, session)
    assert breaking.is_broken
    assert re.match(expected, f"{printed}\n"), printed
    lines = printed.splitlines()
    assert len(lines) == len(set(lines)), "something came twice"


async def printed_by(folder: Path, url: str, *command: str) -> str:
    """Run a program of the page and return what it prints, stripped."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        cwd=folder,
        env=environment_of(url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(RUN_SECONDS):
        output, problems = await program.communicate(b"")
    assert (program.returncode, problems) == (0, b"")
    return output.decode().strip()
