"""The operations of /v1: decorators of the views' methods, and the streams, which are no views.

An operation names its own errors under `x-errors` until the document is complete; those that any
request may meet are added there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema

from sessions import requests
from sessions.openapi import errors
from sessions.openapi.answers import SESSION_ID, Schema, reference
from sessions.openapi.terminal import CLOSE_CODES, SOCKET
from telorunner.drf import JSON_TYPE
from telorunner.errors import NotFound, OriginNotAllowed, StopFailed

Method = TypeVar("Method", bound=Callable[..., Any])

ERRORS_KEY = "x-errors"
SESSION_PARAMETER: Schema = {
    "name": "session_id",
    "in": "path",
    "required": True,
    "schema": SESSION_ID,
}


# What both ways to create a session take beside their bodies.
_ACCEPTED_TERMS = OpenApiParameter(
    "x-telo-accepted-terms",
    {"type": "string"},
    OpenApiParameter.HEADER,
    description="The version of the terms that the user has accepted: exactly that of the "
    "capabilities' `terms`. Where there are none it is ignored.",
)


@dataclass(frozen=True)
class Operation:
    """What a view's method does, as a decorator of it.

    `status` is the answer's, `answer` what it means and `body` the component of its body; None: it
    has none. `request` is the model of the request's body, `example` one that it takes;
    `parameters` are those beside the ones in the address.
    """

    name: str
    tag: str
    summary: str
    description: str
    status: int
    answer: str
    body: str | None
    request: Any = None
    example: Schema | None = None
    refusals: errors.ErrorClasses = ()
    parameters: tuple[OpenApiParameter, ...] = ()

    def __call__(self, method: Method) -> Method:
        """Describe the method to the generator."""
        answer = OpenApiResponse(
            reference(self.body) if self.body else None, description=self.answer
        )
        example = OpenApiExample("example", self.example, request_only=True)
        decorate: Callable[[Method], Method] = extend_schema(
            operation_id=self.name,
            tags=[self.tag],
            summary=self.summary,
            description=self.description,
            parameters=[*self.parameters],
            request={JSON_TYPE: self.request} if self.request else None,
            responses={self.status: answer},
            examples=[example] if self.example else None,
            extensions={ERRORS_KEY: self.refusals},
        )
        return decorate(method)


_CONFIG: Schema = {"image": "telorun/node:latest-slim", "pullPolicy": "missing"}

GET_CAPABILITIES = Operation(
    "getCapabilities",
    tag="runner",
    summary="What this runner offers",
    description="Resolved anew at each request: what the operator changes shows at once.",
    status=200,
    answer="What is offered now.",
    body="Capabilities",
)
PROBE = Operation(
    "probe",
    tag="runner",
    summary="Whether a session with this config could start",
    description="Answered inside 3 s whatever the cluster does. Nothing is made.",
    request=requests.Probe,
    example={"config": _CONFIG},
    status=200,
    answer="The verdict.",
    body="ProbeAnswer",
    refusals=errors.BODY,
)
CREATE_SESSION = Operation(
    "createSession",
    tag="sessions",
    summary="Create a session",
    description="""
Registers a session, and answers before anything is asked of the cluster: the start goes on by
itself, and its failure is the status `failed` on the event stream, never an error here.

Where the runner keeps as many sessions as it may, the one that ended first makes room; while all
of them live, the answer is `409 too_many_sessions`.
""".strip(),
    request=requests.CreateSession,
    example={
        "bundle": {
            "entryRelativePath": "telo.yaml",
            "files": [
                {
                    "relativePath": "telo.yaml",
                    "contents": (
                        "kind: Telo.Application\nmetadata: {name: Nothing, version: 1.0.0}\n"
                    ),
                }
            ],
        },
        "env": {},
        "config": _CONFIG,
    },
    status=201,
    answer="The session is registered.",
    body="SessionCreated",
    refusals=(*errors.BODY, *errors.CREATE),
    parameters=(_ACCEPTED_TERMS,),
)
CREATE_APP_SESSION = Operation(
    "createAppSession",
    tag="sessions",
    summary="Create a session of a catalog app",
    description="""
Starts an app of the operator's catalog by its name: its image, with its own entrypoint and the
variables that the operator has set. The body may be left out. From then on it is a session like
any other, with one app named `app` and a terminal.
""".strip(),
    request=requests.CreateAppSession,
    example={"env": {"GREETING": "hello"}, "ports": [{"port": 8080, "protocol": "tcp"}]},
    status=201,
    answer="The session is registered.",
    body="SessionCreated",
    refusals=(*errors.BODY, *errors.CREATE_APP),
    parameters=(_ACCEPTED_TERMS,),
)
GET_SESSION = Operation(
    "getSession",
    tag="sessions",
    summary="Read a session",
    description="The status is the one that its event stream told last.",
    status=200,
    answer="The session as it is now.",
    body="Session",
    refusals=(NotFound,),
)
STOP_SESSION = Operation(
    "stopSession",
    tag="sessions",
    summary="Stop a session",
    description="""
