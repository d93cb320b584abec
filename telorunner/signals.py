"""How a process of the runner ends: by SIGTERM or SIGINT, in order, and in bounded time.

SIGHUP counts as one of them, unless it is ignored (nohup): a terminal that was closed.

It owns one timer thread, from the first signal to the end of the stop.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Everything has its own bound; this one is for what they do not cover, such as a thread that hangs.
STOP_SECONDS = 14.5


def _stop_signals() -> list[signal.Signals]:
    # A shell starts background jobs with SIGINT ignored, but whoever sends one means it.
    is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in _SIGNALS if not (is_nohup and number is signal.SIGHUP)]


def leave_quietly() -> None:
    """While nothing runs yet, let a signal be no more than an end without a traceback."""
    for number in _stop_signals():
        signal.signal(number, _leave)


def ignore() -> None:
    """When everything has stopped, keep a late signal from changing the exit code."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def cancelling(task: "asyncio.Task[Any]", hurry: Callable[[], None]) -> Iterator[None]:
    """Cancel a task at the first signal, wherever it is; call `hurry` at every further one."""
    loop = asyncio.get_running_loop()
    watchdog = threading.Timer(STOP_SECONDS, _give_up)
    watchdog.daemon = True
    has_begun = False

    def stop() -> None:
        nonlocal has_begun
        if has_begun:
            hurry()
        else:
            has_begun = True
            watchdog.start()
            task.cancel()

    for number in _stop_signals():
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        watchdog.cancel()


def _leave(_number: int, _frame: object) -> NoReturn:
    # NB: an exception would be swallowed where the interpreter is just finalising an object, and
    # the process would go on as if no signal had come.
    os._exit(0)


def _give_up() -> NoReturn:
    sys.stderr.write("telorunner: did not stop in time and ended at once.\n")
    sys.stderr.flush()
    os._exit(1)
