"""The one site of the admin: its names, what comes first in it, and what each part is for."""

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest

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


class RunnerAdminSite(admin.AdminSite):
    """The operators' console."""

    index_title = "What runs, and what may run"
    # There is no other site to view: everything else is for programs.
    site_url = None

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
