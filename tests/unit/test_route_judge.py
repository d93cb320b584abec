"""What is told of a host, by its status, by probes, and by the time that has passed."""

import math

import pytest

from routing.judge import Judge, Judgement, ProbeFailure
from routing.news import RouteState
from routing.status import Standing, Verdict

PENDING, PROGRAMMED, UNPROGRAMMED = RouteState
CLAIMED = Verdict(Standing.PROGRAMMED)
UNCLAIMED = Verdict(Standing.PENDING)
REJECTED = Verdict(Standing.REJECTED, "NotAllowedByListeners: no")
MISSING = Verdict(Standing.REJECTED, "BackendNotFound: no addresses", may_pass=True)
NO_ROUTE = ProbeFailure("gateway", "The gateway has no such route (HTTP 404).")
NO_WAY = ProbeFailure("connect", "The connection was refused.")


class Case:
    """A judge whose clock a test turns; 60 s until somebody must have claimed the route."""

    def __init__(self, *, is_probing: bool) -> None:
        self.now = 1000.0
        self.is_probing = is_probing
        self.unreadable = ""
        self.judge = Judge(self.now, ready_seconds=60, unclaimed="Nobody came.")

    def after(self, seconds: float, news: Verdict | ProbeFailure | str = "") -> Judgement:
        """Judge after some time: a status, a failure of a probe, `pass`, or nothing new."""
        self.now += seconds
        if isinstance(news, Verdict):
            self.judge.take_verdict(self.now, news)
        elif isinstance(news, ProbeFailure) or news == "pass":
            failure = news if isinstance(news, ProbeFailure) else None
            self.judge.take_probe(self.now, failure)
        judgement = self.judge.judge(
            self.now, is_probing=self.is_probing, unreadable=self.unreadable
        )
        again_at = judgement.again_at - self.now
        return Judgement(judgement.state, judgement.reason, again_at)


def told(state: RouteState, reason: str = "", again_at: float = math.inf) -> Judgement:
    return Judgement(state, reason, again_at)


def test_without_probes_the_status_alone_decides() -> None:
    case = Case(is_probing=False)
    assert case.after(0) == told(PENDING, again_at=60)
    assert case.after(20, UNCLAIMED) == told(PENDING, again_at=40)
    assert case.after(1, CLAIMED) == told(PROGRAMMED)
    assert case.after(1, REJECTED) == told(UNPROGRAMMED, REJECTED.reason)
    assert case.after(1, CLAIMED) == told(PROGRAMMED)


def test_a_route_that_nobody_claims_in_time_may_be_claimed_late() -> None:
    case = Case(is_probing=False)
    assert case.after(59.9).state is PENDING
    assert case.after(0.1) == told(UNPROGRAMMED, "Nobody came.")
    assert case.after(1000, CLAIMED) == told(PROGRAMMED)


def test_a_backend_that_is_not_found_at_first_is_waited_for() -> None:
    # A controller that is faster than the one that writes the addresses of a new Service.
    case = Case(is_probing=False)
    assert case.after(1, MISSING) == told(PENDING, again_at=10)
    assert case.after(9.9, CLAIMED) == told(PROGRAMMED)
    # The same later: what was told holds until it is certain.
    assert case.after(60, MISSING) == told(PROGRAMMED, again_at=10)
    assert case.after(9, MISSING) == told(PROGRAMMED, again_at=1)
    assert case.after(1) == told(UNPROGRAMMED, MISSING.reason)
    assert case.after(1, CLAIMED) == told(PROGRAMMED)


def test_a_claim_that_is_taken_back_is_waited_for_anew() -> None:
    case = Case(is_probing=False)
    case.after(100, CLAIMED)
    assert case.after(1, UNCLAIMED) == told(PROGRAMMED, again_at=60)
    assert case.after(60) == told(UNPROGRAMMED, "Nobody came.")


def test_a_status_that_cannot_be_read_is_no_verdict_on_the_controller() -> None:
    case = Case(is_probing=False)
    case.unreadable = "Not permitted."
    assert case.after(10).state is PENDING
    assert case.after(50) == told(UNPROGRAMMED, "Not permitted.", again_at=10)
    # That it can be read again is told by nothing but the time.
    case.unreadable = ""
    assert case.after(10) == told(UNPROGRAMMED, "Not permitted.", again_at=10)
    assert case.after(10) == told(UNPROGRAMMED, "Nobody came.")


