import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telorunner.kube import channels


@given(st.binary(max_size=200_000))
def test_input_arrives_whole_in_bounded_frames_of_channel_0(data: bytes) -> None:
    frames = list(channels.encode_input(data))
    assert all(frame[0] == 0 and 2 <= len(frame) <= 32 * 1024 + 1 for frame in frames)
    assert b"".join(frame[1:] for frame in frames) == data


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b"", None),
        (b"\x01", None),
        (b"\x02", None),
        (b"\x01a", (1, b"a")),
        (b"\x02\x00\xff", (2, b"\x00\xff")),
        (b"\xff\x00", (255, b"\x00")),
    ],
)
def test_frames_without_payload_are_nothing(
    frame: bytes, expected: tuple[int, bytes] | None
) -> None:
    assert channels.decode(frame) == expected


@pytest.mark.parametrize(
    ("columns", "rows", "expected"),
    [(80, 24, (80, 24)), (0, -1, (1, 1)), (10**9, 65_536, (65_535, 65_535))],
)
def test_a_resize_is_a_json_object_on_channel_4(
    columns: int, rows: int, expected: tuple[int, int]
) -> None:
    frame = channels.encode_resize(columns, rows)
    assert frame[0] == 4
    assert orjson.loads(frame[1:]) == {"Width": expected[0], "Height": expected[1]}


@pytest.mark.parametrize(
    ("payload", "is_success"),
    [
        (b'{"metadata":{},"status":"Success"}', True),
        (b'{"status":"Failure","message":"gone"}', False),
        (b'{"status":"Failure"}', False),
        (b'{"message":null,"details":{"causes":null}}', False),
        (b"[]", False),
        (b"error: \xff", False),
    ],
)
def test_the_status_of_the_end_may_have_any_shape(payload: bytes, is_success: bool) -> None:
    assert channels.decode_status(payload).is_success is is_success
