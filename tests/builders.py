"""Request bodies, specs and rows with sensible values; each part can be overridden by keyword."""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from routing.router import Router, inactive_router
from sessions import bundles
from sessions.bus.memory import MemoryBus
from sessions.log.memory import MemoryLog
from sessions.runtime import Runtime
from sessions.spec import App, Limits, SessionSpec
from sessions.states import Mode, StatusKind
from sessions.store import NewSession, OwnedSession
from telorunner.conf import Settings
from telorunner.values.pullpolicy import PullPolicy

ENTRY = "telo.yaml"
HELLO = "kind: Telo.Application\n"
IMAGE = "telorun/node:latest-slim"
LIMITS = Limits(cpu_millis=500, memory_bytes=2**29, ephemeral_storage_bytes=2**30, ttl_seconds=3600)


def make_settings(**overrides: Any) -> Settings:
    """Return settings that do not depend on the environment, by field name."""
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    return Settings.model_construct(**{**defaults, "image": IMAGE, **overrides})


def make_runtime(
    config: Settings, *, cluster: Any = None, pods: Any = None, router: Router | None = None
) -> Runtime:
    """Return a runtime on the running loop; what is None must not be asked for anything."""
    return Runtime(
        config=config,
        log=MemoryLog(config.replay_buffer_bytes),
        bus=MemoryBus(),
        cluster=cluster,
        pods=pods,
        loop=asyncio.get_running_loop(),
        router=router or inactive_router("Nothing is published."),
    )


def make_bundle(
    files: Mapping[str, str | bytes] | None = None, *, entry: str = ENTRY
) -> dict[str, Any]:
    """Return a bundle as JSON; bytes travel as base64."""
    listed = []
    for path, contents in (files if files is not None else {ENTRY: HELLO}).items():
        file = {"relativePath": path}
        if isinstance(contents, bytes):
            file |= {"contents": base64.b64encode(contents).decode(), "encoding": "base64"}
        else:
            file["contents"] = contents
        listed.append(file)
    return {"entryRelativePath": entry, "files": listed}


def create_body(**overrides: Any) -> dict[str, Any]:
    """Return a body of POST /v1/sessions."""
    body: dict[str, Any] = {
        "bundle": make_bundle(),
        "env": {},
        "config": {"image": IMAGE, "pullPolicy": "missing"},
    }
    return {**body, **overrides}


def make_spec(**overrides: Any) -> SessionSpec:
    """Return a session's spec."""
    values: dict[str, Any] = {
        "session_id": "",
        "mode": Mode.RUN,
        "image": IMAGE,
        "pull_policy": PullPolicy.MISSING,
        "apps": (App("app", ENTRY),),
        "limits": LIMITS,
    }
    return SessionSpec(**{**values, **overrides})


def make_new_session(**overrides: Any) -> NewSession:
    """Return what admission writes down."""
    values: dict[str, Any] = {
        "spec": make_spec(),
        "env_sealed": b"",
        "archive": bundles.pack({ENTRY: HELLO.encode()}),
        "files": [{"path": ENTRY, "size": len(HELLO)}],
        "created_at": timezone.now(),
    }
    return NewSession(**{**values, **overrides})


def make_owned_session(**overrides: Any) -> OwnedSession:
    """Return a session as the engine that owns it reads it off its row."""
    values: dict[str, Any] = {
        "spec": make_spec(),
        "status": StatusKind.STARTING,
        "fence": 1,
        "env": {},
        "stop_requested_at": None,
        "pod_name": "",
        "pod_uid": "1",
        "created_at": timezone.now(),
        "event_numbers": 0,
        "output_numbers": 0,
        "progress": None,
        "endpoints": (),
    }
    return OwnedSession(**{**values, **overrides})
