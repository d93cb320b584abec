"""Every answer that a test's client gets, checked against the public description.

The clients of `tests/clients.py`, `tests/connections.py`, `tests/api/conftest.py` and
`tests/api/hostile.py` hand over what they receive under /v1: a status, content type, key, event or
message that is not described fails the test. What other tests say over raw sockets
(`tests/readers.py` and those of the server itself) is not looked at here.

The description leaves room for keys to come, as a client has to; here it is closed.
"""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any
from urllib.parse import unquote

import httpx
import orjson
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # no types
from referencing import Registry
from referencing.jsonschema import DRAFT202012

Schema = dict[str, Any]

ADDRESS = "urn:description"
JSON_TYPE = "application/json"
STREAM_TYPE = "text/event-stream"
# A larger accepted request is not checked: it is a test of size.
REQUEST_MAX_BYTES = 65_536
# Nothing but the connection ended a socket without a code.
BROKEN = 1006


class Description:
    """The document, with validators that are made once."""

    def __init__(self, document: Schema) -> None:
        self.document = document
        self._answers = _registry(_closed(document))
        self._requests = _registry(document)
        self._validators: dict[tuple[str, str], Draft202012Validator] = {}
        self._paths: list[tuple[re.Pattern[str], str]] = [
            (re.compile(re.sub(r"\\{[^}]+\\}", "[^/]+", re.escape(path))), path)
            for path in document["paths"]
        ]

    def find(self, path: str) -> str | None:
        """Return the described path that an address is of."""
        for pattern, described in self._paths:
            if path.isprintable() and pattern.fullmatch(path):
                return described
        return None

    def operation(self, method: str, path: str) -> tuple[str, Schema | None]:
        """Return the status of an address or method that is none, and else the operation."""
        described = self.find(path)
        item = self.document["paths"].get(described, {})
        get = item.get("get", {})
        if described is None or ("x-websocket" in get and method != "GET"):
            return "404", None
        if method == "HEAD" and "x-events" not in get:
            method = "GET"
        return "405", item.get(method.lower())

    def responses(self, method: str, path: str) -> Mapping[str, Schema]:
        """Return the responses, by status, of whatever is asked for."""
        missing, operation = self.operation(method, path)
        if operation is not None:
            return dict(operation["responses"])
        elsewhere = self.document["components"]["responses"].values()
        return {
            response["x-status"]: response
            for response in elsewhere
            if response["x-status"] not in {"404", "405"} - {missing}
        }

    def check(self, pointer: str, value: Any, *, of_request: bool = False) -> None:
        """Fail unless a value is as the schema at a JSON Pointer of the document says."""
        registry = self._requests if of_request else self._answers
        pointer, name = _variant(self.document, pointer, value)
        validator = self._validators.get((pointer, str(of_request)))
        if validator is None:
            validator = Draft202012Validator(
                {"$ref": f"{ADDRESS}{pointer}"},
                registry=registry,
                format_checker=Draft202012Validator.FORMAT_CHECKER,
            )
            self._validators[pointer, str(of_request)] = validator
        errors = [
            f"{error.json_path}: {error.message[:500]}" for error in validator.iter_errors(value)
        ]
        assert not errors, f"not as {name} is described: {'; '.join(errors)}"


def _registry(document: Schema) -> "Registry[Any]":
    resource = DRAFT202012.create_resource(document)
    registry: Registry[Any] = Registry().with_resource(ADDRESS, resource)
    return registry


