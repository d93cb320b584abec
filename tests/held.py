"""What a process of the platform holds: tasks, threads, descriptors, children and memory."""

import os
import re
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from tests.serving import Process

# Threads of the pools, each with a connection to the database; how many were needed is chance. As
# many as these are what the pools may have by themselves.
_POOLS = ("asyncio", "database-worker", "database-writer", "ThreadPoolExecutor")
MAX_POOL_THREADS = 60
_DATABASE = ".sqlite3"

_HELD = re.compile(r"held: (\{.*\})$")
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


@dataclass(frozen=True)
class Held:
    """One look at a process; tasks and threads by name, as often as there are any."""

    tasks: Counter[str]
    threads: Counter[str]
    descriptors: Counter[str]
    children: tuple[str, ...]
    resident_bytes: int

    def beyond(self, before: "Held") -> dict[str, list[str]]:
        """Return what is held now and was not held before, by kind."""
        more = {
            "tasks": sorted((self.tasks - before.tasks).elements()),
            "threads": sorted((self.threads - before.threads).elements()),
            "descriptors": sorted((self.descriptors - before.descriptors).elements()),
            "children": sorted(set(self.children) - set(before.children)),
        }
        return {kind: names for kind, names in more.items() if names}


def resident_bytes(pid: int) -> int:
    """Return how much of a process is in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def look(process: Process) -> Held:
    """Ask a process that was started with `tests/watched.py`."""
    process.send(signal.SIGUSR1)
    told = orjson.loads(process.wait_for(_HELD)[1])
    assert len(told["threads"]) <= MAX_POOL_THREADS, told["threads"]
    return Held(
        tasks=Counter(re.sub(r"^Task-\d+$", "Task", name) for name in told["tasks"]),
        threads=Counter(name for name in told["threads"] if not name.startswith(_POOLS)),
        descriptors=Counter(_descriptors(process.pid)),
        children=_children(process.pid),
        resident_bytes=resident_bytes(process.pid),
    )


def _descriptors(pid: int) -> list[str]:
    """Return what each open descriptor is, without the numbers that differ each time."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(re.sub(r"\[\d+\]", "", str(entry.readlink())))
    return [name for name in found if _DATABASE not in name]


def _children(pid: int) -> tuple[str, ...]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return tuple(child for task in tasks for child in (task / "children").read_text().split())
