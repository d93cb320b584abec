"""The start mark is taken away once, at the very beginning, however it arrives."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sessions.pods.script import START_MARK, START_SCRIPT
from sessions.terminal.mark import MarkFilter

NEAR_MARKS = st.lists(
    st.sampled_from([START_MARK, START_MARK[:5], START_MARK[5:], b"\x1b", b"x"]), max_size=5
).map(b"".join)


def filtered(*pieces: bytes) -> bytes:
    mark = MarkFilter(START_MARK)
    return b"".join(mark.pass_through(piece) for piece in pieces) + mark.give_up()


@given(output=NEAR_MARKS, cuts=st.lists(st.integers(0, 60), max_size=8), is_marked=st.booleans())
def test_the_application_gets_out_all_it_prints_and_nothing_else(
    output: bytes, cuts: list[int], is_marked: bool
) -> None:
    if not is_marked and output.startswith(START_MARK):
        output = b"x" + output
    written = START_MARK + output if is_marked else output
    pieces = [written[a:b] for a, b in pairwise([0, *sorted(cuts), len(written)])]
    assert filtered(*pieces) == output


def test_a_part_of_the_mark_is_kept_back_only_until_it_is_none() -> None:
    mark = MarkFilter(START_MARK)
    assert mark.pass_through(START_MARK[:4]) == b""
    assert mark.pass_through(b"[2J") == START_MARK[:4] + b"[2J"
    assert mark.pass_through(START_MARK) == START_MARK


def test_a_container_without_a_start_text_keeps_every_byte() -> None:
    assert MarkFilter(b"").pass_through(START_MARK) == START_MARK


def test_the_start_text_prints_that_very_mark() -> None:
    printed = START_MARK.decode().replace("\\", "\\\\").replace("\x1b", "\\033")
    assert f"printf '{printed}'" in START_SCRIPT
