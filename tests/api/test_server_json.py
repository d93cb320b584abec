"""Reading a JSON body: what is taken, and what is refused as what."""

from typing import Any

import pytest
from django.test import RequestFactory

from telorunner.drf import read_json
from telorunner.errors import BundleTooLarge, InvalidJson, UnsupportedMediaType

LIMIT_BYTES = 1000


def read(body: bytes, content_type: str = "application/json") -> Any:
    request = RequestFactory().generic("POST", "/", body)
    request.META["CONTENT_TYPE"] = content_type
    return read_json(request, max_bytes=LIMIT_BYTES)


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=UTF-8",
        "application/json;",
    ],
)
def test_json_is_read(content_type: str) -> None:
    assert read('{"a": ["é", 1, null, "😀"]}'.encode(), content_type) == {"a": ["é", 1, None, "😀"]}


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "application/json; charset=latin-1",
        "application/json, text/plain",
    ],
)
def test_another_content_type_is_refused_whatever_the_body(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType):
        read(b"{}" * LIMIT_BYTES, content_type)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{'a': 1}",
        b'{"a": 1,}',
        b"NaN",
        b"[Infinity]",
        b'"\xff"',
        b'\xef\xbb\xbf{"a": 1}',
        b'"a\nb"',
        b'{"a": 1} {}',
        "{}".encode("utf-16"),
        # Parsed by recursion this would need some hundred thousand stack frames.
        b"[" * 450 + b"{" * 50,
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidJson):
        read(body)


def test_deep_nesting_is_refused_and_harms_nothing() -> None:
    body = b"[" * 200_000 + b"]" * 200_000
    request = RequestFactory().post("/", body, content_type="application/json")
    with pytest.raises(InvalidJson):
        read_json(request, max_bytes=len(body))


def test_a_body_over_the_limit_is_refused_with_the_limit() -> None:
    assert read(b'"%s"' % (b"a" * (LIMIT_BYTES - 2))) == "a" * (LIMIT_BYTES - 2)
    with pytest.raises(BundleTooLarge, match=str(LIMIT_BYTES)):
        read(b'"%s"' % (b"a" * (LIMIT_BYTES - 1)))


def test_an_absent_body_is_refused() -> None:
    with pytest.raises(InvalidJson):
        read(b"")
