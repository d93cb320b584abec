"""The events of a session's stream and their wire form; pure.

Each function returns the event object as clients read it; `sessions.sse` frames it.
"""

from collections.abc import Mapping
from typing import Any

from sessions.states import Phase


def status(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event that tells a status object."""
    return {"type": "status", "status": value}


def progress(phase: Phase, message: str) -> dict[str, Any]:
    """Return the event that tells a step of the start, in words."""
    return {"type": "progress", "phase": str(phase), "message": message}


def debug(app: str, frame: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event that hands on an event frame of an application's kernel."""
    return {"type": "debug", "app": app, "frame": frame}


def route(app: str, host: str, port: int, state: str, reason: str = "") -> dict[str, Any]:
    """Return the event that tells how a public host stands; an empty reason is left out."""
    event = {"type": "route", "app": app, "host": host, "port": port, "state": state}
    return {**event, "reason": reason} if reason else event


def reachability(app: str, port: int, state: str) -> dict[str, Any]:
    """Return the event that tells whether a port can be reached: `checking` and so on."""
    return {"type": "reachability", "app": app, "port": port, "state": state}
