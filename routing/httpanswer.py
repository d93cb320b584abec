"""Reads one small HTTP/1.1 answer out of the bytes that came; pure.

For an answer of which everything is known beforehand but whether it is the right one: what is
longer than a bound, or is no HTTP, is just wrong.

Source: RFC 9112, sections 4 (status line), 6.3 (where a body ends) and 7.1 (chunks)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Gateways add cookies and policies to what a backend answers.
MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 4 * 1024
# Chunks may be of one byte, which takes six.
MAX_BYTES = MAX_HEAD_BYTES + 6 * MAX_BODY_BYTES

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: .*)?")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?")


class NotHttpError(Exception):
    """What came is no HTTP answer, or a longer one than is read."""


@dataclass(frozen=True)
class HttpAnswer:
    """An answer; the names of headers are in lower case, and of several of one name the last."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def parse_answer(data: bytes, *, is_ended: bool) -> HttpAnswer | None:
    """Return the answer in these bytes; None if more must come.

    Interim answers (1xx) are skipped. What follows the end of the answer is not looked at.

    Raises:
        NotHttpError: It is no HTTP, too long, or was cut off.
    """
    answer = _parse(data, is_ended=is_ended)
    if answer is None and is_ended:
        raise NotHttpError("the answer was cut off")
    return answer


def _parse(data: bytes, *, is_ended: bool) -> HttpAnswer | None:
    while True:
        head, separator, data = data.partition(b"\r\n\r\n")
        if len(head) > MAX_HEAD_BYTES:
            raise NotHttpError("the headers are too long")
        if not separator:
            return None
        status, headers = _parse_head(head)
        if status >= 200:
            break
    body = _body(status, headers, data, is_ended=is_ended)
    if body is None:
        return None
    if len(body) > MAX_BODY_BYTES:
        raise NotHttpError("the body is too long")
    return HttpAnswer(status, headers, body)


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    start, *lines = head.split(b"\r\n")
    match = _STATUS.fullmatch(start)
    if match is None:
        raise NotHttpError("the answer is no HTTP")
    headers = {}
    for line in lines:
        name, separator, value = line.partition(b":")
        if not separator:
            raise NotHttpError("a header has no colon")
        headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")
    return int(match[1]), headers


def _body(status: int, headers: Mapping[str, str], rest: bytes, *, is_ended: bool) -> bytes | None:
    """Return the body, or what there is of one that is too long; None if more must come."""
    if status in (204, 304):
        return b""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return _unchunk(rest)
    if "content-length" not in headers:
        return rest if is_ended or len(rest) > MAX_BODY_BYTES else None
    length = headers["content-length"]
    if not (length.isascii() and length.isdigit() and len(length) < 10):
        raise NotHttpError("the length is no number")
    if int(length) > MAX_BODY_BYTES:
        raise NotHttpError("the body is too long")
    return rest[: int(length)] if len(rest) >= int(length) else None


def _unchunk(rest: bytes) -> bytes | None:
    """Return the chunks' content up to the last one; trailers are not looked at."""
    body = b""
    while True:
        line, separator, rest = rest.partition(b"\r\n")
        if not separator:
            return None
        match = _SIZE.fullmatch(line)
        if match is None:
            raise NotHttpError("a chunk has no size")
        size = int(match[1], 16)
        if size == 0:
            return body
        if size > MAX_BODY_BYTES:
            raise NotHttpError("the body is too long")
        if len(rest) < size + 2:
            return None
        body += rest[:size]
        if len(body) > MAX_BODY_BYTES:
            return body
        rest = rest[size + 2 :]
