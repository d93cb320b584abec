"""Say a session's events in words; pure."""

from collections.abc import Callable
from typing import Any


def describe(event: dict[str, Any]) -> str | None:
    """Return the line that tells an event to the user; None where there is nothing to tell."""
    teller = _TELLERS.get(event.get("type", ""))
    return teller(event) if teller is not None else None


def _status(event: dict[str, Any]) -> str | None:
    status = event["status"]
    if status["kind"] == "running":
        where = [_endpoint(endpoint) for endpoint in status.get("endpoints", ())]
        return f"running at {', '.join(where)}" if where else "running"
    # The terminal statuses are the client's last line, not one of many.
    return str(status["kind"]) if status["kind"] in ("starting", "suspended") else None


def _endpoint(endpoint: dict[str, Any]) -> str:
    if url := endpoint.get("url"):
        return str(url)
    return f"port {endpoint.get('port')}/{endpoint.get('protocol')}"


def _progress(event: dict[str, Any]) -> str:
    return str(event.get("message"))


def _reachability(event: dict[str, Any]) -> str | None:
    if event.get("state") == "checking":
        return None
    return f"port {event.get('port')} is {event.get('state')}"


def _route(event: dict[str, Any]) -> str:
    reason = f": {event['reason']}" if event.get("reason") else ""
    return f"route {event.get('host')} is {event.get('state')}{reason}"


_TELLERS: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "status": _status,
    "progress": _progress,
    "reachability": _reachability,
    "route": _route,
    "gap": lambda _: "[some events were lost]",
    "lost": lambda _: "the connection to the runner is lost, trying again",
}
