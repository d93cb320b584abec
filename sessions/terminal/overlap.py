"""Where one text stands in another, in linear time for any bytes; pure.

Output may be one byte five million times over, and a search that is only mostly fast would hold
every other session up.
"""


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


def next_overlap(text: bytes, pattern: bytes, length: int) -> int:
    """Return the longest such end that is shorter than `length`."""
    return overlap(text[len(text) - length + 1 :], pattern) if length > 0 else 0


def find_last(text: bytes, pattern: bytes) -> int:
    """Return the last place of `pattern`, -1 for none or nothing to look for.

    Searched backwards as a forward search: that one is linear for any bytes, `rfind` is not.
    """
    if not pattern or len(pattern) > len(text):
        return -1
    at = text[::-1].find(pattern[::-1])
    return -1 if at < 0 else len(text) - at - len(pattern)


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
