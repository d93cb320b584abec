"""What event streams and terminal sockets deliver beside a bare application on the same server."""

from bench.child import Child
from bench.figures import NO_TARGET, BrokenMeasurement, Figure, at_least, median_ratio
from bench.processes import target_and_readers
from bench.scale import Scale

TEXT_BYTES = 150
MARK, GAP = "id: ", "event: gap"
# The source stays so far ahead of what was sent: half of the ring, so that nothing is evicted.
AHEAD_BYTES = 2_500_000
# A chunk with its stream byte and its number.
FRAME_BYTES = 65_536 + 5

Seconds = dict[str, list[float]]


def measure(scale: Scale) -> list[Figure]:
    """Measure both, each against the product's server and Daphne's own."""
    with target_and_readers() as (target, readers, ports):
        events: Seconds = {"product": [], "bare": [], "plain": [], "in step": []}
        pieces: list[int] = []
        for _ in range(scale.rounds):
            pieces.append(_events(target, readers, ports, scale, events))
        output: Seconds = {"product": [], "bare": [], "plain": []}
        for _ in range(scale.rounds):
            _output(target, readers, ports, scale, output)
    delivered = scale.readers * scale.events
    per_second = delivered / min(events["product"])
    detail = (
        f"{per_second:,.0f} events/s at best; {min(pieces)} to {max(pieces)} pieces a reader, "
        "published one a turn"
    )
    rate = scale.output_bytes / min(output["product"]) / 1e6
    return [
        Figure(
            f"SSE: {scale.readers} readers, {scale.events} events / bare",
            median_ratio(events["bare"], events["product"]),
            at_least(0.6),
            detail,
        ),
        Figure(
            "SSE: the same / plain Daphne",
            median_ratio(events["plain"], events["product"]),
            NO_TARGET,
            "the same pieces",
        ),
        Figure(
            "SSE: the same / bare that lets go of the loop after a piece",
            median_ratio(events["in step"], events["product"]),
            NO_TARGET,
            "as anything does that waits for events",
        ),
        Figure(
            f"/io: {scale.output_bytes // 1_000_000} MB in process, one reader / bare",
            median_ratio(output["bare"], output["product"]),
            at_least(0.5),
            f"{rate:,.0f} MB/s at best; frames of 64 KiB",
        ),
        Figure(
            "/io: the same / plain Daphne",
            median_ratio(output["plain"], output["product"]),
            NO_TARGET,
            "the same frames, without flow control: all of it is queued at once",
        ),
    ]


def _events(
    target: Child, readers: Child, ports: dict[str, int], scale: Scale, seconds: Seconds
) -> int:
    """Measure one round of everything; return in how many pieces the product sent."""
    session = target.ask("session")
    target.ask("note_pieces")
    path = f"/v1/sessions/{session}/events"
    count = scale.readers
    readers.ask("open", group="all", port=ports["product"], path=path, count=count, kind="http")
    target.ask("wait_readers", session_id=session, count=count)
    readers.tell("drain", group="all", mark=MARK, gap=GAP)
    began_at = target.ask(
        "flood_events", session_id=session, count=scale.events, text_bytes=TEXT_BYTES
    )
    seconds["product"].append(_all_of(readers.answer(), scale) - began_at)
    readers.ask("close", group="all")
    target.ask("forget", session_id=session)
    sizes: list[int] = []
    for name, port, in_step in (
        ("bare", "bare", False),
        ("plain", "plain", False),
        ("in step", "bare", True),
    ):
        sizes = target.ask("load_noted", in_step=in_step)
        readers.ask("open", group="all", port=ports[port], path="/", count=count, kind="http")
        readers.tell("drain", group="all", mark=MARK, gap=GAP)
        began_at = target.ask("go", count=count)
        seconds[name].append(_all_of(readers.answer(), scale) - began_at)
        readers.ask("close", group="all")
    return len(sizes)


def _all_of(drained: dict[str, object], scale: Scale) -> float:
    """Return when the last reader was done, having seen that each has had every event."""
    if drained["marks"] != [scale.events] * scale.readers or drained["gaps"]:
        raise BrokenMeasurement(f"events are missing, {drained['gaps']} gaps")
    ended_at = drained["ended_at"]
    assert isinstance(ended_at, float)  # noqa: S101 - the readers' own answer
    return ended_at


def _output(
    target: Child, readers: Child, ports: dict[str, int], scale: Scale, seconds: Seconds
) -> None:
    session = target.ask("session")
    path = f"/v1/sessions/{session}/io"
    readers.ask("open", group="one", port=ports["product"], path=path, count=1, kind="ws")
    target.ask("wait_readers", session_id=session, count=1)
    readers.tell("drain", group="one", until_bytes=scale.output_bytes)
    began_at = target.ask(
        "flood_output",
        session_id=session,
        total_bytes=scale.output_bytes,
        ahead_bytes=AHEAD_BYTES,
    )
    seconds["product"].append(_whole(readers.answer(), scale) - began_at)
    readers.ask("close", group="one")
    target.ask("forget", session_id=session)
    for name in ("bare", "plain"):
        target.ask(
            "load_frames", total_bytes=scale.output_bytes + FRAME_BYTES, frame_bytes=FRAME_BYTES
        )
        readers.ask("open", group="one", port=ports[name], path="/", count=1, kind="ws")
        readers.tell("drain", group="one", until_bytes=scale.output_bytes)
        began_at = target.ask("go", count=1)
        seconds[name].append(_whole(readers.answer(), scale) - began_at)
        readers.ask("close", group="one")


def _whole(drained: dict[str, object], scale: Scale) -> float:
    """Return when a reader was done, having seen that it got all of it."""
    ended_at, received = drained["ended_at"], drained["bytes"]
    assert isinstance(ended_at, float)  # noqa: S101 - the readers' own answer
    assert isinstance(received, list)  # noqa: S101 - the readers' own answer
    if received[0] < scale.output_bytes:
        raise BrokenMeasurement(f"output is missing: {received[0]:,} bytes came")
    return ended_at
