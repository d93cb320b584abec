"""The filters of the list of sessions; each of them reads an index of the sessions' table."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from sessions.models import Session
from sessions.states import LIVE, Mode, StatusKind

# Values that a filter offers: more are no choice for a person.
MAX_VALUES = 50
DAYS_OFFERED = 7
LIVE_CHOICE = "live"


def distinct_values(column: str) -> list[str]:
    """Return the first values of an indexed column, sorted, without reading every row.

    Each step asks the index for the smallest value above the last one: one look-up a value.

    Source: https://wiki.postgresql.org/wiki/Loose_indexscan
    """
    quote = connection.ops.quote_name
    table, name = quote(Session._meta.db_table), quote(column)
    # Both names are the model's own.
    query = f"""
        WITH RECURSIVE found(value) AS (
            SELECT min({name}) FROM {table} WHERE {name} > ''
            UNION ALL
            SELECT (SELECT min({name}) FROM {table} WHERE {name} > found.value)
            FROM found WHERE found.value IS NOT NULL
        )
        SELECT value FROM found WHERE value IS NOT NULL LIMIT {MAX_VALUES}
    """  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(query)
        return [row[0] for row in cursor.fetchall()]


class _Filter(admin.SimpleListFilter):
    """A filter by one value of the address, which is a person's to write."""

    def value(self) -> str | None:
        """Return the value; None: the filter is not used."""
        value: str | None = super().value()
        if value is not None and "\0" in value:
            # PostgreSQL has no NUL in text.
            raise IncorrectLookupParameters
        return value


class StatusFilter(_Filter):
    """By status, and all that is live at once."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices."""
        kinds = [(str(kind), str(kind)) for kind in StatusKind]
        return [(LIVE_CHOICE, "live (starting or running)"), *kinds]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        """Narrow the list down."""
        value = self.value()
        if value == LIVE_CHOICE:
            return queryset.filter(status__in=sorted(LIVE))
        return queryset if value is None else queryset.filter(status=value)


class ModeFilter(_Filter):
    """By mode."""

    title = "mode"
    parameter_name = "mode"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices."""
        return [(str(mode), str(mode)) for mode in Mode]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        """Narrow the list down."""
        value = self.value()
        return queryset if value is None else queryset.filter(mode=value)


class _ColumnFilter(_Filter):
    """By a value that sessions have in a column: those of deleted apps are there too."""

    # Also the name of the column.
    parameter_name: str

    def has_output(self) -> bool:
        """Filter by a value that no session has (any more), too: Django would list them all."""
        return super().has_output() or self.parameter_name in self.used_parameters

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices."""
        return [(value, value) for value in distinct_values(self.parameter_name)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        """Narrow the list down."""
        value = self.value()
        return queryset if value is None else queryset.filter(**{self.parameter_name: value})


class AppFilter(_ColumnFilter):
    """By the app of the catalog that sessions run or ran."""

    title = "app"
    parameter_name = "app_name"


class ImageFilter(_ColumnFilter):
    """By image."""

    title = "image"
    parameter_name = "image"


class DayFilter(_Filter):
    """By the day of creation: one of the last few, or any."""

    title = "day (UTC)"
    parameter_name = "day"
    template = "admin/runner_sessions/session/day_filter.html"
    # What a form for any day has to carry along: [(parameter, value)].
    others: tuple[tuple[str, str], ...] = ()

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the last days, today first."""
        today = timezone.now().date()
        days = [today - timedelta(days=back) for back in range(DAYS_OFFERED)]
        names = ["Today", "Yesterday", *(f"{day:%A, %d %B}" for day in days[2:])]
        return list(zip((day.isoformat() for day in days), names, strict=True))

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Return the choices as links."""
        params = changelist.params.items()
        dropped = {self.parameter_name, PAGE_VAR}
        self.others = tuple((name, value) for name, value in params if name not in dropped)
        return super().choices(changelist)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        """Narrow the list down."""
        value = self.value()
        if not value:
            return queryset
        try:
            start = datetime.combine(date.fromisoformat(value), time.min, UTC)
            end = start + timedelta(days=1)
        except (ValueError, OverflowError) as exc:
            raise IncorrectLookupParameters(exc) from exc
        return queryset.filter(created_at__gte=start, created_at__lt=end)


FILTERS = (StatusFilter, ModeFilter, AppFilter, ImageFilter, DayFilter)
# The list's address takes nothing else: other look-ups would go through every row.
PARAMETERS = frozenset(filter_.parameter_name for filter_ in FILTERS)
