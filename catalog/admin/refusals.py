"""What a person is told where a deletion is refused that the page still offered."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse

from catalog import actions

if TYPE_CHECKING:
    _Mixin = admin.ModelAdmin[Any]
else:
    _Mixin = object


class TellsRefusals(_Mixin):
    """Deletes by actions, which may refuse what somebody has changed since the page was shown."""

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Ask, then delete; where it is refused, say why in the list."""
        try:
            # NB: its transaction takes the history's entry back, which is written first.
            return super().delete_view(request, object_id, extra_context)
        except actions.ChangeRefused as exc:
            self.message_user(request, exc.message, messages.ERROR)
            name = f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"
            return HttpResponseRedirect(reverse(name))

    def delete_together(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> HttpResponseBase | None:
        """Ask, then delete all of them; where one is refused, none, and say why."""
        try:
            with transaction.atomic():
                return delete_selected(self, request, queryset)
        except actions.ChangeRefused as exc:
            self.message_user(request, exc.message, messages.ERROR)
            return None
