"""Messages out of a debug server's bytes: every spelling of the protocol, and every bound."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions import sse
from sessions.debug_relay.messages import MAX_MESSAGE_BYTES, MessageParser
from sessions.debug_relay.stream import MAX_SIZE_LINE_BYTES, Dechunker, NoStream


def parse(*chunks: bytes, max_bytes: int = MAX_MESSAGE_BYTES) -> list[bytes]:
    parser = MessageParser(max_bytes)
    return [message for chunk in chunks for message in parser.feed(chunk)]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


@pytest.mark.parametrize(
    ("stream", "messages"),
    [
        (b"data: 1\n\ndata: 2\n\n", [b"1", b"2"]),
        (b"data:1\r\rdata:2\r\n\r\n", [b"1", b"2"]),
        (b"data: {\ndata:  1}\n\n", [b"{\n 1}"]),
        (b": heartbeat\n\nid: 7\nevent: x\nretry: 1\ndata: 1\n\n", [b"1"]),
        (b"\xef\xbb\xbfdata: 1\n\n", [b"1"]),
        (b"data\n\ndata:\n\n", [b"", b""]),
        (b"event: x\n\nnonsense\n\n\n\n", []),
        (b"data: 1\n", []),
        # Other line ends of Unicode, and a NUL, are text.
        (
            b"data: a\x0bb\x0c\x1c\xc2\x85\xe2\x80\xa8\x00\n\n",
            [b"a\x0bb\x0c\x1c\xc2\x85\xe2\x80\xa8\x00"],
        ),
    ],
)
def test_each_message_is_its_data(stream: bytes, messages: list[bytes]) -> None:
    assert parse(stream) == messages
    assert parse(*(bytes((byte,)) for byte in stream)) == messages


@given(
    st.lists(st.sampled_from(["data: a", "data:b", "data", "id: 1", ": c", "x", "", ""])),
    st.lists(st.sampled_from(["\n", "\r", "\r\n"]), min_size=1),
    st.lists(st.integers(0, 200)),
)
def test_any_cutting_says_what_a_parser_of_whole_streams_says(
    lines: list[str], ends: list[str], places: list[int]
) -> None:
    text = "".join(line + ends[number % len(ends)] for number, line in enumerate(lines))
    text += "\n\n"
    whole = [message.data.encode() for message in sse.parse(text)]
    assert parse(*cut(text.encode(), places)) == whole


def test_a_message_at_the_bound_passes_and_one_above_is_skipped_whole() -> None:
    for stream, passes in (
        (b"data: %s\n\n" % (b"x" * 100), True),
        (b"data: %s\n\n" % (b"x" * 101), False),
        (b"data:%s\n\n" % (b"x" * 101), False),
        (b"data: %s\ndata: %s\n\n" % (b"x" * 50, b"y" * 49), True),
        (b"data: %s\ndata: %s\n\n" % (b"x" * 50, b"y" * 50), False),
        (b"data\n" * 101 + b"\n", True),
        (b"data\n" * 102 + b"\n", False),
    ):
        for size in (1, 7, 1000):
            parser = MessageParser(100)
            pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
            found = [message for piece in pieces for message in parser.feed(piece)]
            assert len(found) == passes
            assert parser.take_oversized() == (not passes)
            assert parser.take_oversized() == 0
            # What follows is a message again.
            assert list(parser.feed(b"data: next\n\n")) == [b"next"]


def test_a_line_without_an_end_keeps_nothing_of_it() -> None:
    parser = MessageParser(100)
    for _ in range(1000):
        assert list(parser.feed(b"data: " + b"x" * 1000)) == []
    assert len(parser._line) <= 106
    assert list(parser.feed(b"\n\ndata: 1\n\n")) == [b"1"]
    assert parser.take_oversized() == 1


def test_a_comment_of_any_length_is_no_loss() -> None:
    assert parse(b": " + b"x" * 1000 + b"\ndata: 1\n\n", max_bytes=100) == [b"1"]


@given(st.binary(max_size=300), st.lists(st.integers(1, 50), min_size=1), st.lists(st.integers()))
def test_chunks_are_taken_apart_however_they_arrive(
    payload: bytes, sizes: list[int], places: list[int]
) -> None:
    body, at, number = b"", 0, 0
    while at < len(payload):
        part = payload[at : at + sizes[number % len(sizes)]]
        body += b"%x;ext=1\r\n%s\r\n" % (len(part), part)
        at, number = at + len(part), number + 1
    body += b"0\r\n\r\nwhat follows"
    dechunker = Dechunker()
    assert b"".join(map(dechunker.feed, cut(body, places))) == payload
    assert dechunker.is_ended
    assert dechunker.chunks == number + 1


@pytest.mark.parametrize(
    "body", [b"x\r\n", b"-1\r\n", b"0x1\r\n", b"123456789\r\n", b"1" * (MAX_SIZE_LINE_BYTES + 1)]
)
def test_what_are_no_chunks_is_refused(body: bytes) -> None:
    with pytest.raises(NoStream):
        Dechunker().feed(body)
