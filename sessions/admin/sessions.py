"""The list and the page of sessions, for looking only: the engine writes these rows.

Engine and lock rows are not registered. Values of env are sealed and never shown here, not even
their names.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from sessions.models import Session

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Session]
else:
    # Django's class takes its type parameter in the stubs only.
    _ModelAdmin = admin.ModelAdmin

# A failure message can be a page of container output; the list shows its beginning.
MAX_LISTED_MESSAGE_LENGTH = 80
MAX_LISTED_FILES = 200


@admin.register(Session)
class SessionAdmin(_ModelAdmin):
    """Sessions, live ones and history; nothing can be added, changed or deleted here."""

    list_display = ("id", "status", "image", "created_at", "ended_at", "short_message", "is_kept")
    list_filter = ("status", "mode", "created_at")
    search_fields = ("id", "image")
    date_hierarchy = "created_at"
    ordering = ("-created_at",)
    list_per_page = 50
    show_full_result_count = False
    fields = (
        "id",
        "mode",
        "status",
        "exit_code",
        "message",
        "image",
        "spec",
        "endpoints",
        "files",
        "progress_phase",
        "progress_message",
        "created_at",
        "started_at",
        "ended_at",
        "evicted_at",
        "stop_requested_at",
        "pod_name",
        "pod_uid",
    )
    readonly_fields: ClassVar[tuple[str, ...]] = fields

    @admin.display(description="message")
    def short_message(self, session: Session) -> str:
        """Return the beginning of why the session failed."""
        text = session.message
        if len(text) <= MAX_LISTED_MESSAGE_LENGTH:
            return text
        return f"{text[:MAX_LISTED_MESSAGE_LENGTH]}…"

    @admin.display(boolean=True, description="kept for clients")
    def is_kept(self, session: Session) -> bool:
        """Tell whether clients can still read the session."""
        return session.evicted_at is None

    @admin.display(description="files")
    def files(self, session: Session) -> SafeString | str:
        """Return the bundle's paths and sizes, one a line."""
        bundle = getattr(session, "bundle", None)
        if bundle is None:
            return "dropped"
        listed = bundle.files[:MAX_LISTED_FILES]
        lines = [(file["path"], file["size"]) for file in listed]
        shown = format_html_join("", "{} ({} bytes)<br>", lines)
        left_out = len(bundle.files) - len(listed)
        return format_html("{}{}", shown, f"and {left_out} more" if left_out else "")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        """Leave out what is sealed: no page of the admin needs to load it."""
        return super().get_queryset(request).defer("env_sealed")

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        """Refuse: sessions are made through the API."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Session | None = None) -> bool:
        """Refuse: the engine that owns a session writes its row."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Session | None = None) -> bool:
        """Refuse: history is purged by age."""
        return False
