"""Rows of sessions without a client or an engine: what an admin's list is made of."""

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from sessions.admission import random_id
from sessions.models import Session
from sessions.spec import App as Application
from sessions.spec import Limits, Port, SessionSpec
from sessions.states import StatusKind
from tests.builders import make_spec

LIMITS = Limits(
    cpu_millis=1500,
    memory_bytes=512 * 2**20,
    ephemeral_storage_bytes=2**30,
    ttl_seconds=5400,
)


def full_spec(**overrides: Any) -> SessionSpec:
    """Return a spec with ports and limits."""
    application = Application("web", "telo.yaml", ports=(Port(8080),))
    return make_spec(**{"apps": (application,), "limits": LIMITS, **overrides})


def make_row(status: str = StatusKind.STARTING, **overrides: Any) -> Session:
    """Return an unsaved row of a session whose other columns fit the status."""
    created_at: datetime = overrides.pop("created_at", timezone.now())
    spec: SessionSpec = overrides.pop("spec", full_spec())
    values: dict[str, Any] = {
        "id": random_id(),
        "mode": spec.mode,
        "image": spec.image,
        "spec": spec.to_json(),
        "status": status,
        "created_at": created_at,
    }
    if StatusKind(status).is_terminal:
        values["ended_at"] = created_at + timedelta(seconds=65)
    if status == StatusKind.EXITED:
        values["exit_code"] = 0
    return Session(**{**values, **overrides})


def save_row(status: str = StatusKind.STARTING, **overrides: Any) -> Session:
    """Return a row of a session, saved."""
    row = make_row(status, **overrides)
    row.save(force_insert=True)
    return row
