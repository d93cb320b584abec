"""How much is measured: all of it, or so little that a test can see whether it still works."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Counts of one run; `is_whole` says that the figures mean something."""

    rounds: int
    parallel: int
    creates: int
    sessions: int
    changes: int
    readers: int
    events: int
    output_bytes: int
    pod_bytes: int
    keys: int
    starts: int
    published: int
    is_whole: bool = True


WHOLE = Scale(
    rounds=5,
    parallel=50,
    creates=200,
    sessions=1_000,
    changes=40,
    readers=200,
    events=1_000,
    output_bytes=100_000_000,
    pod_bytes=32_000_000,
    keys=60,
    starts=20,
    published=200,
)
TINY = Scale(
    rounds=1,
    parallel=4,
    creates=8,
    sessions=3,
    changes=2,
    readers=4,
    events=50,
    output_bytes=1_000_000,
    pod_bytes=1_000_000,
    keys=3,
    starts=1,
    published=3,
    is_whole=False,
)
