"""A container's log joined to what an attach brought; pure.

Both tell the same bytes with differences: the log keeps no CR before an LF, holds an unfinished
last line back and may begin in the middle; an attach begins at some moment and may be a little
behind the log or before it. So they are compared without any CR, and laid over each other where
they agree over the longest stretch. Output that repeats itself agrees in several places: then
counts decide, as far as they are known, and what only looks right is called unsure.

What was printed before the attach on a line that was not ended by then is in no log yet, so it is
not told: that is the one loss that nobody can know of.
"""

from dataclasses import dataclass

from sessions.terminal.overlap import find_last, next_overlap, overlap
from telorunner.kube.logs import ContainerLog

# Bytes that agree by more than chance (a line end, a prompt) where nothing else tells.
SURE_BYTES = 64

_CR = 13


@dataclass(frozen=True)
class Front:
    """What to put in front of what an attach brought; unsure: something may be lost behind it."""

    data: bytes
    is_sure: bool = True


@dataclass(frozen=True)
class Published:
    """What clients got so far: its end, and how much a container has written up to there.

    `written` counts no CR; None: not known. `is_mixed`: the tail's lines may stand in another
    order than the log's, as two channels brought them.
    """

    tail: bytes
    written: int | None = None
    is_mixed: bool = False


def join(
    rest: Front, seen: bytes, *, is_tty: bool, settled: int | None = None, is_behind: bool = False
) -> Front:
    """Return the bytes to put in front of `seen` so that nothing is lost or doubled.

    `rest` is what the log has; it was asked for when the first `settled` bytes (None: all) had been
    seen: their whole lines are in it. It was read before `seen` was complete, so that it should end
    within `seen`; a few bytes that stand elsewhere in the log too (a prompt) mean nothing then.
    With `is_behind` the attach was not read to its end, and the log has more. For a terminal the
    result has CRLF line ends; `is_tty` False leaves the log's own.

    A log that was asked for before anything was seen may end before the attach began: it must agree
    with what came then.
    """
    log = rest.data
    plain_log, plain_seen = without_cr(log), without_cr(seen)
    least = whole_lines(without_cr(seen[:settled]))
    at = -1
    if is_behind:
        at = plain_log.find(plain_seen)
    elif len(plain_seen) >= SURE_BYTES:
        at = find_last(plain_log, plain_seen)
    if at < 0:
        at = len(plain_log) - overlap(plain_log, plain_seen)
        is_only = True
    else:
        is_only = plain_log.find(plain_seen) == find_last(plain_log, plain_seen)
    common = min(len(plain_log) - at, len(plain_seen))
    if is_behind and common < max(1, least):
        # All that is seen must be in the log; it was rotated, and begins somewhere behind.
        return Front(b"", is_sure=False)
    # What agrees over few bytes, or less than the log must have of it, may do so by chance.
    is_short = common < min(SURE_BYTES, whole_lines(plain_seen))
    may_be_chance = not rest.is_sure or common < least or is_short or not common
    if may_be_chance and common < len(plain_log) and _begins_inside(rest, plain_log, plain_seen):
        return Front(b"", is_sure=not rest.is_sure)
    # Where nothing of both agrees, there is no other place.
    is_only = is_only and (not common or next_overlap(plain_log, plain_seen, common) < least)
    front = log[: raw_index(log, at, with_cr=not seen.startswith(b"\r"))]
    if is_tty:
        front = _with_crlf(front)
        if front and common and seen.startswith(b"\n"):
            # The CR of a line end that the log does not have, and the attach began behind.
            front += b"\r"
    is_met = bool(common or settled != 0 or not plain_seen)
    return Front(front, is_sure=is_only and is_met and common >= least)


def _begins_inside(rest: Front, plain_log: bytes, plain_seen: bytes) -> bool:
    """Tell whether a log that lost its front begins within what is seen."""
    is_likely = bool(plain_log) and (not rest.is_sure or len(plain_log) >= SURE_BYTES)
    return is_likely and plain_log in plain_seen


