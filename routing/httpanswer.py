"""Reads one small HTTP/1.1 answer out of the bytes as they come; pure.

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
# The size of a chunk, and what may be said of it.
MAX_CHUNK_LINE_BYTES = 1024
# Of all that is read. Chunks may be of one byte, which takes six.
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


class AnswerReader:
    """Takes an answer in as it comes, and looks at each byte of it about once.

    Whoever sends it decides how small the pieces are, and they must not cost more for that.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._status = 0
        self._headers: Mapping[str, str] = {}
        # Of a body in chunks those that are complete.
        self._chunks = bytearray()

    def take(self, data: bytes, *, is_ended: bool) -> HttpAnswer | None:
        """Take more bytes in and return the answer once it is complete; None if more must come.

        Interim answers (1xx) are skipped. What follows the end of the answer is not looked at.

        Raises:
            NotHttpError: It is no HTTP, too long, or was cut off.
        """
        self._rest += data
        body = self._take_body(is_ended=is_ended) if self._has_head() else None
        if body is not None:
            return HttpAnswer(self._status, self._headers, body)
        if is_ended:
            raise NotHttpError("the answer was cut off")
        return None

    def _has_head(self) -> bool:
        """Say whether the head of the answer that counts is there; what it takes is dropped."""
        while self._status < 200:
            end = self._rest.find(b"\r\n\r\n")
            if (end if end >= 0 else len(self._rest)) > MAX_HEAD_BYTES:
                raise NotHttpError("the headers are too long")
            if end < 0:
                return False
            self._status, self._headers = _parse_head(bytes(self._rest[:end]))
            del self._rest[: end + 4]
        return True

    def _take_body(self, *, is_ended: bool) -> bytes | None:
        """Return the body; None if more must come."""
        if self._status in (204, 304):
            return b""
        if "chunked" in self._headers.get("transfer-encoding", "").lower():
            return bytes(self._chunks) if self._has_last_chunk() else None
        if (given := self._headers.get("content-length")) is not None:
            length = _parse_length(given)
            return bytes(self._rest[:length]) if len(self._rest) >= length else None
        if len(self._rest) > MAX_BODY_BYTES:
            raise NotHttpError("the body is too long")
        return bytes(self._rest) if is_ended else None

    def _has_last_chunk(self) -> bool:
        """Take in the chunks that are complete; trailers are not looked at."""
        while True:
            end = self._rest.find(b"\r\n", 0, MAX_CHUNK_LINE_BYTES)
            if end < 0 and len(self._rest) < MAX_CHUNK_LINE_BYTES:
                return False
            match = _SIZE.fullmatch(self._rest, 0, max(end, 0))
            if match is None:
                raise NotHttpError("a chunk has no size")
            size = int(match[1], 16)
            if size == 0:
                return True
            if len(self._chunks) + size > MAX_BODY_BYTES:
                raise NotHttpError("the body is too long")
            start = end + 2
            if len(self._rest) < start + size + 2:
                return False
            self._chunks += self._rest[start : start + size]
            del self._rest[: start + size + 2]


def _parse_length(given: str) -> int:
    if not (given.isascii() and given.isdigit() and len(given) < 10):
        raise NotHttpError("the length is no number")
    if int(given) > MAX_BODY_BYTES:
        raise NotHttpError("the body is too long")
    return int(given)


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
