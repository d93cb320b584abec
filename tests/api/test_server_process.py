"""`manage.py serve` as a process: its start, its refusals, its stop.

The cluster is one that never answers: serving does not depend on it.
"""

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.serving import ROOT, START_SECONDS, Process

LISTENING = re.compile(r"Listening on (http://127\.0\.0\.1:[0-9]+)$")
REFUSED_SECONDS = 30.0
ANSWER_SECONDS = 10.0


def write_kubeconfig(folder: Path) -> Path:
    """Write the kubeconfig of a cluster that nobody has started."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
    path = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "x", "cluster": {"server": address}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(content))
    return path


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {
        "RUNNER_CLUSTER": "kubeconfig",
        "KUBECONFIG": str(write_kubeconfig(folder)),
        "RUNNER_DATA_DIR": str(folder / "data"),
        "RUNNER_HOST": "127.0.0.1",
        "RUNNER_SELF_URL": "http://127.0.0.1:8062",
        "PORT": "0",
        "PYTHONWARNINGS": "error",
        **more,
    }


def refused(folder: Path, command: str = "serve", **variables: str) -> str:
    """Run a command that must refuse its settings; return what it says."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), command],
        env={"PATH": os.environ["PATH"], **environment(folder, **variables)},
        capture_output=True,
        text=True,
        timeout=REFUSED_SECONDS,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture(scope="module", name="folder")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module", name="url")
def serving(folder: Path) -> Iterator[str]:
    process = Process("serve", environment=environment(folder))
    try:
        yield process.wait_for(LISTENING)[1]
    finally:
        code = process.stop()
    output = "".join(process.output)
    assert code == 0, output
    assert "Traceback" not in output
    assert "Warning" not in output


def test_it_serves_health_though_the_cluster_is_away(url: str) -> None:
    assert httpx.get(f"{url}/v1/health", trust_env=False).json()["ok"] is True
    ready = httpx.get(f"{url}/readyz", trust_env=False)
    assert ready.status_code == 503
    checks = ready.json()["checks"]
    assert checks.keys() == {"database", "log", "cluster", "engine"}
    assert (checks["database"], checks["log"], checks["cluster"]) == ("ok", "ok", "stale")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"PUT /v1/sessions HTTP/1.1\r\ncontent-type: text/plain", b"405"),
        (b"POST /v1/sessions HTTP/1.1\r\ncontent-type: text/plain", b"415"),
        (b"POST /v1/sessions HTTP/1.1\r\ncontent-type: application/json", b"413"),
        (b"POST /v1/nothing HTTP/1.1\r\ncontent-type: application/json", b"404"),
    ],
)
def test_a_huge_body_is_refused_in_its_turn_and_unread(
    url: str, head: bytes, status: bytes
) -> None:
    address = httpx.URL(url)
    with socket.create_connection((address.host, address.port), timeout=ANSWER_SECONDS) as client:
        client.sendall(head + b"\r\nhost: x\r\ncontent-length: 900000000\r\n\r\n")
        answer = b""
        while data := client.recv(65_536):
            answer += data
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"connection: close" in answer.lower()


def test_the_admin_can_be_logged_into_over_plain_http(url: str, folder: Path) -> None:
    user = {"DJANGO_SUPERUSER_USERNAME": "root", "DJANGO_SUPERUSER_PASSWORD": "a-long-password"}
    made = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "createsuperuser", "--noinput", "--email", ""],
        env={"PATH": os.environ["PATH"], **environment(folder, **user)},
        capture_output=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    with httpx.Client(base_url=url, trust_env=False, follow_redirects=True) as client:
        client.get("/admin/")
        form = {
            "username": "root",
            "password": "a-long-password",
            "csrfmiddlewaretoken": client.cookies["csrftoken"],
            "next": "/admin/",
        }
        page = client.post("/admin/login/", data=form)
        assert (page.status_code, page.url.path) == (200, "/admin/")
        assert client.get("/static/admin/css/base.css").status_code == 200


def test_what_it_writes_is_for_its_user_only(url: str, folder: Path) -> None:
    data = folder / "data"
    assert data.stat().st_mode & 0o777 == 0o700
    assert (data / "secret-key").stat().st_mode & 0o777 == 0o600
    assert len((data / "secret-key").read_text()) >= 50
    with sqlite3.connect(data / "telorunner.sqlite3") as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    database.close()


def test_a_second_one_on_the_same_folder_is_refused(url: str, folder: Path) -> None:
    assert refused(folder).startswith("telorunner: RUNNER_DATA_DIR: another runner is using")


def test_a_port_that_is_taken_is_refused(url: str, tmp_path: Path) -> None:
    port = url.rpartition(":")[2]
    assert "RUNNER_HOST, PORT: cannot listen on 127.0.0.1" in refused(tmp_path, PORT=port)


def test_a_bad_setting_is_one_readable_line(tmp_path: Path) -> None:
    for command in ("serve", "check"):
        assert refused(tmp_path, command, PORT="http").startswith("telorunner: PORT: ")
    assert refused(tmp_path, DATABASE_URL="mysql://u:hunter2@h/x").startswith(
        "telorunner: DATABASE_URL: "
    )
    (tmp_path / "file").write_text("")
    assert "RUNNER_DATA_DIR: " in refused(tmp_path, RUNNER_DATA_DIR=str(tmp_path / "file"))


def test_a_real_cluster_without_a_way_back_to_the_runner_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, RUNNER_SELF_URL="")
    assert said.startswith("telorunner: RUNNER_SELF_URL: ")
    assert "RUNNER_BUNDLE_DELIVERY" in said


def test_a_kubeconfig_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "KUBECONFIG: " in refused(tmp_path, KUBECONFIG=str(tmp_path / "nothing"))


def test_an_interrupt_stops_a_background_job_of_a_shell_too(tmp_path: Path) -> None:
    # Shells start background jobs with SIGINT ignored, which a process inherits.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = Process("serve", environment=environment(tmp_path))
    finally:
        signal.signal(signal.SIGINT, before)
    process.wait_for(LISTENING)
    assert process.stop(signal.SIGINT) == 0, "".join(process.output)


def test_a_stop_during_the_start_is_a_clean_end_too(tmp_path: Path) -> None:
    process = Process("serve", environment=environment(tmp_path))
    database = tmp_path / "data" / "telorunner.sqlite3"
    give_up_at = time.monotonic() + START_SECONDS
    # The database appears when the command itself has begun.
    while not database.exists() and time.monotonic() < give_up_at:
        time.sleep(0.01)
    code = process.stop(signal.SIGINT)
    assert code == 0, "".join(process.output)
    assert "Traceback" not in "".join(process.output)
