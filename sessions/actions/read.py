"""What clients read of a session's row, and whether the cluster could run one."""

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Any

from catalog import cache
from sessions import runtime, store
from sessions.actions import offers
from sessions.models import Session
from sessions.spec import SessionSpec
from telorunner.conf import Settings
from telorunner.database import access
from telorunner.errors import ClusterError, InvalidConfig, NotFound
from telorunner.kube import preflight

logger = logging.getLogger(__name__)

# Clients have their answer inside 3 s, whatever the cluster and the database do.
PROBE_SECONDS = 2.5
# Of them; one that needs longer has nothing left for the cluster.
DATABASE_SECONDS = 1.5
REMEDIATION = "Check that the Kubernetes API is up and that the runner can reach it."


def read(session_id: str) -> dict[str, Any]:
    """Return the body of GET /v1/sessions/{id}.

    Raises:
        NotFound: No session of this id is retained.
        Unavailable: The database cannot be reached.
    """
    row = store.read(find, session_id)
    if row is None:
        raise NotFound("There is no such session.")
    spec = SessionSpec.from_json(row.id, row.mode, row.spec)
    body: dict[str, Any] = {
        "sessionId": row.id,
        "status": store.status_of(row).to_json(),
        "mode": str(spec.mode),
        "apps": [
            {
                "name": app.name,
                "io": str(app.io),
                "generation": 0,
                "ports": [port.to_json() for port in app.ports],
            }
            for app in spec.apps
        ],
        "createdAt": format_time(row.created_at),
    }
    if row.ended_at is not None:
        body["exitedAt"] = format_time(row.ended_at)
    return body


def find(session_id: str) -> Session | None:
    """Return the row of a retained session; None: there is none, or the id has no such form."""
    if not store.is_session_id(session_id):
        return None
    return Session.retained.defer("env_sealed").filter(id=session_id).first()


def format_time(moment: datetime) -> str:
    """Return a time as the contract writes it: ISO-8601 UTC with milliseconds and Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def probe(image: str, config: Settings) -> dict[str, Any]:
    """Return the body of POST /v1/probe: ready, needs-setup or unavailable.

    It waits for the runtime's loop, so it is for other threads than that loop's.

    Raises:
        Stopping: The process is going down.
        Unavailable: The database cannot be reached, or does not answer in time.
    """
    until = time.monotonic() + PROBE_SECONDS
    try:
        offer = access.read_within(DATABASE_SECONDS, cache.current_offer, config)
        offers.offered_image(image, offer)
    except InvalidConfig as exc:
        return _needs_setup([("/config/image", exc.message)])
    running = runtime.current()
    asked = asyncio.run_coroutine_threadsafe(_preflight(running), running.loop)
    try:
        issues = asked.result(until - time.monotonic())
    except TimeoutError:
        asked.cancel()
        return _unavailable("The Kubernetes API did not answer in time.")
    except ClusterError as exc:
        logger.info("The cluster cannot be asked: %s", exc, extra={"action": "probe"})
        return _unavailable(exc.message)
    return _needs_setup(issues) if issues else {"status": "ready"}


async def _preflight(running: runtime.Runtime) -> list[tuple[str, str]]:
    config = running.config
    return await preflight.check(
        running.cluster,
        image_pull_secret=config.image_pull_secret,
        runtime_class=config.runtime_class,
    )


def _needs_setup(issues: list[tuple[str, str]]) -> dict[str, Any]:
    listed = [{"path": path, "message": message} for path, message in issues]
    return {"status": "needs-setup", "issues": listed}


def _unavailable(message: str) -> dict[str, Any]:
    return {"status": "unavailable", "message": message, "remediation": REMEDIATION}
