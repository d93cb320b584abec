"""Pod status → what ended the pod as a whole: a time limit, an eviction, a deletion; pure."""

from datetime import datetime, timedelta
from typing import Any

from sessions.pods import reading, wording
from sessions.pods.reading import Container, Pod
from sessions.pods.run import SESSION_CONTAINER

NODE_LOST = f"the node that ran the session is lost; {wording.AGAIN}"


def time_limit(pod: Pod, seconds: int | None) -> str:
    """Return the sentence about a session that reached its time limit."""
    limit = f" of {seconds} s" if seconds else ""
    sentence = f"the session reached its time limit{limit} (DeadlineExceeded)"
    return wording.advised(sentence, wording.advice(pod).more_time)


def cause(pod: Pod) -> str:
    """Return what ended the pod, or asked for its end; empty where nothing but its containers."""
    return pod_cause(pod) or deletion(pod)


def pod_cause(pod: Pod) -> str:
    """Return what ended the pod as a whole: its time limit, an eviction, a lost node."""
    status = reading.section(pod, "status")
    reason, message = status.get("reason") or "", status.get("message") or ""
    if reason == "DeadlineExceeded":
        seconds = reading.section(pod, "spec").get("activeDeadlineSeconds")
        return "" if _ended_before_limit(pod) else time_limit(pod, seconds)
    if reason == "NodeLost":
        return NODE_LOST
    if reason or message:
        words = wording.told(pod, message)
        sentence = f"{reason}: {words}" if reason and words else reason or words
        return wording.advised(sentence, wording.pod_advice(pod, message))
    return disruption(pod)


def disruption(pod: Pod) -> str:
    """Return who disrupted the pod, empty where nobody did."""
    if not reading.is_true(pod, "DisruptionTarget"):
        return ""
    target = reading.condition(pod, "DisruptionTarget")
    sentence = f"the pod was disrupted: {target.get('reason') or 'DisruptionTarget'}"
    if words := wording.told(pod, target.get("message") or ""):
        sentence = f"{sentence}: {words}"
    return wording.advised(sentence, wording.AGAIN)


def deletion(pod: Pod) -> str:
    """Return that somebody deleted the pod, empty if its container had ended by itself before."""
    asked_at = reading.deletion_asked_at(pod)
    if asked_at is None:
        return ""
    ended_at = _ended_at(pod)
    if ended_at is not None and ended_at < asked_at:
        return ""
    return wording.advised("the pod was deleted", wording.AGAIN)


def session_status(pod: Pod) -> Container | None:
    """Return the status of the session's own container, None while it has none."""
    statuses = reading.main_statuses(pod)
    return next((status for status in statuses if status.get("name") == SESSION_CONTAINER), None)


def _ended_at(pod: Pod) -> datetime | None:
    status = session_status(pod)
    ended: Any = reading.state(status, "terminated") if status is not None else None
    return reading.time((ended or {}).get("finishedAt"))


def _ended_before_limit(pod: Pod) -> bool:
    """Tell whether the session had ended, and the time limit only ended others beside it."""
    if set(reading.main_container_names(pod)) <= {SESSION_CONTAINER}:
        return False
    status = reading.section(pod, "status")
    seconds = reading.section(pod, "spec").get("activeDeadlineSeconds")
    started_at = reading.time(status.get("startTime"))
    ended_at = _ended_at(pod)
    if seconds is None or started_at is None or ended_at is None:
        return False
    return bool(ended_at < started_at + timedelta(seconds=seconds))
