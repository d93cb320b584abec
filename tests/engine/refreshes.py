"""What tests of the tag refresh share: settings, the time, and what is offered."""

from datetime import UTC, datetime
from typing import Any

from catalog.models import Revision
from telorunner.conf import Settings
from tests.builders import IMAGE, make_settings

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def settings_of(**overrides: Any) -> Settings:
    return make_settings(**{"base_image_api_url": "http://hub.example", **overrides})


def images(*names: str) -> list[str]:
    """Return the offer where these tags are in it."""
    return [IMAGE, *(f"telorun/node:{name}" for name in names)]


def revision() -> int:
    return Revision.objects.values_list("number", flat=True).first() or 0
