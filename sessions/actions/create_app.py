"""Registering a session of a catalog app, in the contract's order.

The image, its env and its pull policy are the operator's; a client gives variables that the
operator has not set, and the ports that it wants to be told of.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from django.utils import timezone

from catalog import cache
from catalog.models import App as AppRow
from catalog.offer import Offer, OfferedApp
from sessions import runtime, store
from sessions.actions import registration
from sessions.actions.registration import Created
from sessions.pods.size import fits_into_a_pod
from sessions.spec import DEFAULT_APP_NAME, App, Limits, Port, SessionSpec
from sessions.states import Delivery, Mode
from telorunner import secretbox
from telorunner.conf import Settings
from telorunner.errors import InternalError, InvalidRequest, UnknownApp
from telorunner.values.env import MAX_TOTAL_BYTES, size_bytes

logger = logging.getLogger(__name__)

_ENV_SEALED = "The app's variables cannot be opened; the operator must set them again."
_ENV_TOO_LARGE = "The app's own variables are too large for a pod; the operator must shorten them."


@dataclass(frozen=True)
class WantedApp:
    """What a client asks for beside the app's name."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    ports: tuple[Port, ...] = ()
    is_inspected: bool = False


def create_app(
    name: str, wanted: WantedApp, config: Settings, *, accepted_terms: str = ""
) -> Created:
    """Register a session of an app and wake the engines.

    Raises:
        Stopping: The process is going down.
        UnknownApp: No app of this name is offered.
        TermsRequired: `accepted_terms` is not the version of the current terms.
        InvalidRequest: With the client's variables the env is too large.
        InternalError: The operator's variables cannot be used.
        CapacityExceeded: There is no room.
        Unavailable: The database cannot be reached.
    """
    running = runtime.current()
    offer = cache.current_offer(config)
    app = offer.apps.get(name)
    if app is None:
        raise _unknown(offer)
    terms_version = registration.require_terms(accepted_terms, offer)
    spec = SessionSpec(
        session_id="",  # admission gives it one
        mode=Mode.RUN,
        image=app.image,
        pull_policy=app.pull_policy,
        apps=(App(DEFAULT_APP_NAME, "", wanted.ports),),
        limits=_limits(config),
        is_inspected=wanted.is_inspected,
        delivery=Delivery.NONE,
        app_name=app.name,
        allow_root=app.allow_root,
    )
    new = store.NewSession(
        spec=spec,
        env_sealed=store.seal_env(_env(app, wanted, config)),
        created_at=timezone.now(),
        catalog_app_id=app.id,
        terms_version=terms_version,
    )

    def look_again() -> None:
        """Refuse what another process took out of the catalog since this one read it."""
        # NB: locked before any row of a session, in the order of whoever deletes the app; its
        # key may still be referred to. On SQLite the transaction itself is that lock.
        rows = AppRow.objects.select_for_update(no_key=True)
        if rows.filter(id=app.id, enabled=True).first() is None:
            raise _unknown(offer, without=name)

    return registration.register(running, config, new, first=look_again)


def _unknown(offer: Offer, *, without: str = "") -> UnknownApp:
    offered = [name for name in offer.apps if name != without]
    listed = f"Offered: {', '.join(offered)}." if offered else "None is offered."
    return UnknownApp(f"The catalog has no such app. {listed}")


def _env(app: OfferedApp, wanted: WantedApp, config: Settings) -> dict[str, str]:
    """Return the session's env: the operator's over the client's, and the module registry."""
    try:
        operators = app.env()
    except secretbox.CannotOpen:
        logger.exception(
            "The variables of the app %s cannot be opened: the secret key was changed, and the "
            "old one is not among DJANGO_SECRET_KEY_FALLBACKS.",
            app.name,
        )
        raise InternalError(_ENV_SEALED) from None
    own = registration.with_registry(operators, config.telo_registry_url)
    if not _fits(own):
        logger.error("The variables of the app %s are too large for a pod.", app.name)
        raise InternalError(_ENV_TOO_LARGE)
    clients = {
        name: value
        for name, value in registration.clients_env(wanted.env).items()
        if name not in operators
    }
    env = registration.with_registry({**clients, **operators}, config.telo_registry_url)
    if not _fits(env):
        largest = max(clients, key=lambda name: len(clients[name]))
        raise InvalidRequest.at(
            "/env", f"too large together with the app's own variables; {largest} is the largest"
        )
    return env


def _fits(env: Mapping[str, str]) -> bool:
    total_bytes = sum(size_bytes(name, value) for name, value in env.items())
    return total_bytes <= MAX_TOTAL_BYTES and fits_into_a_pod(env)


def _limits(config: Settings) -> Limits:
    """Return what an app's pod gets: its ceilings, as no client can ask for less."""
    return Limits(
        cpu_millis=config.app_max_cpu_millis,
        memory_bytes=config.app_max_memory_bytes,
        ephemeral_storage_bytes=config.app_max_ephemeral_storage_bytes,
        ttl_seconds=config.app_max_ttl_seconds,
    )
