"""Stopping sessions from the admin: asked for on a page of its own, reported, and in the history.

It is the API's action. Nothing is stopped by looking at an address, and what is stopped is what the
page listed, whatever has begun to match the list's filters since.
"""

from typing import Any

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.db.models import QuerySet
from django.http import HttpRequest

from sessions.actions.staff import Stopped, stop_all
from sessions.models import Session
from sessions.states import LIVE

# Django takes a thousand fields of a form, and each session is one.
MAX_STOPPED_AT_ONCE = 500
HISTORY_SENTENCE = "Asked it to stop."
CONFIRMED = "confirmed"


def is_confirmed(request: HttpRequest) -> bool:
    """Tell whether the form of the confirmation page was sent."""
    return request.method == "POST" and CONFIRMED in request.POST


def confirmed_ids(request: HttpRequest) -> list[str]:
    """Return the sessions that the confirmation page listed."""
    return list(dict.fromkeys(request.POST.getlist(ACTION_CHECKBOX_NAME)))[:MAX_STOPPED_AT_ONCE]


def live_among(rows: QuerySet[Session]) -> list[Session]:
    """Return the sessions that can still be stopped, newest first, as many as go at once."""
    live = rows.filter(status__in=sorted(LIVE)).defer("env_sealed", "spec", "endpoints", "routes")
    return list(live[:MAX_STOPPED_AT_ONCE])


def confirmation(count: int) -> dict[str, Any]:
    """Return what the confirmation page says of so many sessions."""
    return {
        "title": "Stop session" if count == 1 else "Stop sessions",
        "is_at_most": count == MAX_STOPPED_AT_ONCE,
        "action_checkbox_name": ACTION_CHECKBOX_NAME,
        "confirmed": CONFIRMED,
    }


def stop(request: HttpRequest, session_ids: list[str]) -> None:
    """Ask sessions to stop; tell who asked what became of it, and write it down."""
    # Whoever may stop sessions is logged in.
    user: Any = request.user
    stopped = stop_all(session_ids, by=user.get_username())
    if stopped.asked:
        LogEntry.objects.log_actions(
            user_id=user.pk,
            queryset=Session.objects.filter(id__in=stopped.asked).only("id"),
            action_flag=CHANGE,
            change_message=HISTORY_SENTENCE,
        )
    for level, sentence in report(stopped):
        messages.add_message(request, level, sentence)


def report(stopped: Stopped) -> list[tuple[int, str]]:
    """Return what to say: `[(level, sentence)]`."""
    said = []
    if stopped.asked:
        said.append((messages.SUCCESS, f"{_count(stopped.asked, 'was', 'were')} asked to stop."))
    if stopped.stopping:
        said.append(
            (messages.INFO, f"{_count(stopped.stopping, 'was', 'were')} being stopped already.")
        )
    if stopped.ended:
        said.append((messages.INFO, f"{_count(stopped.ended, 'had', 'had')} ended already."))
    if stopped.failed:
        sentence = f"{_count(stopped.failed, 'was', 'were')} not asked to stop: {stopped.problem}"
        said.append((messages.ERROR, sentence))
    return said or [(messages.WARNING, "There is nothing to stop.")]


def _count(session_ids: tuple[str, ...], one: str, several: str) -> str:
    count = len(session_ids)
    return f"1 session {one}" if count == 1 else f"{count} sessions {several}"