Records the wish and answers at once; `stopped` comes on the event stream when the application has
gone. It can be repeated, and an id that names no session is answered in the same way.
""".strip(),
    status=204,
    answer="The stop is recorded, or there is nothing to stop.",
    body=None,
    refusals=(StopFailed,),
)


def of_session(view: type[Any]) -> type[Any]:
    """Describe the id in a view's address."""
    return _addressed(view, "session_id", SESSION_ID)


def of_app(view: type[Any]) -> type[Any]:
    """Describe the app's name in a view's address."""
    schema: Schema = {
        "type": "string",
        "minLength": 1,
        "description": "An app's name, as the capabilities list it.",
        "examples": ["code-helper"],
    }
    return _addressed(view, "name", schema)


def _addressed(view: type[Any], name: str, schema: Schema) -> type[Any]:
    parameter = OpenApiParameter(name, schema, OpenApiParameter.PATH)
    decorated: type[Any] = extend_schema(parameters=[parameter])(view)
    return decorated


def _optional(name: str, place: str, description: str) -> Schema:
    """Return a parameter that may be left out."""
    return {"name": name, "in": place, "description": description, "schema": {"type": "string"}}


_EVENTS: Schema = {
    "operationId": "followEvents",
    "tags": ["sessions"],
    "summary": "Follow a session's events",
    "description": """
Server-sent events: the replay of what is kept, then what happens, until the final status; then the
server closes the stream. A message is `id: <number>`, `event: <type>` and `data: <JSON>`, whose
shape is the component `Event`. Numbers are per session, start at 1, rise by 1 and are never used
again; after a restart of the runner they may jump, behind a gap.

To go on after a connection that broke, name the last number that was read in `Last-Event-ID`
(which wins) or `lastEventId`. Where events after it are no longer kept, and where it is beyond the
newest, the message `event: gap` (component `Gap`, without an id) comes before what is left.
The comment `: heartbeat` comes after 20 seconds without an event.
""".strip(),
    "parameters": [
        SESSION_PARAMETER,
        _optional(
            "Last-Event-ID",
            "header",
            "The last number read; all but decimal digits means from the beginning.",
        ),
        _optional("lastEventId", "query", "The same, for clients that cannot set headers."),
    ],
    "responses": {
        "200": {
            "description": "The stream.",
            "headers": {
                "Cache-Control": {"schema": {"const": "no-cache, no-transform"}},
                "X-Accel-Buffering": {"schema": {"const": "no"}},
            },
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "example": (
                        'id: 1\nevent: status\ndata: {"type":"status","status":'
                        '{"kind":"starting"}}\n\n'
                    ),
                }
            },
        }
    },
    "x-events": {
        "data": reference("Event"),
        "gap": reference("Gap"),
        "comments": ["heartbeat"],
    },
    ERRORS_KEY: (NotFound, OriginNotAllowed),
}

_TERMINAL: Schema = {
    "operationId": "openTerminal",
    "tags": ["sessions"],
    "summary": "Open an app's terminal (WebSocket)",
    "description": """
A WebSocket. The handshake is always accepted, and refusals are close codes, because a browser
cannot read a refused handshake; `x-websocket` lists them, the messages and the frames.

The server's first message is `seq`; then comes the replay of output after `lastSeq` and what is
written from then on, one binary frame a chunk: four bytes of number (big-endian), one of stream,
then the bytes. `gap` comes where output after `lastSeq` is no longer kept, and to a client that
was too slow. After the session's end the rest of the output is sent, then close code 1000.

What the client sends as binary is typed into the application, also before it runs; up to 1 MiB
that it has not taken is held, then the socket is paused. A lost connection is taken up again with
`lastSeq` set to the number of the last frame.

Close codes:

""".lstrip()
    + "\n".join(f"- `{code}` {meaning}" for code, meaning in CLOSE_CODES.items()),
    "parameters": [
        SESSION_PARAMETER,
        _optional("app", "query", "The app's name; may be left out where the session has one app."),
        _optional(
            "lastSeq",
            "query",
            "The last number received; all but decimal digits: from the beginning.",
        ),
    ],
    "responses": {"101": {"description": "The socket is open."}},
    "x-websocket": SOCKET,
    # Of a request that is no handshake.
    ERRORS_KEY: (NotFound,),
}

STREAMS: dict[str, Schema] = {
    "/v1/sessions/{session_id}/events": {"get": _EVENTS},
    "/v1/sessions/{session_id}/io": {"get": _TERMINAL},
}
