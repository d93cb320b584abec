"""Show the platform at work: start it, run examples through /v1, visit one, stop it again.

`make demo` runs this. Everything happens in a folder of its own that is removed at the end; a
platform that is running already is not touched.
"""

import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 60.0
RUN_SECONDS = 60.0
STOP_SECONDS = 20.0

LISTENING = re.compile(r"Listening on (http://\S+)")
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ANSWERS = {"What is your name? ": "Ada", "Where are you, Ada? ": "London"}

# Names below .localhost are this machine, to browsers and to curl.
BASE_DOMAIN = "apps.localhost"
LOOPBACK = "127.0.0.1"
HTTP_PORT = 8080
VISITED = "/api/hello?name=Ada"
GREETING = "Hello, Ada"
PUBLISHED = re.compile(rb"route (\S+) is programmed")
REACHABLE = f"port {HTTP_PORT} is reachable".encode()


def say(text: str = "") -> None:
    """Write a line of the demo's own."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def heading(text: str) -> None:
    """Write a heading."""
    say(f"\n\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else f"\n{text}")


def reserve_port() -> socket.socket:
    """Hold a free port for the ingress, which the runner has to know before the ingress is there.

    Where both allow it, another socket may listen at the port of one that does not.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((LOOPBACK, 0))
    return reserved


