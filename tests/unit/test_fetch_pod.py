"""The pod of a fetched bundle, and the fixed text of its init container, run for real."""

import dataclasses
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sessions import bundles
from sessions.pods.fetch import FETCH_SCRIPT
from sessions.pods.run import build_run_pod, literal
from sessions.spec import App
from sessions.states import Delivery
from telorunner.localcluster.node.images import WGET, make_tools
from telorunner.values.pullpolicy import PullPolicy
from tests.unit.specs import (
    HARDENED,
    MOUNTS,
    POD,
    RESOURCES,
    SESSION_ID,
    VARIABLES,
    VOLUMES,
    run_spec,
)

TOKEN = "0123456789abcdef" * 3
FILES = {"telo.yaml": b"kind: x\n", "deep/empty": b"", "deep/new\nline %41 'é'": b"\0\r\n"}
ARCHIVE = bundles.pack(FILES)

SPEC = run_spec(
    app=App("app", "$(id) telo.yaml"),
    env={"GREETING": "hello"},
    pull_policy=PullPolicy.ALWAYS,
    is_inspected=True,
    delivery=Delivery.FETCH,
    init_image="registry.example/busybox:1",
    bundle_url=bundles.fetch_url("http://runner.example:8062", SESSION_ID, TOKEN),
)


def test_the_whole_spec_of_a_pod_that_fetches_its_bundle() -> None:
    pod = build_run_pod(SPEC)
    assert pod["metadata"]["name"] == f"telo-run-{SESSION_ID}"
    assert pod["spec"] == {
        **POD,
        "initContainers": [
            {
                "name": "body-fetch",
                "image": "registry.example/busybox:1",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", literal(FETCH_SCRIPT)],
                "args": ["body-fetch", "/tmp/bundle.tgz", "/app", "/dev/termination-log"],  # noqa: S108 - the pod's own emptyDir
                "env": [
                    {
                        "name": "BUNDLE_URL",
                        "value": "http://runner.example:8062/internal/bundles/abcdefghijkl"
                        f"?token={TOKEN}",
                    }
                ],
                "resources": RESOURCES,
                "securityContext": HARDENED,
                "volumeMounts": [
                    {"name": "app", "mountPath": "/app"},
                    {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own emptyDir
                ],
            }
        ],
        "containers": [
            {
                "name": "session",
                "image": "telorun/node:latest-slim",
                "imagePullPolicy": "Always",
                "command": [
                    "telo",
                    "run",
                    "--inspect",
                    "0.0.0.0:9230",
                    "--no-open",
                    "/app/$$(id) telo.yaml",
                ],
                "workingDir": "/work",
                "env": VARIABLES,
                "stdin": True,
                "stdinOnce": False,
                "tty": True,
                "resources": RESOURCES,
                "securityContext": HARDENED,
                "volumeMounts": MOUNTS,
            }
        ],
        "volumes": VOLUMES,
    }


def test_the_token_stands_in_no_repr_and_in_no_shell_text() -> None:
    assert TOKEN not in repr(SPEC)
    other = dataclasses.replace(SPEC, bundle_url="http://other.example/")
    init = [build_run_pod(spec)["spec"]["initContainers"][0] for spec in (SPEC, other)]
    assert init[0]["command"] == init[1]["command"]
    assert init[0]["args"] == init[1]["args"]
    for mount in init[0]["volumeMounts"]:
        assert mount["mountPath"] not in FETCH_SCRIPT.replace("/dev/null", "")


class Runner(ThreadingHTTPServer):
    """Answers as `answers` says, one after the other, and then for good."""

    answers: list[str]
    seen: list[str]

    @property
    def url(self) -> str:
        return bundles.fetch_url(f"http://127.0.0.1:{self.server_port}", SESSION_ID, TOKEN)


class Handler(BaseHTTPRequestHandler):
    server: Runner

    def do_GET(self) -> None:
        self.server.seen.append(self.path)
        how = self.server.answers.pop(0) if self.server.answers else "whole"
        body = ARCHIVE if how in ("whole", "cut") else b'{"error":"x"}'
        self.send_response(200 if how in ("whole", "cut") else int(how))
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if how == "cut" else body)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def runner() -> Iterator[Runner]:
    with Runner(("127.0.0.1", 0), Handler) as server:
        server.answers, server.seen = [], []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(params=["GNU", "busybox", "own"])
