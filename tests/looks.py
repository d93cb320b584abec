"""Looks at the catalog that take as long as a test says."""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from catalog import cache

T = TypeVar("T")

END_SECONDS = 30.0


class Held:
    """Holds the first statement of a look at its end until it may end, or fails it then."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self._failure = failure

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        result = execute(sql, params, many, context)
        if not self.begun.is_set():
            self.begun.set()
            assert self.may_end.wait(END_SECONDS)
            if self._failure is not None:
                raise self._failure
        return result


def ask_here(ask: Callable[[], T], held: Held | None = None) -> tuple[T, int]:
    """Ask in a thread that has no connection yet; return the answer and the count of statements."""
    try:
        with CaptureQueriesContext(connection) as asked:
            if held is None:
                answer = ask()
            else:
                with connection.execute_wrapper(held):
                    answer = ask()
        return answer, len(asked)
    finally:
        connections.close_all()


def until_waiting(count: int) -> None:
    """Wait until so many threads wait for the look that is under way."""
    look = cache._look
    assert look is not None
    condition = look.ended._condition
    until = time.monotonic() + END_SECONDS
    # Nothing else tells who waits.
    while len(condition._waiters) < count:  # type: ignore[attr-defined] # the library's own
        assert time.monotonic() < until
        time.sleep(0.005)
