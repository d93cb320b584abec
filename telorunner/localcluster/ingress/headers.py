"""What an ingress changes in the heads that it passes on. Pure.

Headers that mean one connection end here. An application is told who asks, for which host and how;
what a client says of that itself does not pass, since anybody could say it.

Source: https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1
"""

from collections.abc import Iterable
from dataclasses import dataclass

import h11

from telorunner.localcluster.ingress.table import Asked, normal_host

Header = tuple[bytes, bytes]
Message = h11.Request | h11.InformationalResponse | h11.Response

_OF_ONE_CONNECTION = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)
_SAID_BY_US = frozenset(
    {
        b"forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-proto",
        b"x-real-ip",
    }
)
# What a message cannot do without, whatever its Connection headers name: a body without its length
# would be none.
_OF_THE_MESSAGE = frozenset({b"content-length", b"host"})
# What else than HTTP may be spoken on: others would go past the rules of the routes.
_UPGRADE = b"websocket"


@dataclass(frozen=True)
class Visitor:
    """Who asks: the address of the client and the scheme that it uses."""

    address: str
    scheme: str


@dataclass(frozen=True)
class Heading:
    """The target of a request without its authority, and that authority."""

    target: bytes
    authority: bytes

    @property
    def path(self) -> str:
        """Return the path without its query."""
        return self.target.partition(b"?")[0].decode("latin-1")


def read_heading(request: h11.Request) -> Heading:
    """Return where a request wants to go; a target with an authority of its own wins."""
    authority = _value(request.headers, b"host")
    target = bytes(request.target)
    if target[:7].lower() == b"http://" or target[:8].lower() == b"https://":
        rest = target.partition(b"://")[2].partition(b"#")[0]
        end = min((at for mark in (b"/", b"?") if (at := rest.find(mark)) >= 0), default=len(rest))
        authority = rest[:end].rpartition(b"@")[2]
        target = rest[end:] if rest[end : end + 1] == b"/" else b"/" + rest[end:]
    return Heading(target, authority)


def asked(request: h11.Request, heading: Heading, visitor: Visitor) -> Asked:
    """Return what of a request decides where it goes."""
    return Asked(
        scheme=visitor.scheme,
        host=normal_host(heading.authority.decode("latin-1")),
        path=heading.path,
        method=request.method.decode("latin-1"),
        headers={
            name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers
        },
    )


def is_upgrade(request: h11.Request) -> bool:
    """Say whether a request asks to go on with WebSocket."""
    is_modern = request.http_version == b"1.1"
    return (
        is_modern
        and b"upgrade" in _named(request.headers)
        and (_value(request.headers, b"upgrade").strip().lower() == _UPGRADE)
    )


def request_for(request: h11.Request, heading: Heading, visitor: Visitor) -> h11.Request:
    """Return a request as the application gets it."""
    is_chunked = bool(_value(request.headers, b"transfer-encoding"))
    dropped = _SAID_BY_US | {b"host"} | ({b"content-length"} if is_chunked else set())
    if request.http_version != b"1.1":
        dropped |= {b"expect"}
    headers = [(b"Host", heading.authority)]
    headers += _passed_on(request, dropped)
    headers += [
        (b"X-Forwarded-For", visitor.address.encode()),
        (b"X-Forwarded-Host", heading.authority),
        (b"X-Forwarded-Proto", visitor.scheme.encode()),
    ]
    if is_chunked:
        headers.append((b"Transfer-Encoding", b"chunked"))
    if is_upgrade(request):
        headers += [(b"Connection", b"Upgrade"), (b"Upgrade", _UPGRADE)]
    else:
        # Each request has a connection of its own: nothing of one client meets another's.
        headers.append((b"Connection", b"close"))
    return h11.Request(method=request.method, target=heading.target, headers=headers)


def response_for(response: h11.Response, *, is_last: bool) -> h11.Response:
    """Return an answer as the client gets it; after the last one the connection ends."""
    has_no_length = response.status_code == 204 or _value(response.headers, b"transfer-encoding")
    headers = _passed_on(response, {b"content-length"} if has_no_length else ())
    if is_last:
        headers.append((b"Connection", b"close"))
    return h11.Response(status_code=response.status_code, headers=headers, reason=response.reason)


def interim_for(response: h11.InformationalResponse) -> h11.InformationalResponse:
    """Return an answer that is not the last as the client gets it; 101 keeps its upgrade."""
    # No body follows, and a client that believed it would wait for one.
    headers = _passed_on(response, {b"content-length"})
    if response.status_code == 101:
        headers += [(b"Connection", b"Upgrade"), (b"Upgrade", _UPGRADE)]
    return h11.InformationalResponse(
        status_code=response.status_code, headers=headers, reason=response.reason
    )


def trailers_for(end: h11.EndOfMessage) -> h11.EndOfMessage:
    """Return the end of a body as the other side gets it.

    What a head may not say, and what a body is framed by, may not be said behind the body either.
    """
    dropped = _OF_ONE_CONNECTION | _SAID_BY_US | _OF_THE_MESSAGE
    kept = [one for one in end.headers.raw_items() if one[0].lower() not in dropped]
    return h11.EndOfMessage(headers=kept)


def _passed_on(message: Message, dropped: Iterable[bytes] = ()) -> list[Header]:
    """Return the headers that the other side gets, their names spelt as they came."""
    named = _named(message.headers) - _OF_THE_MESSAGE
    left_out = _OF_ONE_CONNECTION | named | frozenset(dropped)
    return [
        (name, value) for name, value in message.headers.raw_items() if name.lower() not in left_out
    ]


def _named(headers: Iterable[Header]) -> frozenset[bytes]:
    """Return the names that the Connection headers name."""
    return frozenset(
        part.strip().lower()
        for name, value in headers
        if name == b"connection"
        for part in value.split(b",")
    )


def _value(headers: Iterable[Header], wanted: bytes) -> bytes:
    return next((value for name, value in headers if name == wanted), b"")
