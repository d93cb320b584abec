"""What clients that do not keep up cost the process, and the clients that do."""

from bench.child import Child
from bench.figures import Figure, at_least, at_most, median_ratio
from bench.processes import target_and_readers
from bench.scale import Scale
from bench.streams import AHEAD_BYTES

RING_BYTES = 5_000_000
STALLED = 10
# Far more than a ring and all buffers of the kernels on the way.
FLOOD_BYTES = 40_000_000
# A client that takes little at a time.
RECEIVE_BYTES = 16_384
TEXT_BYTES = 1_000


def measure(scale: Scale) -> list[Figure]:
    """Measure slow event streams, and stalled terminals beside one that keeps up."""
    return [*_slow_streams(scale), *_stalled_terminals(scale)]


def _slow_streams(scale: Scale) -> list[Figure]:
    with target_and_readers() as (target, readers, ports):
        # Once without readers: what the ring itself costs is not theirs.
        events = FLOOD_BYTES // TEXT_BYTES // 4 if scale.is_whole else scale.events
        grown = []
        for count in (0, scale.readers):
            session = target.ask("session")
            path = f"/v1/sessions/{session}/events"
            if count:
                readers.ask(
                    "open",
                    group="slow",
                    port=ports["product"],
                    path=path,
                    count=count,
                    kind="http",
                    receive_bytes=RECEIVE_BYTES,
                )
                target.ask("wait_readers", session_id=session, count=count)
            before = target.resident_bytes()
            target.ask(
                "flood_events", session_id=session, count=events, text_bytes=TEXT_BYTES, end=False
            )
            grown.append(target.resident_bytes() - before)
    return [
        Figure(
            f"memory: {scale.readers} readers that read nothing, in rings",
            max(0, grown[1] - grown[0]) / RING_BYTES,
            at_most(1),
            f"{grown[1] / 1e6:.1f} MB more while {events * TEXT_BYTES / 1e6:.0f} MB of events are "
            f"published; {grown[0] / 1e6:.1f} MB without readers",
        )
    ]


def _stalled_terminals(scale: Scale) -> list[Figure]:
    alone: list[float] = []
    beside: list[float] = []
    with target_and_readers() as (target, readers, ports):
        _seconds(target, readers, ports, scale)
        grown = 0
        for _ in range(scale.rounds):
            alone.append(_seconds(target, readers, ports, scale))
            before = target.resident_bytes()
            beside.append(_seconds(target, readers, ports, scale, stalled=STALLED))
            grown = max(grown, target.resident_bytes() - before)
            readers.ask("close", group="stalled")
    return [
        Figure(
            f"memory: {STALLED} stalled terminals",
            grown / 1e6,
            at_most(RING_BYTES / 1e6 + 20),
            "one ring and 20 MB are allowed",
            unit=" MB",
        ),
        Figure(
            f"/io: one reader beside {STALLED} stalled ones / alone",
            median_ratio(alone, beside),
            at_least(0.9),
            f"{scale.output_bytes // 1_000_000} MB each",
        ),
    ]


def _seconds(
    target: Child, readers: Child, ports: dict[str, int], scale: Scale, *, stalled: int = 0
) -> float:
    """Return how long one reader takes; the stalled ones are left connected."""
    session = target.ask("session")
    where = {"port": ports["product"], "path": f"/v1/sessions/{session}/io", "kind": "ws"}
    if stalled:
        readers.ask("open", group="stalled", count=stalled, receive_bytes=RECEIVE_BYTES, **where)
    readers.ask("open", group="one", count=1, **where)
    target.ask("wait_readers", session_id=session, count=stalled + 1)
    readers.tell("drain", group="one", until_bytes=scale.output_bytes)
    began_at: float = target.ask(
        "flood_output",
        session_id=session,
        total_bytes=scale.output_bytes,
        ahead_bytes=AHEAD_BYTES,
        end=False,
    )
    ended_at: float = readers.answer()["ended_at"]
    readers.ask("close", group="one")
    return ended_at - began_at
