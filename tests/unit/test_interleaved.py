"""A log of two channels joined to what each of them brought."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.terminal.interleaved import join_channels, join_channels_behind
from sessions.terminal.output import HELD_MAX_BYTES

LINES = st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "b", "", "long"])), max_size=25)


def channel(lines: list[tuple[bool, bytes]], *, is_error: bool) -> bytes:
    return b"".join(line for which, line in lines if which is is_error)


def settled(data: bytes) -> dict[str, int]:
    return {"settled_out": len(data), "settled_err": 0}


def test_what_came_before_is_what_no_channel_brought() -> None:
    log = b"early\nout 1\nerr 1\nout 2\n"
    front = join_channels(log, b"out 1\nout 2\n", b"err 1\n", settled_out=12, settled_err=6)
    assert (front.data, front.is_sure) == (b"early\n", True)


def test_the_log_keeps_its_line_ends_and_the_last_line_may_lack_its_own() -> None:
    log = b"one\r\ntwo\nout\r\nerr"
    front = join_channels(log, b"out\r\n", b"err", settled_out=5, settled_err=0)
    assert front.data == b"one\r\ntwo\n"
    assert join_channels(log, b"", b"", settled_out=0, settled_err=0).data == log


def test_a_log_that_was_asked_for_before_anything_came_must_agree_with_that() -> None:
    def is_sure(out: bytes, err: bytes, settled_err: int = 0) -> bool:
        found = join_channels(b"one\n", out, err, settled_out=0, settled_err=settled_err)
        return found.is_sure

    assert not is_sure(b"three\n", b"four\n")
    assert is_sure(b"> ", b"? ", settled_err=2)
    assert is_sure(b"", b"")


def test_channels_that_overtook_each_other_are_no_reason_to_tell_a_line_twice() -> None:
    log = b"err 1\nout 1\nerr 2\nout 2\n"
    front = join_channels(log, b"out 1\nout 2\nout 3", b"err 1\nerr 2\n", **settled(b"out 1\n"))
    assert (front.data, front.is_sure) == (b"", True)


def test_what_cannot_be_told_apart_is_unsure_and_doubles_nothing() -> None:
    log = b"tick\n" * 5
    front = join_channels(log, b"tick\n" * 2, b"tick\n", settled_out=5, settled_err=0)
    assert (front.data, front.is_sure) == (b"tick\n" * 2, False)


@settings(max_examples=100)
@given(lines=LINES, began=st.integers(0, 25), is_unique=st.booleans())
def test_settled_channels_are_joined_exactly(
    lines: list[tuple[bool, str]], began: int, is_unique: bool
) -> None:
    written = [
        (which, f"{number if is_unique else ''}{text}\n".encode())
        for number, (which, text) in enumerate(lines)
    ]
    log = b"".join(line for _, line in written)
    out, err = (channel(written[began:], is_error=which) for which in (False, True))
    front = join_channels(log, out, err, settled_out=len(out), settled_err=len(err))
    assert front.is_sure
    assert front.data == b"".join(line for _, line in written[:began])


@pytest.mark.parametrize("count", [30, HELD_MAX_BYTES // 4])
@pytest.mark.parametrize("line", [b"a\n", b"\n"])
def test_hostile_lines_are_given_up_in_no_time(line: bytes, count: int) -> None:
    """As much as is held at most, behind a whole log: nothing else runs meanwhile."""
    log, err = line * (5_000_000 // len(line)) + b"b\n", line * (HELD_MAX_BYTES // 4)
    for join in (join_channels, join_channels_behind):
        began = time.process_time()
        front = join(log, line * count + b"c\n", err, settled_out=0, settled_err=0)
        assert time.process_time() - began < 0.6
        assert not front.is_sure


@settings(max_examples=200)
@given(
    lines=LINES,
    began=st.integers(0, 25),
    seen=st.integers(0, 25),
    cut=st.integers(0, 3),
    skew=LINES,
)
def test_channels_that_were_not_read_to_their_end_are_joined_where_they_begin(
    lines: list[tuple[bool, str]],
    began: int,
    seen: int,
    cut: int,
    skew: list[tuple[bool, str]],
) -> None:
    written = [
        (which, f"{number}{text}\n".encode()) for number, (which, text) in enumerate(lines + skew)
    ]
    log = b"".join(line for _, line in written)
    # One channel was read a little further than the other, and each is cut in a line.
    out = channel(written[began : began + seen], is_error=False)
    err = channel(written[began : began + seen + len(skew)], is_error=True)
    out, err = out[: len(out) - cut], err[: len(err) - cut]
    front = join_channels_behind(log, out, err, settled_out=len(out), settled_err=len(err))
    before = b"".join(line for _, line in written[:began])
    if b"\n" in out and b"\n" in err:
        assert front.is_sure
    if front.is_sure:
        assert front.data == before
    assert before.startswith(front.data) or not (out and err)


def test_bytes_that_are_no_lines_are_never_told_twice() -> None:
    out, err = bytes(range(256)) * 600, bytes(reversed(range(256))) * 600
    pieces = [data[n : n + 100] for n in range(0, len(out), 100) for data in (out, err)]
    front = join_channels_behind(
        b"".join(pieces), out[:99_000], err[:98_000], settled_out=0, settled_err=0
    )
    assert (front.data, front.is_sure) == (b"", False)
