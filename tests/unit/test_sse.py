import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions import sse


def test_a_frame_is_exact() -> None:
    encoded = sse.encode({"type": "progress", "message": "é"})
    assert sse.frame(7, encoded) == (
        'id: 7\nevent: progress\ndata: {"type":"progress","message":"é"}\n\n'.encode()
    )


@pytest.mark.parametrize(
    "text", ["a\nb", "a\rb", "a\r\n\r\nid: 9", "\u2028\u2029\x85", "data: x", "\0", "😀", ": x"]
)
def test_no_value_can_forge_a_line(text: str) -> None:
    framed = sse.frame(1, sse.encode({"type": "x", "message": text})).decode()
    (message,) = sse.parse(framed)
    assert message.last_event_id == "1"
    assert framed.count("\n") == 4
    assert "\r" not in framed


@given(st.dictionaries(st.text(max_size=5), st.text(), max_size=3))
def test_any_event_comes_back(values: dict[str, str]) -> None:
    import json

    event = {**values, "type": "x"}
    (message,) = sse.parse(sse.frame(3, sse.encode(event)).decode())
    assert json.loads(message.data) == event


def test_parsing_follows_the_standard() -> None:
    text = (
        ": comment\n\n"
        "id: 1\nevent: a\ndata: x\ndata:y\n\n"
        "data: z\r\n\r\n"
        "id: no\0\ndata\n\n"
        "event: lost\n\n"
        "unknown: field\ndata: last\n\n"
        "data: unfinished"
    )
    assert list(sse.parse(text)) == [
        sse.Message("a", "x\ny", "1"),
        sse.Message("message", "z", "1"),
        sse.Message("message", "", "1"),
        sse.Message("message", "last", "1"),
    ]


def test_gap_and_heartbeat_have_no_id() -> None:
    assert sse.HEARTBEAT == b": heartbeat\n\n"
    assert sse.GAP == b'event: gap\ndata: {"reason":"buffer_evicted"}\n\n'
