"""The platform as users have it: `manage.py serve` and `runcluster` as processes of their own."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, Queue

ROOT = Path(__file__).resolve().parent.parent
MANAGE = ROOT / "manage.py"
# The same, in a process that tells what it holds.
WATCHED = ROOT / "tests" / "watched.py"
KERNEL_DIR = ROOT / "tests" / "kernel"
START_SECONDS = 60.0
# What README and the contract of `make run` promise.
STOP_SECONDS = 15.0
# A port of loopback that nobody listens on: no test asks the real Docker Hub for tags.
NO_HUB_URL = "http://127.0.0.1:1"

_LISTENING = re.compile(r"Listening on (http://[0-9.]+:[0-9]+)")


class Process:
    """One process of the platform, its output kept for the failure message of a test."""

    def __init__(
        self, *arguments: str, environment: Mapping[str, str], script: Path = MANAGE
    ) -> None:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RUNNER_", "DJANGO_", "SESSION_"))
            and name not in {"KUBECONFIG", "DATABASE_URL"}
        }
        self.output: list[str] = []
        self._lines: Queue[str | None] = Queue()
        self._process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            env={
                **inherited,
                "PYTHONUNBUFFERED": "1",
                "RUNNER_BASE_IMAGE_API_URL": NO_HUB_URL,
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )
        self._reader = threading.Thread(target=self._read, name=f"output-{self.pid}")
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                self.output.append(line)
                self._lines.put(line)
        self._lines.put(None)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait_for(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Return the first match in the output; fail with all of it where none comes."""
        while True:
            try:
                line = self._lines.get(timeout=START_SECONDS)
            except Empty:
                line = None
            if line is None:
                raise AssertionError(f"no {pattern.pattern!r} in:\n{''.join(self.output)}")
            if match := pattern.search(line):
                return match

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait, and return the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(sent)
        try:
            code = self._process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"still running after a stop:\n{''.join(self.output)}") from None
        finally:
            self._reader.join()
        return code


class Platform:
    """`serve` on a data folder, with the test kernel as the session image's `telo`.

    `options` are those of `serve`.
    """

    def __init__(
        self,
        data_dir: Path,
        environment: Mapping[str, str],
        *options: str,
        script: Path = MANAGE,
    ) -> None:
        self._script = script
        self._options = options
        self.environment = {
            "RUNNER_DATA_DIR": str(data_dir),
            "PORT": "0",
            "PATH": f"{KERNEL_DIR}:{os.environ['PATH']}",
            **environment,
        }
        self.process: Process | None = None
        self.url = ""

    def start(self) -> None:
        """Start serving; `url` is where."""
        self.process = Process(
            "serve", *self._options, environment=self.environment, script=self._script
        )
        try:
            self.url = self.process.wait_for(_LISTENING)[1]
        except AssertionError:
            self.process.stop(signal.SIGKILL)
            raise

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> int:
        """Stop serving and return the exit code."""
        assert self.process is not None
        process, self.process = self.process, None
        return process.stop(sent)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command-line client against the platform."""
        return subprocess.run(
            [sys.executable, "-m", "telorunner.cli.main", *arguments, "--url", self.url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
        )


def refusal(data_dir: Path, *arguments: str, **variables: str) -> str:
    """Start `serve` where it is to refuse; return the one line that it says before exit code 2."""
    done = subprocess.run(
        [sys.executable, str(MANAGE), "serve", *arguments],
        env={
            "PATH": os.environ["PATH"],
            "RUNNER_DATA_DIR": str(data_dir),
            "PORT": "0",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.splitlines()
    return line
