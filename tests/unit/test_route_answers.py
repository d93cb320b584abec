"""The answers of reserved paths, and the small reader of HTTP answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.httpanswer import MAX_BODY_BYTES, MAX_BYTES, AnswerReader, HttpAnswer, NotHttpError
from routing.reserved import answer_reserved
from routing.routes import ProbePath

PATH = ProbePath(b"secret")
HOST = "8080-abcdefghijkl.apps.test"
ROOT = "/.well-known/telo-route"
NONCE = f"{PATH.key(HOST)}/n0-nce_"


@pytest.mark.parametrize("host", [HOST, f"{HOST}:8443", HOST.upper()])
def test_a_host_is_answered_on_its_own_path(host: str) -> None:
    answer = answer_reserved(PATH, host, f"{ROOT}/{NONCE}")
    assert answer is not None
    body, headers = answer
    assert body == NONCE.encode()
    assert dict(headers) == {
        "Content-Type": "text/plain; charset=utf-8",
        "Cache-Control": "no-store",
        "Telo-Route-Proof": PATH.proof(HOST, NONCE),
    }


@pytest.mark.parametrize(
    ("host", "target"),
    [
        ("9090-abcdefghijkl.apps.test", f"{ROOT}/{NONCE}"),
        ("", f"{ROOT}/{NONCE}"),
        ("\u00fc\ud800", f"{ROOT}/{NONCE}"),
        (HOST, f"{ROOT}/{ProbePath(b'other').key(HOST)}/n"),
        (HOST, ROOT),
        (HOST, f"{ROOT}/"),
        (HOST, f"{ROOT}/{PATH.key(HOST)}"),
        (HOST, f"{ROOT}/{PATH.key(HOST)}/"),
        (HOST, f"{ROOT}/{NONCE}/more"),
        (HOST, f"{ROOT}/{NONCE}\r\nX: y"),
        (HOST, f"{ROOT}/{PATH.key(HOST)}/{'n' * 65}"),
        (HOST, f"/x{ROOT}/{NONCE}"),
        (HOST, f"{ROOT}/{PATH.key(HOST)}/\ud800"),
        (HOST, "/"),
    ],
)
def test_anything_else_is_not_ours(host: str, target: str) -> None:
    assert answer_reserved(PATH, host, target) is None


def test_nobody_sees_the_secret_of_a_path() -> None:
    assert "secret" not in repr(PATH)


def parse_answer(data: bytes, *, is_ended: bool) -> HttpAnswer | None:
    """Read it as it would come in one piece."""
    return AnswerReader().take(data, is_ended=is_ended)


def split_everywhere(data: bytes) -> HttpAnswer | None:
    """Read it as it would come in two pieces, and byte by byte: no beginning of it is an answer."""
    whole = parse_answer(data, is_ended=False)
    for end in range(len(data)):
        reader = AnswerReader()
        assert reader.take(data[:end], is_ended=False) is None
        assert reader.take(data[end:], is_ended=False) == whole
    assert byte_by_byte(data) == whole
    return whole


def byte_by_byte(data: bytes) -> HttpAnswer | None:
    reader = AnswerReader()
    for at in range(len(data) - 1):
        assert reader.take(data[at : at + 1], is_ended=False) is None
    return reader.take(data[-1:], is_ended=False)


def test_an_answer_with_a_length_is_read_at_its_last_byte() -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b: c \r\n\r\nhello"
    assert split_everywhere(data) == HttpAnswer(
        200, {"content-length": "5", "x-a": "b: c"}, b"hello"
    )


def test_an_answer_in_chunks_is_read_at_its_last_one() -> None:
    head = b"HTTP/1.1 200\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n"
    answer = split_everywhere(head + b"2;x=y\r\nhe\r\n3 \r\nllo\r\n0\r\n")
    assert answer is not None
    assert answer.body == b"hello"


def test_interim_answers_and_those_without_a_body_are_read() -> None:
    data = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
    assert split_everywhere(data) == HttpAnswer(204, {}, b"")


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 999 X\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFF\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_BODY_BYTES + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"800\r\n"
        + b"x" * 2048
        + b"\r\n"
        + b"801\r\n"
        + b"x" * 2049
        + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * MAX_BODY_BYTES,
    ],
)
def test_what_is_no_small_answer_is_refused(data: bytes) -> None:
    with pytest.raises(NotHttpError):
        parse_answer(data, is_ended=False)


@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_bring_it_down(data: bytes, is_ended: bool) -> None:
    for prefix in (
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ):
        try:
            answer = parse_answer(prefix + data, is_ended=is_ended)
        except NotHttpError:
            continue
        assert answer is not None or not is_ended


def test_the_bound_of_what_is_read_holds_the_longest_answer() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    data = head + b"1\r\nx\r\n" * MAX_BODY_BYTES + b"0\r\n"
    assert len(data) <= MAX_BYTES
    answer = parse_answer(data, is_ended=False)
    assert answer is not None
    assert len(answer.body) == MAX_BODY_BYTES


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 100 C\r\n\r\n" * 2_000 + b"HTTP/1.1 204 N\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"1\r\nx\r\n" * MAX_BODY_BYTES
        + b"0\r\n",
        b"HTTP/1.1 204 N\r\n" + b"a:\r\n" * 4_000 + b"\r\n",
    ],
    ids=["interim answers", "chunks", "headers"],
)
def test_what_drips_costs_no_more_than_what_comes_at_once(data: bytes) -> None:
    """Read from its beginning with each piece, it kept the process from all else for minutes."""
    assert len(data) <= MAX_BYTES
    assert byte_by_byte(data) == parse_answer(data, is_ended=False)
