"""What a client is told of a recorded pod: the product's judgement, step by step; pure."""

from sessions.pods import failures, progress
from sessions.spec import Status
from sessions.states import StatusKind
from tests.statuses.recorded import Recording


def verdicts(recording: Recording) -> list[Status]:
    """Return every end that a runner would have told, whichever of the steps it saw."""
    told: list[Status] = []
    own: tuple[float, Status] | None = None
    for at, event, pod in recording:
        ended = failures.disappeared(pod) if event == "DELETED" else failures.outcome(pod)
        if ended is not None:
            told.append(ended)
        own_end = failures.own_end(pod)
        if own_end is None:
            own = None
        elif own is None:
            own = (at, own_end)
        elif at - own[0] >= failures.OWN_END_SECONDS:
            told.append(own_end)
    # A recording that ends like this went on for longer than that with nothing new.
    return told if own is None else [*told, own[1]]


def sentence(recording: Recording) -> str:
    """Return what is told at the end of a recording: the verdict, the wait or the progress."""
    last = recording.pods[-1]
    if ends := verdicts(recording):
        is_exit = ends[-1].kind is StatusKind.EXITED
        return f"exited {ends[-1].code}" if is_exit else ends[-1].message or ""
    if block := failures.block(last):
        return block.message
    step = progress.step(last)
    return f"progress: {step.message}" if step is not None else ""
