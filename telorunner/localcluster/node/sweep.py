"""Finds the processes of containers and kills them, and never any other process of this machine.

A process belongs to a container when its PATH begins with the folder that this container alone has
there, below the node's state folder and with the pod's uid in it, or when it is in the session of
the container's main process; and it is never older than that. Everything that could take a process
for a container's by mistake is refused with a ValueError. No thread and no task is started here.
Needs Linux (pidfd, /proc).
"""

import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

PODS_FOLDER = "pods"
KILL_ROUNDS = 5
_UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_TOOLS = rf"/{_UID}/containers/[a-z0-9-]+/bin:".encode()
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


@dataclass(frozen=True)
class Marker:
    """What the environment of a container's process holds and that of no other does.

    What started before `since_ticks` (of the system's clock) belongs to no such container.
    """

    entry: re.Pattern[bytes]
    since_ticks: int = 0

    def since_start_of(self, pid: int) -> "Marker":
        """Return the marker of a container whose main process has this number."""
        stat = _read_stat(pid)
        return self if stat is None else replace(self, since_ticks=stat.started_ticks)

    def is_in(self, environ: bytes) -> bool:
        """Say whether a process with this environment (as in /proc) is marked."""
        return any(self.entry.match(entry) for entry in environ.split(b"\0"))


def node_marker(pods_dir: Path) -> Marker:
    """Return what marks the processes of every container of a node.

    Raises:
        ValueError: This is no folder of a node's pods.
    """
    if not pods_dir.is_absolute() or pods_dir.name != PODS_FOLDER or ".." in pods_dir.parts:
        raise ValueError(f"{pods_dir} is not the absolute path of the folder of a node's pods")
    return Marker(re.compile(b"PATH=" + re.escape(os.fsencode(pods_dir)) + _TOOLS))


def container_marker(tools: Path) -> Marker:
    """Return what marks the processes of one container; `tools` comes first on their PATH.

    Raises:
        ValueError: This is no folder of a container.
    """
    entry = b"PATH=" + os.fsencode(tools) + b":"
    if len(tools.parents) < 4 or not node_marker(tools.parents[3]).is_in(entry):
        raise ValueError(f"{tools} is not the folder of one container's tools")
    return Marker(re.compile(re.escape(entry)))


@dataclass(frozen=True)
class _Stat:
    pid: int
    state: str
    parent: int
    session: int
    started_ticks: int


def _read(pid: int, name: str) -> bytes:
    """Return a file of a process in /proc, b"" where it or the process is not there."""
    with suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
    return b""


def _read_stat(pid: int) -> _Stat | None:
    # The command's name stands in brackets and may hold anything, brackets too.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    if not fields:
        return None
    # Source: proc(5), /proc/pid/stat, from its third field on.
    return _Stat(pid, fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def _processes() -> Iterator[_Stat]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := _read_stat(int(name))) is not None:
            yield stat


def _spared() -> set[int]:
    """Return this process and its ancestors, which nothing here ever touches."""
    spared = {0, 1}
    pid = os.getpid()
    while pid not in spared:
        spared.add(pid)
        stat = _read_stat(pid)
        pid = 0 if stat is None else stat.parent
    return spared


def find_processes(marker: Marker, *, session: int | None = None) -> list[int]:
    """Return the living processes that are marked, and those of a session.

    `session` must be that of a child which has not been reaped: until then its number cannot be
    another's.

    Raises:
        ValueError: The session is the machine's or this process's own.
    """
    if session is not None and (session <= 1 or session == os.getsid(0)):
        raise ValueError("only the session of a container's own process may be looked for")
    spared = _spared()
    return [
        stat.pid
        for stat in _processes()
        if stat.pid not in spared and _belongs(stat, marker, session)
    ]


def _belongs(stat: _Stat, marker: Marker, session: int | None) -> bool:
    if stat.state in "ZX" or stat.started_ticks < marker.since_ticks:
        return False
    return stat.session == session or marker.is_in(_read(stat.pid, "environ"))


def kill_processes(marker: Marker, *, session: int | None = None) -> bool:
    """Send SIGKILL to what `find_processes` finds; say whether nothing is left.

    What was killed a moment ago may still be there: ask again a little later.
    """
    for _ in range(KILL_ROUNDS):
        found = find_processes(marker, session=session)
        for pid in found:
            _kill(pid, marker, session)
        if not found:
            return True
    return False


def _kill(pid: int, marker: Marker, session: int | None) -> None:
    """Kill a process if it is still the one that was found."""
    with suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            # NB: looked at again now that the number is held. Between the search and here the
            # process may have ended and its number have gone to a stranger.
            stat = _read_stat(pid)
            if stat is not None and _belongs(stat, marker, session):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def kill_leftovers(pods_dir: Path) -> int:
    """Kill the container processes that an earlier node of this folder left; return how many."""
    marker = node_marker(pods_dir)
    count = len(find_processes(marker))
    if count:
        kill_processes(marker)
    return count


def memory_bytes(sessions: Iterable[int]) -> dict[int, int]:
    """Return the anonymous memory of all processes of each session.

    What is mapped from files is left out, as a container's limit counts it only while it is hot.
    """
    totals = dict.fromkeys(sessions, 0)
    for stat in _processes():
        if stat.session in totals and (pages := _read(stat.pid, "statm").split()):
            # Resident and shared.
            totals[stat.session] += (int(pages[1]) - int(pages[2])) * _PAGE_BYTES
    return totals
