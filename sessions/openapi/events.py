"""The event stream: the statuses a session has, and the events that tell of it."""

from routing.router import RouteState
from sessions.openapi.answers import (
    HOST_EXAMPLE,
    PORT_NUMBER,
    Schema,
    one_of,
    record,
    reference,
)
from sessions.reachability import Reachability
from sessions.states import Phase

_KIND_DESCRIPTION = {
    "starting": "From the registration until the application runs.",
    "running": "The application runs.",
    "exited": "Final: the application ended by itself, with this exit code.",
    "failed": "Final: it could not be started or kept; `message` says why.",
    "stopped": "Final: it was stopped by a client or by the operator.",
}


def _status(kind: str, more: dict[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    return record(
        {"kind": {"const": kind}, **more}, optional=optional, description=_KIND_DESCRIPTION[kind]
    )


_STATUSES: dict[str, Schema] = {
    "StatusStarting": _status("starting", {}),
    "StatusRunning": _status(
        "running",
        {"endpoints": {"type": "array", "minItems": 1, "items": reference("Endpoint")}},
        optional=("endpoints",),
    ),
    "StatusExited": _status("exited", {"code": {"type": "integer"}}),
    "StatusFailed": _status("failed", {"message": {"type": "string", "minLength": 1}}),
    "StatusStopped": _status("stopped", {}),
}

_APP_NAME: Schema = {"type": "string", "minLength": 1, "description": "The app's name."}

EVENTS: dict[str, Schema] = {
    "StatusEvent": record(
        {"type": {"const": "status"}, "status": reference("Status")},
        description=(
            "A status. The first event of a session is `starting`; a short run may go on to its "
            "final status without `running`; nothing follows a final one."
        ),
    ),
    "ProgressEvent": record(
        {
            "type": {"const": "progress"},
            "phase": {
                "type": "string",
                "enum": [str(phase) for phase in Phase],
                "description": "`provision`: the pod is made; `boot`: the application starts.",
            },
            "message": {"type": "string", "minLength": 1},
        },
        description="A step of the start, in words for people; or later what is good to know.",
    ),
    "DebugEvent": record(
        {
            "type": {"const": "debug"},
            "app": _APP_NAME,
            "frame": {
                "type": "object",
                "additionalProperties": True,
                "description": "An event frame of the kernel, as it was sent.",
            },
        },
        description=(
            "A debug frame, in sessions created with `inspect`. It comes from the application: "
            "take it for untrusted input."
        ),
    ),
    "ReachabilityEvent": record(
        {
            "type": {"const": "reachability"},
            "app": _APP_NAME,
            "port": PORT_NUMBER,
            "state": {"type": "string", "enum": [str(state) for state in Reachability]},
        },
        description="Whether a declared tcp port takes connections; never before `running`.",
    ),
    "RouteEvent": record(
        {
            "type": {"const": "route"},
            "app": _APP_NAME,
            "host": {"type": "string", "minLength": 1, "examples": [HOST_EXAMPLE]},
            "port": PORT_NUMBER,
            "state": {
                "type": "string",
                "enum": [str(state) for state in RouteState],
                "description": (
                    "`pending`: it is not known yet whether the host leads to the application; "
                    "`programmed`: it does; `unprogrammed`: it does not, or nobody can tell."
                ),
            },
            "reason": {
                "type": "string",
                "minLength": 1,
                "description": (
                    "Why it is `unprogrammed`, for people; begins with `dns:`, `connect:`, "
                    "`tls:`, `gateway:` or `backend:` where the runner asked the host itself."
                ),
            },
        },
        optional=("reason",),
        description=(
            "Whether a public host leads to the application; never before `running`, and again "
            "whenever that changes. It never ends a session."
        ),
    ),
}

GAP: Schema = record(
    {"reason": {"const": "buffer_evicted"}},
    description=(
        "Data of the message `event: gap`, which has no id: events after the number that the "
        "client named are no longer kept. What follows is what is left."
    ),
)


def components() -> dict[str, Schema]:
    """Return the components of statuses and events."""
    return {
        **_STATUSES,
        "Status": one_of(
            "kind",
            {name: f"Status{name.capitalize()}" for name in _KIND_DESCRIPTION},
            description="What a session does; the last three kinds are final.",
        ),
        **EVENTS,
        "Event": one_of(
            "type",
            {str(event["properties"]["type"]["const"]): name for name, event in EVENTS.items()},
            description="The data of one message; `type` repeats the message's event name.",
        ),
        "Gap": GAP,
    }
