"""The one site of the admin: its names, what comes first in it, and what each part is for."""

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import get_fields_from_path
from django.core.exceptions import BadRequest, ValidationError
from django.db.models import Field, QuerySet
from django.http import HttpRequest, HttpResponse

from telorunner.values.image import MAX_REFERENCE_LENGTH

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    # What it is mixed into: Django's class or one derived of it.
    _ModelAdmin = object

# Every part, in the order of the first page, with what an operator finds there. What is not named
# here comes last.
PARTS = {
    "runner_sessions.session": "What runs and what ran: look into a session, stop it.",
    "catalog.app": "Applications that clients may start by name.",
    "catalog.terms": "What clients must agree to before a session starts.",
    "catalog.baseimage": "Images that clients may run their own files on.",
    "catalog.baseimagetag": "Tags of the repository, as fetched; hide what is not to be offered.",
    "auth.user": "Who may log in here.",
    "auth.group": "Roles: what their members may see and do.",
}
_PLACES = {label: place for place, label in enumerate(PARTS)}

# The longest that is looked for is an image's reference. Each word is a condition: a statement of
# thousands is refused by SQLite.
MAX_SEARCH_LENGTH = MAX_REFERENCE_LENGTH


class Bounded(_ModelAdmin):
    """What every part refuses of an address or a form that was written by hand."""

    def lookup_allowed(self, lookup: str, value: str, request: Any = None) -> bool:
        """Allow what the part's own filters ask, and no other question about the rows.

        Django takes any lookup of any column: regular expressions, which on SQLite keep the whole
        process busy for as long as they take, and values that a database refuses.
        """
        return lookup in _lookups(self) and super().lookup_allowed(lookup, value, request)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search for the beginning of what was typed, where that is very long."""
        return super().get_search_results(request, queryset, search_term[:MAX_SEARCH_LENGTH])

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **options: Any
    ) -> HttpResponse | None:
        """Run an action on what was selected.

        Raises:
            BadRequest: Something was selected that can be the key of no row.
        """
        key = self.opts.pk
        if not all(_is_key(key, text) for text in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            raise BadRequest("What is selected is no row.")
        return super().response_action(request, queryset, *args, **options)


class RunnerAdminSite(admin.AdminSite):
    """The operators' console."""

    index_title = "What runs, and what may run"
    # There is no other site to view: everything else is for programs.
    site_url = None

    def register(self, model_or_iterable: Any, admin_class: Any = None, **options: Any) -> None:
        """Register as Django does, whatever it is with what is refused everywhere."""
        asked = admin_class or admin.ModelAdmin
        bounded = type(asked.__name__, (Bounded, asked), {"__module__": asked.__module__})
        super().register(model_or_iterable, bounded, **options)

    @property
    def site_header(self) -> str:  # type: ignore[override] # a class attribute of Django's
        """The heading of each page: what clients know the runner by."""
        name: str = settings.RUNNER.display_name
        return name

    @property
    def site_title(self) -> str:  # type: ignore[override]
        """The end of each page's title."""
        return self.site_header

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Return the parts that a user may see, in order, each with what it is for."""
        groups = super().get_app_list(request, app_label)
        for group in groups:
            for part in group["models"]:
                part["label"] = f"{group['app_label']}.{part['object_name'].lower()}"
                part["description"] = PARTS.get(part["label"], "")
            group["models"].sort(key=_place)
        return sorted(groups, key=lambda group: _place(group["models"][0]))


def _place(part: dict[str, Any]) -> int:
    return _PLACES.get(part["label"], len(_PLACES))


def _lookups(part: _ModelAdmin) -> set[str]:
    """Return the parameters by which the filters of a list ask the database."""
    found: set[str] = set()
    # What is no type is a field's path, with the type of its filter behind it or without.
    given: Any = part.list_filter
    for one in given:
        if isinstance(one, type):
            found.add(one.parameter_name)  # type: ignore[attr-defined] # of SimpleListFilter
            continue
        path = one if isinstance(one, str) else one[0]
        field: Any = get_fields_from_path(part.model, path)[-1]
        value = f"{path}__{field.target_field.name}" if field.is_relation else path
        found |= {f"{value}__exact", f"{path}__isnull"}
    return found


def _is_key(key: "Field[Any, Any]", text: str) -> bool:
    try:
        key.clean(text, None)
    except ValidationError:
        return False
    # PostgreSQL has no NUL in text.
    return "\0" not in text
