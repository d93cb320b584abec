"""The lists of base images and of the repository's tags, and the state of fetching the latter."""

from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Case, F, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.utils.formats import date_format

from catalog import actions, refreshrow, standing
from catalog.admin.history import note_changes
from catalog.admin.refusals import TellsRefusals
from catalog.forms.images import BaseImageForm
from catalog.models import BaseImage, BaseImageTag
from catalog.offer import offered_images
from catalog.standing import TagStanding

if TYPE_CHECKING:
    _ImageAdmin = admin.ModelAdmin[BaseImage]
    _TagAdmin = admin.ModelAdmin[BaseImageTag]
    _Mixin = admin.ModelAdmin[Any]
else:
    # Django's class takes its type parameter in the stubs only.
    _ImageAdmin = _TagAdmin = admin.ModelAdmin
    _Mixin = object

REFRESH_ACTION = "refresh_base_images"
IS_OFF = "Base images are switched off: RUNNER_BASE_IMAGE_CATALOG_ENABLED is false."
IS_ASKED = "The tags are fetched anew, which takes some seconds: reload this page to see."
IS_REFUSED = "Docker Hub wants not to be asked before {until} UTC; it is asked then."


class _WithRefresh(_Mixin):
    """A list that shows how fetching the tags goes, and has a button to fetch them now."""

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list; fetch the tags where the button was pressed, with no row selected."""
        if request.method == "POST" and request.POST.get("action") == REFRESH_ACTION:
            return self._refresh(request)
        context = {
            "refresh": refreshrow.read_state(settings.RUNNER),
            "may_refresh": self.has_refresh_permission(request),
            "refresh_action": REFRESH_ACTION,
            "offered": offered_images(settings.RUNNER),
        }
        return super().changelist_view(request, {**context, **(extra_context or {})})

    def has_refresh_permission(self, request: HttpRequest) -> bool:
        """Tell whether a user may have the tags fetched: whoever may hide them."""
        tags = self.admin_site.get_model_admin(BaseImageTag)
        return tags.has_change_permission(request)

    @admin.action(description="Refresh the tags now", permissions=["refresh"])
    def refresh_base_images(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Have the tags fetched now, whatever is selected."""
        # NB: `changelist_view` has done it; the list of actions needs a function.

    def _refresh(self, request: HttpRequest) -> HttpResponse:
        if not self.has_refresh_permission(request):
            raise PermissionDenied
        if not settings.RUNNER.base_image_catalog_enabled:
            self.message_user(request, IS_OFF, messages.ERROR)
        elif until := refreshrow.ask(settings.RUNNER):
            shown = date_format(until, "Y-m-d H:i:s")
            self.message_user(request, IS_REFUSED.format(until=shown), messages.WARNING)
        else:
            self.message_user(request, IS_ASKED, messages.SUCCESS)
        return HttpResponseRedirect(request.get_full_path())


@admin.register(BaseImage)
class BaseImageAdmin(TellsRefusals, _WithRefresh, _ImageAdmin):
    """The operators' own base images; the environment's stands first and can only be looked at."""

    form = BaseImageForm
    list_display = ("reference", "offer", "position", "enabled", "managed_by")
    list_filter = ("enabled",)
    search_fields = ("reference",)
    actions = (REFRESH_ACTION, "delete_selected")
    readonly_fields = ("offer", "managed_by")

    def get_fields(self, request: HttpRequest, obj: BaseImage | None = None) -> Any:
        """Return the fields; what is computed only of an entry that is there."""
        computed = ("offer", "managed_by") if obj else ()
        seen = ("seen",) if obj and self.has_change_permission(request, obj) else ()
        return ("reference", "position", "enabled", *computed, *seen)

    @admin.display(description="offered")
    def offer(self, image: BaseImage) -> str:
        """Return whether it is offered, or why not."""
        return standing.IMAGE_WORDS[standing.image_standing(image, settings.RUNNER)]

    @admin.display(description="managed by", ordering="-is_from_environment")
    def managed_by(self, image: BaseImage) -> str:
        """Return who says what is in the entry."""
        return "environment: RUNNER_IMAGE" if image.is_from_environment else "admin"

    def has_change_permission(self, request: HttpRequest, obj: BaseImage | None = None) -> bool:
        """Refuse for what the environment manages."""
        is_ours = obj is None or not obj.is_from_environment
        return is_ours and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: BaseImage | None = None) -> bool:
        """Refuse for what the environment manages."""
        is_ours = obj is None or not obj.is_from_environment
        return is_ours and super().has_delete_permission(request, obj)

    def save_model(self, request: HttpRequest, obj: BaseImage, form: Any, change: bool) -> None:
        """Save by the action."""
        actions.save_base_image(obj)

    def delete_model(self, request: HttpRequest, obj: BaseImage) -> None:
        """Delete by the action."""
        actions.delete_base_image(obj.pk)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[BaseImage]) -> None:
        """Delete by the action."""
        for image in queryset:
            actions.delete_base_image(image.pk)

    @admin.action(description="Delete selected base images", permissions=["delete"])
    def delete_selected(
        self, request: HttpRequest, queryset: QuerySet[BaseImage]
    ) -> HttpResponseBase | None:
        """Ask for confirmation, unless one of them is the environment's."""
        if managed := queryset.filter(is_from_environment=True).first():
            sentence = actions.IMAGE_IS_MANAGED.format(reference=managed.reference)
            self.message_user(request, sentence, messages.ERROR)
            return None
        return self.delete_together(request, queryset)


