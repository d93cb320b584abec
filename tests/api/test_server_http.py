"""HTTP as the server takes it: limits, refusals that can be read, and errors in JSON."""

import asyncio
from typing import Any

import httpx
import orjson
import pytest

from telorunner.jsonerrors import JsonErrors
from tests.api.reactor import BODY_LIMIT_BYTES, Opener, exchange, running_reactor, serve, until

__all__ = ["running_reactor", "serve"]

GET = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with what was received of the request."""
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            break
    answer = {"path": scope["path"], "root": scope["root_path"], "length": len(body)}
    content = orjson.dumps(answer)
    length = str(len(content)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


application = JsonErrors(echo, is_debug=False)


def parse(answer: bytes) -> tuple[int, dict[str, str], Any]:
    """Return status, headers and JSON body of a raw answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return int(lines[0].split(" ")[1]), headers, orjson.loads(body)


async def test_a_body_of_exactly_the_limit_is_taken(serve: Opener) -> None:
    async with serve(application) as server, httpx.AsyncClient(trust_env=False) as client:
        url = f"http://127.0.0.1:{server.port}/x"
        answer = await client.post(url, content=b"a" * BODY_LIMIT_BYTES)
        assert answer.json() == {"path": "/x", "root": "", "length": BODY_LIMIT_BYTES}


async def test_a_body_over_the_limit_is_refused_before_any_of_it_is_sent(serve: Opener) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (BODY_LIMIT_BYTES + 1)
    async with serve(application) as server:
        status, headers, body = parse(await exchange(server, head))
    assert status == 413
    assert body["error"] == "bundle_too_large"
    assert str(BODY_LIMIT_BYTES) in body["message"]
    assert headers["connection"] == "close"


async def test_the_refusal_reaches_a_client_that_sends_its_body_regardless(serve: Opener) -> None:
    body = b"a" * (20 * BODY_LIMIT_BYTES)
    async with serve(application) as server, httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(f"http://127.0.0.1:{server.port}/", content=body)
    assert answer.status_code == 413


async def test_no_continue_is_sent_for_a_body_that_is_refused(serve: Opener) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 999999\r\n\r\n"
    async with serve(application) as server:
        answer = await exchange(server, head)
    assert b"100 Continue" not in answer
    assert parse(answer)[0] == 413


async def test_a_chunked_body_is_cut_at_the_limit(serve: Opener) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    chunk = b"8000\r\n" + b"a" * 0x8000 + b"\r\n"
    async with serve(application) as server:
        status, _, body = parse(await exchange(server, head, rest=chunk * 64))
    assert (status, body["error"]) == (413, "bundle_too_large")


async def test_a_chunked_body_below_the_limit_is_taken(serve: Opener) -> None:
    request = (
        b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        b"5\r\nhello\r\n0\r\n\r\n"
    )
    async with serve(application) as server:
        status, _, body = parse(await exchange(server, request))
    assert (status, body["length"]) == (200, 5)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /?lastSeq=" + b"9" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 500 + b"\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: %s\r\n" % (b"b" * 1000) * 40 + b"\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\na: \x0b\r\n\r\n",
        b"GET /\xc3\xa9 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /?\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: " + b"9" * 5_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_refused_in_json(serve: Opener, request_bytes: bytes) -> None:
    close = request_bytes.replace(b"\r\nhost: x", b"\r\nhost: x\r\nconnection: close", 1)
    if b"upgrade" in request_bytes:
        close = request_bytes
    async with serve(application) as server:
        status, headers, body = parse(await exchange(server, close))
    assert status == 400
    assert headers["content-type"] == "application/json"
    assert body["error"] == "invalid_request"


@pytest.mark.parametrize("of_type", [b"multipart/form-data", b"multipart/form-data; boundary=x"])
async def test_a_form_that_is_malformed_reaches_the_application(
    serve: Opener, of_type: bytes
) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: %s\r\n" % of_type
    async with serve(application) as server:
        answer = await exchange(server, head + b"content-length: 5\r\n\r\nhello")
    status, _, body = parse(answer)
    assert (status, body["length"]) == (200, 5)


async def test_a_form_costs_other_clients_nothing(
    serve: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse_qs(query: bytes, *_: object) -> dict[bytes, list[bytes]]:
        raise AssertionError("the server parsed a form of a client's on its loop")

    monkeypatch.setattr("twisted.web.http.parse_qs", parse_qs)
    head = (
        b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n"
        b"content-type: application/x-www-form-urlencoded\r\n\r\na=b&"
    )
    async with serve(application) as server:
        assert parse(await exchange(server, head))[0] == 200


async def test_a_header_cannot_move_the_root_of_all_paths(serve: Opener) -> None:
    request = GET.replace(b"GET /", b"GET /x/v1").replace(b"host", b"daphne-root-path: /x\r\nhost")
    async with serve(application) as server:
        _, _, body = parse(await exchange(server, request))
    assert body == {"path": "/x/v1", "root": "", "length": 0}


async def test_a_connection_takes_one_request_after_another(serve: Opener) -> None:
    async with serve(application) as server, httpx.AsyncClient(trust_env=False) as client:
        url = f"http://127.0.0.1:{server.port}"
        for path in ("/a", "/b", "/c"):
            assert (await client.get(url + path)).json()["path"] == path


async def test_an_application_that_fails_is_answered_for(serve: Opener) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("secret")

    async with serve(broken) as server:
        answer = await exchange(server, GET)
    assert b"secret" not in answer
    assert parse(answer)[0] == 500
    assert parse(answer)[2]["error"] == "internal_error"


async def test_an_answer_that_fails_half_way_is_broken_off(serve: Opener) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await asyncio.sleep(0.05)
        raise RuntimeError("secret")

    async with serve(broken) as server, httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx.TransportError):
            await client.get(f"http://127.0.0.1:{server.port}/")


async def test_nothing_is_kept_of_requests_that_are_over(serve: Opener) -> None:
    async with serve(application) as server:
        for _ in range(20):
            await exchange(server, GET)
        await until(lambda: not server.connections and not server.transports)
