"""Django's registration of the sessions app."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """The label differs from the package, beside django.contrib.sessions."""

    name = "sessions"
    label = "runner_sessions"
    verbose_name = "Sessions"
    default_auto_field = "django.db.models.BigAutoField"
