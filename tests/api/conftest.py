"""A runtime on memory log and bus, without a cluster, and a client of the whole application."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from sessions import runtime
from sessions.runtime import Runtime
from telorunner.conf import Settings
from tests import description
from tests.builders import make_runtime, make_settings


@pytest.fixture
def admin_user(db: None, django_user_model: Any) -> Any:
    """An administrator without a password: making one takes longer than most tests of the admin."""
    return django_user_model.objects.create_superuser("admin")


@pytest.fixture
def config() -> Settings:
    """The settings that the API under test works with; a module may override it."""
    return make_settings()


@pytest.fixture
async def running(config: Settings, settings: Any) -> AsyncIterator[Runtime]:
    """The runtime of a process whose cluster nobody may ask for anything."""
    settings.RUNNER = config
    current = make_runtime(config)
    with runtime.installed(current):
        yield current


@pytest.fixture
async def client(running: Runtime) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application with its middlewares."""
    from telorunner.asgi import build_application

    transport = httpx.ASGITransport(app=build_application(running.config))
    hooks = {"response": [description.check_response]}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://runner", event_hooks=hooks
    ) as opened:
        yield opened


@pytest.fixture
def app(running: Runtime) -> ASGIApp:
    """The application with its middlewares, for streams and sockets."""
    from telorunner.asgi import build_application

    return build_application(running.config)