class OfferedFilter(admin.SimpleListFilter):
    """Offered tags, or the others."""

    title = "offered"
    parameter_name = "offered"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the two choices."""
        return [("yes", "Offered"), ("no", "Not offered")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep what was chosen."""
        match self.value():
            case "yes":
                return queryset.filter(how=TagStanding.OFFERED)
            case "no":
                return queryset.exclude(how=TagStanding.OFFERED)
        return queryset


@admin.register(BaseImageTag)
class BaseImageTagAdmin(_WithRefresh, _TagAdmin):
    """The fetched tags, newest first; all that can be changed is whether one is hidden."""

    list_display = ("name", "offer", "updated_at", "repository")
    list_filter = (OfferedFilter, "hidden")
    list_per_page = 200
    search_fields = ("name",)
    # The order in which they are offered; those of no date are last.
    ordering: ClassVar = [
        F("updated_at").desc(nulls_last=True),
        F("position").asc(nulls_last=True),
        "name",
    ]
    actions = ("hide_tags", "show_tags", REFRESH_ACTION)
    fields = ("repository", "name", "updated_at", "offer_with_cause", "hidden")
    readonly_fields = ("repository", "name", "updated_at", "offer_with_cause")

    def get_queryset(self, request: HttpRequest) -> QuerySet[BaseImageTag]:
        """Note of each tag how it stands."""
        found = standing.tag_standings(settings.RUNNER)
        known = (When(pk__in=ids, then=Value(how.value)) for how, ids in found.items())
        how = Case(*known, default=Value(TagStanding.GONE.value))
        annotated: QuerySet[BaseImageTag] = super().get_queryset(request).annotate(how=how)
        return annotated

    @admin.display(description="offered", ordering="how")
    def offer(self, tag: BaseImageTag) -> str:
        """Return whether it is offered, or why not."""
        return standing.TAG_WORDS[_how(tag)]

    @admin.display(description="offered")
    def offer_with_cause(self, tag: BaseImageTag) -> str:
        """Return whether it is offered, or why not and which variable to change."""
        variables = standing.TAG_VARIABLES.get(_how(tag), "")
        return f"{self.offer(tag)} ({variables})" if variables else self.offer(tag)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Refuse: tags are fetched."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: BaseImageTag | None = None) -> bool:
        """Refuse: the next fetch would have it again; it can be hidden."""
        return False

    def save_model(self, request: HttpRequest, obj: BaseImageTag, form: Any, change: bool) -> None:
        """Write nothing but the mark: the rest may have been fetched anew meanwhile."""
        actions.set_tags_hidden([obj.pk], is_hidden=obj.hidden)

    @admin.action(description="Hide selected tags", permissions=["change"])
    def hide_tags(self, request: HttpRequest, queryset: QuerySet[BaseImageTag]) -> None:
        """Offer the tags no more; sessions that run them go on."""
        self._set_hidden(request, queryset, is_hidden=True)

    @admin.action(description="Show selected tags again", permissions=["change"])
    def show_tags(self, request: HttpRequest, queryset: QuerySet[BaseImageTag]) -> None:
        """Leave it to the rules again whether the tags are offered."""
        self._set_hidden(request, queryset, is_hidden=False)

    def _set_hidden(
        self, request: HttpRequest, queryset: QuerySet[BaseImageTag], *, is_hidden: bool
    ) -> None:
        ids = list(queryset.values_list("pk", flat=True))
        changed = actions.set_tags_hidden(ids, is_hidden=is_hidden)
        note_changes(request, changed, "Hidden." if is_hidden else "Shown again.")
        words = "hidden from the next request on" if is_hidden else "left to the rules again"
        text = f"{len(changed)} tag{' is' if len(changed) == 1 else 's are'} {words}."
        self.message_user(request, text, messages.SUCCESS if changed else messages.INFO)


def _how(tag: BaseImageTag) -> TagStanding:
    how: str = tag.how  # type: ignore[attr-defined] # annotated by the admin's get_queryset
    return TagStanding(how)
