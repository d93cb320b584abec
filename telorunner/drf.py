"""What the views of /v1 share: reading a JSON body, and one form for every error.

It knows no route and no model.
"""

import json
import logging
import math
import re
from collections.abc import Mapping
from typing import Any

import orjson
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from rest_framework import exceptions
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from telorunner.errors import (
    BundleTooLarge,
    InternalError,
    InvalidJson,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    RunnerError,
    Unavailable,
    UnsupportedMediaType,
)

logger = logging.getLogger(__name__)

JSON_TYPE = "application/json"
# Set by the server in a request's scope: a RunnerError that it must be answered with.
REFUSAL_KEY = "telorunner.refusal"
RETRY_AFTER_SECONDS = 2
# Of the quick parser's refusals: what is JSON nevertheless, half of a surrogate pair or a number
# that no double holds. (To search the body for it would take longer than to parse it.)
_LEGAL_BUT_ODD = re.compile("surrogate|infinity")
# A double has no more; int() would go on, at a price that grows with the square.
_MAX_INTEGER_DIGITS = 308
_UTF8_NAMES = frozenset({"utf-8", "utf8"})


class AlwaysJson(BaseContentNegotiation):
    """There is one representation, whatever the client says it accepts."""

    def select_parser(self, _request: Request, _parsers: Any) -> None:
        """No parser: bodies are read by `read_json`."""

    def select_renderer(
        self, _request: Request, renderers: Any, _format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """Take the first renderer."""
        return renderers[0], renderers[0].media_type


class OrjsonRenderer(BaseRenderer):
    """Renders answers as JSON."""

    media_type = JSON_TYPE
    format = "json"
    # JSON is UTF-8 by definition: the media type has no charset parameter.
    charset = None

    def render(
        self,
        data: Any,
        _accepted_media_type: str | None = None,
        _renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return the body; an answer without data has none."""
        return b"" if data is None else orjson.dumps(data)


def read_json(request: Request | HttpRequest, *, max_bytes: int) -> Any:
    """Return the parsed body.

    Raises:
        UnsupportedMediaType: The content type is not JSON; the body was not looked at.
        BundleTooLarge: The body is over the limit; the server may have refused to read it.
        InvalidJson: The body is not JSON in UTF-8, or is nested too deeply.
    """
    _check_media_type(request.META.get("CONTENT_TYPE", ""))
    refusal: RunnerError | None = getattr(request, "scope", {}).get(REFUSAL_KEY)
    if refusal is not None:
        raise refusal
    try:
        body = request.body
    except RequestDataTooBig as exc:
        raise too_large(max_bytes) from exc
    except UnreadablePostError as exc:
        raise InvalidJson("The request body broke off.") from exc
    if len(body) > max_bytes:
        raise too_large(max_bytes)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        if _LEGAL_BUT_ODD.search(exc.msg) is None:
            raise InvalidJson from exc
    return _parse_leniently(body)


def read_optional_json(request: Request | HttpRequest, *, max_bytes: int) -> Any:
    """Return the parsed body, an empty object where there is none, whatever its type is said to be.

    Raises:
        UnsupportedMediaType, BundleTooLarge, InvalidJson: As `read_json` does.
    """
    try:
        is_empty = not _has_refusal(request) and not request.body
    except (RequestDataTooBig, UnreadablePostError):
        is_empty = False
    return {} if is_empty else read_json(request, max_bytes=max_bytes)


def _has_refusal(request: Request | HttpRequest) -> bool:
    return getattr(request, "scope", {}).get(REFUSAL_KEY) is not None


def _parse_leniently(body: bytes) -> Any:
    """Parse what is legal JSON but no text or number, so that whoever checks it can name it.

    Half of a surrogate pair stays one, a number that is too large becomes infinity. Source: RFC
    8259, sections 6 and 8.2, which leave both to the parser.
    """
    try:
        return json.loads(body.decode(), parse_constant=_refuse_constant, parse_int=_integer)
    except (ValueError, RecursionError) as exc:
        raise InvalidJson from exc


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_INTEGER_DIGITS else math.inf


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def too_large(max_bytes: int) -> BundleTooLarge:
    """Return the refusal of a body over the limit."""
    return BundleTooLarge(f"The request body is larger than the {max_bytes} bytes allowed here.")


def exception_handler(exc: Exception, _context: Mapping[str, Any]) -> Response:
    """Turn whatever a view raised into the contract's error body."""
    error = translate(exc)
    if error.http_status >= InternalError.http_status and error is not exc:
        logger.error("A request failed.", exc_info=exc)
    return Response(error.body(), status=error.http_status, headers=error_headers(error))


def translate(exc: Exception) -> RunnerError:
    """Return the error that a client is told for an exception."""
    if isinstance(exc, RunnerError):
        return exc
    if isinstance(exc, Http404 | exceptions.NotFound):
        return NotFound()
    if isinstance(exc, exceptions.MethodNotAllowed):
        return MethodNotAllowed()
    if isinstance(exc, exceptions.UnsupportedMediaType):
        return UnsupportedMediaType()
    if isinstance(exc, OperationalError | InterfaceError):
        return Unavailable()
    return InternalError()


def error_headers(error: RunnerError) -> dict[str, str]:
    """Return the headers an error answer needs beside its body."""
    if error.http_status == Unavailable.http_status:
        return {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return {}


def error_of_status(http_status: int) -> RunnerError:
    """Return the contract's error for an HTTP status that something else decided on."""
    by_status: dict[int, RunnerError] = {
        NotFound.http_status: NotFound(),
        MethodNotAllowed.http_status: MethodNotAllowed(),
        BundleTooLarge.http_status: BundleTooLarge(),
        UnsupportedMediaType.http_status: UnsupportedMediaType(),
        Unavailable.http_status: Unavailable(),
    }
    if http_status in by_status:
        return by_status[http_status]
    if http_status >= InternalError.http_status:
        return InternalError()
    return malformed("The request cannot be served as it is.")


def malformed(message: str) -> InvalidRequest:
    """Return the refusal of a request that is wrong as a whole, not in its body."""
    return InvalidRequest(message, issues=[{"path": "", "message": message}])


def json_answer(error: RunnerError, *, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Return an error as Django's response, for what is no view of the REST framework."""
    return HttpResponse(
        orjson.dumps(error.body()),
        status=error.http_status,
        content_type=JSON_TYPE,
        headers={**error_headers(error), **(headers or {})},
    )


def _check_media_type(content_type: str) -> None:
    media_type, _, parameters = content_type.partition(";")
    if media_type.strip().lower() != JSON_TYPE:
        raise UnsupportedMediaType
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip(' "').lower() not in _UTF8_NAMES:
            raise UnsupportedMediaType("The request body must be JSON in UTF-8.")
