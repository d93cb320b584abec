"""The routes of everything that is no stream: /v1, health and the admin.

Whatever is unknown is answered in JSON by the last route. Error pages are Django's own, which the
admin keeps and `telorunner.jsonerrors` replaces everywhere else.
"""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path, re_path
from django.views.decorators.csrf import csrf_exempt
from django.views.generic import RedirectView

from telorunner import health, openapi
from telorunner.drf import json_answer
from telorunner.errors import NotFound


@csrf_exempt
def not_found(_request: HttpRequest) -> HttpResponse:
    """Answer for an address that nothing is at."""
    return json_answer(NotFound())


urlpatterns = [
    path("readyz", health.readyz),
    path("v1/openapi.json", openapi.Document.as_view()),
    path("v1/docs", openapi.Page.as_view()),
    path("v1/", include("sessions.urls")),
    path("admin", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
    re_path(r"", not_found),
]
