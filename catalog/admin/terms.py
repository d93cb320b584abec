"""The versions of the usage terms: publish, edit the current ones, make old ones current again."""

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBadRequest,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from catalog import actions, markdown
from catalog.admin.origin import ManagedFilter
from catalog.admin.refusals import TellsRefusals
from catalog.forms.terms import EditTermsForm, PublishTermsForm
from catalog.models import Terms
from telorunner.values.terms import body_problem

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Terms]
else:
    # Django's class takes its type parameter in the stubs only.
    _ModelAdmin = admin.ModelAdmin

CURRENT = "Version {version} is current: clients must accept it from the next request on."
IS_NEW = (
    "The text changed, so it is a new version, {version}, which is current: clients must accept it"
    " from the next request on. The old text is kept as version {old}."
)
IS_KEPT = "The text has not changed: clients that accepted version {version} need not do so again."
WITHDRAWN = "Version {version} is withdrawn: clients need not accept any terms."
NONE_CURRENT = "No terms are current."
DELETE_HELP = "Versions are kept; one that is not current and that nobody accepted can be deleted."


class CurrentFilter(admin.BooleanFieldListFilter):
    """Filters by `is_current`, called what it means."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.title = "current"


@admin.register(Terms)
class TermsAdmin(TellsRefusals, _ModelAdmin):
    """Versions of the usage terms, of which one is current or none."""

    list_display = (
        "title",
        "version",
        "current",
        "accepted_count",
        "created_at",
        "managed_by",
    )
    list_filter = (("is_current", CurrentFilter), ("is_from_environment", ManagedFilter))
    search_fields = ("title", "version", "body")
    readonly_fields = (
        "shown_version",
        "current",
        "accepted_count",
        "created_at",
        "managed_by",
        "preview",
    )
    # Versions are deleted one by one, if at all.
    actions = None
    change_list_template = "admin/catalog/terms/change_list.html"

    class Media:
        css: ClassVar = {"all": ["catalog/admin.css"]}
        js: ClassVar = ["catalog/preview.js"]

    def get_fieldsets(self, request: HttpRequest, obj: Terms | None = None) -> Any:
        """Return the groups of fields."""
        if obj is None:
            return [(None, {"fields": ("title", "body", "preview", "version")})]
        facts = ("shown_version", "current", "accepted_count", "created_at", "managed_by")
        is_edited = self.has_change_permission(request, obj)
        text = ("title", "body", "preview", *(("new_version",) if is_edited else ()))
        return [
            (None, {"fields": text}),
            ("Version", {"fields": facts, "description": DELETE_HELP}),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Terms | None = None) -> Any:
        """Return what cannot be typed; the version can be for new terms."""
        return self.readonly_fields if obj else ("preview",)

    def get_form(
        self, request: HttpRequest, obj: Terms | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """Return the form for new terms or for the current ones."""
        kwargs["form"] = EditTermsForm if obj else PublishTermsForm
        return super().get_form(request, obj, change=change, **kwargs)

    @admin.display(description="version")
    def shown_version(self, terms: Terms) -> str:
        """Return the version, without the help of a field that one types into."""
        return terms.version

    @admin.display(description="current", ordering="is_current")
    def current(self, terms: Terms) -> str:
        """Tell whether clients must accept it; that they need not is nothing bad."""
        return "yes" if terms.is_current else "no"

    @admin.display(description="managed by", ordering="is_from_environment")
    def managed_by(self, terms: Terms) -> str:
        """Return who says what the text is."""
        return "environment" if terms.is_from_environment else "admin"

    @admin.display(description="preview")
    def preview(self, terms: Terms) -> SafeString:
        """Return the stored text as HTML; the button shows what is being written."""
        shown = markdown.render(terms.body)
        return format_html('<div class="terms-preview" aria-live="polite">{}</div>', shown)

    def has_change_permission(self, request: HttpRequest, obj: Terms | None = None) -> bool:
        """Refuse for old versions and for what the environment manages."""
        is_open = obj is None or (obj.is_current and not obj.is_from_environment)
        return is_open and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Terms | None = None) -> bool:
        """Refuse for what is current, was accepted, or the environment manages."""
        is_free = obj is None or not (
            obj.is_current or obj.accepted_count or obj.is_from_environment
        )
        return is_free and super().has_delete_permission(request, obj)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show or save; who edited what is not current any more is told so."""
        terms = self.get_object(request, unquote(object_id))
        is_late = request.method == "POST" and terms is not None and not terms.is_current
        if terms is not None and is_late and self.has_change_permission(request):
            text = actions.TERMS_ARE_OLD.format(version=terms.version)
            return self._back(request, terms, text, messages.ERROR)
        return super().change_view(request, object_id, form_url, extra_context)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any
    ) -> HttpResponse:
        """Offer one way to save, and what else may be done with a version."""
        context |= {
            "show_save_and_add_another": False,
            "show_save_and_continue": False,
            "may_change_terms": self.has_change_permission(request),
        }
        return super().render_change_form(request, context, *args, **options)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, with the way to withdraw what is current."""
        is_current = Terms.objects.filter(is_current=True, is_from_environment=False).exists()
        may = is_current and self.has_change_permission(request)
        return super().changelist_view(request, {**(extra_context or {}), "may_withdraw": may})

    def save_model(self, request: HttpRequest, obj: Terms, form: Any, change: bool) -> None:
        """Publish or edit by the action; the object becomes the row that is current then."""
        title, body = form.cleaned_data["title"], form.cleaned_data["body"]
        if change:
            row = actions.edit_terms(obj.pk, title, body, form.cleaned_data["new_version"])
        else:
            row = actions.publish_terms(title, body, form.cleaned_data["version"])
        obj.pk = row.pk
        obj.refresh_from_db()

    def response_add(
        self, request: HttpRequest, obj: Terms, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Say what is current now."""
        return self._back(request, obj, CURRENT.format(version=obj.version))

    def response_change(self, request: HttpRequest, obj: Terms) -> HttpResponse:
        """Say whether it is a new version."""
        match = request.resolver_match
        old = Terms.objects.filter(pk=match.kwargs["object_id"]).first() if match else None
        if old is None or old.pk == obj.pk:
            return self._back(request, obj, IS_KEPT.format(version=obj.version))
        return self._back(request, obj, IS_NEW.format(version=obj.version, old=old.version))

    def delete_model(self, request: HttpRequest, obj: Terms) -> None:
        """Delete by the action."""
        actions.delete_terms(obj.pk)

    def get_urls(self) -> list[URLPattern]:
        """Return the addresses, with those of what else may be done."""
        view = self.admin_site.admin_view
        own = [
            path("preview/", view(self.preview_view), name="catalog_terms_preview"),
            path("withdraw/", view(self.withdraw_view), name="catalog_terms_withdraw"),
            path(
                "<int:terms_id>/make-current/",
                view(self.make_current_view),
                name="catalog_terms_make_current",
            ),
        ]
        return [*own, *super().get_urls()]

    def preview_view(self, request: HttpRequest) -> HttpResponse:
        """Return the HTML of a text that is being written."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not (self.has_add_permission(request) or self.has_change_permission(request)):
            raise PermissionDenied
        body = request.POST.get("body", "")
        if problem := body_problem(body):
            return HttpResponseBadRequest(f"The text {problem}.", content_type="text/plain")
        return HttpResponse(markdown.render(body))

    def withdraw_view(self, request: HttpRequest) -> HttpResponseBase:
        """Ask, then have no current terms."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        current = Terms.objects.filter(is_current=True).first()
        if current is None:
            return self._back(request, None, NONE_CURRENT, messages.WARNING)
        if request.method != "POST":
            return self._ask(request, current, "withdraw")
        try:
            withdrawn = actions.withdraw_terms(request.POST.get("version", ""))
        except actions.ChangeRefused as exc:
            return self._back(request, None, exc.message, messages.ERROR)
        self.log_change(request, withdrawn, "Withdrawn.")
        return self._back(request, None, WITHDRAWN.format(version=withdrawn.version))

    def make_current_view(self, request: HttpRequest, terms_id: int) -> HttpResponseBase:
        """Ask, then make a version current again."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        terms = Terms.objects.filter(pk=terms_id).first()
        if request.method != "POST" and terms is not None:
            return self._ask(request, terms, "make_current")
        try:
            terms = actions.make_terms_current(terms_id)
        except actions.ChangeRefused as exc:
            return self._back(request, terms, exc.message, messages.ERROR)
        self.log_change(request, terms, "Made current again.")
        return self._back(request, terms, CURRENT.format(version=terms.version))

    def _ask(self, request: HttpRequest, terms: Terms, what: str) -> TemplateResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "terms": terms,
            "what": what,
            "title": "Are you sure?",
            "shown": markdown.render(terms.body),
            "media": self.media,
        }
        return TemplateResponse(request, "admin/catalog/terms/confirm.html", context)

    def _back(
        self, request: HttpRequest, terms: Terms | None, text: str, level: int = messages.SUCCESS
    ) -> HttpResponseRedirect:
        """Go to a version's page, or to the list, and say there what happened."""
        self.message_user(request, text, level)
        if terms is None:
            return HttpResponseRedirect(reverse("admin:catalog_terms_changelist"))
        return HttpResponseRedirect(reverse("admin:catalog_terms_change", args=[terms.pk]))