def _closed(schema: Any) -> Any:
    """Return a copy in which every object has the keys it is described with and no others."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        closed.setdefault("additionalProperties", False)
    return closed


def _variant(document: Schema, pointer: str, value: Any) -> tuple[str, str]:
    """Follow references and discriminators to the one schema that a value must be of."""
    schema = document
    for segment in pointer.removeprefix("#/").split("/"):
        schema = schema[segment.replace("~1", "/").replace("~0", "~")]
    if "$ref" in schema:
        return _variant(document, schema["$ref"], value)
    if "discriminator" in schema and isinstance(value, dict):
        key = schema["discriminator"]["propertyName"]
        mapping = schema["discriminator"]["mapping"]
        assert value.get(key) in mapping, f"{key} {value.get(key)!r} is not among {[*mapping]}"
        return _variant(document, mapping[value[key]], value)
    return pointer, pointer.rsplit("/", 1)[-1]


@cache
def description() -> Description:
    """Return the description of the code under test."""
    from telorunner.openapi import document

    return Description(orjson.loads(document()))


def check_answer(
    method: str, path: str, status: int, headers: Mapping[str, str], body: bytes | None
) -> None:
    """Fail unless an answer is described; `body` None: it is a stream, or was not read.

    Names of headers are in lower case.
    """
    path = "/" + path.lstrip("/")
    if not path.startswith("/v1") and path not in {"/livez", "/readyz"}:
        return
    if method == "OPTIONS" and status == httpx.codes.OK:
        return
    described = description()
    asked = f"{method} {path}"
    responses = described.responses(method, path)
    assert str(status) in responses, f"{asked}: {status} is not described"
    response = responses[str(status)]
    for name, header in response.get("headers", {}).items():
        is_there = name.lower() in headers
        assert is_there or not header.get("required"), f"{asked}: no {name} with {status}"
    content = response.get("content", {})
    media_type = headers.get("content-type", "").partition(";")[0]
    if not content:
        assert not body, f"{asked}: {status} has a body, and none is described"
        return
    assert media_type in content, f"{asked}: {media_type!r} with {status} is not described"
    if media_type == JSON_TYPE and body is not None and method != "HEAD":
        described.check(_pointer_of(described, method, path, status), orjson.loads(body))


def _pointer_of(described: Description, method: str, path: str, status: int) -> str:
    found = described.find(path)
    content = f"content/{JSON_TYPE.replace('/', '~1')}/schema"
    if found and described.operation(method, path)[1] is not None:
        operation = f"#/paths/{found.replace('/', '~1')}/{method.lower()}"
        return f"{operation}/responses/{status}/{content}"
    for name, response in described.document["components"]["responses"].items():
        if response["x-status"] == str(status):
            return f"#/components/responses/{name}/{content}"
    raise AssertionError(f"{status} is not described")


def check_request(path: str, body: bytes) -> None:
    """Fail unless a request that was accepted is one by the description."""
    if len(body) > REQUEST_MAX_BYTES:
        return
    models = {
        "/v1/sessions": "CreateSession",
        "/v1/apps/{name}/sessions": "CreateAppSession",
        "/v1/probe": "Probe",
    }
    described = description().find(path)
    operation = description().document["paths"].get(described, {}).get("post", {})
    if described in models and (body or operation["requestBody"].get("required")):
        pointer = f"#/components/schemas/{models[described]}"
        description().check(pointer, orjson.loads(body), of_request=True)


@lru_cache(maxsize=50_000)
def check_event(name: str, data: str) -> None:
    """Fail unless a message of the event stream is described.

    Many clients read the same events: each is looked at once.
    """
    event = orjson.loads(data)
    if name == "gap":
        description().check("#/components/schemas/Gap", event)
        return
    assert event.get("type") == name, f"the message {name} holds the event {event.get('type')}"
    description().check("#/components/schemas/Event", event)


def check_text(message: Any) -> None:
    """Fail unless a text of the terminal socket is described."""
    description().check("#/components/schemas/TerminalMessage", message)


def check_close(code: int) -> None:
    """Fail unless a terminal socket may be closed with this code."""
    path = description().document["paths"]["/v1/sessions/{session_id}/io"]
    codes = path["get"]["x-websocket"]["closeCodes"]
    assert code == BROKEN or str(code) in codes, f"close code {code} is not described"


def _check(response: httpx.Response, body: bytes | None) -> None:
    request = response.request
    path = request.url.path
    check_answer(request.method, path, response.status_code, response.headers, body)
    if request.method == "POST" and response.is_success:
        check_request(path, request.content)


async def check_response(response: httpx.Response) -> None:
    """Check an answer; the hook of an `httpx.AsyncClient`."""
    is_stream = response.headers.get("content-type") == STREAM_TYPE
    _check(response, None if is_stream else await response.aread())


_REQUEST_LINE = re.compile(rb"([A-Z]+) (/v1/[!-~]*) HTTP/1\.1\r\n")


def check_exchange(asked: bytes, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Check the answer to a request that was sent as bytes, where those name an address of /v1."""
    first = _REQUEST_LINE.match(asked)
    if first is not None:
        path = unquote(first[2].partition(b"?")[0].decode())
        is_stream = headers.get("content-type") == STREAM_TYPE
        check_answer(first[1].decode(), path, status, headers, None if is_stream else body)
