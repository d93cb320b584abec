"""A container's processes: starting them in a session of their own, and ending every one of them.

How a container's processes are found is in `sweep`. No thread and no task is started here; the
caller watches the descriptors on its loop.

A container dies with the thread that started it, so the node agent belongs on the main thread.
A process that both leaves the session and clears its environment is not found: it ends no later
than it likes, and its container two seconds after the others.
"""

import asyncio
import errno
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from telorunner.localcluster.node import sweep

STDOUT = 1
STDERR = 2
START_SECONDS = 10.0
_LAUNCHER = str(Path(__file__).with_name("launcher.py"))
# How containerd's wording goes on; the parts in the middle name the layers that it went through.
_START_FAILED = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed:"
    " runc create failed: unable to start container process: "
)


class StartFailure(Exception):
    """A command cannot be executed: the message of StartError, in the container runtime's words."""

    def __init__(self, what: str) -> None:
        self.message = f"{_START_FAILED}{what}: unknown"
        super().__init__(self.message)


@dataclass(frozen=True)
class Launch:
    """What to start: a resolved command line, the whole environment, and how it is connected.

    `tools` is the folder that the environment's PATH begins with.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    working_dir: str
    tools: Path
    tty: bool = False
    stdin: bool = False


class Process:
    """The main process of a container, with its ends of the terminal or the pipes.

    `outputs` maps the stream's number (1, 2) to the descriptor to read it from; `stdin` is the
    one to write to, or None. All are non-blocking and belong to the caller, who closes them with
    `close`. `exit_fd` becomes readable when the process has ended.
    """

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        marker: sweep.Marker,
        outputs: dict[int, int],
        stdin: int | None,
    ) -> None:
        self._popen = popen
        self._marker = marker.since_start_of(popen.pid)
        self.pid = popen.pid
        self.outputs = outputs
        self.stdin = stdin
        self.exit_fd = os.pidfd_open(popen.pid)

    def terminate(self) -> None:
        """Send SIGTERM to the main process, as the kubelet does to a container's process 1."""
        # NB: not by Popen, which would reap the process first if it has ended.
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.exit_fd, signal.SIGTERM)

    def kill_all(self) -> bool:
        """Send SIGKILL to every process of the container; say whether none is left.

        What was killed a moment ago may still be there, and a process in the middle of an exec is
        found by nothing but its session: ask again a little later.
        """
        session: int | None = None
        if self._is_unreaped():
            # Until the main process is reaped its number cannot be that of another session.
            session = self.pid
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        return sweep.kill_processes(self._marker, session=session)

    def _is_unreaped(self) -> bool:
        """Say whether the main process is still this process's child, running or ended."""
        if self._popen.returncode is not None:
            return False
        try:
            os.waitid(os.P_PIDFD, self.exit_fd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def collect(self) -> int:
        """Reap the ended main process and return its exit code; 128 + N for signal N."""
        code = self._popen.wait()
        return code if code >= 0 else 128 - code

    def close_stdin(self) -> None:
        """Close the pipe to standard input; a terminal has no separate one."""
        if self.stdin is not None and self.stdin not in self.outputs.values():
            os.close(self.stdin)
        self.stdin = None

    def close(self) -> None:
        """Close all descriptors; safe to call again."""
        self.close_stdin()
        for number in list(self.outputs):
            os.close(self.outputs.pop(number))
        if self.exit_fd >= 0:
            os.close(self.exit_fd)
            self.exit_fd = -1


def find_executable(name: str, search_path: str, working_dir: str) -> str:
    """Return the file that a command's first word names.

    Raises:
        StartFailure: There is none, it cannot be executed, or there is no such directory.
    """
    if not os.path.isdir(working_dir):
        raise StartFailure(f"error during container init: mkdir {working_dir}: not a directory")
    if "/" not in name:
        for folder in search_path.split(":"):
            candidate = os.path.join(folder or ".", name)
            if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
                return candidate
        raise StartFailure(f'exec: "{name}": executable file not found in $PATH')
    path = os.path.join(working_dir, name)
    if not os.path.exists(path):
        raise StartFailure(f'exec: "{name}": stat {name}: no such file or directory')
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise StartFailure(f'exec: "{name}": permission denied')
    return path


async def start(launch: Launch) -> Process:
    """Start a command and return when it runs. Being cancelled kills what was started.

    Raises:
        StartFailure: It cannot be executed.
    """
    executable = find_executable(launch.argv[0], launch.env["PATH"], launch.working_dir)
    marker = sweep.container_marker(launch.tools)
    ours, theirs = socket.socketpair()
    try:
        process = _spawn(launch, marker, theirs)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    try:
        await _hand_over(ours, launch, executable)
    except BaseException:
        process.kill_all()
        process.collect()
        process.close()
        raise
    finally:
        ours.close()
    return process


async def _hand_over(channel: socket.socket, launch: Launch, executable: str) -> None:
    loop = asyncio.get_running_loop()
    channel.setblocking(False)
    argv = [_encode(word) for word in launch.argv]
    env = {_encode(name): _encode(value) for name, value in launch.env.items()}
    order = ((_encode(executable), argv), env, _encode(launch.working_dir), launch.tty)
    async with asyncio.timeout(START_SECONDS):
        with suppress(BrokenPipeError, ConnectionResetError):
            await loop.sock_sendall(channel, marshal.dumps(order))
            channel.shutdown(socket.SHUT_WR)
        answer = b""
        with suppress(ConnectionResetError):
            # Ends when the launcher has become the command: its end of the socket is closed then.
            answer = await loop.sock_recv(channel, 16)
    if answer:
        code = int(answer)
        detail = "exec format error" if code == errno.ENOEXEC else os.strerror(code).lower()
        raise StartFailure(f'exec: "{launch.argv[0]}": {detail}')


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _spawn(launch: Launch, marker: sweep.Marker, channel: socket.socket) -> Process:
    outputs: dict[int, int] = {}
    theirs: list[int] = []
    stdin: int | None = None
    try:
        if launch.tty:
            outputs[STDOUT], slave = os.openpty()
            theirs = [slave, slave, slave]
            stdin = outputs[STDOUT] if launch.stdin else None
        else:
            if launch.stdin:
                source, stdin = os.pipe()
            else:
                source = os.open(os.devnull, os.O_RDONLY)
            theirs = [source]
            for number in (STDOUT, STDERR):
                outputs[number], sink = os.pipe()
                theirs.append(sink)
        for fd in {*outputs.values(), *(() if stdin is None else (stdin,))}:
            os.set_blocking(fd, False)
        popen = subprocess.Popen(  # noqa: S603 - the launcher, with numbers as arguments
            [sys.executable, "-I", "-S", _LAUNCHER, str(channel.fileno()), str(os.getpid())],
            stdin=theirs[0],
            stdout=theirs[1],
            stderr=theirs[2],
            env={},
            umask=0o022,
            pass_fds=(channel.fileno(),),
            start_new_session=True,
        )
        return Process(popen, marker, outputs, stdin)
    except BaseException:
        for fd in {*outputs.values(), *(() if stdin is None else (stdin,))}:
            os.close(fd)
        raise
    finally:
        for fd in set(theirs):
            os.close(fd)
