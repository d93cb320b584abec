"""Registering a session: every decision about what was asked for, in the contract's order.

The session is registered before anything is asked of the cluster; its start is the engine's.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.utils import timezone

from sessions import admission, bundles, runtime, store
from sessions.actions import offers
from sessions.admission import RequestedLimits
from sessions.spec import DEFAULT_APP_NAME, App, Limits, Port, SessionSpec
from sessions.states import Delivery, Mode, PullPolicy
from telorunner.conf import Settings
from telorunner.errors import (
    AgentRequiresWatch,
    DuplicateAppName,
    InvalidAppName,
    ReservedAppName,
    WatchDisabled,
)
from telorunner.values.dns import MAX_LABEL_LENGTH, is_dns_label

logger = logging.getLogger(__name__)

# An app's container is called "app-<name>", which must be a DNS label.
MAX_APP_NAME_LENGTH = MAX_LABEL_LENGTH - len("app-")
RESERVED_APP_NAMES = frozenset({"workspace", "agent"})

REGISTRY_VARIABLE = "TELO_REGISTRY_URL"
# The pod has a folder of its own for the module cache.
CACHE_VARIABLE = "TELO_CACHE_DIR"


@dataclass(frozen=True)
class Wanted:
    """What a client asks for, in the right shape but not decided yet.

    Entries and paths are as they were sent; without `apps` there is one app on `entry`.
    """

    files: Sequence[bundles.File] = field(repr=False)
    entry: str
    env: Mapping[str, str] = field(repr=False)
    image: str
    pull_policy: PullPolicy
    # It may hold credentials.
    registry_url: str = field(default="", repr=False)
    apps: tuple[App, ...] = ()
    ports: tuple[Port, ...] = ()
    limits: RequestedLimits = field(default_factory=RequestedLimits)
    is_inspected: bool = False
    is_watch: bool = False
    agent: str = ""


@dataclass(frozen=True)
class Created:
    """A session that was registered."""

    session_id: str
    created_at: datetime


def create(wanted: Wanted, config: Settings) -> Created:
    """Register a session and wake the engines.

    Raises:
        Stopping: The process is going down.
        InvalidBundle, InvalidConfig, WatchDisabled, AgentRequiresWatch, InvalidAppName,
        ReservedAppName, DuplicateAppName, BundleTooLarge: What was asked for cannot be done.
        CapacityExceeded: There is no room.
        Unavailable: The database cannot be reached.
    """
    running = runtime.current()
    bundle = bundles.check(wanted.files, _entries(wanted))
    image = offers.offered_image(wanted.image, config)
    _refuse_watch(wanted)
    apps = _apps(wanted, bundle)
    archive = bundles.pack(bundle.files)
    delivery = bundles.choose_delivery(archive, config.bundle_delivery)

    session = SessionSpec(
        session_id="",  # admission gives it one
        mode=Mode.RUN,
        image=image,
        pull_policy=wanted.pull_policy,
        apps=apps,
        limits=admission.clamp_limits(wanted.limits, _ceiling(config)),
        is_inspected=wanted.is_inspected,
        delivery=delivery,
    )
    new = store.NewSession(
        spec=session,
        env_sealed=store.seal_env(_env(wanted, config)),
        archive=archive,
        files=[{"path": path, "size": len(data)} for path, data in sorted(bundle.files.items())],
        created_at=timezone.now(),
        token_sealed=_token_sealed(delivery),
    )
    admitted = store.write(admission.admit, new, max_sessions=config.max_sessions)
    _forget(running, admitted.evicted_ids)
    running.bus.wake(admitted.session_id)
    registered = {"session": admitted.session_id, "action": "session_registered"}
    logger.info("Session registered.", extra=registered)
    return Created(admitted.session_id, new.created_at)


def _entries(wanted: Wanted) -> list[tuple[str, str]]:
    """Return each entry with the JSON Pointer it was sent at, the bundle's own first."""
    entries = [("/bundle/entryRelativePath", wanted.entry)]
    for index, app in enumerate(wanted.apps):
        entries.append((f"/apps/{index}/entryRelativePath", app.entry))
    return entries


def _refuse_watch(wanted: Wanted) -> None:
    """Refuse what only watch sessions have."""
    if wanted.is_watch:
        raise WatchDisabled
    if wanted.agent:
        raise AgentRequiresWatch


def _apps(wanted: Wanted, bundle: bundles.Bundle) -> tuple[App, ...]:
    """Return the apps with their normalised entries.

    The request's own ports belong to the one app of a run session, whichever way they were sent.
    """
    if not wanted.apps:
        return (App(DEFAULT_APP_NAME, bundle.entries[0], wanted.ports),)
    names: set[str] = set()
    for app in wanted.apps:
        if not is_dns_label(app.name, MAX_APP_NAME_LENGTH):
            raise InvalidAppName
        if app.name in RESERVED_APP_NAMES:
            raise ReservedAppName(f"An app cannot be called {app.name}.")
        if app.name in names:
            raise DuplicateAppName(f"Two apps are called {app.name}.")
        names.add(app.name)
    return tuple(
        replace(app, entry=entry, ports=tuple(dict.fromkeys(app.ports + wanted.ports)))
        for app, entry in zip(wanted.apps, bundle.entries[1:], strict=True)
    )


def _env(wanted: Wanted, config: Settings) -> dict[str, str]:
    """Return the session's env: the client's, and the module registry where one is known."""
    env = {name: value for name, value in wanted.env.items() if name != CACHE_VARIABLE}
    registry_url = wanted.registry_url or config.telo_registry_url
    if registry_url:
        env.setdefault(REGISTRY_VARIABLE, registry_url)
    return env


def _token_sealed(delivery: Delivery) -> bytes:
    return store.seal_token(bundles.new_token()) if delivery is Delivery.FETCH else b""


def _ceiling(config: Settings) -> Limits:
    return Limits(
        cpu_millis=config.max_cpu_millis,
        memory_bytes=config.max_memory_bytes,
        ephemeral_storage_bytes=config.max_ephemeral_storage_bytes,
        ttl_seconds=config.max_ttl_seconds,
    )


def _forget(running: runtime.Runtime, session_ids: Sequence[str]) -> None:
    """Drop the logs of evicted sessions, without waiting: their rows are hidden already."""
    for session_id in session_ids:
        dropped = asyncio.run_coroutine_threadsafe(running.log.drop(session_id), running.loop)
        dropped.add_done_callback(_report)


def _report(dropped: "Future[None]") -> None:
    if not dropped.cancelled() and (failure := dropped.exception()) is not None:
        logger.warning("An evicted session's log could not be dropped.", exc_info=failure)
