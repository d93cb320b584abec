"""The views of /v1: they parse, ask an action, and answer; they decide nothing.

Streams and terminals are in `sessions.consumers`.
"""

from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from sessions import requests
from sessions.actions import create, create_app, offers, read, stop
from sessions.actions.registration import Created
from sessions.openapi import operations
from telorunner.conf import Settings
from telorunner.drf import read_json, read_optional_json

# Of several such headers Django makes one value, joined by commas: no version has one.
_ACCEPTED_TERMS = "HTTP_X_TELO_ACCEPTED_TERMS"


def _config() -> Settings:
    config: Settings = settings.RUNNER
    return config


def _body(request: Request) -> Any:
    return read_json(request, max_bytes=_config().max_bundle_bytes)


def _accepted_terms(request: Request) -> str:
    accepted: str = request.META.get(_ACCEPTED_TERMS, "")
    return accepted


def _created(created: Created) -> Response:
    body = {
        "sessionId": created.session_id,
        "streamUrl": f"/v1/sessions/{created.session_id}/events",
        "createdAt": read.format_time(created.created_at),
    }
    return Response(body, status=201)


class Capabilities(APIView):
    """What this runner offers."""

    @operations.GET_CAPABILITIES
    def get(self, _request: Request) -> Response:
        """Answer 200 with the capabilities as they are now."""
        return Response(offers.capabilities(_config()))


class Probe(APIView):
    """Whether a session with this config could run."""

    @operations.PROBE
    def post(self, request: Request) -> Response:
        """Answer 200 with ready, needs-setup or unavailable."""
        image = requests.parse_probe(_body(request))
        return Response(read.probe(image, _config()))


class Sessions(APIView):
    """The collection of sessions."""

    @operations.CREATE_SESSION
    def post(self, request: Request) -> Response:
        """Register a session; answer 201 before anything is asked of the cluster."""
        wanted = requests.parse_create(_body(request))
        return _created(create.create(wanted, _config(), accepted_terms=_accepted_terms(request)))


@operations.of_app
class AppSessions(APIView):
    """The sessions of an app of the catalog."""

    @operations.CREATE_APP_SESSION
    def post(self, request: Request, name: str) -> Response:
        """Register a session of the app; answer 201 before anything is asked of the cluster."""
        config = _config()
        body = read_optional_json(request, max_bytes=config.max_bundle_bytes)
        wanted = requests.parse_create_app(body)
        return _created(
            create_app.create_app(name, wanted, config, accepted_terms=_accepted_terms(request))
        )


@operations.of_session
class Session(APIView):
    """One session."""

    @operations.GET_SESSION
    def get(self, _request: Request, session_id: str) -> Response:
        """Answer 200 with the session's document."""
        return Response(read.read(session_id))

    @operations.STOP_SESSION
    def delete(self, _request: Request, session_id: str) -> Response:
        """Answer 204 once the stop is recorded, whatever the id."""
        stop.stop(session_id)
        return Response(status=204)
