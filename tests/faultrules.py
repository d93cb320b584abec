"""What a fault proxy does to a request: requests as it sees them, faults, and when each applies.

Nothing here knows sockets; `tests.faultconnection` carries the faults out.
"""

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v[0-9a-z]+(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class Asked:
    """A request as it arrived: `verb` is RBAC's word, or `attach` or `log`."""

    verb: str
    resource: str
    name: str
    query: dict[str, str]
    authorization: str = field(repr=False)
    at: float
    # The WebSocket protocol that is offered.
    protocol: str = ""

    @classmethod
    def read(cls, method: str, target: str, authorization: str, protocol: str = "") -> "Asked":
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        match = _PATH.fullmatch(parts.path)
        resource, name, sub = match.group("resource", "name", "sub") if match else ("", "", "")
        verb = _VERBS.get(method, "get")
        if sub in ("attach", "log"):
            verb = sub
        elif match and verb == "get" and not name:
            verb = "watch" if query.get("watch") == "true" else "list"
        resource, name, now = resource or "", name or "", time.monotonic()
        return cls(verb, resource, name, query, authorization, now, protocol)


@dataclass(frozen=True)
class Answer:
    """Answer this instead of asking the API server.

    `is_afterwards`: the API server is asked all the same and does it, but its answer is thrown
    away. `after_bytes`: the connection is cut after that much of the body.
    """

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    is_afterwards: bool = False
    after_bytes: int | None = None


@dataclass(frozen=True)
class Lines:
    """Answer 200 and these bytes; then `end` in order, `cut` the connection, or fall `silent`."""

    data: bytes = b""
    then: str = "end"


@dataclass(frozen=True)
class Cut:
    """Ask the API server, then cut the connection in the middle of the first piece of the answer.

    The piece is the first of the body, so that a watch is cut in mid line; without a body, or where
    `is_before_head` says so, nothing of the answer arrives.
    """

    is_before_head: bool = False


@dataclass(frozen=True)
class Silent:
    """Take the request and never answer; the API server is not asked."""


@dataclass(frozen=True)
class Slow:
    """Pass the answer on in pieces of so many bytes with a pause after each."""

    piece_bytes: int = 1
    pause_seconds: float = 0.001


@dataclass(frozen=True)
class Delay:
    """Wait before the API server is asked."""

    seconds: float


@dataclass(frozen=True)
class Hold:
    """Wait before the API server is asked until the rule is lifted."""


Fault = Answer | Lines | Cut | Silent | Slow | Delay | Hold


@dataclass(eq=False)
class Rule:
    """A fault and the requests that meet it; an empty field matches everything.

    `name` matches the whole name of an object; `token` matches the bearer token, `protocol` the
    WebSocket protocol that is offered. `times` is how
    many requests meet it, None for all until it is lifted. `hits` counts those that did.
    """

    fault: Fault
    verb: str = ""
    resource: str = ""
    name: str = ""
    token: str = ""
    protocol: str = ""
    times: int | None = None
    hits: int = 0
    lifted: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def takes(self, asked: Asked) -> bool:
        if self.lifted.is_set() or (self.times is not None and self.hits >= self.times):
            return False
        token = self.token and f"bearer {self.token}"
        wanted = (self.verb, self.resource, self.name, token, self.protocol)
        found = (asked.verb, asked.resource, asked.name, asked.authorization, asked.protocol)
        pairs = zip(wanted, found, strict=True)
        return all(not one or one.lower() == other.lower() for one, other in pairs)


def refusal(
    code: int, reason: str, message: str = "refused", *, retry_after: int | None = None
) -> Answer:
    """Return an answer with a Status, as the API server writes it."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body = json.dumps({**status, "message": message, "reason": reason, "code": code}).encode()
    headers = () if retry_after is None else (("Retry-After", str(retry_after)),)
    return Answer(code, body, headers=headers)


def page(code: int) -> Answer:
    """Return what a proxy in front of an API server answers: HTML."""
    body = b"<html>\r\n<head><title>Bad Gateway</title></head>\r\n<body>nginx</body>\r\n</html>\r\n"
    return Answer(code, body, content_type="text/html")


def error_event(code: int, reason: str) -> Lines:
    """Return a watch that brings an ERROR event, and ends."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "refused"}
    event = {"type": "ERROR", "object": {**status, "reason": reason, "code": code}}
    return Lines(json.dumps(event).encode() + b"\n")


EXCEEDED_QUOTA = refusal(
    403,
    "Forbidden",
    'pods "telo-run-x" is forbidden: exceeded quota: sessions, requested: pods=1, used: pods=32, '
    "limited: pods=32",
)
NO_PERMISSION = refusal(
    403,
    "Forbidden",
    'pods is forbidden: User "system:serviceaccount:telo:runner" cannot create resource "pods" in '
    'API group "" in the namespace "telo-sessions"',
)
POD_SECURITY = refusal(
    403,
    "Forbidden",
    'pods "telo-run-x" is forbidden: violates PodSecurity "restricted:latest": '
    "allowPrivilegeEscalation != false",
)
WEBHOOK = refusal(
    403,
    "Forbidden",
    'admission webhook "policy.example.com" denied the request: images must be signed',
)
UNAUTHORIZED = refusal(401, "Unauthorized", "Unauthorized")
EXPIRED = refusal(410, "Expired", "too old resource version: 1 (2)")
EXPIRED_EVENT = error_event(410, "Expired")
CONFLICT = refusal(409, "Conflict", "the object has been modified")
EMPTY_WATCH = Lines()
