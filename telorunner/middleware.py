"""Django's middleware without the threads: what is pure runs on the loop, the rest for the admin.

Under ASGI Django hands a request to a thread and back for each method of each of its middlewares:
dozens of turns of the loop, which are long where clients catch up by the hundred. Nothing but the
admin has log-ins, forms and messages, so that nothing else pays for them.
"""

from collections.abc import Awaitable
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.common import CommonMiddleware
from django.middleware.csrf import CsrfViewMiddleware
from django.middleware.security import SecurityMiddleware
from django.utils.deprecation import MiddlewareMixin

ADMIN_PREFIX = "/admin"
# What a page of the admin may load and run is the runner's own, so that no text that gets into one
# can run anything or tell anybody. Some of Django's widgets style themselves.
ADMIN_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)


class _OnTheLoop(MiddlewareMixin):
    """Calls methods that neither wait nor compute for long where they are."""

    async def __acall__(self, request: HttpRequest) -> HttpResponseBase:
        methods: Any = self
        early = methods.process_request(request) if hasattr(self, "process_request") else None
        response: HttpResponseBase = early or await methods.get_response(request)
        return methods.process_response(request, response)  # type: ignore[no-any-return] # of Django's


class _ForTheAdmin(MiddlewareMixin):
    """Steps aside for every request that is not the admin's."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if request.path.startswith(ADMIN_PREFIX):
            return super().__call__(request)
        return self.get_response(request)


class Security(_OnTheLoop, SecurityMiddleware):
    """Headers for browsers."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Add them to an answer."""
        response = super().process_response(request, response)
        if request.path.startswith(ADMIN_PREFIX):
            response.headers.setdefault("Content-Security-Policy", ADMIN_POLICY)
        return response


class Common(_OnTheLoop, CommonMiddleware):
    """The length of answers, and slashes that are missing."""


class XFrameOptions(_OnTheLoop, XFrameOptionsMiddleware):
    """No page of ours stands in a frame of somebody else's."""


class Session(_ForTheAdmin, SessionMiddleware):
    """Who is logged in."""


class Authentication(_ForTheAdmin, AuthenticationMiddleware):
    """The user of a log-in."""


class Messages(_ForTheAdmin, MessageMiddleware):
    """What an action reports."""


class CsrfView(_ForTheAdmin, CsrfViewMiddleware):
    """Forms that only our own pages may send."""

    async def process_view(  # type: ignore[override] # Django takes either kind
        self, request: HttpRequest, callback: Any, args: Any, kwargs: Any
    ) -> HttpResponse | None:
        """Check a form's token."""
        if not request.path.startswith(ADMIN_PREFIX):
            return None
        check = sync_to_async(super().process_view, thread_sensitive=True)
        return await check(request, callback, args, kwargs)
