"""The list and the form of apps; those of the environment can only be looked at."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import method_decorator
from django.utils.html import format_html_join
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from catalog import actions
from catalog.admin.history import note_changes
from catalog.admin.origin import ManagedFilter
from catalog.admin.refusals import TellsRefusals
from catalog.forms.apps import AppForm
from catalog.models import App
from catalog.variables import NO_CHANGE, EnvChange

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[App]
else:
    # Django's class takes its type parameter in the stubs only.
    _ModelAdmin = admin.ModelAdmin


@admin.register(App)
class AppAdmin(TellsRefusals, _ModelAdmin):
    """Apps that clients start by name."""

    form = AppForm
    list_display = (
        "name",
        "title",
        "enabled",
        "live_sessions",
        "image",
        "managed_by",
        "port",
        "variable_count",
        "position",
    )
    list_filter = ("enabled", ("is_from_environment", ManagedFilter))
    search_fields = ("name", "title", "image")
    actions = ("enable_apps", "disable_apps", "delete_selected")
    readonly_fields = ("variable_names", "live_sessions", "managed_by")

    def get_fieldsets(self, request: HttpRequest, obj: App | None = None) -> Any:
        """Return the groups of fields; where nothing may be changed, variables by name only."""
        may_edit = self.has_change_permission(request, obj) if obj else True
        env = "variables" if may_edit else "variable_names"
        seen = ("seen",) if obj and may_edit else ()
        groups: list[tuple[str | None, dict[str, Any]]] = [
            (None, {"fields": ("name", "title", "description", "enabled", "position", *seen)}),
            ("What runs", {"fields": ("image", "pull_policy", "allow_root", "port")}),
            ("Environment", {"fields": (env,)}),
        ]
        if obj is not None:
            groups.append(("Use", {"fields": ("live_sessions", "managed_by")}))
        return groups

    def get_queryset(self, request: HttpRequest) -> QuerySet[App]:
        """Count the sessions that live: those without an end, of all that refer to an app."""
        # NB: by the name that sessions give their reference, for they lie above the catalog.
        live = Count("sessions", filter=Q(sessions__ended_at=None))
        rows: QuerySet[App] = super().get_queryset(request)
        return rows.annotate(live_session_count=live)

    @admin.display(description="used by", ordering="live_session_count")
    def live_sessions(self, app: App) -> str:
        """Return how many sessions of the app live."""
        number: int = app.live_session_count  # type: ignore[attr-defined] # annotated above
        return f"{number} live session{'' if number == 1 else 's'}"

    @admin.display(description="variables")
    def variable_count(self, app: App) -> int:
        """Return how many variables the app has."""
        return len(app.env)

    @admin.display(description="Environment variables")
    def variable_names(self, app: App) -> str:
        """Return the names of the app's variables."""
        return format_html_join("", "{}<br>", ((name,) for name in sorted(app.env))) or "-"

    @admin.display(description="managed by", ordering="is_from_environment")
    def managed_by(self, app: App) -> str:
        """Return who says what is in the entry."""
        if app.is_from_environment:
            return "environment"
        return "admin, in place of RUNNER_APPS" if app.shadows_environment else "admin"

    def has_change_permission(self, request: HttpRequest, obj: App | None = None) -> bool:
        """Refuse for what the environment manages."""
        is_ours = obj is None or not obj.is_from_environment
        return is_ours and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: App | None = None) -> bool:
        """Refuse for what the environment manages."""
        is_ours = obj is None or not obj.is_from_environment
        return is_ours and super().has_delete_permission(request, obj)

    @method_decorator(sensitive_post_parameters())
    @sensitive_variables()
    def changeform_view(self, *args: Any, **options: Any) -> Any:
        """Show or save the form; an error report shows nothing of what was typed."""
        return super().changeform_view(*args, **options)

    @sensitive_variables()
    def save_model(self, request: HttpRequest, obj: App, form: Any, change: bool) -> None:
        """Save by the action."""
        actions.save_app(obj, form.cleaned_data.get("variables", NO_CHANGE))

    def delete_model(self, request: HttpRequest, obj: App) -> None:
        """Delete by the action."""
        actions.delete_app(obj.pk)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[App]) -> None:
        """Delete by the action."""
        for app in queryset:
            actions.delete_app(app.pk)

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> list[dict[str, Any]]:
        """Return what the history says: of variables their names, and what became of them."""
        message: list[dict[str, Any]] = super().construct_change_message(
            request, form, formsets, add
        )
        change: EnvChange = form.cleaned_data["variables"]
        said = [f"{name} set" for name in sorted(change.values)]
        said += [f"{name} removed" for name in sorted(change.cleared)]
        label = form.fields["variables"].label
        for entry in message if said else ():
            fields = entry.get("changed", {}).get("fields", [])
            fields[:] = [f"{one} ({', '.join(said)})" if one == label else one for one in fields]
        return message

    @admin.action(description="Offer selected apps", permissions=["change"])
    def enable_apps(self, request: HttpRequest, queryset: QuerySet[App]) -> None:
        """Offer the apps."""
        self._set_enabled(request, queryset, is_enabled=True)

    @admin.action(description="Offer selected apps no more", permissions=["change"])
    def disable_apps(self, request: HttpRequest, queryset: QuerySet[App]) -> None:
        """Offer the apps no more; their sessions go on."""
        self._set_enabled(request, queryset, is_enabled=False)

    @admin.action(description="Delete selected apps", permissions=["delete"])
    def delete_selected(
        self, request: HttpRequest, queryset: QuerySet[App]
    ) -> HttpResponseBase | None:
        """Ask for confirmation, unless one of them is the environment's."""
        if managed := queryset.filter(is_from_environment=True).first():
            sentence = actions.APP_IS_MANAGED.format(name=managed.name)
            self.message_user(request, sentence, messages.ERROR)
            return None
        return self.delete_together(request, queryset)

    def _set_enabled(
        self, request: HttpRequest, queryset: QuerySet[App], *, is_enabled: bool
    ) -> None:
        ids = list(queryset.values_list("pk", flat=True))
        try:
            changed = actions.set_apps_enabled(ids, is_enabled=is_enabled)
        except actions.ChangeRefused as exc:
            self.message_user(request, exc.message, messages.ERROR)
            return
        note_changes(request, changed, "Enabled." if is_enabled else "Disabled.")
        words = "offered from the next request on" if is_enabled else "not offered any more"
        text = f"{len(changed)} app{' is' if len(changed) == 1 else 's are'} {words}."
        self.message_user(request, text, messages.SUCCESS if changed else messages.INFO)
