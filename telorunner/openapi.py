"""The public description: the OpenAPI document at /v1/openapi.json and its page at /v1/docs.

drf-spectacular describes the views; what is no view of the REST framework, and what every operation
has in common, is added here. The page needs nothing from outside: its files are the installed
package's, served by `telorunner.staticfiles`.
"""

from functools import cache
from http import HTTPStatus
from typing import Any

import orjson
from django.http import HttpResponse
from django.templatetags.static import static
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from sessions.openapi import answers, errors, events, terminal
from sessions.openapi.answers import Schema, reference
from sessions.openapi.operations import ERRORS_KEY, STREAMS
from telorunner.drf import JSON_TYPE
from telorunner.errors import OriginNotAllowed

TITLE = "telorunner"
DOCUMENT_PATH = "/v1/openapi.json"
PAGE_PATH = "/v1/docs"

_DESCRIPTION = """
Runs Telo applications as sessions: create one, follow its events, drive its terminal, stop it.

- **JSON** everywhere, keys in camelCase, optional keys left out and never null. Clients ignore
  keys that they do not know. Times are ISO 8601 in UTC with milliseconds.
- **Requests** are strict: an unknown key anywhere but in `config` is refused.
- **Errors** are `{"error": "<code>", "message": "<sentence>"}`; some codes have more keys. What is
  no address of this document is `404 not_found`, another method `405 method_not_allowed` with
  `Allow`; `components/responses` has all that is answered there. HEAD is answered wherever GET is,
  but for the streams.
- **Terms**: where the capabilities have `terms`, what creates a session needs their version in
  `x-telo-accepted-terms`; without it, and with any other, the answer is `428 terms_required`.
- **Retry** what answers 503, after `Retry-After` seconds; `409 too_many_sessions` once a session
  has ended. Every other refusal stays what it is until the request changes.
- **Browsers**: every answer carries CORS headers and preflights are answered. Where the operator
  lists origins, a change asked for by another one is `403 origin_not_allowed`.
""".strip()

# Swagger UI sets style attributes and has its icons in data URLs; everything else is files of ours.
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)

_CHANGING_METHODS = frozenset({"post", "put", "delete"})


def _answers(body: str, *, status: str = "200") -> Schema:
    return {
        status: {"description": "", "content": {JSON_TYPE: {"schema": reference(body)}}},
    }


def _read_only(name: str, tag: str, summary: str, responses: Schema) -> Schema:
    described = {"operationId": name, "tags": [tag], "summary": summary, "responses": responses}
    return {"get": {**described, ERRORS_KEY: ()}}


_OTHERS: dict[str, Schema] = {
    "/v1/health": _read_only(
        "getHealth", "health", "Whether the process lives, and its version", _answers("Health")
    ),
    "/livez": _read_only("getLivez", "health", "Whether the process lives", _answers("Liveness")),
    "/readyz": _read_only(
        "getReadyz",
        "health",
        "Whether the process can serve, and what is missing",
        _answers("Readiness") | _answers("Readiness", status="503"),
    ),
    DOCUMENT_PATH: _read_only(
        "getDescription", "description", "This document", _answers("OpenApiDocument")
    ),
    PAGE_PATH: _read_only(
        "getPage",
        "description",
        "This document, for people",
        {"200": {"description": "", "content": {"text/html": {"schema": {"type": "string"}}}}},
    ),
}


def complete(result: Schema, **_context: Any) -> Schema:
    """Add to the generator's document what is no view; drf-spectacular calls it last."""
    paths: dict[str, Schema] = {**result["paths"], **STREAMS, **_OTHERS}
    schemas = {
        **result["components"]["schemas"],
        **errors.components(),
        **answers.components(),
        **events.components(),
        **terminal.components(),
        "OpenApiDocument": {"type": "object", "additionalProperties": True},
    }
    return {
        **result,
        "info": {**result["info"], "description": _DESCRIPTION},
        "paths": {
            path: {method: _completed(method, operation) for method, operation in item.items()}
            for path, item in paths.items()
        },
        "components": {
            **result["components"],
            "schemas": dict(sorted(schemas.items())),
            "responses": _elsewhere(),
        },
    }


def _completed(method: str, operation: Schema) -> Schema:
    """Return an operation with the answers that any request may get."""
    listed = [*errors.ALWAYS, *operation[ERRORS_KEY]]
    if method in _CHANGING_METHODS:
        listed.append(OriginNotAllowed)
    responses = errors.responses(listed)
    for status, own in operation["responses"].items():
        responses[status] = _either(own, responses[status]) if status in responses else own
    rest = {key: value for key, value in operation.items() if key != ERRORS_KEY}
    return {**rest, "responses": dict(sorted(responses.items()))}


def _either(own: Schema, error: Schema) -> Schema:
    """Return the response of a status that both an answer and an error have."""
    described = [response["content"][JSON_TYPE]["schema"] for response in (own, error)]
    return {**own, "content": {JSON_TYPE: {"schema": {"anyOf": described}}}}


def _elsewhere() -> Schema:
    """Return what is answered at addresses, and to methods, that are not described."""
    listed = (*errors.ALWAYS, *errors.ELSEWHERE, OriginNotAllowed)
    return {
        HTTPStatus(int(status)).phrase.replace(" ", ""): {"x-status": status, **response}
        for status, response in errors.responses(listed).items()
    }


@cache
def document() -> bytes:
    """Return the document as JSON; it is the same as long as the process lives."""
    generator: Any = SchemaGenerator
    return orjson.dumps(generator().get_schema(request=None, public=True))


class Document(APIView):
    """The OpenAPI document."""

    @extend_schema(exclude=True)
    def get(self, _request: Request) -> HttpResponse:
        """Answer 200 with the document."""
        return HttpResponse(document(), content_type=JSON_TYPE)


class Page(APIView):
    """The document for people."""

    @extend_schema(exclude=True)
    def get(self, _request: Request) -> HttpResponse:
        """Answer 200 with a page that shows the document."""
        return HttpResponse(_page(), headers={"Content-Security-Policy": _PAGE_POLICY})


@cache
def _page() -> str:
    shown = static("drf_spectacular_sidecar/swagger-ui-dist/")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{TITLE}</title>
<link rel="icon" href="{shown}favicon-32x32.png">
<link rel="stylesheet" href="{shown}swagger-ui.css">
</head>
<body>
<div id="page" data-document="{DOCUMENT_PATH}"></div>
<noscript>The document itself is at <a href="{DOCUMENT_PATH}">{DOCUMENT_PATH}</a>.</noscript>
<script src="{shown}swagger-ui-bundle.js"></script>
<script src="{static("telorunner/docs.js")}"></script>
</body>
</html>
"""
