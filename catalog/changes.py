"""How many changes of the catalog this process has committed: its own cache is old at once."""

from itertools import count

from django.db import transaction

_numbers = count(1)
_newest = 0


def newest() -> int:
    """Return the number of this process's newest change; 0: it made none."""
    return _newest


def note_on_commit() -> None:
    """Count a change once its transaction is committed."""
    transaction.on_commit(_note)


def _note() -> None:
    global _newest
    _newest = next(_numbers)
