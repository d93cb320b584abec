"""Registering a session: every decision about what was asked for, in the contract's order.

The session is registered before anything is asked of the cluster; its start is the engine's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from django.utils import timezone

from catalog import cache
from sessions import admission, bundles, runtime, store
from sessions.actions import offers, registration
from sessions.actions.registration import Created
from sessions.admission import RequestedLimits
from sessions.spec import DEFAULT_APP_NAME, App, Limits, Port, SessionSpec
from sessions.states import Delivery, Mode
from telorunner.conf import Settings
from telorunner.errors import (
    AgentRequiresWatch,
    DuplicateAppName,
    InvalidAppName,
    ReservedAppName,
    WatchDisabled,
)
from telorunner.values.dns import MAX_LABEL_LENGTH, is_dns_label
from telorunner.values.pullpolicy import PullPolicy

# An app's container is called "app-<name>", which must be a DNS label.
MAX_APP_NAME_LENGTH = MAX_LABEL_LENGTH - len("app-")
RESERVED_APP_NAMES = frozenset({"workspace", "agent"})


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


def create(wanted: Wanted, config: Settings, *, accepted_terms: str = "") -> Created:
    """Register a session and wake the engines.

    Raises:
        Stopping: The process is going down.
        TermsRequired: `accepted_terms` is not the version of the current terms.
        InvalidBundle, InvalidConfig, WatchDisabled, AgentRequiresWatch, InvalidAppName,
        ReservedAppName, DuplicateAppName, BundleTooLarge: What was asked for cannot be done.
        CapacityExceeded: There is no room.
        Unavailable: The database cannot be reached.
    """
    running = runtime.current()
    # Once: what the terms and the image are compared with was offered at one moment.
    offer = cache.current_offer(config)
    terms_version = registration.require_terms(accepted_terms, offer)
    bundle = bundles.check(wanted.files, _entries(wanted))
    image = offers.offered_image(wanted.image, offer)
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
        terms_version=terms_version,
    )
    return registration.register(running, config, new)


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
    registry_url = wanted.registry_url or config.telo_registry_url
    return registration.with_registry(registration.clients_env(wanted.env), registry_url)


def _token_sealed(delivery: Delivery) -> bytes:
    return store.seal_token(bundles.new_token()) if delivery is Delivery.FETCH else b""


def _ceiling(config: Settings) -> Limits:
    return Limits(
        cpu_millis=config.max_cpu_millis,
        memory_bytes=config.max_memory_bytes,
        ephemeral_storage_bytes=config.max_ephemeral_storage_bytes,
        ttl_seconds=config.max_ttl_seconds,
    )
