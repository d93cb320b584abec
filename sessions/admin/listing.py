"""The list of sessions: its search, and counting that knows when to stop.

With 100,000 sessions a page takes the same few queries as with ten, and each of them reads an index
(`Session.Meta.indexes`): nothing is counted, sorted or told apart by going through all rows.
"""

import re
from typing import TYPE_CHECKING, Any

from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db import connection
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from sessions.models import Session
from sessions.store.rows import ID_ALPHABET, ID_LENGTH

if TYPE_CHECKING:
    _Paginator = Paginator[Session]
else:
    # Django's class takes its type parameter in the stubs only.
    _Paginator = Paginator

# A hundred pages: whoever looks for older sessions picks a day.
MAX_COUNTED = 5000

_ID_START = re.compile(f"[{ID_ALPHABET}]{{1,{ID_LENGTH}}}", re.ASCII)
# Columns that are not looked at for a list.
_LEFT_OUT = ("env_sealed", "spec", "endpoints", "routes", "progress_message")


class BoundedPaginator(_Paginator):
    """Pages of as many rows as are counted; how many there are beyond, nobody asks."""

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        found: int = rows.order_by()[: MAX_COUNTED + 1].count()
        return found

    @property
    def is_cut(self) -> bool:
        """Whether there are more rows than were counted."""
        return self._counted > MAX_COUNTED

    @cached_property
    def count(self) -> int:
        """How many rows can be paged through."""
        return min(self._counted, MAX_COUNTED)


class SessionList(ChangeList):
    """One page of the list."""

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Session]:
        """Return the sessions to list, without what the list does not show."""
        rows: QuerySet[Session] = super().get_queryset(request, *args, **kwargs)
        return rows.defer(*_LEFT_OUT)

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, and note whether there are more sessions than can be paged through."""
        super().get_results(request)
        paginator: Any = self.paginator
        self.is_count_cut: bool = paginator.is_cut


def find(rows: QuerySet[Session], term: str) -> QuerySet[Session]:
    """Return the sessions whose id begins with a term, or whose app or image is called so."""
    term = term.strip()
    if not term:
        return rows
    matches = Q(app_name=term) | Q(image=term)
    if _ID_START.fullmatch(term.lower()):
        matches |= _starting(term.lower())
    return rows.filter(matches)


def _starting(prefix: str) -> Q:
    """Return the condition on ids that the database has an index for.

    PostgreSQL's index of a primary key of text serves LIKE. SQLite's does not, but compares bytes,
    so that a range is the same; `~` comes behind all that an id is made of.
    """
    if connection.vendor == "sqlite":
        return Q(id__gte=prefix, id__lt=f"{prefix}~")
    return Q(id__startswith=prefix)
