"""A log joined to two channels of an attach; pure.

The log has the lines of both channels in the order in which they were written and does not say
which is whose; the attach has each channel's own order and little of the other. What the log has
more is therefore searched as lines that are no mixture of what the channels brought.
"""

from itertools import accumulate

from sessions.terminal.backfill import Front, whole_lines, without_cr

# A hostile mixture could cost time without end: it is given up then, after about a fifth of
# a second, for the loop does not turn meanwhile, and told as a gap.
MAX_STEPS = 200_000
MAX_BRANCHES = 32


def join_channels(
    log: bytes, out: bytes, err: bytes, *, settled_out: int, settled_err: int
) -> Front:
    """Return the bytes to put in front of both channels' so that nothing is lost or doubled.

    The first `settled_out` and `settled_err` bytes had come when the log was asked for: their
    whole lines are in it. Where none had, the log may end before the attach began, and must agree
    with what came then.
    """
    channels = (_lines(out), _lines(err))
    seen = len(channels[0]) + len(channels[1])
    lines, ends = _last_lines(log, seen)
    least = _settled_lines(out, settled_out) + _settled_lines(err, settled_err)
    found: list[int] = []
    budget = MAX_STEPS
    for start in range(len(lines) - least + 1):
        steps = _mixture_steps(lines, start, channels, budget)
        budget -= abs(steps) + 1
        if budget <= 0:
            found = []
            break
        if steps >= 0:
            found.append(start)
            if len(found) > 1:
                break
    # Where no mixture is found, the first place is taken: it doubles nothing.
    at = found[0] if found else 0
    is_met = bool(at < len(lines) or settled_out or settled_err or not seen)
    return Front(log[: ends[at]], is_sure=len(found) == 1 and is_met)


def join_channels_behind(
    log: bytes, out: bytes, err: bytes, *, settled_out: int, settled_err: int
) -> Front:
    """Do the same where neither channel was read to its end, and the log has more than they.

    What follows the end of a channel in the log may be its own, so that only the beginning of the
    channels' lines tells where they stand.
    """
    out, err = (data[: whole_lines(data)] for data in (out, err))
    channels = (_lines(out), _lines(err))
    # More lines than steps are not looked at, and so not taken apart.
    lines = [without_cr(line) for line in log.split(b"\n", MAX_STEPS)[:MAX_STEPS]]
    least = _settled_lines(out, settled_out) + _settled_lines(err, settled_err)
    found: list[int] = []
    budget = MAX_STEPS
    for start in range(len(lines)):
        steps = _beginning_steps(lines, start, channels, least, budget)
        budget -= abs(steps) + 1
        if budget <= 0:
            break
        if steps >= 0:
            found.append(start)
            if len(found) > 1:
                break
    if not found:
        # Any front might be doubled by what is held.
        return Front(b"", is_sure=False)
    front = sum(map(len, log.split(b"\n", found[0])[: found[0]])) + found[0]
    return Front(log[:front], is_sure=len(found) == 1 and budget > 0)


def _beginning_steps(
    lines: list[bytes],
    start: int,
    channels: tuple[list[bytes], list[bytes]],
    least: int,
    budget: int,
) -> int:
    """Return how much was compared; less than 0: no mixture of the channels begins at `start`."""
    out, err = channels
    taken, steps = {(0, 0)}, 0
    for number in range(start, len(lines)):
        line, following = lines[number], set()
        steps += len(taken)
        if steps >= budget:
            return steps
        for i, j in taken:
            fits_out, fits_err = out[i : i + 1] == [line], err[j : j + 1] == [line]
            if fits_out:
                following.add((i + 1, j))
            if fits_err:
                following.add((i, j + 1))
            if not (fits_out or fits_err) and (i == len(out) or j == len(err)):
                following.add((i, j))
        if (len(out), len(err)) in following:
            return steps
        if not following or len(following) > MAX_BRANCHES:
            return -steps
        taken = following
    return steps if max(i + j for i, j in taken) >= max(1, least) else -steps


def _mixture_steps(
    lines: list[bytes], start: int, channels: tuple[list[bytes], list[bytes]], budget: int
) -> int:
    """Return how much was compared; less than 0: from `start` on the lines are no mixture.

    Where it is no less than the budget, the rest was not looked at.
    """
    out, err = channels
    taken, steps = {0}, 0
    for count in range(len(lines) - start):
        line = lines[start + count]
        steps += len(taken)
        if steps >= budget:
            break
        taken = {i + 1 for i in taken if i < len(out) and out[i] == line} | {
            i for i in taken if count - i < len(err) and err[count - i] == line
        }
        if not taken or len(taken) > MAX_BRANCHES:
            return -steps
    return steps


def _last_lines(log: bytes, count: int) -> tuple[list[bytes], list[int]]:
    """Return so many last lines (or all), and where in the log each begins and the last one ends.

    A log may have millions of lines: only these are taken apart.
    """
    *ended, rest = log.rsplit(b"\n", count + 1)
    raw = [line + b"\n" for line in ended]
    if without_cr(rest):
        raw.append(rest)
    raw = raw[len(raw) - min(count, len(raw)) :]
    begin = len(log) - sum(map(len, raw)) - (0 if without_cr(rest) else len(rest))
    ends = [*accumulate(map(len, raw), initial=begin)]
    ends[-1] = len(log)
    return [without_cr(line).removesuffix(b"\n") for line in raw], ends


def _settled_lines(data: bytes, settled: int) -> int:
    return len(_lines(data[: whole_lines(data[:settled])]))


def _lines(data: bytes) -> list[bytes]:
    """Return the lines as both sides have them, the last one perhaps without its end."""
    lines = without_cr(data).split(b"\n")
    return lines if lines[-1] else lines[:-1]