def tools(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A PATH whose wget is one of those that init images have, and whose sleep takes no time."""
    folder = tmp_path / "bin"
    folder.mkdir()
    sleep = folder / "sleep"
    sleep.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/slept\n')
    sleep.chmod(0o755)
    (folder / "rm").symlink_to(shutil.which("rm") or "/bin/rm")
    busybox, gnu = shutil.which("busybox"), shutil.which("wget")
    tar = shutil.which("tar") or "/bin/tar"
    if request.param == "own":
        make_tools(folder, (), "/nowhere")
    elif request.param == "busybox":
        if busybox is None:
            pytest.skip("no busybox here")
        (folder / "wget").symlink_to(busybox)
        (folder / "timeout").symlink_to(busybox)
        tar = busybox
    else:
        if gnu is None or b"GNU Wget" not in subprocess.check_output([gnu, "-V"]):
            pytest.skip("no GNU wget here")
        (folder / "wget").symlink_to(gnu)
        (folder / "timeout").symlink_to(shutil.which("timeout") or "/usr/bin/timeout")
    (folder / "tar").symlink_to(tar)
    (folder / "gzip").symlink_to(shutil.which("gzip") or "/bin/gzip")
    return str(folder)


def start(tmp_path: Path, tools: str, url: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "app").mkdir()
    (tmp_path / "termination-log").touch()
    paths = [str(tmp_path / name) for name in ("bundle.tgz", "app", "termination-log")]
    return subprocess.run(
        [shutil.which("sh") or "/bin/sh", "-c", FETCH_SCRIPT, "body-fetch", *paths],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"PATH": tools, "BUNDLE_URL": url, "http_proxy": "http://127.0.0.1:9"},
    )


def unpacked(folder: Path) -> dict[str, bytes]:
    found = [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize("answers", [[], ["503", "cut"]])
def test_the_text_fetches_and_unpacks_though_a_transfer_breaks_off(
    tmp_path: Path, runner: Runner, tools: str, answers: list[str]
) -> None:
    runner.answers = list(answers)
    ended = start(tmp_path, tools, runner.url)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert unpacked(tmp_path / "app") == FILES
    assert runner.seen == [f"/internal/bundles/{SESSION_ID}?token={TOKEN}"] * (len(answers) + 1)
    assert not (tmp_path / "bundle.tgz").exists()
    assert (tmp_path / "termination-log").read_text() == ""


def test_a_404_ends_it_soon_with_a_sentence(tmp_path: Path, runner: Runner, tools: str) -> None:
    runner.answers = ["404"] * 20
    ended = start(tmp_path, tools, runner.url)
    assert ended.returncode == 1
    told = (tmp_path / "termination-log").read_text()
    assert told.startswith("the bundle could not be fetched from the runner (RUNNER_SELF_URL)")
    assert TOKEN not in told + ended.stderr + ended.stdout
    assert "127.0.0.1" not in told
    assert len(runner.seen) <= 2


@pytest.mark.parametrize("trouble", ["nobody listens", "no archive"])
def test_what_cannot_be_fetched_or_unpacked_is_told_without_the_token(
    tmp_path: Path, runner: Runner, tools: str, trouble: str
) -> None:
    url = runner.url
    if trouble == "nobody listens":
        url = url.replace(str(runner.server_port), "1")
    else:
        runner.RequestHandlerClass = Nonsense
    ended = start(tmp_path, tools, url)
    assert ended.returncode == 1
    told = (tmp_path / "termination-log").read_text()
    assert told.startswith(("the bundle could not be fetched", "tar could not unpack"))
    assert TOKEN not in told + ended.stderr + ended.stdout
    assert "127.0.0.1" not in told
    if trouble == "nobody listens":
        # Long enough for a runner to restart, and well within the start's deadline.
        assert [int(line) for line in (tmp_path / "slept").read_text().split()] == [1, 2, 4, 8, 16]


class Nonsense(Handler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "8")
        self.end_headers()
        self.wfile.write(b"nonsense")


@pytest.mark.parametrize("missing", ["wget", "tar"])
def test_an_image_that_lacks_a_tool_is_told(tmp_path: Path, tools: str, missing: str) -> None:
    Path(tools, missing).unlink()
    ended = start(tmp_path, tools, "http://127.0.0.1:1/")
    assert ended.returncode == 1
    assert (tmp_path / "termination-log").read_text() == (
        f"the image (RUNNER_INIT_IMAGE) has no {missing}, which fetching a bundle needs\n"
    )


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("ftp://127.0.0.1/?token=x", "wget: not an http or https URL\n"),
        ("http://127.0.0.1:1/?token=x", "wget: [Errno 111] Connection refused\n"),
    ],
)
def test_the_nodes_own_wget_fails_with_a_sentence(url: str, sentence: str) -> None:
    command = [sys.executable, "-I", "-S", str(WGET), "-q", url]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", sentence)


def test_the_nodes_own_wget_writes_to_standard_output(runner: Runner) -> None:
    command = [sys.executable, "-I", "-S", str(WGET), "-q", runner.url]
    assert subprocess.check_output(command) == ARCHIVE