def missing(log: ContainerLog, published: Published) -> Front:
    """Return what the log holds after the end of what is published.

    The log may end inside it (a line held back, or a little behind), or begin inside it (rotated,
    or cut at a limit). Unsure: there may be more before it, or it may have been told already.
    """
    plain_log, tail = without_cr(log.data), without_cr(published.tail)
    if not tail:
        return Front(log.data, is_sure=not (log.skipped_bytes or log.is_part))
    if published.written is not None and not log.is_part:
        rest = _missing_by_count(log, plain_log, tail, published.written - log.skipped_bytes)
        if rest is None and published.is_mixed:
            rest = _missing_by_lines(log, plain_log, tail, published.written - log.skipped_bytes)
        if rest is not None:
            return rest
    return _missing_by_content(log.data, plain_log, tail)


def _missing_by_count(log: ContainerLog, plain: bytes, tail: bytes, end: int) -> Front | None:
    """Tell by where the published bytes end in the log; None: it does not begin where it should."""
    if end < 0:
        # More was cut off than was ever told.
        return Front(log.data, is_sure=False)
    if end <= len(plain):
        # The count of a log that was cut holds if it was not rotated too.
        is_sure = not log.skipped_bytes or min(end, len(tail)) >= SURE_BYTES
        return Front(_after(log.data, end), is_sure) if _end_alike(plain[:end], tail) else None
    # A last line that the log holds back.
    told = len(tail) - (end - len(plain))
    if told < 0 or b"\n" in tail[told:] or not _end_alike(plain, tail[:told]):
        return None
    return Front(b"")


def _missing_by_lines(log: ContainerLog, plain: bytes, tail: bytes, end: int) -> Front | None:
    """Tell by the count alone, where the same lines came in another order."""
    if not 0 < end <= len(plain):
        return None
    told = plain[max(0, end - len(tail)) : end].split(b"\n")
    return Front(_after(log.data, end), is_sure=sorted(told) == sorted(tail[-end:].split(b"\n")))


def _missing_by_content(log: bytes, plain: bytes, tail: bytes) -> Front:
    """Search the published end in the log; of several places the last one doubles nothing."""
    at = find_last(plain, tail)
    if at >= 0:
        return Front(_after(log, at + len(tail)), is_sure=plain.find(tail) == at)
    inside = find_last(tail, plain)
    if inside >= 0:
        end, is_only = inside + len(plain), tail.find(plain) == inside
    else:
        end = overlap(plain, tail)
        is_only = next_overlap(plain, tail, end) < SURE_BYTES
    if b"\n" not in tail[end:] and (end or not plain):
        return Front(b"", is_sure=is_only and (end == len(plain) or end >= SURE_BYTES))
    if end >= SURE_BYTES:
        # The log is a little behind.
        return Front(b"", is_sure=is_only)
    end = overlap(tail, plain)
    is_only = next_overlap(tail, plain, end) < SURE_BYTES
    return Front(_after(log, end), is_sure=end >= SURE_BYTES and is_only)


def _end_alike(one: bytes, other: bytes) -> bool:
    size = min(len(one), len(other))
    return one[len(one) - size :] == other[len(other) - size :]


def without_cr(data: bytes) -> bytes:
    """Return the bytes that log and attach have in common."""
    return data.replace(b"\r", b"")


def whole_lines(data: bytes) -> int:
    """Return the length of the lines that are ended."""
    return data.rfind(b"\n") + 1


def _with_crlf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _after(log: bytes, plain_index: int) -> bytes:
    return log[raw_index(log, plain_index, with_cr=False) :]


def raw_index(data: bytes, plain_index: int, *, with_cr: bool) -> int:
    """Return where the first `plain_index` bytes that are no CR end; with the CRs behind or not."""
    # The end of one byte more, less that byte, is the end with the CRs behind.
    wanted = plain_index + with_cr
    low, high, plain = 0, len(data), 0
    if high - data.count(b"\r") < wanted:
        return high
    while low < high:
        middle = (low + high) // 2
        more = middle - low - data.count(b"\r", low, middle)
        if plain + more >= wanted:
            high = middle
        else:
            plain += more + (data[middle] != _CR)
            low = middle + 1
            if plain >= wanted:
                high = low
    return low - with_cr
