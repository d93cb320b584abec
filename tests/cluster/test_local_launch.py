"""`serve` and its local cluster: who starts it, who stops it, and what a killed runner leaves."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from telorunner.localcluster import statefolder
from tests.clusters import local_cluster
from tests.serving import MANAGE, START_SECONDS, Platform


def cluster_pids(data_dir: Path) -> list[int]:
    """Return the processes that run a local cluster for a data folder."""
    wanted = f"RUNNER_DATA_DIR={data_dir}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"runcluster" in command and wanted in variables:
            found.append(int(entry.name))
    return found


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    platform = Platform(tmp_path / "data", {"RUNNER_CLUSTER": "local"})
    yield platform
    if platform.process is not None:
        platform.stop()


def until_ready(platform: Platform) -> None:
    """Ask until the runner has listed the cluster's pods."""
    give_up_at = time.monotonic() + START_SECONDS
    while httpx.get(f"{platform.url}/readyz", trust_env=False).status_code != 200:
        assert time.monotonic() < give_up_at, "never ready"
        time.sleep(0.05)


def test_a_cluster_that_was_started_is_stopped_even_by_the_next_runner(
    platform: Platform, tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    platform.start()
    assert platform.process is not None
    assert any("NO SANDBOX" in line for line in platform.process.output)
    started = cluster_pids(data_dir)
    assert len(started) == 1
    # It has a session of its own: a Ctrl-C at the runner's terminal does not reach it.
    assert os.getsid(started[0]) == started[0]
    platform.stop(signal.SIGKILL)
    # Sessions of the killed runner go on in it.
    assert cluster_pids(data_dir) == started

    platform.start()
    assert cluster_pids(data_dir) == started
    until_ready(platform)
    assert platform.stop(signal.SIGINT) == 0
    assert cluster_pids(data_dir) == []
    assert not statefolder.is_locked(data_dir)


def test_a_cluster_that_runs_already_is_used_and_left_running(tmp_path: Path) -> None:
    with local_cluster(tmp_path) as cluster:
        platform = Platform(tmp_path, cluster.environment)
        platform.start()
        assert platform.stop() == 0
        assert statefolder.is_locked(tmp_path)


def test_a_cluster_that_cannot_start_is_said_in_one_line(
    platform: Platform, tmp_path: Path
) -> None:
    state = statefolder.prepare(tmp_path / "data")
    # Where a key belongs there is a folder.
    (state / "ca.key").mkdir()
    with pytest.raises(AssertionError) as caught:
        platform.start()
    message = str(caught.value)
    assert "CommandError: The local cluster did not start; see " in message
    assert "Traceback" not in message
    assert cluster_pids(tmp_path / "data") == []


@pytest.mark.parametrize("variable", ["RUNNER_LOCAL_INGRESS_PORT", "RUNNER_LOCAL_INGRESS_TLS_PORT"])
def test_what_the_cluster_refuses_is_refused_by_the_runner(tmp_path: Path, variable: str) -> None:
    with socket.create_server((statefolder.HOST, 0)) as taken:
        done = subprocess.run(
            [sys.executable, str(MANAGE), "serve"],
            env={
                "PATH": os.environ["PATH"],
                "RUNNER_CLUSTER": "local",
                "RUNNER_DATA_DIR": str(tmp_path),
                "PORT": "0",
                variable: str(taken.getsockname()[1]),
            },
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
    said = f"telorunner: {variable}: must be a port that is free: Address already in use.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    assert cluster_pids(tmp_path) == []
