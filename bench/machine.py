"""The machine that figures were taken on, as far as it bears on them."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

LIBRARIES = ("django", "daphne", "twisted", "autobahn", "aiohttp", "orjson")


def describe() -> list[str]:
    """Return a line for each thing that counts."""
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    load = os.getloadavg()[0]
    return [
        f"Processor: {_processor()}, {os.cpu_count()} cores",
        f"Memory: {_memory_bytes() / 2**30:.0f} GiB",
        f"System: {platform.system()} {platform.release()}",
        f"Python {platform.python_version()}, {libraries}",
        f"Load average over the last minute before the run: {load:.1f}",
    ]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
