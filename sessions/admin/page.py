"""The page of one session: facts off its row, in words, nothing of it to be changed.

Of the session's environment it shows names, never a value, and only while the session is live: the
end erases it.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from sessions import store
from sessions.admin import wording
from sessions.models import Bundle, Session
from sessions.spec import SessionSpec
from sessions.states import Delivery, StatusKind
from telorunner import secretbox

MAX_LISTED_FILES = 200
NONE = "none"

FIELDSETS: tuple[tuple[str | None, Any], ...] = (
    (None, {"fields": ("id", "shown_status", "shown_end", "mode", "app_name", "image")}),
    ("Limits", {"fields": ("cpu", "memory", "ephemeral_storage", "lifetime")}),
    ("What it was given", {"fields": ("applications", "ports", "env_names", "files", "terms")}),
    ("Times", {"fields": ("created", "first_running", "ended", "lasted", "stop_asked", "kept")}),
    (
        "Where it runs",
        {"fields": ("pod", "owner", "pull_policy", "delivery", "progress")},
    ),
)


class SessionPage:
    """The fields of the page, for a ModelAdmin to inherit."""

    @admin.display(description="end")
    def shown_end(self, session: Session) -> str:
        """Return how the session ended, in full."""
        if session.status == StatusKind.FAILED:
            return session.message
        return wording.end_reason(session) or "has not ended"

    @admin.display(description="CPU")
    def cpu(self, session: Session) -> str:
        """Return how much CPU the pod may use."""
        return wording.cpu(_spec(session).limits.cpu_millis)

    @admin.display(description="memory")
    def memory(self, session: Session) -> str:
        """Return how much memory the pod may use."""
        return wording.size(_spec(session).limits.memory_bytes)

    @admin.display(description="ephemeral storage")
    def ephemeral_storage(self, session: Session) -> str:
        """Return how much the pod may write."""
        return wording.size(_spec(session).limits.ephemeral_storage_bytes)

    @admin.display(description="lifetime")
    def lifetime(self, session: Session) -> str:
        """Return how long the pod may run."""
        return wording.duration(timedelta(seconds=_spec(session).limits.ttl_seconds))

    @admin.display(description="applications")
    def applications(self, session: Session) -> SafeString | str:
        """Return what runs in the pod: name, entry of the bundle, how it is talked to."""
        return _lines(
            ", ".join(part for part in (app.name, app.entry, str(app.io)) if part)
            for app in _spec(session).apps
        )

    @admin.display(description="ports")
    def ports(self, session: Session) -> SafeString | str:
        """Return the declared ports, and how their public hosts stand, or stood at the end."""
        has_ended = StatusKind(session.status).is_terminal
        urls = {
            (one["port"], one["protocol"]): one["url"] for one in session.endpoints if "url" in one
        }
        states = {one["port"]: wording.route_state(one) for one in session.routes}
        return _lines(
            f"{app.name}: {port.port}/{port.protocol}"
            + _at(urls.get((port.port, port.protocol)), states.get(port.port), has_ended=has_ended)
            for app in _spec(session).apps
            for port in app.ports
        )

    @admin.display(description="env names")
    def env_names(self, session: Session) -> SafeString | str:
        """Return the names in the session's environment; never a value."""
        if StatusKind(session.status).is_terminal:
            return "erased with the end"
        try:
            # NB: only names leave this expression: no variable of a page ever holds a value.
            names = sorted(store.open_env(bytes(session.env_sealed)))
        except secretbox.CannotOpen:
            return "sealed with a key that the runner does not have any more"
        return _lines(names)

    @admin.display(description="files")
    def files(self, session: Session) -> SafeString | str:
        """Return the bundle's paths and sizes."""
        # NB: not the whole row, whose archive may have megabytes.
        bundles = Bundle.objects.filter(session=session.pk).values_list("files", flat=True)
        files = bundles.first()
        if files is None:
            has_none = session.spec.get("delivery") == Delivery.NONE
            return NONE if has_none else "dropped"
        shown = [f"{one['path']} ({wording.size(one['size'])})" for one in files[:MAX_LISTED_FILES]]
        left_out = len(files) - len(shown)
        return _lines([*shown, f"and {left_out} more"] if left_out else shown)

    @admin.display(description="terms accepted")
    def terms(self, session: Session) -> str:
        """Return the version of the terms that the client accepted."""
        return session.terms_version or NONE

    @admin.display(description="created")
    def created(self, session: Session) -> str:
        """Return when the session was asked for."""
        return wording.moment(session.created_at)

    @admin.display(description="first seen running")
    def first_running(self, session: Session) -> str:
        """Return when the engine saw the session run."""
        return wording.moment(session.started_at) or "never"

    @admin.display(description="ended")
    def ended(self, session: Session) -> str:
        """Return when the session ended."""
        return wording.moment(session.ended_at) or "has not ended"

    @admin.display(description="stop asked for")
    def stop_asked(self, session: Session) -> str:
        """Return when the session was asked to stop, and by whom."""
        if session.stop_requested_at is None:
            return "never"
        return f"{wording.moment(session.stop_requested_at)}, by {wording.stopper(session)}"

    @admin.display(description="clients")
    def kept(self, session: Session) -> str:
        """Return whether clients can still read the session."""
        if session.evicted_at is None:
            return "can read it"
        return f"cannot read it any more, since {wording.moment(session.evicted_at)}"

    @admin.display(description="pod")
    def pod(self, session: Session) -> str:
        """Return the pod's name and uid."""
        if not session.pod_name:
            return NONE
        return f"{session.pod_name} ({session.pod_uid or 'no uid yet'})"

    @admin.display(description="engine")
    def owner(self, session: Session) -> str:
        """Return the engine that owns the session."""
        return str(session.engine_id or NONE)

    @admin.display(description="pull policy")
    def pull_policy(self, session: Session) -> str:
        """Return when the image is pulled."""
        return str(_spec(session).pull_policy)

    @admin.display(description="bundle delivery")
    def delivery(self, session: Session) -> str:
        """Return how the files reach the pod."""
        return str(_spec(session).delivery)

    @admin.display(description="last progress")
    def progress(self, session: Session) -> str:
        """Return what clients were told last of the start."""
        if not session.progress_phase:
            return NONE
        return f"{session.progress_phase}: {session.progress_message}"


def _spec(session: Session) -> SessionSpec:
    return SessionSpec.from_json(session.id, session.mode, session.spec)


def _at(url: str | None, state: str | None, *, has_ended: bool) -> str:
    if url is None:
        return ""
    if has_ended:
        return f" was at {url}, at last {state}" if state else ""
    return f" at {url}, {state or wording.UNKNOWN_ROUTE}"


def _lines(lines: Iterable[str]) -> SafeString | str:
    """Return text as lines, escaped."""
    items = format_html_join("", "<li>{}</li>", ((line,) for line in lines))
    return format_html('<ul class="session-lines">{}</ul>', items) if items else NONE