class Platform:
    """`manage.py serve` on the embedded defaults, on free ports, with public hosts."""

    def __init__(self, data_dir: Path) -> None:
        kept = {
            name: value
            for name, value in os.environ.items()
            # The demo shows the defaults, whatever this shell is set up for.
            if not name.startswith(("RUNNER_", "DJANGO_", "SESSION_"))
            and name not in {"KUBECONFIG", "DATABASE_URL"}
        }
        self._reserved = reserve_port()
        self.ingress_port: int = self._reserved.getsockname()[1]
        settings = {
            "RUNNER_CLUSTER": "local",
            "RUNNER_DATA_DIR": str(data_dir),
            "PORT": "0",
            "SESSION_ROUTING_BASE_DOMAIN": BASE_DOMAIN,
            "RUNNER_LOCAL_INGRESS_PORT": str(self.ingress_port),
            "SESSION_ROUTE_PROBE_ADDRESS": f"http://{LOOPBACK}:{self.ingress_port}",
            # Nobody picks an image here, and a machine without a network can show the rest.
            "RUNNER_BASE_IMAGE_CATALOG_ENABLED": "false",
        }
        self._process = subprocess.Popen(  # noqa: S603 - this project's own program
            [sys.executable, str(ROOT / "manage.py"), "serve"],
            env={**kept, **settings, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Ctrl-C is the demo's to handle: it stops the platform in order.
            start_new_session=True,
        )
        self._listening = threading.Event()
        self.url = ""
        self._reader = threading.Thread(target=self._read, name="platform-output", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        stream: IO[str] | None = self._process.stdout
        for line in stream or ():
            say(f"  | {line.rstrip()}")
            if match := LISTENING.search(line):
                self.url = match[1]
                self._listening.set()
        self._listening.set()

    def wait_until_it_listens(self) -> str:
        """Return the address, or end the demo with what went wrong."""
        if not self._listening.wait(START_SECONDS) or not self.url:
            self.stop()
            sys.exit("The platform did not start; its own words are above.")
        return self.url

    def stop(self) -> int:
        """Stop it and return its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._reader.join(STOP_SECONDS)
        self._reserved.close()
        return code


def visit_example(platform: Platform, name: str) -> bool:
    """Run an example that listens, ask for it under its public host, and stop it again."""
    target = f"examples/{name}"
    command = [sys.executable, "-m", "telorunner.cli.main", "run", target, "--url", platform.url]
    say(f"$ telorunner run {target} --port {HTTP_PORT}")
    with subprocess.Popen(  # noqa: S603 - this project's own program
        [*command, "--port", str(HTTP_PORT)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as client:
        timer = threading.Timer(RUN_SECONDS, client.kill)
        timer.start()
        try:
            host = wait_until_published(client)
            if not host:
                say("The application or its public host did not work in time.")
            has_answered = bool(host) and visit(host, platform.ingress_port)
            client.terminate()
            for line in client.stdout or ():
                show(line)
            return has_answered
        finally:
            timer.cancel()
            client.kill()


def wait_until_published(client: "subprocess.Popen[bytes]") -> str:
    """Show what the client says until its application has a public host that works; return it."""
    host, is_reachable = "", False
    for line in client.stdout or ():
        show(line)
        if match := PUBLISHED.search(line):
            host = match[1].decode()
        is_reachable = is_reachable or REACHABLE in line
        if host and is_reachable:
            return host
    return ""


def visit(host: str, port: int) -> bool:
    """Ask for a page of a public host by curl, where there is one; say whether it was given."""
    resolved, url = f"{host}:{port}:{LOOPBACK}", f"http://{host}:{port}{VISITED}"
    shown = f"$ curl --resolve {resolved} '{url}'"
    curl = shutil.which("curl")
    if curl is None:
        say("There is no curl here: the demo asks by itself, for what this would")
        say(shown)
        return ask(host, port)
    say(shown)
    done = subprocess.run(  # noqa: S603 - what is shown, and nothing of the application is in it
        [curl, "--resolve", resolved, url],
        # What it asks for is on this machine, where no proxy leads.
        env={**os.environ, "no_proxy": "*"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=RUN_SECONDS,
        check=False,
    )
    say(done.stdout.rstrip() if done.returncode == 0 else done.stderr.rstrip())
    return GREETING in done.stdout


def ask(host: str, port: int) -> bool:
    """Ask for the page, show it, and say whether it was given."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=RUN_SECONDS)
    try:
        connection.request("GET", VISITED, headers={"Host": f"{host}:{port}"})
        page = connection.getresponse().read().decode(errors="replace").rstrip()
    finally:
        connection.close()
    say(page)
    return GREETING in page


def show(line: bytes) -> None:
    """Write a line of a client."""
    sys.stdout.write(line.decode(errors="replace").replace("\r\n", "\n"))
    sys.stdout.flush()


def run_example(url: str, name: str, answers: dict[str, str]) -> int:
    """Run an example with the command-line client, answer its questions, return its exit code."""
    command = [sys.executable, "-m", "telorunner.cli.main", "run", f"examples/{name}", "--url", url]
    say(f"$ telorunner run examples/{name}")
    with subprocess.Popen(  # noqa: S603 - this project's own program
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        timer = threading.Timer(RUN_SECONDS, client.kill)
        timer.start()
        try:
            relay(client, dict(answers))
            return client.wait()
        finally:
            timer.cancel()
            # Where the demo is ended by a signal, so is its client.
            client.kill()


def relay(client: "subprocess.Popen[bytes]", answers: dict[str, str]) -> None:
    """Show what the application prints, and type the answer after each question."""
    if client.stdin is None or client.stdout is None:
        raise RuntimeError("the client was started without pipes")
    if not answers:
        client.stdin.close()
    heard = ""
    while data := os.read(client.stdout.fileno(), 65_536):
        text = data.decode(errors="replace")
        sys.stdout.write(text.replace("\r\n", "\n"))
        sys.stdout.flush()
        heard += text
        for question in [question for question in answers if question in heard]:
            client.stdin.write(f"{answers.pop(question)}\n".encode())
            client.stdin.flush()


def at_signals(handler: Callable[[int, FrameType | None], object]) -> None:
    """Have a handler for the signals that end the demo, except those it was told to ignore."""
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def disregard(_number: int, _frame: FrameType | None) -> None:
    """Do nothing at a signal that would leave the platform behind."""


def end(number: int, _frame: FrameType | None) -> NoReturn:
    """End the demo at a signal, by way of everything that is to be stopped."""
    at_signals(disregard)
    sys.exit(128 + number)


def main() -> int:
    """Run the demo; the exit code is 0 when everything shown has worked."""
    started = time.monotonic()
    at_signals(disregard)
    with tempfile.TemporaryDirectory(prefix="telorunner-demo-") as folder:
        heading("Starting the platform (SQLite, in-process log, local cluster)")
        platform = Platform(Path(folder))
        try:
            at_signals(end)
            url = platform.wait_until_it_listens()
            heading("examples/hello prints its lines and ends")
            codes = [run_example(url, "hello", {})]
            say(f"exit code {codes[-1]}")
            heading("examples/console asks; the demo types the answers")
            codes.append(run_example(url, "console", ANSWERS))
            say(f"exit code {codes[-1]}")
            heading("examples/http-api gets a public host; the runner asks it, then the demo does")
            has_answered = visit_example(platform, "http-api")
            heading("Stopping the platform")
        finally:
            at_signals(disregard)
            platform_code = platform.stop()
    heading(f"Done in {time.monotonic() - started:.1f} s; nothing is left running")
    say("Serve it yourself:  make run")
    say(f"With public hosts:  SESSION_ROUTING_BASE_DOMAIN={BASE_DOMAIN} make run")
    say("The API:            http://127.0.0.1:8062/v1/health")
    say("The admin:          http://127.0.0.1:8062/admin/ - make an account to log in with:")
    say("  DJANGO_SUPERUSER_USERNAME=admin DJANGO_SUPERUSER_EMAIL=admin@example.org \\")
    say("  DJANGO_SUPERUSER_PASSWORD=... .venv/bin/python manage.py createsuperuser --noinput")
    say("The local cluster runs applications as plain processes: it is no sandbox.")
    return 0 if codes == [0, 0] and has_answered and platform_code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
