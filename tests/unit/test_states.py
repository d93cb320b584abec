import itertools

import pytest

from sessions.states import LIVE, TERMINAL, StatusKind, allowed_before


def test_every_status_is_live_or_terminal() -> None:
    assert set(StatusKind) == LIVE | TERMINAL
    assert not LIVE & TERMINAL
    assert {kind for kind in StatusKind if kind.is_terminal} == TERMINAL


@pytest.mark.parametrize(("old", "new"), list(itertools.product(sorted(TERMINAL), StatusKind)))
def test_nothing_follows_an_end(old: StatusKind, new: StatusKind) -> None:
    assert old not in allowed_before(new)


@pytest.mark.parametrize(("old", "new"), list(itertools.product(sorted(LIVE), sorted(TERMINAL))))
def test_a_live_session_can_end_in_every_way(old: StatusKind, new: StatusKind) -> None:
    assert old in allowed_before(new)


def test_a_session_runs_once_and_never_starts_again() -> None:
    assert allowed_before(StatusKind.RUNNING) == {StatusKind.STARTING}
    assert allowed_before(StatusKind.STARTING) == frozenset()
