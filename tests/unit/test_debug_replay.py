"""Replays of a debug server's ring, against a model: each frame comes through once and in order."""

import time
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.debug_relay.replay import ReplayFilter

RING = 5


@dataclass
class Kernel:
    """A kernel's ring, one subscriber at most, and everything that was let through."""

    filter: ReplayFilter = field(default_factory=lambda: ReplayFilter(RING))
    ring: deque[bytes] = field(default_factory=lambda: deque(maxlen=RING))
    through: list[bytes] = field(default_factory=list)
    expected: list[bytes] = field(default_factory=list)
    unseen: deque[bytes] = field(default_factory=lambda: deque(maxlen=RING))
    is_connected: bool = False

    def emit(self, frame: bytes) -> None:
        self.ring.append(frame)
        if self.is_connected:
            self.expected.append(frame)
            self.through += self.filter.take(frame)
        else:
            # The oldest of these is lost when the ring moves on.
            self.unseen.append(frame)

    def connect(self, cut_after: int | None = None) -> None:
        """Connect and take the replay, or so many frames of it until the connection breaks."""
        self.filter.begin()
        replay = list(self.ring)
        if cut_after is not None and cut_after < len(replay):
            new = len(replay) - len(self.unseen)
            for number, frame in enumerate(replay[:cut_after]):
                self.through += self.filter.take(frame)
                if number >= new:
                    self.expected.append(self.unseen.popleft())
            return
        for frame in replay:
            self.through += self.filter.take(frame)
        self.expected += self.unseen
        self.unseen.clear()
        self.is_connected = True

    def disconnect(self) -> None:
        self.is_connected = False

    def restart(self) -> None:
        self.disconnect()
        self.ring.clear()
        self.unseen.clear()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("emit"), st.integers(1, 2 * RING)),
        st.tuples(st.just("reconnect"), st.none() | st.integers(0, RING)),
        st.tuples(st.just("away"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS)
def test_frames_that_differ_come_once_and_in_order(steps: list[tuple[str, int | None]]) -> None:
    kernel, number = Kernel(), 0
    for step, value in steps:
        if step == "emit":
            for _ in range(value or 0):
                number += 1
                kernel.emit(b"%d" % number)
        elif step == "reconnect":
            kernel.disconnect()
            kernel.connect(value)
        elif step == "away":
            kernel.disconnect()
        else:
            kernel.restart()
    kernel.disconnect()
    kernel.connect()
    assert kernel.through == kernel.expected


@given(st.lists(st.sampled_from(["emit a", "emit b", "connect", "away"]), max_size=40))
def test_equal_frames_come_as_often_as_they_were_sent(steps: list[str]) -> None:
    """While the ring holds everything there is no doubt which frame is which."""
    kernel = Kernel(ReplayFilter(1000), deque(maxlen=1000), unseen=deque(maxlen=1000))
    for step in steps:
        if step.startswith("emit"):
            kernel.emit(step[-1:].encode())
        else:
            kernel.disconnect()
            if step == "connect":
                kernel.connect()
    kernel.disconnect()
    kernel.connect()
    kernel.through += kernel.filter.settle()
    assert kernel.through == kernel.expected


def feed(known: bytes, came: bytes, *, ring: int = RING, held: int = 1000) -> ReplayFilter:
    replay = ReplayFilter(ring, held)
    replay.begin()
    for frame in known:
        assert list(replay.take(bytes((frame,)))) == [bytes((frame,))]
    replay.begin()
    replay.result = b"".join(  # type: ignore[attr-defined]
        new for frame in came for new in replay.take(bytes((frame,)))
    )
    return replay


@pytest.mark.parametrize(
    ("known", "came", "new"),
    [
        (b"", b"abc", b"abc"),
        (b"abc", b"abc", b""),
        (b"abc", b"abcd", b"d"),
        (b"abc", b"bcd", b"d"),
        (b"abc", b"xyz", b"xyz"),
        (b"aaa", b"aaab", b"b"),
        (b"ab", b"abab", b"ab"),
        # The longest end: two equal frames are one each, as far as anybody can tell.
        (b"xaa", b"aab", b"b"),
        # The second place is the right one.
        (b"abcab", b"abd", b"d"),
        (b"aabaac", b"aacd", b"d"),
        # This side was too slow for c and d; they cannot be put in any more.
        (b"abef", b"bcdefg", b"g"),
    ],
)
def test_what_the_end_of_the_known_begins_with_is_a_replay(
    known: bytes, came: bytes, new: bytes
) -> None:
    replay = feed(known, came, ring=10)
    assert replay.result == new  # type: ignore[attr-defined]
    assert replay.is_settled


def test_a_kernel_that_began_anew_with_equal_frames_is_believed_when_it_falls_silent() -> None:
    replay = feed(b"ISRxyz", b"ISR", ring=10)
    assert replay.result == b""  # type: ignore[attr-defined]
    assert not replay.is_settled
    assert b"".join(replay.settle()) == b"ISR"
    assert list(replay.take(b"x")) == [b"x"]


def test_a_kernel_that_began_anew_and_goes_on_otherwise_is_believed_then() -> None:
    replay = feed(b"ISRxyz", b"ISRv", ring=10)
    assert b"".join(replay.settle()) == b"ISRv"


def test_after_a_second_start_only_the_second_ring_is_expected() -> None:
    replay = feed(b"ISRx", b"ISR", ring=10)
    replay.settle()
    replay.begin()
    assert [*replay.take(b"I"), *replay.take(b"S"), *replay.take(b"R")] == []
    assert replay.is_settled
    assert list(replay.take(b"y")) == [b"y"]


def test_what_is_longer_than_any_ring_is_no_replay() -> None:
    replay = feed(b"abc", b"a" + b"x" * RING)
    assert replay.result == b"a" + b"x" * RING  # type: ignore[attr-defined]


def test_of_a_long_replay_only_digests_are_kept() -> None:
    replay = ReplayFilter(100, 50)
    replay.begin()
    frames = [b"%010d" % number for number in range(100)]
    for frame in frames:
        replay.take(frame)
    replay.begin()
    for frame in frames[:-1]:
        assert not replay.take(frame)
        assert sum(map(len, replay._held)) <= 50
    assert not replay.take(frames[-1])
    assert not replay._held
    assert replay.take(b"new") == (b"new",)


def test_memory_is_bounded_however_many_frames_come() -> None:
    replay = ReplayFilter(100)
    replay.begin()
    for number in range(10_000):
        replay.take(b"%d" % number)
    assert len(replay._seen) <= 200


@pytest.mark.parametrize("known", [b"a" * 5000, b"ab" * 2500, b"a" * 4999 + b"b"])
def test_frames_made_to_be_alike_cost_little(known: bytes) -> None:
    """Compared place by place these would take millions of steps, seconds of the loop's time."""
    began = time.process_time()
    replay = feed(known, b"a" * 4998 + b"c" + b"ab" * 100, ring=5000, held=10**6)
    replay.settle()
    assert time.process_time() - began < 1.0
