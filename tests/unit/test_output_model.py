"""Whatever a container prints and whenever it is attached to, nothing is lost or doubled silently.

A model of a container: what it writes, what its log tells of that, and which stretches of it the
attaches bring. A line that was not ended when an attach began, and is not ended soon after, is in
no log and no attach; the model leaves that out, as nobody can know of it.
"""

import hashlib
from collections.abc import Coroutine
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessions.pods.script import START_MARK
from sessions.states import IoMode
from sessions.terminal import TerminalTarget
from sessions.terminal.output import TerminalOutput
from telorunner.kube.logs import ContainerLog

T = TypeVar("T")
WORDS = st.sampled_from(["tick", "tock", "", "a\rb", "> ", "é", "%\r", "aa"])
LIKE_LINES = st.lists(WORDS, min_size=1, max_size=30)
# Where an attach begins, where it is when the log is asked for, where it ends: shares of the whole.
MOMENTS = st.lists(st.integers(0, 400), min_size=5, max_size=15)


@dataclass(frozen=True)
class Container:
    """All that it ever writes, and how much of the front of its log is gone."""

    written: bytes
    limit_bytes: int
    rotated_at: int = 0

    def log(self, until: int, *, has_ended: bool = False) -> ContainerLog:
        told = self.written[:until]
        told = told if has_ended else told[: told.rfind(b"\n") + 1]
        if until > self.rotated_at:
            told = told[self.line_start(self.rotated_at) :]
        log = told.replace(b"\r\n", b"\n")
        cut = max(0, len(log) - self.limit_bytes)
        return ContainerLog(log[cut:], len(plain(log[:cut])))

    def line_start(self, at: int) -> int:
        return self.written.rfind(b"\n", 0, at) + 1


class Reader:
    """What a client gets: stretches of output between gaps."""

    def __init__(self) -> None:
        self.stretches = [b""]

    async def publish_output(self, app: str, stream: int, data: bytes) -> int:
        self.stretches[-1] += data
        return 1

    async def mark_gap(self, app: str) -> None:
        self.stretches.append(b"")


def plain(data: bytes) -> bytes:
    return data.replace(b"\r", b"")


