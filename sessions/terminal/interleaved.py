"""A log joined to two channels of an attach; pure.

The log has the lines of both channels in the order in which they were written and does not say
which is whose; the attach has each channel's own order and little of the other. What the log has
more is therefore searched as lines that are no mixture of what the channels brought.
"""

from sessions.terminal.backfill import Front, whole_lines, without_cr

# A hostile mixture could cost time without end: it is given up then, and told as a gap.
MAX_STEPS = 500_000
MAX_BRANCHES = 32


def join_channels(
    log: bytes, out: bytes, err: bytes, *, settled_out: int, settled_err: int
) -> Front:
    """Return the bytes to put in front of both channels' so that nothing is lost or doubled.

    The first `settled_out` and `settled_err` bytes had come when the log was asked for: their
    whole lines are in it.
    """
    lines, channels = _lines(log), (_lines(out), _lines(err))
    seen = len(channels[0]) + len(channels[1])
    least = sum(
        len(_lines(data[: whole_lines(data[:settled])]))
        for data, settled in ((out, settled_out), (err, settled_err))
    )
    # Taken where no mixture is found: it doubles nothing.
    first = max(0, len(lines) - seen)
    found: list[int] = []
    budget = MAX_STEPS
    for start in range(first, len(lines) - least + 1):
        steps = _mixture_steps(lines, start, channels)
        budget -= abs(steps) + 1
        if budget <= 0:
            found = []
            break
        if steps >= 0:
            found.append(start)
            if len(found) > 1:
                break
    end = found[0] if found else first
    front = log if end == len(lines) else b"".join(x + b"\n" for x in log.split(b"\n")[:end])
    return Front(front, is_sure=len(found) == 1)


def _mixture_steps(
    lines: list[bytes], start: int, channels: tuple[list[bytes], list[bytes]]
) -> int:
    """Return how much was compared; less than 0: the lines are no mixture of the channels'."""
    out, err = channels
    taken, steps = {0}, 0
    for count in range(len(lines) - start):
        line = lines[start + count]
        steps += len(taken)
        taken = {i + 1 for i in taken if i < len(out) and out[i] == line} | {
            i for i in taken if count - i < len(err) and err[count - i] == line
        }
        if not taken or len(taken) > MAX_BRANCHES:
            return -steps
    return steps


def _lines(data: bytes) -> list[bytes]:
    """Return the lines as both sides have them, the last one perhaps without its end."""
    lines = without_cr(data).split(b"\n")
    return lines if lines[-1] else lines[:-1]
