"""The routes of everything that is no stream: /v1, health and the admin.

Whatever is unknown is answered in JSON by the last route, so that no framework page is.
"""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path, re_path
from django.views.decorators.csrf import csrf_exempt
from django.views.generic import RedirectView

from telorunner import health
from telorunner.drf import error_of_status, json_answer
from telorunner.errors import InternalError, NotFound


@csrf_exempt
def not_found(_request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer for an address that nothing is at, as the last route and as Django's handler."""
    del exception
    return json_answer(NotFound())


def refused(_request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer for a request that Django itself refused, such as one with an impossible Host."""
    del exception
    return json_answer(error_of_status(400))


def failed(_request: HttpRequest) -> HttpResponse:
    """Answer for a view that raised."""
    return json_answer(InternalError())


urlpatterns = [
    path("v1/health", health.health),
    path("livez", health.livez),
    path("readyz", health.readyz),
    path("v1/", include("sessions.urls")),
    path("admin", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
    re_path(r"", not_found),
]
handler400 = refused
handler403 = refused
handler404 = not_found
handler500 = failed
