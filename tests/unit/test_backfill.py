"""A log joined to an attach loses nothing and doubles nothing, whatever the bytes."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.terminal import backfill
from sessions.terminal.backfill import Front, Published
from sessions.terminal.overlap import overlap
from telorunner.kube.logs import ContainerLog

FEW_BYTES = st.text("ab", max_size=30).map(str.encode)
REPEATS = st.builds(lambda unit, times: unit * times, FEW_BYTES, st.integers(0, 6))
LINES = st.lists(st.text("ab\r é%", max_size=6), max_size=12)


def join(log: bytes, seen: bytes, *, is_tty: bool, is_behind: bool = False) -> bytes:
    """Return the front alone, of an attach of which nothing had come when the log was asked for."""
    return backfill.join(Front(log), seen, is_tty=is_tty, settled=0, is_behind=is_behind).data


def missing(log: bytes, tail: bytes, *, written: int | None = None) -> bytes | None:
    """Return what the log has more, None where that is not sure."""
    rest = backfill.missing(ContainerLog(log), Published(tail, written))
    return rest.data if rest.is_sure else None


def as_terminal(lines: list[str]) -> bytes:
    """Return lines as a PTY gives them; numbered, so that no two are alike."""
    return b"".join(f"#{n}:{line}\r\n".encode() for n, line in enumerate(lines))


def as_log(written: bytes) -> bytes:
    """Return what a kubelet's log has of it: no CR before LF, no unfinished last line."""
    kept = written[: written.rfind(b"\n") + 1]
    while b"\r\n" in kept:
        kept = kept.replace(b"\r\n", b"\n")
    return kept


def plain(data: bytes) -> bytes:
    return data.replace(b"\r", b"")


def test_an_attach_that_saw_everything_needs_nothing_in_front() -> None:
    assert join(b"one\ntwo\n", b"one\r\ntwo\r\n", is_tty=True) == b""
    assert join(b"one\n", b"one\r\ntwo? ", is_tty=True) == b""
    assert join(b"", b"one", is_tty=True) == b""


def test_what_came_before_the_attach_is_put_in_front_with_the_line_ends_of_a_terminal() -> None:
    assert join(b"one\ntwo\nthree\n", b"three\r\n", is_tty=True) == b"one\r\ntwo\r\n"
    assert join(b"one\ntwo\n", b"three", is_tty=True) == b"one\r\ntwo\r\n"
    assert join(b"one\ntwo\n", b"", is_tty=True) == b"one\r\ntwo\r\n"


def test_a_log_that_was_asked_for_before_anything_came_must_agree_with_that() -> None:
    def is_sure(log: bytes, seen: bytes, settled: int) -> bool:
        return backfill.join(Front(log), seen, is_tty=True, settled=settled).is_sure

    assert not is_sure(b"one\n", b"three\r\n", 0)
    assert not is_sure(b"", b"> ", 0)
    assert is_sure(b"one\n", b"> ", 2)
    assert is_sure(b"one\n", b"", 0)


def test_streams_keep_the_line_ends_of_the_log() -> None:
    assert join(b"one\ntwo\nthree\n", b"three\n", is_tty=False) == b"one\ntwo\n"


def test_an_attach_that_is_behind_the_log_gets_no_line_twice() -> None:
    log = b"one\ntwo\nthree\nfour\n"
    assert join(log, b"two\r\n", is_tty=True, is_behind=True) == b"one\r\n"
    long = [b"a line that is long enough to be no accident %d\n" % n for n in range(9)]
    assert join(b"".join(long), b"".join(long[2:5]), is_tty=False) == b"".join(long[:2])


def test_a_few_bytes_that_stand_elsewhere_in_the_log_cost_none_of_it() -> None:
    assert join(b"> help\nlines\n", b"> ", is_tty=True) == b"> help\r\nlines\r\n"


def test_an_attach_that_began_within_a_line_end_gets_the_cr_that_the_log_has_not() -> None:
    assert join(b"one\ntwo\n", b"\ntwo\r\n", is_tty=True) == b"one\r"


def test_carriage_returns_within_a_line_are_kept_and_come_once() -> None:
    log = b"10%\r20%\r30%\n"
    assert join(log, b"\r30%\r\n", is_tty=True) == b"10%\r20%"
    assert join(log, b"30%\r\n", is_tty=True) == b"10%\r20%\r"


