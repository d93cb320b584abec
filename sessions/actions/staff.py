"""What staff may ask of several sessions at once; the same actions as the API's."""

from collections.abc import Sequence
from dataclasses import dataclass

from sessions import store
from sessions.actions.stop import stop
from sessions.models import Session
from sessions.states import LIVE
from telorunner.errors import RunnerError, Unavailable


@dataclass(frozen=True)
class Stopped:
    """What became of the wish to stop, by session id.

    `asked` have the wish now, `stopping` had one already, `ended` need none any more, and for
    `failed` it could not be recorded; `problem` says why not, for the last of them.
    """

    asked: tuple[str, ...] = ()
    stopping: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    problem: str = ""


def stop_all(session_ids: Sequence[str], *, by: str) -> Stopped:
    """Ask sessions to stop, one after the other; `by` is the user name of who asks.

    While the database cannot be reached the rest is not tried: each would wait for it anew.
    """
    asked: list[str] = []
    failed: list[str] = []
    problem = ""
    for place, session_id in enumerate(session_ids):
        try:
            if stop(session_id, by=by):
                asked.append(session_id)
        except Unavailable as exc:
            failed += session_ids[place:]
            problem = str(exc)
            break
        except RunnerError as exc:
            failed.append(session_id)
            problem = str(exc)
    tried = {*asked, *failed}
    others = [one for one in session_ids if one not in tried]
    try:
        live = store.read(_live_among, others) if others else set()
    except Unavailable as exc:
        # What was asked is the caller's to write down all the same.
        failed, others, live, problem = failed + others, [], set(), str(exc)
    return Stopped(
        asked=tuple(asked),
        stopping=tuple(one for one in others if one in live),
        ended=tuple(one for one in others if one not in live),
        failed=tuple(failed),
        problem=problem,
    )


def _live_among(session_ids: Sequence[str]) -> set[str]:
    rows = Session.objects.filter(id__in=session_ids, status__in=LIVE)
    return set(rows.values_list("id", flat=True))
