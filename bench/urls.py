"""The product's routes, and the bare view that creating a session is compared with."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt

from bench.models import Row
from sessions import store


@csrf_exempt
def write_row(request: HttpRequest) -> HttpResponse:
    """Write the body down in one row, by the product's way to the database; answer 201."""
    row = store.write(Row._default_manager.create, text=request.body.decode())
    return JsonResponse({"id": row.pk}, status=201)


urlpatterns = [
    path("bench/row", write_row),
    path("", include("telorunner.urls")),
]
