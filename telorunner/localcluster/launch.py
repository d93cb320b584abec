"""Starts the local cluster beside a runner: `manage.py runcluster` as a process of its own.

A cluster that runs for the data folder already is used as it is, and outlives the runner. One that
a runner started is stopped with it, or, where that runner was killed, with the next one. The
process has a session of its own: a Ctrl-C at the terminal ends the runner first.
"""

import asyncio
import base64
import logging
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import yaml

from telorunner import aio
from telorunner.conf import PROJECT_DIR
from telorunner.errors import ClusterUnavailable, ConfigError, RunnerError
from telorunner.localcluster import statefolder

logger = logging.getLogger(__name__)

START_SECONDS = 30.0
# The cluster gives its containers a second or two; then it is killed with what is left of them.
STOP_SECONDS = 6.0
REQUEST_SECONDS = 2.0
LOG_FILE = "log"
OWNED_FILE = "started-by-runner"
DATA_DIR_VARIABLE = "RUNNER_DATA_DIR"
# How `manage.py` ends where a setting cannot be used, and its last words then.
EXIT_CONFIG = 2
_REFUSAL = re.compile(r"^telorunner: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Launched:
    """A cluster that answers; `is_own` says that it ends with this runner."""

    kubeconfig: Path
    is_own: bool


@asynccontextmanager
async def ensure_cluster(data_dir: Path) -> AsyncIterator[Launched]:
    """Have a local cluster for a data folder for the length of the context.

    Raises:
        ConfigError: The state folder cannot be made, or the cluster refuses a setting.
        ClusterUnavailable: The cluster did not start in time.
    """
    folder = statefolder.prepare(data_dir)
    process = None if statefolder.is_locked(data_dir) else await _start(data_dir, folder)
    owned = _hold(process.pid) if process is not None else _hold_orphan(data_dir, folder)
    try:
        await _until_ready(data_dir, process)
        watcher = aio.start(_report_end(process, folder), name="local cluster process")
        try:
            yield Launched(folder / statefolder.KUBECONFIG, is_own=owned is not None)
        finally:
            await aio.stop(watcher)
    finally:
        if owned is not None:
            name = "local cluster stop"
            stopping = _stop(owned, process, data_dir)
            try:
                await aio.finish(stopping, name=name, timeout_seconds=2 * STOP_SECONDS)
            finally:
                os.close(owned)


async def find_cluster(data_dir: Path) -> Path:
    """Wait for the local cluster that another process runs; return its kubeconfig.

    Raises:
        ConfigError: The state folder cannot be made.
        ClusterUnavailable: There is none in time.
    """
    folder = statefolder.prepare(data_dir)
    try:
        await _until_ready(data_dir, None)
    except ClusterUnavailable as exc:
        raise ClusterUnavailable(
            f"No local cluster runs for {data_dir}, and a process without an engine starts none."
        ) from exc
    return folder / statefolder.KUBECONFIG


async def _start(data_dir: Path, folder: Path) -> asyncio.subprocess.Process:
    log = os.open(folder / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROJECT_DIR / "manage.py"),
            "runcluster",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, DATA_DIR_VARIABLE: _absolute(data_dir)},
            start_new_session=True,
        )
    finally:
        os.close(log)
    statefolder.write_file(folder / OWNED_FILE, str(process.pid).encode())
    return process


def _absolute(data_dir: Path) -> str:
    return os.path.abspath(data_dir)


def _hold(pid: int) -> int | None:
    """Return a pidfd, which never means another process than this one; None: it is gone."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _hold_orphan(data_dir: Path, folder: Path) -> int | None:
    """Return a pidfd of a cluster whose runner was killed; None: it was started by hand."""
    try:
        pid = int((folder / OWNED_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    held = _hold(pid) if pid > 1 else None
    # NB: looked at after the process is held: the number may be another process's by now.
    if held is not None and not _runs_cluster(pid, data_dir):
        os.close(held)
        return None
    return held


def _runs_cluster(pid: int, data_dir: Path) -> bool:
    """Say whether a process is a local cluster that a runner started for a data folder."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    wanted = os.fsencode(f"{DATA_DIR_VARIABLE}={_absolute(data_dir)}")
    return b"runcluster" in command and wanted in variables


async def _report_end(process: asyncio.subprocess.Process | None, folder: Path) -> None:
    if process is not None:
        code = await process.wait()
        logger.error("The local cluster ended (exit code %d); see %s.", code, folder / LOG_FILE)


async def _until_ready(data_dir: Path, process: asyncio.subprocess.Process | None) -> None:
    """Ask until the cluster answers: nothing tells when another process is ready.

    Raises:
        ConfigError: Its process refused a setting.
        ClusterUnavailable: Its process ended, or the time is up.
    """
    backoff = aio.Backoff(first_seconds=0.05, cap_seconds=0.5)
    log = data_dir / statefolder.FOLDER / LOG_FILE
    try:
        async with asyncio.timeout(START_SECONDS):
            while not await _is_ready(data_dir):
                if process is not None and process.returncode is not None:
                    raise _why_ended(process.returncode, log)
                await backoff.wait()
    except TimeoutError as exc:
        raise _not_started(log) from exc


def _why_ended(code: int, log: Path) -> RunnerError:
    """Return what a cluster has said as the reason for not starting, if it is a setting."""
    words = _REFUSAL.findall(log.read_text(errors="replace")) if code == EXIT_CONFIG else []
    return ConfigError(words[-1]) if words else _not_started(log)


def _not_started(log: Path) -> RunnerError:
    return ClusterUnavailable(f"The local cluster did not start; see {log}.")


async def _is_ready(data_dir: Path) -> bool:
    # Without the lock the kubeconfig is one of an earlier cluster.
    if not statefolder.is_locked(data_dir):
        return False
    try:
        config = yaml.safe_load(
            (data_dir / statefolder.FOLDER / statefolder.KUBECONFIG).read_text()
        )
        url, context = _address(config["clusters"][0]["cluster"])
        limits = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=limits, trust_env=False) as session,
            session.get(f"{url}/readyz", ssl=context) as response,
        ):
            return response.ok
    except (OSError, aiohttp.ClientError, TimeoutError, yaml.YAMLError, KeyError, TypeError):
        return False


def _address(cluster: dict[str, str]) -> tuple[str, ssl.SSLContext]:
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return cluster["server"], ssl.create_default_context(cadata=authority)


async def _stop(held: int, process: asyncio.subprocess.Process | None, data_dir: Path) -> None:
    """Ask the cluster to end, and kill it with its containers when it does not in time."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(held, signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            if process is not None:
                await process.wait()
            await _until_unlocked(data_dir)
    except TimeoutError:
        logger.warning("The local cluster did not stop in time and was killed.")
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(held, signal.SIGKILL)
        if process is not None:
            await process.wait()
    (data_dir / statefolder.FOLDER / OWNED_FILE).unlink(missing_ok=True)


async def _until_unlocked(data_dir: Path) -> None:
    """Look until the lock is free: an orphan is no child, whose end could be waited for."""
    backoff = aio.Backoff(first_seconds=0.02, cap_seconds=0.2)
    while statefolder.is_locked(data_dir):
        await backoff.wait()
