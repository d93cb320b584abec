"""Who says what is in an entry: the environment of the runner, or people in the admin."""

from typing import Any

from django.contrib import admin


class ManagedFilter(admin.BooleanFieldListFilter):
    """Filters by `is_from_environment`, called what it means."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.title = "environment"
