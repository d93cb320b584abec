"""The way to the database: which thread work runs in, and what its failures become.

On SQLite every write of sessions, and whatever else comes this way, goes through one thread with a
connection that stays open: writers in many threads only wait for each other's lock, in no order and
with ever longer sleeps. On PostgreSQL each caller writes by itself. The admin's own requests write
by themselves on either; `telorunner.jsonerrors` tells what becomes of them when the database is
away. The threads are this module's; `close()` ends them.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import ParamSpec, TypeVar

from django.db import (
    InterfaceError,
    OperationalError,
    close_old_connections,
    connection,
    transaction,
)
from django.db import connections as all_connections

from telorunner.errors import Unavailable

P = ParamSpec("P")
T = TypeVar("T")

# Enough for the engine's writes to overlap on PostgreSQL; they are short, and more connections
# would be taken from the web side's pool.
MAX_WORKER_THREADS = 8
# For reads that somebody will not wait for: what hangs in these hangs in no others.
MAX_BOUNDED_THREADS = 2
# How long a request waits for its turn on SQLite. While something outside holds the file, writes
# queue up behind each other, and clients wait 6 s for the answer to a DELETE.
TURN_SECONDS = 2.0


class _Threads:
    """The threads that asynchronous callers' work runs in; made when first needed."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Queue work for the next free thread."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._count, thread_name_prefix=self._name)
            return self._pool.submit(work)

    def close(self) -> None:
        """Wait for what is queued, close the threads' connections, and end them."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.submit(all_connections.close_all)
            pool.shutdown(wait=True)


_writer = _Threads("database-writer", 1)
_workers = _Threads("database-worker", MAX_WORKER_THREADS)
_bounded = _Threads("database-worker-bounded", MAX_BOUNDED_THREADS)


@contextmanager
def _translated() -> Iterator[None]:
    """Turn every failure of the database itself into Unavailable."""
    try:
        yield
    except (OperationalError, InterfaceError) as exc:
        raise Unavailable from exc


def _has_one_writer() -> bool:
    return connection.vendor == "sqlite"


def _in_transaction(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    with transaction.atomic():
        return function(*args, **kwargs)


def _in_writer(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run in the writer's thread; its connection stays open unless it failed."""
    try:
        return _in_transaction(function, *args, **kwargs)
    except (OperationalError, InterfaceError):
        connection.close()
        raise


def _in_worker(work: Callable[[], T]) -> T:
    """Run in a thread that no request's signals tidy up after."""
    close_old_connections()
    try:
        return work()
    finally:
        close_old_connections()


def _in_turn(written: "Future[T]") -> T:
    """Wait for a write; one whose turn does not come in time is taken back."""
    try:
        return written.result(TURN_SECONDS)
    except TimeoutError:
        if written.cancel():
            raise Unavailable from None
        # It has begun: the file's own time limit ends it, one way or the other.
        return written.result()


def read(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that only reads, in the calling thread.

    Raises:
        Unavailable: The database cannot be reached.
    """
    with _translated():
        return function(*args, **kwargs)


def read_within(
    seconds: float, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run a function that only reads in another thread, and wait no longer than so many seconds.

    Raises:
        Unavailable: The database cannot be reached, or does not answer in time.
    """
    with _translated():
        asked = _bounded.submit(lambda: _in_worker(lambda: function(*args, **kwargs)))
        try:
            return asked.result(seconds)
        except TimeoutError:
            asked.cancel()
            raise Unavailable from None


def write(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in one transaction and wait for it; for synchronous callers.

    What it hangs on `transaction.on_commit` runs in the thread that committed.

    Raises:
        Unavailable: The database cannot be reached; nothing was written.
    """
    with _translated():
        if _has_one_writer():
            return _in_turn(_writer.submit(lambda: _in_writer(function, *args, **kwargs)))
        return _in_transaction(function, *args, **kwargs)


async def aread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that only reads, in a thread.

    Raises:
        Unavailable: The database cannot be reached.
    """
    with _translated():
        return await _working(lambda: function(*args, **kwargs))


async def awrite(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in one transaction, in a thread.

    Cancelling it drops a write that has not begun; one that has goes on to its end.

    Raises:
        Unavailable: The database cannot be reached; nothing was written.
    """
    with _translated():
        if _has_one_writer():
            written = _writer.submit(lambda: _in_writer(function, *args, **kwargs))
            return await asyncio.wrap_future(written)
        return await _working(lambda: _in_transaction(function, *args, **kwargs))


async def _working(work: Callable[[], T]) -> T:
    return await asyncio.wrap_future(_workers.submit(lambda: _in_worker(work)))


def close() -> None:
    """End the threads and close their connections; what comes later starts new ones."""
    for threads in (_writer, _workers, _bounded):
        threads.close()
