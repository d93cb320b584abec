"""How the command-line client starts, is refused and ends, in this process."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from telorunner.cli.failures import ClientFailure
from telorunner.cli.input import PendingInput
from telorunner.cli.main import main
from telorunner.cli.run import RunOptions, run
from telorunner.cli.stream import TerminalLink
from telorunner.cli.terminal import LocalTerminal
from tests.unit.cli_runner import IMAGE, SESSION, FakeRunner, open_runner


class Files:
    """A user's terminal that is three files; the input is empty."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._out = folder / "stdout"
        self._err = folder / "stderr"
        descriptors = [os.open(os.devnull, os.O_RDONLY)]
        descriptors += [os.open(path, os.O_WRONLY | os.O_CREAT) for path in (self._out, self._err)]
        for descriptor in descriptors:
            stack.callback(os.close, descriptor)
        self.terminal = LocalTerminal(*descriptors)

    @property
    def told(self) -> list[str]:
        return self._err.read_text().splitlines()

    @property
    def output(self) -> bytes:
        return self._out.read_bytes()


@pytest.fixture
async def runner() -> AsyncIterator[FakeRunner]:
    async with open_runner() as fake:
        yield fake


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    with ExitStack() as stack:
        yield Files(tmp_path, stack)


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    path = tmp_path / "telo.yaml"
    path.write_text("kind: Telo.Application\n")
    return path


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        ({"kind": "exited", "code": 0}, 0, "exited with code 0"),
        (
            {"kind": "failed", "message": 'container "session" failed: Error (exit code 42)'},
            42,
            'failed: container "session" failed: Error (exit code 42)',
        ),
        ({"kind": "failed", "message": "pod disappeared"}, 1, "failed: pod disappeared"),
        ({"kind": "failed", "message": "odd (exit code 0)"}, 1, "failed: odd (exit code 0)"),
        ({"kind": "stopped"}, 130, "stopped"),
    ],
)
async def test_the_exit_code_tells_how_the_session_ended(
    runner: FakeRunner,
    files: Files,
    entry: Path,
    status: dict[str, object],
    code: int,
    told: str,
) -> None:
    await runner.write(b"all of it")
    await runner.finish(**status)

    assert await run(RunOptions(entry, runner.url), files.terminal) == code
    assert files.told[-1] == told
    assert files.output == b"all of it"
    assert runner.stops == 0


async def test_the_runner_s_own_image_is_the_default(
    runner: FakeRunner, files: Files, entry: Path
) -> None:
    await runner.finish(kind="exited", code=0)
    await run(RunOptions(entry, runner.url + "/"), files.terminal)

    assert runner.created[0]["config"] == {"image": IMAGE, "pullPolicy": "missing"}
    assert runner.created[0]["env"] == {}
    assert not {"ports", "inspect"} & runner.created[0].keys()
    assert "x-telo-accepted-terms" not in runner.create_headers[0]


async def test_terms_are_shown_with_the_way_to_accept_them(
    runner: FakeRunner, files: Files, entry: Path
) -> None:
    terms = {"version": "2026-1", "title": "Terms", "body": "Be kind.\nAlways."}
    body = {"error": "terms_required", "message": "Accept the terms.", "terms": terms}
    runner.refusal = (428, body)

    with pytest.raises(ClientFailure) as caught:
        await run(RunOptions(entry, runner.url), files.terminal)

    lines = ("Accept the terms.", "", "Terms", "", "Be kind.", "Always.", "")
    assert caught.value.lines[:-1] == lines
    assert caught.value.lines[-1].endswith("--accept-terms 2026-1")
    assert caught.value.code == 2


async def test_a_runner_that_is_not_there_is_told(files: Files, entry: Path) -> None:
    async with open_runner() as gone:
        url = gone.url

    with pytest.raises(ClientFailure, match=f"cannot reach the runner at {url}: ") as caught:
        await run(RunOptions(entry, url), files.terminal)
    assert caught.value.code == 2


@pytest.mark.parametrize(
    "url", ["x", "ftp://x", "http://", "http://x:0", "http://x:99999", "http://[::1", "http://x\0y"]
)
async def test_what_is_no_address_of_a_runner_is_told(files: Files, entry: Path, url: str) -> None:
    with pytest.raises(ClientFailure, match="is no http or https URL") as caught:
        await run(RunOptions(entry, url), files.terminal)
    assert caught.value.code == 2


@pytest.mark.parametrize("close_code", [1000, 4403, 4404, 4410])
async def test_a_socket_closed_for_good_stays_closed(
    runner: FakeRunner, files: Files, close_code: int
) -> None:
    runner.refused_sockets = [close_code]

    await TerminalLink(runner.url, SESSION, files.terminal, PendingInput()).run()

    assert runner.socket_resumes == ["0"]
    assert ("listed origins" in str(files.told)) is (close_code == 4403)


def test_env_values_are_in_no_repr() -> None:
    assert "hunter2" not in repr(RunOptions(Path("x"), "http://x", env={"PASSWORD": "hunter2"}))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "0"], "0 is not a port"),
        (["--port", "80/sctp"], "80/sctp is not a port"),
        (["--env", "secret"], "expected NAME=VALUE"),
        (["--env", "=secret"], "expected NAME=VALUE"),
        # How Python spells what a shell passes on that is not UTF-8.
        (["--env", "A=secret\udcff"], "expected UTF-8"),
        (["--image", "secret\udcff"], "expected UTF-8"),
    ],
)
def test_a_wrong_argument_ends_with_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", "x", *arguments])

    told = capsys.readouterr().err
    assert caught.value.code == 2
    assert message in told
    assert "secret" not in told