def test_a_claimed_route_is_programmed_when_a_probe_passes() -> None:
    case = Case(is_probing=True)
    assert case.after(1, NO_ROUTE).state is PENDING
    assert case.after(1, CLAIMED) == told(PENDING, again_at=10)
    assert case.after(1, NO_ROUTE) == told(PENDING, again_at=9)
    assert case.after(1, "pass") == told(PROGRAMMED)


def test_a_claim_is_not_believed_before_the_first_probe() -> None:
    case = Case(is_probing=True)
    assert case.after(1, CLAIMED) == told(PENDING)
    assert case.after(500) == told(PENDING)


def test_a_claimed_route_that_fails_for_a_while_is_found_out() -> None:
    case = Case(is_probing=True)
    case.after(1, CLAIMED)
    assert case.after(0, NO_ROUTE) == told(PENDING, again_at=10)
    assert case.after(9.9, NO_WAY).state is PENDING
    assert case.after(0.1, NO_ROUTE) == told(UNPROGRAMMED, str(NO_ROUTE))
    assert str(NO_ROUTE) == "gateway: The gateway has no such route (HTTP 404)."
    assert case.after(1, "pass") == told(PROGRAMMED)


def test_a_failure_of_a_moment_is_no_outage() -> None:
    case = Case(is_probing=True)
    case.after(1, CLAIMED)
    case.after(1, "pass")
    assert case.after(60, NO_WAY) == told(PROGRAMMED, again_at=10)
    assert case.after(9, "pass") == told(PROGRAMMED)
    assert case.after(60, NO_WAY) == told(PROGRAMMED, again_at=10)
    assert case.after(10) == told(UNPROGRAMMED, str(NO_WAY))


def test_a_passing_probe_is_proof_where_no_controller_writes() -> None:
    case = Case(is_probing=True)
    case.after(1, NO_ROUTE)
    assert case.after(1, "pass") == told(PROGRAMMED)
    assert case.after(500, UNCLAIMED) == told(PROGRAMMED)
    assert case.after(1, NO_WAY) == told(PROGRAMMED, again_at=10)
    assert case.after(10, NO_WAY) == told(UNPROGRAMMED, str(NO_WAY))


def test_what_nobody_claims_and_does_not_work_is_told_with_both() -> None:
    case = Case(is_probing=True)
    case.after(1, NO_ROUTE)
    whole = f"Nobody came. Asked directly, the host does not work: {NO_ROUTE}"
    assert case.after(59) == told(UNPROGRAMMED, whole)


def test_a_rejection_holds_whatever_a_probe_says() -> None:
    """Probes ask the runner, not the application: with a broken backend they pass."""
    case = Case(is_probing=True)
    case.after(1, "pass")
    assert case.after(1, REJECTED) == told(UNPROGRAMMED, REJECTED.reason)
    assert case.after(1, "pass") == told(UNPROGRAMMED, REJECTED.reason)


def test_probes_that_say_nothing_leave_it_to_the_status() -> None:
    case = Case(is_probing=True)
    case.after(1, CLAIMED)
    case.after(1, NO_ROUTE)
    case.is_probing = False
    assert case.after(1) == told(PROGRAMMED)
    # What was found out then is out of date: only a new probe counts.
    case.is_probing = True
    assert case.after(1000, CLAIMED) == told(PROGRAMMED)
    assert case.after(1, NO_ROUTE) == told(PROGRAMMED, again_at=10)
    case = Case(is_probing=True)
    case.after(1, "pass")
    case.is_probing = False
    # It was proved once, and nobody says anything else.
    assert case.after(100) == told(PROGRAMMED)


@pytest.mark.parametrize("seconds", [1.0, 9.0])
def test_a_host_that_fails_now_so_now_so_is_told_once(seconds: float) -> None:
    case = Case(is_probing=True)
    case.after(1, CLAIMED)
    case.after(0, NO_ROUTE)
    case.after(10)
    for _ in range(10):
        assert case.after(seconds, NO_WAY).reason == str(NO_ROUTE)
        assert case.after(seconds, NO_ROUTE).reason == str(NO_ROUTE)
    assert case.after(1, NO_WAY) == told(UNPROGRAMMED, str(NO_ROUTE), again_at=10)
    assert case.after(10) == told(UNPROGRAMMED, str(NO_WAY))
