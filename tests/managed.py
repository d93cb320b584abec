"""What the environment of the runner takes over while somebody is at the admin's pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.models import QuerySet


@contextmanager
def managed_meanwhile(signal: Any, sender: type, entries: QuerySet[Any]) -> Iterator[None]:
    """Let the environment have entries as soon as something happens to rows of another kind."""

    def manage(**_: object) -> None:
        entries.update(is_from_environment=True)

    signal.connect(manage, sender=sender)
    try:
        yield
    finally:
        signal.disconnect(manage, sender=sender)


def told(response: Any) -> list[str]:
    """Return what a page says of what was done."""
    return [str(message) for message in response.context["messages"]]