def test_lines_that_repeat_are_laid_over_each_other_at_their_ends() -> None:
    assert join(b"tick\n" * 5, b"tick\r\n" * 2, is_tty=True) == b"tick\r\n" * 3


@given(lines=LINES, began=st.integers(0, 200), is_ahead=st.booleans())
def test_any_attach_moment_gives_every_byte_once(
    lines: list[str], began: int, is_ahead: bool
) -> None:
    written = as_terminal(lines)
    began = min(began, len(written))
    # The log was read when `until` had been written; what the attach brought by then is `seen`.
    until = len(written) if is_ahead else began + (len(written) - began) // 2
    seen, log = written[began:until], as_log(written[:until])
    front = join(log, seen, is_tty=True)
    known = plain(written[: max(began, 0)])
    if len(plain(log)) < len(known):
        # The line in which the attach began is not finished: the log still holds it back.
        known = plain(log)
    assert plain(front) == known


@given(lines=LINES, published=st.integers(0, 200), is_counted=st.booleans())
def test_what_a_log_has_beyond_the_published_end_is_found(
    lines: list[str], published: int, is_counted: bool
) -> None:
    written = as_terminal(lines)
    if not is_counted:
        # A search needs something to search for; with less than a line it would be a guess.
        published = max(published, written.find(b"\n") + 1)
    seen = written[:published]
    count = len(plain(seen)) if is_counted else None
    rest = missing(as_log(written), seen, written=count)
    assert rest is not None
    assert plain(seen) + plain(rest) == plain(written)


def test_a_log_that_begins_within_the_published_end_gives_the_rest() -> None:
    lines = [b"line %d\n" % n for n in range(100)]
    assert missing(b"".join(lines[50:]), b"".join(lines[:80])) == b"".join(lines[80:])


def test_a_log_that_holds_the_last_line_back_has_nothing_new() -> None:
    assert missing(b"one\n", b"one\r\nname? ") == b""
    assert missing(b"", b"name? ") == b""


def test_the_end_of_a_held_back_line_is_found() -> None:
    assert missing(b"one\nname? Ann\n", b"one\r\nname? ") == b"Ann\n"


def test_a_log_that_has_nothing_in_common_is_not_guessed_at() -> None:
    assert missing(b"new 1\nnew 2\n", b"old 1\r\nold 2\r\n") is None


def test_a_count_finds_the_place_in_lines_that_repeat() -> None:
    assert missing(b"tick\n" * 5, b"tick\r\n" * 2, written=10) == b"tick\n" * 3


@given(text=FEW_BYTES | REPEATS, pattern=FEW_BYTES | REPEATS)
def test_overlap_is_the_longest_end_that_the_pattern_begins_with(
    text: bytes, pattern: bytes
) -> None:
    lengths = range(min(len(text), len(pattern)), -1, -1)
    assert overlap(text, pattern) == next(n for n in lengths if text.endswith(pattern[:n]))


SIZE = 5_000_000


@pytest.mark.parametrize(
    ("log", "seen"),
    [
        (b"a" * SIZE, b"a" * (SIZE // 2) + b"b"),
        (b"a" * SIZE + b"b", b"a" * SIZE + b"c"),
        (b"ab" * (SIZE // 2) + b"c" + b"ab" * 1000, b"ab" * 1500 + b"c" + b"ab" * (SIZE // 2)),
        (b"tick\n" * (SIZE // 5), b"tick\r\n" * (SIZE // 10) + b"?"),
        (b"\r" * SIZE, b"\n" * SIZE),
    ],
)
def test_five_megabytes_of_any_bytes_are_joined_at_once(log: bytes, seen: bytes) -> None:
    began = time.process_time()
    join(log, seen, is_tty=True)
    assert time.process_time() - began < 2.0


def test_a_log_that_was_rotated_past_an_attach_that_is_behind_is_not_put_in_front() -> None:
    whole = as_terminal(["line"] * 100)
    seen, log = whole[:300], as_log(whole)[600:]
    front = backfill.join(Front(log), seen, is_tty=False, settled=len(seen), is_behind=True)
    assert front == Front(b"", is_sure=False)


def test_repeating_lines_of_an_attach_that_is_behind_are_laid_over_the_first_ones() -> None:
    front = join(b"tick\n" * 5, b"tick\r\n" * 2, is_tty=True, is_behind=True)
    assert front == b""
