"""The public description: it is OpenAPI 3.1, complete, and shown by a page of our own files."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest
from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # no types

from sessions.consumers.terminal import CloseCode
from telorunner import __version__, errors
from telorunner.asgi import ALIVE_PATH, EVENTS_PATH, TERMINAL_PATH
from tests.builders import create_body
from tests.description import (
    check_answer,
    check_close,
    check_event,
    check_request,
    check_text,
    description,
)

SCHEMAS = "#/components/schemas/"
PAGE_FILE = re.compile(r'(?:src|href)="([^"]+)"')
OUTSIDE = re.compile(r"""url\((?!\s*['"]?data:)|@import""")

Schema = dict[str, Any]


@pytest.fixture(scope="module")
def document() -> Schema:
    return description().document


def parts(value: Any) -> Iterator[Schema]:
    """Yield every object of a document."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            yield from parts(part)


def operations(document: Schema) -> Iterator[tuple[str, Schema]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield f"{method.upper()} {path}", operation


def test_the_generator_has_nothing_to_complain_of(capsys: pytest.CaptureFixture[str]) -> None:
    generator: Any = SchemaGenerator
    generator().get_schema(request=None, public=True)
    assert not GENERATOR_STATS, capsys.readouterr().err


def test_it_is_openapi_3_1_of_this_version(document: Schema) -> None:
    validate: Any = validate_schema
    validate(document)
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == __version__


def test_every_reference_leads_somewhere(document: Schema) -> None:
    mapped = [name for part in parts(document) for name in part.get("mapping", {}).values()]
    referred = {part["$ref"] for part in parts(document) if "$ref" in part} | set(mapped)
    known = {f"{SCHEMAS}{name}" for name in document["components"]["schemas"]}
    assert referred == known


def test_every_schema_is_json_schema(document: Schema) -> None:
    inline = [part["schema"] for part in parts(document) if isinstance(part.get("schema"), dict)]
    schemas = [*document["components"]["schemas"].values(), *inline]
    for schema in schemas:
        Draft202012Validator.check_schema(schema)
    assert len(schemas) > 60


def test_every_example_is_one(document: Schema) -> None:
    found = 0
    for part in parts(document):
        for example in part.get("examples", ()) if "type" in part else ():
            assert not [*Draft202012Validator(part).iter_errors(example)], example
            found += 1
        for name, example in part.get("examples", {}).items() if "schema" in part else ():
            pointer = part["schema"]["$ref"]
            description().check(pointer, example["value"], of_request=True)
            found += bool(name)
    assert found > 10


def routes(resolver: URLResolver, prefix: str = "") -> Iterator[str]:
    for pattern in resolver.url_patterns:
        address = prefix + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", address)
        else:
            yield from routes(pattern, address)


def test_every_route_is_described_and_no_other(document: Schema) -> None:
    streams = {
        re.sub(r"\(\?P<(\w+)>[^)]*\)", r"{\1}", route.pattern)
        for route in (EVENTS_PATH, TERMINAL_PATH)
    }
    views = {route for route in routes(get_resolver()) if not route.startswith("/admin")}
    alive = set(ALIVE_PATH.pattern.split("|"))
    assert set(document["paths"]) == (views - {"/"}) | streams | alive


def test_every_operation_has_a_name_of_its_own_and_says_what_it_does(document: Schema) -> None:
    listed = dict(operations(document))
    assert len({operation["operationId"] for operation in listed.values()}) == len(listed)
    assert [name for name, operation in listed.items() if not operation.get("summary")] == []


def test_every_error_that_a_client_can_be_told_is_described(document: Schema) -> None:
    described = {
        schema["properties"]["error"]["const"]
        for schema in document["components"]["schemas"].values()
        if "error" in schema.get("properties", {}) and "message" in schema["properties"]
    }
    # Those of the terminal socket are messages and close codes.
    sockets_own = {errors.NothingToReplay.code, errors.ResizeUnsupported.code}
    codes = {error.code for error in tree(errors.RunnerError)}
    assert described == codes - sockets_own


def tree(error: type[errors.RunnerError]) -> Iterator[type[errors.RunnerError]]:
    yield error
    for one in error.__subclasses__():
        yield from tree(one)


def test_every_close_code_is_described(document: Schema) -> None:
    socket = document["paths"]["/v1/sessions/{session_id}/io"]["get"]["x-websocket"]
    assert set(socket["closeCodes"]) == {str(int(code)) for code in CloseCode}


@pytest.mark.parametrize(
    ("env", "limits", "fits"),
    [
        ({"A.b-c_1": "", "-": ""}, {"cpu": "1.5", "memory": "512Mi"}, True),
        ({"1A": ""}, {}, False),
        ({"A" * 257: ""}, {}, False),
        ({"A": 1}, {}, False),
        ({}, {"cpu": "1 Gi"}, False),
        ({}, {"cpu": "1e9999"}, False),
        ({}, {"cpu": ""}, False),
        ({}, {"gpu": "1"}, False),
        ({}, {"ttlSeconds": 0}, False),
    ],
)
@pytest.mark.usefixtures("transactional_db")
async def test_a_request_fits_the_description_where_the_runner_takes_it(
    client: httpx.AsyncClient, env: Schema, limits: Schema, fits: bool
) -> None:
    body = create_body(
        env=env, limits=limits, config={"image": "not/offered", "pullPolicy": "never"}
    )
    errors = [*Draft202012Validator(_resolved()).iter_errors(body)]
    assert (errors == []) is fits
    answer = await client.post("/v1/sessions", json=body)
    assert answer.json()["error"] == ("invalid_config" if fits else "invalid_request")


CAPABILITIES: Schema = {
    "displayName": "a",
    "description": "",
    "config": {
        "schema": {
            "type": "object",
            "required": ["image", "pullPolicy"],
            "properties": {
                "image": {
                    "type": "string",
                    "title": "a",
                    "description": "a",
                    "minLength": 1,
                    "default": "a",
                },
                "pullPolicy": {
                    "type": "string",
                    "title": "a",
                    "description": "a",
                    "enum": ["missing", "always", "never"],
                    "default": "missing",
                },
            },
        }
    },
    "features": {"io": ["tty"], "ports": False, "watch": False},
}


@pytest.mark.parametrize(
    ("image", "more", "fits"),
    [
        ({"readOnly": True}, {}, True),
        ({"enum": ["a", "b"]}, {}, True),
        ({}, {}, False),
        ({"readOnly": True, "enum": ["a"]}, {}, False),
        ({"readOnly": False}, {}, False),
        ({"enum": []}, {}, False),
        ({"readOnly": True}, {"apps": [{"name": "a"}]}, True),
        ({"readOnly": True}, {"apps": [{"name": "a", "title": "b", "description": "c"}]}, True),
        ({"readOnly": True}, {"apps": []}, False),
        ({"readOnly": True}, {"apps": None}, False),
        # Neither images nor env of apps ever appear.
        ({"readOnly": True}, {"apps": [{"name": "a", "image": "b"}]}, False),
        ({"readOnly": True}, {"terms": {"version": "1", "title": "a", "body": "b"}}, True),
        ({"readOnly": True}, {"terms": {"version": "1", "title": "a"}}, False),
        ({"readOnly": True}, {"terms": None}, False),
    ],
)
def test_capabilities_are_described(image: Schema, more: Schema, fits: bool) -> None:
    body = orjson.loads(orjson.dumps({**CAPABILITIES, **more}))
    body["config"]["schema"]["properties"]["image"] |= image
    if fits:
        check_answer("GET", "/v1/capabilities", 200, JSON, orjson.dumps(body))
        return
    with pytest.raises(AssertionError):
        check_answer("GET", "/v1/capabilities", 200, JSON, orjson.dumps(body))


def _resolved() -> Schema:
    return {"$ref": f"{SCHEMAS}CreateSession", "components": description().document["components"]}


class TestServing:
    async def test_the_document_is_served_to_everybody(self, client: httpx.AsyncClient) -> None:
        answer = await client.get("/v1/openapi.json", headers={"origin": "https://a.example"})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.json() == description().document

    @pytest.mark.parametrize("path", ["/v1/openapi.json", "/v1/docs"])
    async def test_both_are_only_read(self, client: httpx.AsyncClient, path: str) -> None:
        answer = await client.post(path, json={})
        assert (answer.status_code, answer.json()["error"]) == (405, "method_not_allowed")
        assert "GET" in answer.headers["allow"]
        assert (await client.head(path)).status_code == 200

    async def test_the_page_is_made_of_files_of_ours(self, client: httpx.AsyncClient) -> None:
        page = await client.get("/v1/docs")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "script-src 'self';" in page.headers["content-security-policy"]
        assert "set-cookie" not in page.headers
        # Nothing inline: the policy would keep it from running.
        assert "<script>" not in page.text
        files = PAGE_FILE.findall(page.text)
        assert len(files) == 5
        for file in files:
            assert file.startswith("/")
            found = await client.get(file)
            assert found.status_code == 200
            if file.endswith(".css"):
                assert OUTSIDE.findall(found.text) == []

    async def test_an_unknown_file_of_the_page_is_404(self, client: httpx.AsyncClient) -> None:
        answer = await client.get("/static/drf_spectacular_sidecar/swagger-ui-dist/nothing.js")
        assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


JSON = {"content-type": "application/json"}
HEALTH = b'{"ok":true,"version":"1"}'
TERMS = b'{"error":"terms_required","message":"a","terms":{"version":"1","title":"","body":""}}'
NO_TERMS = b'{"error":"terms_required","message":"a"}'
UNKNOWN_APP = b'{"error":"unknown_app","message":"a"}'
APP_PATH = "/v1/apps/any-name/sessions"
ISSUES = b'{"error":"invalid_request","message":"a","issues":[{"path":"/a","message":"b"}]}'


class TestChecking:
    """What is not described fails the test whose client was told it."""

    def test_what_is_described_passes(self) -> None:
        check_answer("GET", "/v1/health", 200, JSON, HEALTH)
        check_answer("HEAD", "/v1/health", 200, JSON, b"")
        check_answer("POST", "/v1/sessions", 400, JSON, ISSUES)
        check_answer("POST", "/v1/sessions", 428, JSON, TERMS)
        check_answer("POST", APP_PATH, 428, JSON, TERMS)
        check_answer("POST", APP_PATH, 404, JSON, UNKNOWN_APP)
        check_request(APP_PATH, b"")
        check_request(APP_PATH, b'{"env":{"A":"1"},"ports":[],"inspect":true}')
        check_answer("GET", "/v1/nothing", 404, JSON, b'{"error":"not_found","message":"a"}')
        check_answer("GET", "/admin/", 418, {}, b"")
        check_event("status", '{"type":"status","status":{"kind":"exited","code":0}}')
        check_event("gap", '{"reason":"buffer_evicted"}')
        check_text({"type": "seq", "seq": 0, "app": "app", "io": "tty"})
        check_close(1000)

    @pytest.mark.parametrize(
        ("method", "path", "status", "headers", "body"),
        [
            ("GET", "/v1/health", 202, JSON, HEALTH),
            ("GET", "/v1/health", 200, {"content-type": "text/html"}, HEALTH),
            ("GET", "/v1/health", 200, JSON, b'{"ok":true,"version":"1","more":1}'),
            ("GET", "/v1/health", 200, JSON, b'{"ok":true}'),
            ("GET", "/v1/health", 404, JSON, b'{"error":"not_found","message":"a"}'),
            ("GET", "/v1/nothing", 405, JSON, b'{"error":"method_not_allowed","message":"a"}'),
            ("POST", "/v1/sessions", 400, JSON, b'{"error":"invalid_request","message":"a"}'),
            ("POST", "/v1/sessions", 400, JSON, b'{"error":"unheard_of","message":"a"}'),
            ("POST", "/v1/sessions", 503, JSON, b'{"error":"stopping","message":"a"}'),
            ("POST", "/v1/sessions", 428, JSON, NO_TERMS),
            ("POST", "/v1/sessions", 404, JSON, UNKNOWN_APP),
            ("POST", APP_PATH, 404, JSON, b'{"error":"not_found","message":"a"}'),
            ("POST", "/v1/probe", 428, JSON, TERMS),
            ("DELETE", "/v1/sessions/a", 204, JSON, b"{}"),
        ],
    )
    def test_an_answer_that_is_not_described_fails(
        self, method: str, path: str, status: int, headers: dict[str, str], body: bytes
    ) -> None:
        with pytest.raises(AssertionError):
            check_answer(method, path, status, headers, body)

    @pytest.mark.parametrize(
        ("name", "data"),
        [
            ("status", '{"type":"progress","phase":"boot","message":"a"}'),
            ("status", '{"type":"status","status":{"kind":"exited"}}'),
            ("status", '{"type":"status","status":{"kind":"gone"}}'),
            ("status", '{"type":"status","status":{"kind":"running","endpoints":null}}'),
            ("other", '{"type":"other"}'),
            ("gap", "{}"),
        ],
    )
    def test_an_event_that_is_not_described_fails(self, name: str, data: str) -> None:
        with pytest.raises(AssertionError):
            check_event(name, data)

    def test_a_message_or_a_close_that_is_not_described_fails(self) -> None:
        for told in ({"type": "seq"}, {"type": "other"}):
            with pytest.raises(AssertionError):
                check_text(told)
        with pytest.raises(AssertionError):
            check_close(4999)

    def test_a_request_that_was_taken_but_is_not_described_fails(self) -> None:
        with pytest.raises(AssertionError):
            check_request("/v1/probe", b'{"config":{"image":"a"}}')
        with pytest.raises(AssertionError):
            check_request(APP_PATH, b'{"limits":{}}')
