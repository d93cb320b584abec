"""The local ingress passes HTTP on as it comes, and answers itself where it cannot."""

import asyncio
import os
import socket
from typing import Any

import pytest

from telorunner.localcluster.ingress import server
from telorunner.localcluster.ingress.visit import Visit
from telorunner.localcluster.ingress.wire import Limits, Wire
from tests.cluster.ingress_harness import (
    WAIT_SECONDS,
    App,
    Bench,
    Talk,
    ask_for,
    open_app,
    open_bench,
    say,
)

BIG_BYTES = 8_000_000
# What the kernel keeps of a connection that nobody reads is less than this, for both connections.
HELD_BYTES = 32_000_000


async def echo(app: App, talk: Talk) -> None:
    """Answer with the body that came, if it has a length."""
    length = int(dict_of(app.heads[-1]).get("content-length", "0"))
    await talk.send(say("200 OK", body=await talk.reader.readexactly(length)))


def dict_of(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name.lower(): value.strip() for name, _, value in pairs}


async def test_an_application_gets_a_request_as_it_was_sent_and_is_told_who_asks() -> None:
    async with open_bench() as bench, open_app(echo) as app:
        bench.lead("a.test", app.port)
        answer = await bench.ask(
            ask_for("/a%2Fb//c/../d?q=%20&&", "X-Mine: \xfc", "cookie: a=b", host="A.test:8080")
        )
    assert (answer.status, answer.body) == (200, b"")
    head = app.heads[0].decode("latin-1")
    assert head.startswith("GET /a%2Fb//c/../d?q=%20&& HTTP/1.1\r\nHost: A.test:8080\r\n")
    assert "\r\nX-Mine: \xc3\xbc\r\n" in head
    told = dict_of(app.heads[0])
    assert told["x-forwarded-for"] == "127.0.0.1"
    assert told["x-forwarded-host"] == "A.test:8080"
    assert told["x-forwarded-proto"] == "http"


async def test_headers_of_one_connection_and_what_clients_say_of_themselves_do_not_pass() -> None:
    async with open_bench() as bench, open_app(echo) as app:
        bench.lead("a.test", app.port)
        await bench.ask(
            ask_for(
                "/",
                "Connection: keep-alive, X-Hop",
                "X-Hop: 1",
                "Keep-Alive: timeout=5",
                "TE: trailers",
                "Proxy-Authorization: Basic x",
                "Upgrade: h2c",
                "X-Forwarded-For: 10.0.0.1",
                "X-Forwarded-Port: 1",
                "X-Real-IP: 10.0.0.1",
                "Forwarded: for=10.0.0.1",
                "X-End: 1",
            )
        )
    assert dict_of(app.heads[0]) == {
        "host": "a.test",
        "x-end": "1",
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-host": "a.test",
        "x-forwarded-proto": "http",
        "connection": "close",
    }


async def test_an_answer_keeps_its_headers_but_those_of_the_connection() -> None:
    async def behave(app: App, talk: Talk) -> None:
        fields = ("Set-Cookie: a=1", "Set-Cookie: b=2", "Connection: close, X-Hop", "X-Hop: 1")
        await talk.send(say("299 Quite Well", *fields, body=b"hello"))

    async with open_bench() as bench, open_app(behave) as app:
        bench.lead("a.test", app.port)
        answer = await bench.ask(ask_for())
    assert answer.head == (
        b"HTTP/1.1 299 Quite Well\r\nContent-Length: 5\r\n"
        b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n"
    )
    assert answer.body == b"hello"


