"""The stand-in kernel's command line, consoles and exit codes, run as a process."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TELO = [sys.executable, str(ROOT / "standin" / "telo")]
BANNER = "[stand-in telo kernel: a test double, not the Telo kernel]"
CONSOLE = "oci://ghcr.io/telorun/console@0.17.3#sha256-KaCBcFJ13vtXO6I-N06kpjRFm85AcemNEbdVN4tgDhQ"
HEAD = f"""kind: Telo.Application
metadata: {{name: Test}}
imports:
  Console: {CONSOLE}
  Run: oci://ghcr.io/telorun/run@0.26.0#sha256-ZhW56yiMCImqBh0wJ4mVaUvh5WuUVIaWErASFx--wCY
  Fs: oci://ghcr.io/telorun/fs@0.9.4#sha256-w8NLcREIq8SvxtsrULgRVKMPXISnR4iJd7LxeFnBFGM
"""
SAY = "  - invoke: !ref Console.writeLine\n    inputs: {output: %s}\n"
TIMEOUT_SECONDS = 30
Write = Callable[..., str]


def telo(
    *arguments: str, answers: str = "", env: dict[str, str] | None = None
) -> tuple[int, list[str]]:
    done = subprocess.run(
        [*TELO, *arguments],
        input=answers.encode(),
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        env={**os.environ, **(env or {})},
        check=False,
    )
    assert done.stderr == b""
    return done.returncode, done.stdout.decode().splitlines()


def example(name: str) -> str:
    return str(ROOT / "examples" / name / "telo.yaml")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str, head: str = HEAD) -> str:
        path = tmp_path / "telo.yaml"
        path.write_text(head + text)
        return str(path)

    return write


def test_the_first_line_says_what_it_is_and_hello_prints_its_lines() -> None:
    assert telo("run", example("hello")) == (
        0,
        [BANNER, "Hello from Telo!", "This application has nothing more to do."],
    )


def test_answers_from_a_pipe_are_read_line_by_line() -> None:
    code, lines = telo("run", example("console"), answers="Ada\r\nLondon\n")

    assert code == 0
    assert lines[1] == "What is your name? Where are you, Ada? Greetings to Ada in London!"


def test_a_last_line_without_its_end_is_a_line() -> None:
    code, lines = telo("run", example("console"), answers="Ada\nLondon")

    assert (code, lines[1][-10:]) == (0, "in London!")


def test_an_input_that_ends_early_fails_the_run() -> None:
    code, lines = telo("run", example("console"), answers="Ada\n")

    assert code == 1
    assert lines[1].endswith("error: Console.readLine: the input has ended")


class Terminal:
    """The stand-in at a pseudo-terminal, as its controlling terminal."""

    def __init__(self, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [*TELO, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.seen = b""

    def read_until(self, text: bytes) -> None:
        while text not in self.seen:
            self.seen += os.read(self.master, 65536)

    def wait(self) -> int:
        code = self.process.wait(TIMEOUT_SECONDS)
        os.close(self.master)
        return code


def test_a_terminal_is_asked_and_answers() -> None:
    terminal = Terminal("run", example("console"))
    terminal.read_until(b"What is your name? ")
    os.write(terminal.master, b"Ada\r")
    terminal.read_until(b"Where are you, Ada? ")
    os.write(terminal.master, b"London\r")
    terminal.read_until(b"Greetings to Ada in London!\r\n")

    assert terminal.wait() == 0


@pytest.mark.parametrize(("key", "code"), [(b"\x03", 130), (b"\x04", 1)])
def test_ctrl_c_interrupts_and_ctrl_d_ends_the_input(key: bytes, code: int) -> None:
    terminal = Terminal("run", example("console"))
    terminal.read_until(b"What is your name? ")
    os.write(terminal.master, key)

    assert terminal.wait() == code


def test_sigterm_ends_the_run_with_its_own_code() -> None:
    terminal = Terminal("run", example("console"))
    terminal.read_until(b"What is your name? ")
    terminal.process.send_signal(signal.SIGTERM)

    assert terminal.wait() == 143


def test_a_failing_step_ends_the_run_with_1_and_its_reason() -> None:
    assert telo("run", example("failing")) == (
        1,
        [BANNER, "Dividing by nothing.", "error: division by zero"],
    )


def test_the_megabyte_is_whole_and_its_last_line_is_there() -> None:
    code, lines = telo("run", example("megabyte"))

    assert code == 0
    assert lines[-1] == "That was one megabyte."
    page = [line for line in lines if line.startswith("0123456789 ")]
    assert len(page) * 64 == 1_048_576
    assert len(set(page)) == 1
    blocks = [line for line in lines if line.startswith("Block")]
    assert blocks == [f"Block {number} of 16" for number in range(1, 17)]


def test_a_reader_that_leaves_is_no_traceback() -> None:
    with subprocess.Popen(
        [*TELO, "run", example("megabyte")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()

        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


def test_variables_and_ports_come_from_the_environment_or_their_defaults(write: Write) -> None:
    entry = write(
        "variables:\n  who: {env: WHO, type: string, default: nobody}\n"
        "ports:\n  http: {env: PORT, default: 8099}\n"
        "targets:\n" + SAY % '"${{ variables.who }} ${{ ports.http + 1 }}"'
    )

    assert telo("run", entry)[1][1:] == ["nobody 8100"]
    assert telo("run", entry, env={"WHO": "Ada", "PORT": "9"})[1][1:] == ["Ada 10"]
    code, lines = telo("run", entry, env={"PORT": "70000"})
    assert (code, lines[1:]) == (1, ["error: 'http': the environment variable PORT is no port"])


def test_sequences_and_values_hand_their_results_on(write: Write) -> None:
    entry = write(
        "targets:\n  - name: greet\n    invoke: !ref greet\n    inputs: {who: Ada}\n"
        + SAY % '!cel "steps.greet.result.text"'
        + "---\nkind: Run.Sequence\nmetadata: {name: greet}\n"
        "steps:\n  - name: words\n    invoke: !ref words\n"
        '    inputs: {whom: !cel "inputs.who"}\n'
        'outputs:\n  text: "${{ steps.words.result.hello }}!"\n'
        "---\nkind: Run.Value\nmetadata: {name: words}\n"
        "value:\n  hello: \"${{ 'Hello, ' + inputs.whom }}\"\n"
    )

    assert telo("run", entry) == (0, [BANNER, "Hello, Ada!"])


def test_arguments_after_the_entry_belong_to_the_application() -> None:
    assert telo("run", "--no-open", example("hello"), "--watch", "x")[0] == 0


def test_check_validates_and_runs_nothing(write: Write) -> None:
    assert telo("check", example("http-api")) == (0, [BANNER, "HttpApi: no issues found"])
    code, lines = telo("check", write("targets:\n  - invoke: !ref Console.shout\n"))
    assert (code, lines[1:]) == (1, ["error: the stand-in kernel does not know Console.shout"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "---\nkind: Fs.TreeSync\nmetadata: {name: x}\n",
            "the stand-in kernel does not know kind Fs.TreeSync",
        ),
        (
            "---\nkind: Run.Projection\nmetadata: {name: x}\n",
            "the stand-in kernel does not know kind Run.Projection",
        ),
        (
            "---\nkind: Sql.Query\nmetadata: {name: x}\n",
            "kind Sql.Query names 'Sql', which is not imported",
        ),
        ("secrets: {}\n", "the stand-in kernel does not know field 'secrets' of Telo.Application"),
        (
            "---\nkind: Run.Value\nmetadata: {name: x}\nvalue: 1\nbindings: {}\n",
            "the stand-in kernel does not know field 'bindings' of Run.Value",
        ),
        ("---\nkind: Run.Value\nmetadata: {name: x}\n", "Run.Value 'x' has no field 'value'"),
        ("targets: [!ref nobody]\n", "!ref nobody names no resource"),
        ("targets:\n" + SAY % '!cel "1 +"', "expected a name, not the end, in the expression"),
        ("targets: {a: 1}\n", "'targets' is not a list"),
        ("targets: [\n", "is not valid YAML"),
        ("variables:\n  a: {env: A, type: secret}\n", "does not know type secret"),
        ("variables:\n  a: {env: A, type: string}\n", "'a' needs the environment variable A"),
    ],
)
def test_what_it_does_not_know_is_refused_by_name(write: Write, text: str, message: str) -> None:
    code, lines = telo("run", write(text))

    assert code == 1
    assert lines[0] == BANNER
    assert lines[1].startswith("error: ")
    assert message in lines[1]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("oci://ghcr.io/telorun/console@0.17.3", "is not an OCI reference pinned by digest"),
        ("./console", "is not an OCI reference pinned by digest"),
        (CONSOLE.replace("console@", "sql@"), "the stand-in kernel does not know module sql"),
    ],
)
def test_imports_are_known_modules_pinned_by_digest(
    write: Write, target: str, message: str
) -> None:
    head = "kind: Telo.Application\nmetadata: {name: Test}\n"
    code, lines = telo("run", write(f"imports:\n  Console: {target}\n", head))

    assert code == 1
    assert message in lines[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage: telo run"),
        (["publish"], "does not know command publish"),
        (["run"], "no entry is given"),
        (["run", "--watch", "x"], "does not know option --watch"),
        (["check", "--inspect", "x:1", "x"], "does not know option --inspect"),
        (["run", "--inspect", "nowhere", "x"], "--inspect takes HOST:PORT"),
        (["run", "/nowhere/telo.yaml"], "cannot read /nowhere/telo.yaml: No such file"),
    ],
)
def test_a_command_it_does_not_know_is_refused_by_name(arguments: list[str], message: str) -> None:
    code, lines = telo(*arguments)

    assert code == 1
    assert message in lines[1]
