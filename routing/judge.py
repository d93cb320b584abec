"""Judges one public host by what is known of it: its route's status, and how it answers; pure.

A status says what a controller believes, a probe what really happens. A rejection holds whatever a
probe says, since a probe asks another backend than visitors do; one for a missing backend has to
hold for a while. Otherwise a passing probe is proof, also where no controller ever writes a status,
and a failing one is believed once it has failed for a while. Without probes the status alone
decides.
"""

import math
from dataclasses import dataclass, replace

from routing.news import RouteState
from routing.status import Standing, Verdict

# A data plane takes a moment to do what its controller has said, and a moment's failure is no
# outage.
GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class ProbeFailure:
    """How far a host let itself be asked: `dns`, `connect`, `tls`, `gateway` or `backend`."""

    stage: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.stage}: {self.sentence}"


@dataclass(frozen=True)
class Judgement:
    """What to tell of a host, and when to judge again if nothing is learned before."""

    state: RouteState
    reason: str = ""
    again_at: float = math.inf


class Judge:
    """What is known of one host; times are of any one clock, in seconds."""

    def __init__(self, now: float, *, ready_seconds: float, unclaimed: str) -> None:
        """Begin with nothing known.

        `unclaimed` says what to look at where no controller answers for `ready_seconds`.
        """
        self._ready_seconds = ready_seconds
        self._unclaimed = unclaimed
        self._verdict = Verdict(Standing.PENDING)
        # Since when the controller has said this or that.
        self._verdict_at = now
        self._is_probed = False
        self._has_passed = False
        self._failure: ProbeFailure | None = None
        # Since when every probe has failed.
        self._failing_at = math.inf
        self._told = Judgement(RouteState.PENDING)
        # A reason that may replace the told one, and since when it would have.
        self._next_reason = ""
        self._next_reason_at = now

    @property
    def is_claimed(self) -> bool:
        """Whether a controller says that the route works."""
        return self._verdict.state is Standing.PROGRAMMED

    def take_verdict(self, now: float, verdict: Verdict) -> None:
        """Note what the status says now."""
        if verdict.state is not self._verdict.state:
            self._verdict_at = now
        self._verdict = verdict

    def take_probe(self, now: float, failure: ProbeFailure | None) -> None:
        """Note how a probe ended; None: the host works."""
        self._is_probed = True
        self._failure = failure
        if failure is None:
            self._has_passed = True
            self._failing_at = math.inf
        else:
            self._failing_at = min(self._failing_at, now)

    def judge(self, now: float, *, is_probing: bool, unreadable: str) -> Judgement:
        """Return what to tell.

        Args:
            now: The time.
            is_probing: Whether the host is asked: else what probes have said is out of date.
            unreadable: Why the status cannot be read; empty if it can.
        """
        if not is_probing:
            self._forget_failures()
        wanted = self._judge(now, unreadable, is_probing=is_probing)
        self._told = self._held_back(now, wanted)
        return self._told

    def _forget_failures(self) -> None:
        """Let only new probes count, once there are any: the old ones may be hours old by then."""
        self._is_probed = False
        self._failure = None
        self._failing_at = math.inf

    def _judge(self, now: float, unreadable: str, *, is_probing: bool) -> Judgement:
        if self._verdict.state is Standing.REJECTED:
            return self._judge_rejected(now)
        if is_probing and self._is_probed:
            if self._failure is None:
                return Judgement(RouteState.PROGRAMMED)
            if self.is_claimed or self._has_passed:
                return self._judge_failing(now, self._failure)
        elif self.is_claimed:
            return self._kept() if is_probing else Judgement(RouteState.PROGRAMMED)
        elif self._has_passed:
            # Nobody says anything of it any more, which is no reason to take it back.
            return self._kept()
        return self._judge_unclaimed(now, unreadable)

    def _judge_rejected(self, now: float) -> Judgement:
        """Judge a route that its controller does not take, or cannot serve."""
        until = self._verdict_at + GRACE_SECONDS
        if self._verdict.may_pass and now < until:
            return self._kept(until)
        return Judgement(RouteState.UNPROGRAMMED, self._verdict.reason)

    def _judge_failing(self, now: float, failure: ProbeFailure) -> Judgement:
        """Judge a host that should work and does not."""
        since = max(self._failing_at, self._verdict_at) if self.is_claimed else self._failing_at
        if now < since + GRACE_SECONDS:
            return self._kept(since + GRACE_SECONDS)
        return Judgement(RouteState.UNPROGRAMMED, str(failure))

    def _judge_unclaimed(self, now: float, unreadable: str) -> Judgement:
        """Judge a host of which neither its status nor a probe has said any good."""
        until = self._verdict_at + self._ready_seconds
        if now < until:
            return self._kept(until)
        reason = unreadable or self._unclaimed
        # That it can be read again is no news of the route.
        again_at = now + GRACE_SECONDS if unreadable else math.inf
        if self._failure is not None:
            reason = f"{reason} Asked directly, the host does not work: {self._failure}"
        return Judgement(RouteState.UNPROGRAMMED, reason, again_at)

    def _kept(self, again_at: float = math.inf) -> Judgement:
        return replace(self._told, again_at=again_at)

    def _held_back(self, now: float, wanted: Judgement) -> Judgement:
        """Keep a told reason until another one has held for a while.

        What fails now in one way and now in another would be told for ever, else.
        """
        is_other_reason = (
            wanted.state is self._told.state is RouteState.UNPROGRAMMED
            and wanted.reason != self._told.reason
        )
        if not is_other_reason:
            self._next_reason = ""
            return wanted
        if wanted.reason != self._next_reason:
            self._next_reason, self._next_reason_at = wanted.reason, now
        until = self._next_reason_at + GRACE_SECONDS
        return wanted if now >= until else self._kept(until)
