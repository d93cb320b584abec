import itertools

import pytest

from sessions.states import LIVE, TERMINAL, StatusKind, allowed_before, may_follow


def test_every_status_is_live_or_terminal() -> None:
    assert set(StatusKind) == LIVE | TERMINAL
    assert not LIVE & TERMINAL
    assert {kind for kind in StatusKind if kind.is_terminal} == TERMINAL


@pytest.mark.parametrize(("old", "new"), list(itertools.product(sorted(TERMINAL), StatusKind)))
def test_nothing_follows_an_end(old: StatusKind, new: StatusKind) -> None:
    assert not may_follow(new, old)


@pytest.mark.parametrize(("old", "new"), list(itertools.product(sorted(LIVE), sorted(TERMINAL))))
def test_a_live_session_can_end_in_every_way(old: StatusKind, new: StatusKind) -> None:
    assert may_follow(new, old)


def test_a_session_runs_once_and_never_starts_again() -> None:
    assert may_follow(StatusKind.RUNNING, StatusKind.STARTING)
    assert not may_follow(StatusKind.RUNNING, StatusKind.RUNNING)
    assert not may_follow(StatusKind.STARTING, StatusKind.RUNNING)


@pytest.mark.parametrize("new", list(StatusKind))
def test_the_condition_of_a_write_is_the_table(new: StatusKind) -> None:
    assert allowed_before(new) == {old for old in StatusKind if may_follow(new, old)}
