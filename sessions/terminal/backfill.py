"""A container's log joined to what an attach brought; pure.

Both tell the same bytes with differences: the log keeps no CR before an LF, holds an unfinished
last line back and may begin in the middle; an attach begins at some moment and may be a little
behind the log or before it. So they are compared without any CR, and laid over each other where
they agree over the longest stretch.
"""

# Bytes that agree by more than chance (a line end, a prompt) where nothing else tells.
SURE_BYTES = 64

_CR = 13


def join(log: bytes, seen: bytes, *, is_tty: bool, is_behind: bool = False) -> bytes:
    """Return the bytes to put in front of `seen` so that nothing is lost or doubled.

    `log` was read before `seen` was complete, so that it should end within `seen`; a few bytes that
    stand elsewhere in the log too (a prompt) mean nothing then. With `is_behind` the attach was not
    read to its end, and the log has more. For a terminal the result has CRLF line ends; `is_tty`
    False leaves the log's own.
    """
    plain_log, plain_seen = _without_cr(log), _without_cr(seen)
    at = -1
    if is_behind:
        at = plain_log.find(plain_seen)
    elif len(plain_seen) >= SURE_BYTES:
        at = _find_last(plain_log, plain_seen)
    if at < 0:
        at = len(plain_log) - overlap(plain_log, plain_seen)
    front = log[: _raw_index(log, at, with_cr=not seen.startswith(b"\r"))]
    if not is_tty:
        return front
    front = _with_crlf(front)
    # The CR of a line end that the log does not have, and the attach began behind.
    return front + b"\r" if front and at < len(plain_log) and seen.startswith(b"\n") else front


def missing(log: bytes, published: bytes, *, written: int | None = None) -> bytes | None:
    """Return what the log holds after the end of `published`; None: they cannot be matched.

    `published` is the end of what clients got; `written` is how many bytes without CR the container
    has written up to there, where that is known. The log may end inside it (a line held back, or a
    little behind), or begin inside it (rotated, or cut at a limit).
    """
    plain_log, plain_published = _without_cr(log), _without_cr(published)
    if not plain_log or not plain_published:
        return log
    if written is not None and plain_log[:written].endswith(plain_published):
        # The log begins where the container did, and agrees: no search can be as sure as that.
        return log[_raw_index(log, written, with_cr=False) :]
    at = _find_last(plain_log, plain_published)
    if at >= 0:
        return log[_raw_index(log, at + len(plain_published), with_cr=False) :]
    if _ends_inside(plain_log, plain_published):
        return b""
    end = overlap(plain_published, plain_log)
    return log[_raw_index(log, end, with_cr=False) :] if end >= SURE_BYTES else None


def _ends_inside(log: bytes, published: bytes) -> bool:
    """Tell whether the log has nothing that is not published: its end lies within it."""
    inside = _find_last(published, log)
    end = inside + len(log) if inside >= 0 else overlap(log, published)
    return end >= SURE_BYTES or (end > 0 and b"\n" not in published[end:])


def overlap(text: bytes, pattern: bytes) -> int:
    """Return the length of the longest end of `text` that `pattern` begins with.

    Ends are tried longest first, by searching for the first half of what the pattern would have
    to cover. Only a periodic half occurs often in so short a stretch; then all its occurrences
    but one are ruled out together, so that the time stays about linear for any bytes.
    """
    size = min(len(text), len(pattern))
    text = text[len(text) - size :]
    at, last = 0, -1
    while at < size:
        half = (size - at + 1) // 2
        found = text.find(pattern[:half], at, size)
        if found < 0:
            # No end that is at least as long as the half can begin before this.
            at = max(at + 1, size - half + 1)
            last = -1
            continue
        if text[found:] == pattern[: size - found]:
            return size - found
        period = found - last
        is_periodic = last >= 0 and 2 * period <= half
        last = found
        at = found + 1
        if is_periodic:
            at = max(at, _next_in_run(text, pattern, found, period))
            last = -1
    return 0


def _next_in_run(text: bytes, pattern: bytes, at: int, period: int) -> int:
    """Return the next place worth a look after `at`, where pattern and text begin alike.

    Both repeat with `period` from there for a while. If the text's run ends before the text does,
    the pattern's must end at the same byte; if it lasts, the pattern's must last as long.
    """
    run_end = at + _run_length(text[at:], period)
    pattern_run = _run_length(pattern, period)
    target = run_end - pattern_run
    if run_end == len(text):
        steps = max(1, -(-(target - at) // period))
        return at + steps * period
    if target > at and (target - at) % period == 0:
        return target
    return run_end - period + 1


def _run_length(data: bytes, period: int) -> int:
    """Return how far `data` repeats itself with `period` from its beginning."""
    low, high = min(period, len(data)), len(data)
    while low < high:
        middle = (low + high + 1) // 2
        if data[period:middle] == data[: middle - period]:
            low = middle
        else:
            high = middle - 1
    return low


def _find_last(text: bytes, pattern: bytes) -> int:
    """Return the last place of `pattern`, -1 for none or nothing to look for.

    Searched backwards as a forward search: that one is linear for any bytes, `rfind` is not.
    """
    if not pattern or len(pattern) > len(text):
        return -1
    at = text[::-1].find(pattern[::-1])
    return -1 if at < 0 else len(text) - at - len(pattern)


def _without_cr(data: bytes) -> bytes:
    return data.replace(b"\r", b"")


def _with_crlf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _raw_index(data: bytes, plain_index: int, *, with_cr: bool) -> int:
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
