"""The two processes that most measurements need: what is measured, and its clients."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from bench.child import Child, started

QUIET = {"RUNNER_CLUSTER": "local", "LOG_LEVEL": "warning", "RUNNER_MAX_SESSIONS": "100000"}


@contextmanager
def target_and_readers(**environment: str) -> Iterator[tuple[Child, Child, dict[str, int]]]:
    """Run both on a database of their own; the third value is the ports of the first."""
    with (
        tempfile.TemporaryDirectory(prefix="telorunner-bench-") as folder,
        started("bench.target", **QUIET, RUNNER_DATA_DIR=folder, **environment) as target,
        started("bench.readers") as readers,
    ):
        yield target, readers, target.ask("where")
