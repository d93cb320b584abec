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
    whole lines are in it.
    """
    channels = (_lines(out), _lines(err))
    seen = len(channels[0]) + len(channels[1])
    lines, ends = _last_lines(log, seen)
    least = sum(
        len(_lines(data[: whole_lines(data[:settled])]))
        for data, settled in ((out, settled_out), (err, settled_err))
    )
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
    return Front(log[: ends[found[0] if found else 0]], is_sure=len(found) == 1)


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


def _lines(data: bytes) -> list[bytes]:
    """Return the lines as both sides have them, the last one perhaps without its end."""
    lines = without_cr(data).split(b"\n")
    return lines if lines[-1] else lines[:-1]
