"""Who says what is in an entry: the environment of the runner, or people in the admin."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin

WORDS = {"Yes": "environment", "No": "admin"}


class ManagedFilter(admin.BooleanFieldListFilter):
    """Filters by `is_from_environment`, in the words of the column `managed by`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.title = "managed by"

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Return the choices, in words."""
        for choice in super().choices(changelist):
            said, space, count = str(choice["display"]).partition(" ")
            yield {**choice, "display": f"{WORDS.get(said, said)}{space}{count}"}