async def test_bodies_in_chunks_pass_both_ways_as_they_come() -> None:
    async def behave(app: App, talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        async for piece in talk.chunks():
            await talk.send(b"%x\r\n%s\r\n" % (len(piece), piece.upper()))
        await talk.send(b"0\r\nX-Sum: 1\r\n\r\n")

    async with open_bench() as bench, open_app(behave) as app, bench.talk() as talk:
        bench.lead("a.test", app.port)
        await talk.send(ask_for("/", "Transfer-Encoding: chunked", method="POST"))
        told = dict_of(await talk.read_head())
        # What answers before the request has ended may not read it to its end.
        assert (told["transfer-encoding"], told["connection"]) == ("chunked", "close")
        # Each piece comes back before the next one is sent: nothing is kept.
        for piece in (b"one", b"two"):
            await talk.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            async with asyncio.timeout(10):
                assert await talk.reader.readexactly(8) == b"3\r\n" + piece.upper() + b"\r\n"
        await talk.send(b"0\r\n\r\n")
        async with asyncio.timeout(10):
            assert await talk.reader.readuntil(b"\r\n\r\n") == b"0\r\nX-Sum: 1\r\n\r\n"
        assert await talk.read_end() == b""


async def test_a_length_beside_chunks_does_not_reach_the_application() -> None:
    async def behave(app: App, talk: Talk) -> None:
        body = b"".join([piece async for piece in talk.chunks()])
        await talk.send(say("200 OK", body=body))

    async with open_bench() as bench, open_app(behave) as app:
        bench.lead("a.test", app.port)
        fields = ("Content-Length: 3", "Transfer-Encoding: chunked")
        answer = await bench.ask(ask_for("/", *fields, method="POST") + b"5\r\nhello\r\n0\r\n\r\n")
    assert answer.body == b"hello"
    assert "content-length" not in dict_of(app.heads[0])


async def test_a_length_is_kept_whatever_is_said_of_it() -> None:
    """Named as a header of the connection only, it would be lost, and the body with it."""
    fields = ("Connection: content-length, host",)

    async def behave(app: App, talk: Talk) -> None:
        await talk.send(say("200 OK", *fields, body=await talk.reader.readexactly(5)))

    async with open_bench() as bench, open_app(behave) as app:
        bench.lead("a.test", app.port)
        request = ask_for("/", "Content-Length: 5", *fields, method="POST")
        answer = await bench.ask(request + b"hello")
    assert dict_of(app.heads[0])["content-length"] == "5"
    assert dict_of(app.heads[0])["host"] == "a.test"
    assert (answer.headers, answer.body) == ({"content-length": "5"}, b"hello")


async def test_what_a_head_may_not_say_is_not_said_behind_a_body_either() -> None:
    forbidden = (
        b"Host: b.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: x\r\n"
        b"X-Forwarded-For: 10.0.0.1\r\nForwarded: for=10.0.0.1\r\nUpgrade: h2c\r\n"
    )
    body = b"5\r\nhello\r\n0\r\n"

    async def behave(app: App, talk: Talk) -> None:
        app.note(await talk.reader.readuntil(b"\r\n\r\n"))
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        await talk.send(head + body + forbidden + b"X-Sum: 2\r\n\r\n")

    async with open_bench() as bench, open_app(behave) as app, bench.talk() as talk:
        bench.lead("a.test", app.port)
        head = ask_for("/", "Transfer-Encoding: chunked", method="POST")
        await talk.send(head + body + forbidden + b"X-Sum: 1\r\n\r\n")
        await talk.read_head()
        async with asyncio.timeout(10):
            assert await talk.reader.readuntil(b"\r\n\r\n") == body + b"X-Sum: 2\r\n\r\n"
    assert app.heads[1] == body + b"X-Sum: 1\r\n\r\n"


@pytest.mark.parametrize(
    ("status", "then"),
    [("204 No Content", b""), ("103 Early Hints", say("204 No Content"))],
    ids=["204", "interim"],
)
async def test_an_answer_that_has_no_body_has_no_length_of_one(status: str, then: bytes) -> None:
    async def behave(app: App, talk: Talk) -> None:
        await talk.send(f"HTTP/1.1 {status}\r\nContent-Length: 5\r\nX: y\r\n\r\n".encode() + then)

    async with open_bench() as bench, open_app(behave) as app, bench.talk() as talk:
        bench.lead("a.test", app.port)
        await talk.send(ask_for())
        assert await talk.read_head() == f"HTTP/1.1 {status}\r\nX: y\r\n\r\n".encode()


async def test_answers_without_a_body_keep_what_they_say_of_one() -> None:
    async def behave(app: App, talk: Talk) -> None:
        status = "304 Not Modified" if app.heads[-1].startswith(b"GET") else "200 OK"
        await talk.send(f"HTTP/1.1 {status}\r\nContent-Length: 77\r\n\r\n".encode())

    async with open_bench() as bench, open_app(behave) as app:
        bench.lead("a.test", app.port)
        for method, status in (("HEAD", 200), ("GET", 304)):
            async with bench.talk() as talk:
                await talk.send(ask_for(method=method))
                answer = await talk.read_answer(has_body=False)
                assert (answer.status, answer.headers) == (status, {"content-length": "77"})
                await talk.send(ask_for(method=method))
                assert (await talk.read_answer(has_body=False)).status == status


async def test_a_client_of_http_1_0_gets_a_body_that_ends_with_the_connection() -> None:
    async def behave(app: App, talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        # There is no place for the trailer.
        await talk.send(b"2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n")

    async with open_bench() as bench, open_app(behave) as app:
        bench.lead("a.test", app.port)
        answer = await bench.ask(b"GET / HTTP/1.0\r\nHost: a.test\r\n\r\n")
    assert answer.headers == {"connection": "close"}
    assert answer.body == b"hi"


async def test_a_client_that_waits_for_leave_to_send_gets_it_from_the_application() -> None:
    async def behave(app: App, talk: Talk) -> None:
        if app.heads[-1].startswith(b"PUT /no"):
            await talk.send(say("417 No", body=b"no"))
            return
        await talk.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await echo(app, talk)

    async with open_bench() as bench, open_app(behave) as app:
        bench.lead("a.test", app.port)
        async with bench.talk() as talk:
            fields = ("Expect: 100-continue", "Content-Length: 5")
            await talk.send(ask_for("/", *fields, method="PUT"))
            assert await talk.read_head() == b"HTTP/1.1 100 Continue\r\n\r\n"
            await talk.send(b"hello")
            assert (await talk.read_answer()).body == b"hello"
            await talk.send(ask_for("/no", *fields, method="PUT"))
            answer = await talk.read_answer()
            assert (answer.status, answer.body) == (417, b"no")
            assert answer.headers["connection"] == "close"
            assert await talk.read_end() == b""
        async with bench.talk() as talk:
            await talk.send(ask_for("/", *fields, method="PUT", host="none.test"))
            answer = await talk.read_answer()
            # Nobody could say whether what comes next is a body or a request.
            assert (answer.status, answer.headers["connection"]) == (404, "close")
            assert await talk.read_end() == b""


async def test_large_bodies_arrive_whole() -> None:
    body = os.urandom(BIG_BYTES)
    async with open_bench() as bench, open_app(echo) as app, bench.talk() as talk:
        bench.lead("a.test", app.port)
        async with asyncio.TaskGroup() as tasks:
            head = ask_for("/", f"Content-Length: {BIG_BYTES}", method="POST")
            tasks.create_task(talk.send(head + body))
            answer = await talk.read_answer()
    assert answer.body == body


async def test_what_a_client_does_not_read_is_not_read_from_the_application() -> None:
    sent = 0
    is_stuck = asyncio.Event()

    async def behave(app: App, talk: Talk) -> None:
        nonlocal sent
        await talk.send(b"HTTP/1.1 200 OK\r\n\r\n")
        piece = bytes(1_000_000)
        while True:
            try:
                async with asyncio.timeout(1):
                    await talk.send(piece)
            except TimeoutError:
                is_stuck.set()
                await asyncio.Event().wait()
            sent += len(piece)

    async with open_bench() as bench, open_app(behave) as app, bench.talk() as talk:
        bench.lead("a.test", app.port)
        await talk.send(ask_for())
        async with asyncio.timeout(30):
            await is_stuck.wait()
    assert sent < HELD_BYTES


async def test_what_an_application_does_not_read_is_not_taken_from_the_client() -> None:
    async def behave(app: App, talk: Talk) -> None:
        await asyncio.Event().wait()

    sent, piece = 0, bytes(1_000_000)
    async with open_bench() as bench, open_app(behave) as app, bench.talk() as talk:
        bench.lead("a.test", app.port)
        await talk.send(ask_for("/", "Content-Length: 1000000000", method="POST"))
        is_taken = True
        while is_taken:
            try:
                async with asyncio.timeout(1):
                    await talk.send(piece)
            except TimeoutError:
                is_taken = False
            sent += len(piece)
            assert sent < HELD_BYTES


async def test_an_event_stream_is_passed_on_event_by_event() -> None:
    go_on = asyncio.Event()

    async def behave(app: App, talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await go_on.wait()
        await talk.send(b"data: 2\n\n")

    async with open_bench() as bench, open_app(behave) as app, bench.talk() as talk:
        bench.lead("a.test", app.port)
        await talk.send(ask_for())
        await talk.read_head()
        chunks = talk.chunks()
        async with asyncio.timeout(10):
            assert await anext(chunks) == b"data: 1\n\n"
            go_on.set()
            assert await anext(chunks) == b"data: 2\n\n"


@pytest.mark.parametrize("has_answered", [False, True])
async def test_a_client_that_goes_away_ends_the_request(has_answered: bool) -> None:
    async def behave(app: App, talk: Talk) -> None:
        if has_answered:
            await talk.send(b"HTTP/1.1 200 OK\r\n\r\ndata")
        assert await talk.reader.read() == b""
        app.has_been_left.set()

    async with open_bench() as bench, open_app(behave) as app:
        bench.lead("a.test", app.port)
        async with bench.talk() as talk:
            await talk.send(ask_for())
            if has_answered:
                await talk.read_head()
            else:
                async with asyncio.timeout(10):
                    await app.has_been_asked.wait()
        async with asyncio.timeout(10):
            await app.has_been_left.wait()


@pytest.mark.parametrize(
    "head",
    [b"Content-Length: 100\r\n\r\nhalf", b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"],
)
async def test_an_answer_that_is_cut_off_arrives_cut_off(head: bytes) -> None:
    async def behave(app: App, talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\n" + head)

    async with open_bench() as bench, open_app(behave) as app, bench.talk() as talk:
        bench.lead("a.test", app.port)
        await talk.send(ask_for())
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await talk.read_answer()


async def test_a_client_of_http_1_0_sees_that_an_answer_was_cut_off() -> None:
    async def behave(app: App, talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")

    async with open_bench() as bench, open_app(behave) as app:
        bench.lead("a.test", app.port)
        # Its end in order would say that this is all.
        with pytest.raises(ConnectionResetError):
            await bench.ask(b"GET / HTTP/1.0\r\nHost: a.test\r\n\r\n")


async def test_an_answer_that_comes_before_the_request_has_ended_is_read() -> None:
    async def behave(app: App, talk: Talk) -> None:
        await talk.send(say("413 Too Much", "Connection: close", body=b"enough"))

    async with open_bench() as bench, open_app(behave) as app, bench.talk() as talk:
        bench.lead("a.test", app.port)
        await talk.send(ask_for("/", "Content-Length: 1000000", method="POST") + bytes(100_000))
        answer = await talk.read_answer()
        assert (answer.status, answer.body) == (413, b"enough")
        assert answer.headers["connection"] == "close"
        # What the client sends before it has read that does not break the connection.
        await talk.send(bytes(100_000))
        assert await talk.read_end() == b""


async def test_requests_on_one_connection_are_routed_one_by_one() -> None:
    async def name(app: App, talk: Talk) -> None:
        await talk.send(say("200 OK", body=str(app.port).encode()))

    async with open_bench() as bench, open_app(name) as one, open_app(name) as two:
        bench.lead("a.test", one.port, name="one")
        bench.lead("b.test", two.port, name="two")
        async with bench.talk() as talk:
            hosts = ("a.test", "b.test", "c.test", "a.test")
            # All at once: those that come early wait.
            await talk.send(b"".join(ask_for(host=host) for host in hosts))
            answers = [await talk.read_answer() for _ in hosts]
    assert [answer.status for answer in answers] == [200, 200, 404, 200]
    found = [answer.body for answer in answers if answer.status == 200]
    assert found == [str(port).encode() for port in (one.port, two.port, one.port)]


async def test_no_piece_of_an_answer_waits_for_the_one_before_to_be_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that confirms late, as all do, would make each answer take 40 ms."""
    wires: list[Wire] = []

    def visit(client: Wire, *more: Any) -> Visit:
        wires.append(client)
        return Visit(client, *more)

    monkeypatch.setattr(server, "Visit", visit)
    async with open_bench() as bench, bench.talk() as talk:
        await talk.send(ask_for())
        await talk.read_answer()
        (wire,) = wires
        sock = wire.writer.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def check_refused(bench: Bench, host: str, status: int, words: str) -> None:
    """Check what the ingress itself says of a request for a host."""
    async with bench.talk() as talk:
        await talk.send(ask_for("/", "Content-Length: 3", method="POST", host=host))
        await talk.send(b"abc")
        answer = await talk.read_answer()
        assert (answer.status, answer.body) == (status, f"{words}\n".encode()), host
        # Nothing has gone wrong with the client's own connection.
        await talk.send(ask_for(method="HEAD", host="none.test"))
        answer = await talk.read_answer(has_body=False)
        assert answer.status == 404, host
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"


async def test_the_ingress_says_why_it_cannot_pass_a_request_on() -> None:
    async def babble(app: App, talk: Talk) -> None:
        await talk.send(b"hello, I am no HTTP server\r\n\r\n")

    async with open_bench() as bench, open_app(babble) as bad:
        bench.lead("empty.test", name="empty")
        # Nobody listens on port 1.
        bench.lead("refused.test", 1, name="refused")
        bench.lead("bad.test", bad.port, name="bad")
        await check_refused(
            bench, "none.test", 404, "No route leads anywhere for this host and path."
        )
        await check_refused(bench, "empty.test", 503, "Nothing is ready behind this route.")
        for host in ("refused.test", "bad.test"):
            await check_refused(bench, host, 502, "The application does not take the request.")


async def test_an_application_that_does_not_answer_in_time_is_told() -> None:
    async def hang(app: App, talk: Talk) -> None:
        await talk.reader.read()

    async with open_bench(Limits(answer_seconds=0.2)) as bench, open_app(hang) as slow:
        bench.lead("slow.test", slow.port)
        await check_refused(bench, "slow.test", 504, "The application did not answer in time.")


async def test_an_endpoint_that_refuses_is_passed_over() -> None:
    async with open_bench() as bench, open_app(echo) as app:
        bench.lead("a.test", 1, app.port)
        for _ in range(4):
            assert (await bench.ask(ask_for())).status == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a.test\r\nX: " + b"y" * 200_000, 431),
        (b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", 405),
        (b"OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", 404),
        (b"GET http://a.test/x HTTP/1.1\r\nHost: b.test\r\n\r\n", 200),
    ],
)
async def test_what_is_no_proper_request_is_refused(sent: bytes, status: int) -> None:
    async with open_bench() as bench, open_app(echo) as app, bench.talk() as talk:
        bench.lead("a.test", app.port)
        await talk.send(sent)
        assert (await talk.read_answer()).status == status


async def test_a_head_that_does_not_come_to_its_end_is_refused() -> None:
    async with open_bench(Limits(head_seconds=0.3)) as bench, bench.talk() as talk:
        await talk.send(b"GET / HTTP/1.1\r\nHost: a.te")
        assert (await talk.read_answer()).status == 408


async def test_a_connection_on_which_nothing_is_asked_ends() -> None:
    async with open_bench(Limits(idle_seconds=0.2)) as bench, bench.talk() as talk:
        assert await talk.read_end() == b""


async def test_a_client_too_many_is_told_so_and_a_place_comes_free_again() -> None:
    async with open_bench(Limits(connections=1)) as bench:
        async with bench.talk() as first:
            await first.send(ask_for())
            assert (await first.read_answer()).status == 404
            async with bench.talk() as second:
                answer = await second.read_answer()
                assert (answer.status, answer.headers["connection"]) == (503, "close")
        async with asyncio.timeout(10):
            # Nothing tells when a server has seen that a client left.
            while (await bench.ask(ask_for())).status == 503:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_client_that_asks_on_and_reads_nothing_does_not_keep_its_place() -> None:
    async def ask_on(talk: Talk) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                await talk.send(ask_for() * 1000)

    limits = Limits(connections=1, body_seconds=0.2)
    async with open_bench(limits) as bench, bench.talk(limit=1024) as talk:
        talk.writer.transport.pause_reading()
        with pytest.raises(ConnectionError):
            await ask_on(talk)
        async with asyncio.timeout(WAIT_SECONDS):
            while (await bench.ask(ask_for())).status == 503:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
