import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telorunner.errors import ClusterUnavailable, ResourceExpired
from telorunner.kube.errors import NotKubernetesError
from telorunner.kube.watch import LineSplitter, WatchEvent, parse_event


def cut_at_random(data: bytes, seed: int) -> list[bytes]:
    places = random.Random(seed)
    cuts = sorted(places.randrange(len(data) + 1) for _ in range(20))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(st.lists(st.binary().map(lambda line: line.replace(b"\n", b""))), st.integers())
def test_lines_are_the_same_wherever_the_stream_is_cut(lines: list[bytes], seed: int) -> None:
    splitter = LineSplitter()
    data = b"".join(line + b"\n" for line in lines)
    found = [line for chunk in cut_at_random(data, seed) for line in splitter.feed(chunk)]
    assert found == lines
    assert not splitter.has_rest


def test_an_unfinished_line_is_a_rest() -> None:
    splitter = LineSplitter()
    assert list(splitter.feed(b'{"a":1}\n{"b"')) == [b'{"a":1}']
    assert splitter.has_rest


def test_a_line_without_end_is_refused() -> None:
    splitter = LineSplitter(limit_bytes=100)
    assert list(splitter.feed(b"x" * 100)) == []
    with pytest.raises(NotKubernetesError):
        list(splitter.feed(b"x"))


def test_a_character_that_is_cut_in_two_is_whole_again() -> None:
    line = '{"type":"ADDED","object":{"metadata":{"name":"a","annotations":{"x":"😀"}}}}\n'.encode()
    splitter = LineSplitter()
    middle = line.index("😀".encode()) + 2
    found = [parse_event(x) for part in (line[:middle], line[middle:]) for x in splitter.feed(part)]
    assert found[0].object["metadata"]["annotations"] == {"x": "😀"}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"<html>",
        b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}',
        b"[]",
        b'"ADDED"',
        b"{}",
        b'{"type":"ADDED"}',
        b'{"type":"ADDED","object":null}',
        b'{"type":"ADDED","object":{"metadata":null}}',
        b'{"type":"ADDED","object":{"metadata":{}}}',
        b'{"type":"DELETED","object":{"metadata":{"name":7}}}',
        b'{"type":"ERROR","object":"no"}',
    ],
)
def test_a_line_that_is_no_event_is_an_error_of_its_own(line: bytes) -> None:
    with pytest.raises(NotKubernetesError):
        parse_event(line)


def test_events_of_unknown_type_are_passed_on() -> None:
    line = b'{"type":"NEWS","object":{"metadata":{"resourceVersion":"7"}}}'
    assert parse_event(line) == WatchEvent("NEWS", {"metadata": {"resourceVersion": "7"}})


def test_an_error_event_is_the_error_of_its_code() -> None:
    with pytest.raises(ResourceExpired):
        parse_event(b'{"type":"ERROR","object":{"code":410,"reason":"Expired"}}')
    with pytest.raises(ClusterUnavailable):
        parse_event(b'{"type":"ERROR","object":{"message":"no code"}}')