def attaches(container: Container, moments: list[int], *, is_quiet: bool) -> list[list[int]]:
    """Return, in order: where an attach begins; where it and the log are at two looks; its end."""
    size, written = len(container.written), container.written
    points = sorted(min(moment, size) for moment in moments)
    found = []
    told = 0
    for number in range(len(points) // 5):
        begin, settled, log, seen, end = points[5 * number : 5 * number + 5]
        if is_quiet:
            settled = seen
        if b"\n" not in written[begin:settled]:
            begin = max(told, container.line_start(begin))
        found.append([begin, settled, max(log, settled), seen, end])
        told = end
    return found


def run(relaying: Coroutine[Any, Any, T]) -> T:
    """Run what never waits: so little is held that no attach is left unread."""
    try:
        relaying.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits")


async def relay(
    container: Container, windows: list[list[int]], mark: bytes, *, is_early: bool = False
) -> list[bytes]:
    """Return what clients got; `is_early`: each log is first asked for where the last attach ended.

    That is before the next one brings anything.
    """
    reader, written = Reader(), container.written
    target = TerminalTarget("s", "app", "pod", "session", IoMode.TTY, mark)
    output = TerminalOutput(target, reader)

    async def bring(begin: int, end: int) -> None:
        for a, b in pairwise([*range(begin, end, 7), end]):
            await output.deliver(1, written[a:b])

    told = 0
    for begin, settled, log, seen, end in windows:
        output.hold()
        if is_early:
            settled, log = begin, told
        await bring(begin, settled)
        output.settle()
        await bring(settled, seen)
        if not await output.release(container.log(log), is_last=False, is_loss=True):
            output.settle()
            assert await output.release(container.log(seen), is_last=True, is_loss=True)
        await bring(seen, end)
        told = end
    output.hold()
    output.settle()
    await output.release(container.log(len(written), has_ended=True), is_last=True, is_loss=True)
    await output.end()
    return [plain(stretch) for stretch in reader.stretches]


def are_in_order(stretches: list[bytes], whole: bytes) -> bool:
    at = 0
    for stretch in stretches:
        at = whole.find(stretch, at)
        if at < 0:
            return False
        at += len(stretch)
    return True


@settings(max_examples=150)
@given(lines=LIKE_LINES, moments=MOMENTS, last=WORDS)
def test_an_uncut_log_fills_every_hole_of_lines_that_all_differ(
    lines: list[str], moments: list[int], last: str
) -> None:
    text = "".join(f"#{n}:{line}\r\n" for n, line in enumerate(lines)) + last
    container = Container(text.encode(), limit_bytes=10_000)
    windows = attaches(container, moments, is_quiet=False)
    assert run(relay(container, windows, b"")) == [plain(container.written)]


@settings(max_examples=150)
@given(lines=LIKE_LINES, moments=MOMENTS, last=WORDS)
def test_a_log_that_ends_before_an_attach_begins_leaves_no_hole_between_them(
    lines: list[str], moments: list[int], last: str
) -> None:
    text = "".join(f"#{n}:{line}\r\n" for n, line in enumerate(lines)) + last
    container = Container(text.encode(), limit_bytes=10_000)
    # An attach that brings nothing at first is in no log either.
    windows = [
        window for window in attaches(container, moments, is_quiet=False) if window[0] < window[3]
    ]
    stretches = run(relay(container, windows, b"", is_early=True))
    assert stretches == [plain(container.written)]


@settings(max_examples=150)
@given(lines=LIKE_LINES, moments=MOMENTS, last=WORDS)
def test_lines_that_repeat_are_exact_where_the_container_is_quiet_for_a_moment(
    lines: list[str], moments: list[int], last: str
) -> None:
    text = "".join(f"{line}\r\n" for line in lines) + last
    container = Container(text.encode(), limit_bytes=10_000)
    windows = attaches(container, moments, is_quiet=True)
    assert run(relay(container, windows, b"")) == [plain(container.written)]


@settings(max_examples=150)
@given(
    lines=LIKE_LINES,
    moments=MOMENTS,
    limit_bytes=st.integers(100, 2000),
    rotated_at=st.integers(0, 2000),
)
# A few bytes that agree by chance (a line end) against a whole log that agrees elsewhere.
@example(["tick", "", "tick", "tick"], [41, 42, 42, 56, 56], 100, 209)
@example(["tick", "", "tick", "tick"], [41, 42, 42, 42, 42], 100, 209)
@example(["tick", "tick", "tick"], [13, 15, 43, 43, 43], 100, 0)
@example(["tick", "tick"], [13, 15, 29, 29, 29], 100, 71)
def test_what_no_log_tells_any_more_is_a_gap_and_nothing_is_told_twice(
    lines: list[str], moments: list[int], limit_bytes: int, rotated_at: int
) -> None:
    # Less than 64 bytes that agree might do so by chance: no line is shorter.
    unique = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(len(lines))]
    text = "".join(f"{name}:{line}\r\n" for name, line in zip(unique, lines, strict=True))
    container = Container(text.encode(), limit_bytes, rotated_at)
    windows = attaches(container, [5 * moment for moment in moments], is_quiet=False)
    stretches = run(relay(container, windows, b""))
    assert are_in_order(stretches, plain(container.written))
    # What is missing at either end is told too; of a front that was rotated away nobody can know.
    assert plain(container.written).endswith(stretches[-1])
    if container.line_start(rotated_at) == 0:
        assert plain(container.written).startswith(stretches[0])


@settings(max_examples=100)
@given(lines=LIKE_LINES, moments=MOMENTS, is_late=st.booleans())
def test_the_start_mark_is_in_no_output_whoever_tells_it(
    lines: list[str], moments: list[int], is_late: bool
) -> None:
    own = "".join(f"#{n}:{line}\r\n" for n, line in enumerate(lines)).encode() + START_MARK
    container = Container(START_MARK + own, limit_bytes=10_000)
    windows = attaches(container, moments, is_quiet=False)
    if windows and not is_late:
        windows[0][0] = 0
    assert run(relay(container, windows, START_MARK)) == [plain(own)]
