"""manage.py for tests: at SIGUSR1 its process tells what it holds, in one line of JSON."""

import asyncio
import gc
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "held: "


def _tell(_number: int, _frame: FrameType | None) -> None:
    """Write the names of all tasks and threads; what is only garbage counts for nothing."""
    import orjson

    gc.collect()
    held = {
        "tasks": sorted(task.get_name() for task in asyncio.all_tasks()),
        "threads": sorted(thread.name for thread in threading.enumerate()),
    }
    os.write(sys.stdout.fileno(), PREFIX.encode() + orjson.dumps(held) + b"\n")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    import manage

    signal.signal(signal.SIGUSR1, _tell)
    sys.exit(manage.main(sys.argv))
