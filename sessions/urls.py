"""The routes of /v1 that are views; streams and sockets are routed in `telorunner.asgi`."""

from django.urls import path

from sessions import api

urlpatterns = [
    path("capabilities", api.Capabilities.as_view()),
    path("probe", api.Probe.as_view()),
    path("apps/<str:name>/sessions", api.AppSessions.as_view()),
    path("sessions", api.Sessions.as_view()),
    path("sessions/<str:session_id>", api.Session.as_view()),
]
