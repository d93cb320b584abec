"""The admin of sessions: the engine writes these rows, staff read them and may ask to stop.

Engine, bundle and lock rows are not registered. Values of env are sealed and never shown here.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from sessions.admin import stopping, wording
from sessions.admin.filters import FILTERS, PARAMETERS
from sessions.admin.listing import BoundedPaginator, SessionList, find
from sessions.admin.page import FIELDSETS, SessionPage
from sessions.models import Session
from sessions.states import StatusKind

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Session]
else:
    # Django's class takes its type parameter in the stubs only.
    _ModelAdmin = admin.ModelAdmin

CONFIRMATION_TEMPLATE = "admin/runner_sessions/session/stop_confirmation.html"


@admin.register(Session)
class SessionAdmin(SessionPage, _ModelAdmin):
    """Sessions, live ones and history; nothing can be added, changed or deleted here."""

    list_display = (
        "id",
        "shown_status",
        "shown_mode",
        "shown_app",
        "shown_image",
        "started",
        "lasted",
        "end_reason",
        "is_kept",
    )
    list_filter = FILTERS
    # What `get_search_results` looks into: each has an index.
    search_fields = ("^id", "=app_name", "=image")
    search_help_text = "The beginning of an id, or the whole name of an app or an image."
    ordering = ("-created_at",)
    list_per_page = 50
    list_max_show_all = 200
    # Counting takes longer the more history there is.
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = BoundedPaginator
    actions = ("stop_sessions",)
    fieldsets = FIELDSETS
    readonly_fields: ClassVar[tuple[str, ...]] = tuple(
        field for _, options in FIELDSETS for field in options["fields"]
    )

    class Media:
        """The colours of statuses."""

        css: ClassVar = {"all": ("runner_sessions/admin.css",)}

    # Columns. Most are methods: a list sorted by a field without an index would read every row.

    @admin.display(description="status")
    def shown_status(self, session: Session) -> SafeString:
        """Return the status in words and colour."""
        return wording.status_badge(session)

    @admin.display(description="mode")
    def shown_mode(self, session: Session) -> str:
        """Return the mode."""
        return session.mode

    @admin.display(description="app")
    def shown_app(self, session: Session) -> str:
        """Return the name of the catalog's app, which may be deleted by now."""
        return session.app_name

    @admin.display(description="image")
    def shown_image(self, session: Session) -> str:
        """Return the image, cut."""
        return wording.cut(session.image)

    @admin.display(description="started", ordering="created_at")
    def started(self, session: Session) -> str:
        """Return when the session was created: its start begins with that."""
        return wording.moment(session.created_at)

    @admin.display(description="age or duration")
    def lasted(self, session: Session) -> str:
        """Return how long the session has been there, or was."""
        return wording.age(session)

    @admin.display(description="end reason")
    def end_reason(self, session: Session) -> str:
        """Return how the session ended, in a few words."""
        return wording.end_reason(session)

    @admin.display(description="kept for clients")
    def is_kept(self, session: Session) -> str:
        """Tell whether clients can still read the session; that they cannot is nothing bad."""
        return "yes" if session.evicted_at is None else "no"

    # The list.

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        """Leave out what is sealed: it is loaded where its names are shown, and nowhere else."""
        return super().get_queryset(request).defer("env_sealed")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that does not count everything."""
        return SessionList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Session], search_term: str
    ) -> tuple[QuerySet[Session], bool]:
        """Search where there is an index."""
        return find(queryset, search_term), False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow the filters, and no other question about the rows."""
        return lookup in PARAMETERS

    # Who may.

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        """Refuse: sessions are made through the API."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Session | None = None) -> bool:
        """Refuse: the engine that owns a session writes its row."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Session | None = None) -> bool:
        """Refuse: history is purged by age."""
        return False

    def has_stop_permission(self, request: HttpRequest) -> bool:
        """Tell whether who asks may stop sessions."""
        user: Any = request.user
        may: bool = user.has_perm("runner_sessions.stop_session")
        return may

    # Stopping.

    @admin.action(description="Stop selected sessions", permissions=["stop"])
    def stop_sessions(
        self, request: HttpRequest, queryset: QuerySet[Session]
    ) -> HttpResponse | None:
        """Ask for a confirmation, then stop what it listed."""
        if stopping.is_confirmed(request):
            stopping.stop(request, stopping.confirmed_ids(request))
            return None
        live = stopping.live_among(queryset)
        if not live:
            self.message_user(request, "None of them is live: there is nothing to stop.")
            return None
        return self._confirmation(request, live, action="stop_sessions")

    def stop_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for a confirmation at GET; stop one session at POST."""
        if not (self.has_view_permission(request) and self.has_stop_permission(request)):
            raise PermissionDenied
        page = reverse(f"{self.admin_site.name}:runner_sessions_session_change", args=[object_id])
        session = self.get_object(request, unquote(object_id))
        if session is None:
            # The page knows what to say of a session that is not there.
            return HttpResponseRedirect(page)
        if request.method == "POST":
            stopping.stop(request, [session.pk])
        elif request.method not in {"GET", "HEAD"}:
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        elif not StatusKind(session.status).is_terminal:
            return self._confirmation(request, [session], back_url=page)
        else:
            self.message_user(request, "The session has ended already.", messages.INFO)
        return HttpResponseRedirect(page)

    def _confirmation(
        self, request: HttpRequest, sessions: list[Session], **more: Any
    ) -> TemplateResponse:
        """Return the page that asks whether these sessions are meant."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "sessions": [(session, wording.status_badge(session)) for session in sessions],
            **stopping.confirmation(len(sessions)),
            **more,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, CONFIRMATION_TEMPLATE, context)

    def get_urls(self) -> list[URLPattern]:
        """Return the addresses of the list and the pages, with that of stopping one session."""
        view = self.admin_site.admin_view(self.stop_view)
        name = "runner_sessions_session_stop"
        # NB: in front, for Django's last pattern takes every address as the id of a row.
        return [path("<path:object_id>/stop/", view, name=name), *super().get_urls()]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the page; whether the session can be stopped is known when it is rendered."""
        context = {"may_stop": self.has_stop_permission(request), **(extra_context or {})}
        return super().change_view(request, object_id, form_url, context)
