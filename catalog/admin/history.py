"""What the history of an entry says of a change that no form of its own made."""

from collections.abc import Sequence

from django.contrib.admin.models import CHANGE, LogEntry
from django.db.models import Model
from django.http import HttpRequest


def note_changes(request: HttpRequest, changed: Sequence[Model], said: str) -> None:
    """Write down who changed these rows, and what was done."""
    assert request.user.pk is not None  # noqa: S101 # for the type checker
    LogEntry.objects.log_actions(request.user.pk, changed, CHANGE, said)
