"""A ring keeps the newest bytes, and every reader gets each number once or is told of a gap."""

from hypothesis import given
from hypothesis import strategies as st

from sessions.log import MAX_CHUNK_BYTES
from sessions.log.ring import MIN_COUNTED_ITEMS, Place, Ring, split_output

MIB = 1_048_576


def read_all(ring: Ring, after: int = 0, max_bytes: int = MIB) -> tuple[list[int], int]:
    """Return the numbers that a reader gets and how often it is told of a gap."""
    place, numbers, gaps = ring.place(after), [], 0
    while (batch := ring.read(place, max_bytes)) is not None:
        numbers += [number for number, _ in batch.items]
        gaps += batch.has_gap
    return numbers, gaps


def test_numbers_begin_with_one_and_rise_by_one() -> None:
    ring = Ring(100)
    assert [ring.append(b"x") for _ in range(3)] == [1, 2, 3]
    assert read_all(ring) == ([1, 2, 3], 0)
    assert read_all(ring, after=2) == ([3], 0)
    assert read_all(ring, after=3) == ([], 0)


def test_one_big_chunk_does_not_exceed_the_cap() -> None:
    ring = Ring(MIB)
    for item in split_output(0, b"x" * 3 * MIB):
        ring.append(item)
    assert MIB - MAX_CHUNK_BYTES - 1 <= ring.stored_bytes <= MIB


def test_the_cap_counts_bytes_and_not_characters() -> None:
    ring = Ring(MIB)
    data = ("é" * 600_000).encode()
    items = list(split_output(0, data))
    for item in items:
        ring.append(item)
    assert sum(len(item) - 1 for item in items) == 1_200_000
    assert ring.stored_bytes <= MIB
    assert ring.floor > 0


def test_an_item_larger_than_the_cap_is_kept_as_long_as_it_is_the_newest() -> None:
    ring = Ring(10)
    ring.append(b"x" * 50)
    assert read_all(ring) == ([1], 0)
    ring.append(b"y")
    assert read_all(ring) == ([2], 1)


def test_replay_from_an_unevicted_number_has_no_gap_and_from_an_evicted_one_just_one() -> None:
    ring = Ring(3)
    for _ in range(10):
        ring.append(b"x")
    assert read_all(ring, after=7) == ([8, 9, 10], 0)
    assert read_all(ring, after=6) == ([8, 9, 10], 1)
    assert read_all(ring, after=0, max_bytes=1) == ([8, 9, 10], 1)


def test_a_number_beyond_the_newest_gets_a_gap_and_everything() -> None:
    ring = Ring(100)
    ring.append(b"x")
    assert read_all(ring, after=2) == ([1], 1)
    assert read_all(Ring(100), after=1) == ([], 1)


def test_numbers_go_on_above_the_start_behind_a_gap_for_every_earlier_cursor() -> None:
    ring = Ring(100, start=1000)
    assert [read_all(ring, after) for after in (0, 7, 1000, 1001)] == [([], 1)] * 4
    assert ring.append(b"x") == 1001
    assert [read_all(ring, after) for after in (0, 7, 1000)] == [([1001], 1)] * 3
    assert read_all(ring, after=1001) == ([], 0)


def test_a_marked_gap_comes_once_and_right_before_what_follows_it() -> None:
    ring = Ring(100)
    ring.append(b"1")
    ring.append(b"2")
    ring.mark_gap()
    ring.mark_gap()
    ring.append(b"3")
    place = ring.place(0)
    first, second = ring.read(place, MIB), ring.read(place, MIB)
    assert first is not None
    assert second is not None
    assert (first.items, first.has_gap) == ([(1, b"1"), (2, b"2")], False)
    assert (second.items, second.has_gap) == ([(3, b"3")], True)
    assert ring.read(place, MIB) is None
    assert read_all(ring, after=2) == ([3], 1)
    assert read_all(ring, after=3) == ([], 0)


def test_a_reader_that_has_everything_learns_of_a_gap_when_it_is_marked() -> None:
    ring = Ring(100)
    ring.append(b"1")
    place = ring.place(1)
    ring.mark_gap()
    batch = ring.read(place, MIB)
    assert batch is not None
    assert batch.has_gap
    assert ring.read(place, MIB) is None
    ring.append(b"2")
    batch = ring.read(place, MIB)
    assert batch is not None
    assert (batch.items, batch.has_gap) == ([(2, b"2")], False)


def test_a_batch_is_bounded_in_bytes_but_never_empty() -> None:
    ring = Ring(MIB)
    for size in (10, 10, 10, 50, 10):
        ring.append(b"x" * size)
    place = ring.place(0)
    sizes = []
    while (batch := ring.read(place, 25)) is not None:
        sizes.append([len(item) for _, item in batch.items])
    assert sizes == [[10, 10], [10], [50], [10]]


def test_a_batch_shares_the_payloads_of_the_ring() -> None:
    ring, item = Ring(MIB), b"x" * 1000
    ring.append(item)
    batch = ring.read(Place(0), MIB)
    assert batch is not None
    assert batch.items[0][1] is item


def test_a_flood_of_tiny_items_is_bounded_by_their_number() -> None:
    ring = Ring(100_000)
    for _ in range(20_000):
        ring.append(b"x")
    assert len(ring) == MIN_COUNTED_ITEMS
    assert read_all(ring, after=20_000 - MIN_COUNTED_ITEMS - 1)[1] == 1


def test_output_is_split_into_chunks_that_begin_with_the_stream() -> None:
    assert list(split_output(1, b"")) == []
    assert list(split_output(2, b"ab")) == [b"\x02ab"]
    data = bytes(range(256)) * 1000
    items = list(split_output(1, data))
    assert [len(item) - 1 for item in items] == [65_536, 65_536, 65_536, 59_392]
    assert {item[:1] for item in items} == {b"\x01"}
    assert b"".join(item[1:] for item in items) == data


@given(
    start=st.sampled_from([0, 0, 5]),
    after=st.integers(0, 12),
    steps=st.lists(st.sampled_from(["append", "append", "append", "mark", "read"]), max_size=40),
)
def test_every_number_comes_once_or_behind_a_gap(start: int, after: int, steps: list[str]) -> None:
    ring = Ring(4, start)
    place = ring.place(after)
    position = 0 if after > ring.newest else after
    owes_gap = after > ring.newest or after < start or after == start > 0
    was_told = False
    for step in [*steps, *["read"] * 6]:
        if step == "append":
            ring.append(b"x")
        elif step == "mark":
            # A second mark at the same place tells nothing new.
            owes_gap = owes_gap or place.reported_mark < ring.newest
            ring.mark_gap()
        elif (batch := ring.read(place, 2)) is not None:
            was_told = was_told or batch.has_gap
            owes_gap = owes_gap and not batch.has_gap
            for number, _ in batch.items:
                assert number == position + 1 or (was_told and number > position)
                position, was_told = number, False
    assert not owes_gap
    assert position == ring.newest or len(ring) == 0
