"""Watches, lists, attaches, logs and deletions that go wrong under sessions that run."""

import asyncio
from collections.abc import Callable

import pytest

from tests.clients import Client
from tests.faultrules import (
    EMPTY_WATCH,
    EXPIRED,
    EXPIRED_EVENT,
    Answer,
    Cut,
    Fault,
    Hold,
    Lines,
    Silent,
    error_event,
    page,
    refusal,
)
from tests.faulty import Faulty

pytestmark = pytest.mark.cluster

HELLO = "print('hello')\n"
ECHO = "import sys\nprint('ready', flush=True)\nfor line in sys.stdin:\n    print('heard', line)\n"
WAITS = "print('ready', flush=True)\ninput()\nprint('over')\nraise SystemExit(5)\n"
TROUBLE = refusal(500, "InternalError", "etcdserver: leader changed")
PAUSE = refusal(429, "TooManyRequests", "too many requests", retry_after=1)
NO_TEXT = b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n'
WATCHES: list[list[Fault]] = [
    [Lines(b'{"type":"MODIFIED","object":{"metada', then="cut"), EXPIRED_EVENT],
    [error_event(500, "Timeout"), page(502)],
    [EXPIRED, TROUBLE],
    [EMPTY_WATCH, Cut(is_before_head=True)],
    [Lines(b"<html>\r\n"), refusal(401, "Unauthorized")],
    [Lines(NO_TEXT, then="silent"), PAUSE],
]
NO_CONTAINER = refusal(500, "InternalError", "container not found")


async def it_runs(faulty: Faulty, client: Client) -> None:
    session = await client.create(HELLO)
    assert await client.status(session) == {"kind": "exited", "code": 0}
    assert await client.replay(session) == b"hello\r\n"
    await faulty.until_nothing_is_left()


@pytest.mark.parametrize(
    "faults", WATCHES, ids=["mid-line", "410-event", "410", "empty", "page", "no-text"]
)
async def test_an_end_in_the_hole_of_a_watch_is_told_once_and_right(
    faulty: Faulty, client: Client, faults: list[Fault], times: Callable[[int, int], int]
) -> None:
    """The watch is cut and comes back by way of two faults; the pod ends meanwhile."""
    if faults not in WATCHES[: times(len(WATCHES), 1)]:
        pytest.skip("each watch that fails lengthens the pause; runs with --full-counts")
    proxy = faulty.proxy
    session = await client.create(WAITS)
    async with client.terminal(session) as terminal:
        await terminal.until(b"ready")
        await client.until_running(session)
        proxy.forget()
        for fault in faults:
            proxy.add(fault, verb="watch", times=1)
        await proxy.until(lambda: proxy.cut(verb="watch"))
        await terminal.socket.send(b"\r")
        assert await terminal.drain() == 1000
    assert b"over" in terminal.output
    kinds = [one["status"]["kind"] for _, one in await client.events(session) if "status" in one]
    assert kinds == ["starting", "running", "failed"]
    await faulty.until_nothing_is_left()
    await proxy.until(lambda: proxy.count("watch") >= 3 and proxy.live("watch") == 1)
    assert proxy.count("watch") <= 4
    assert proxy.count("list", "pods") <= 4


async def test_a_watch_that_is_cut_in_mid_line_again_and_again_loses_nothing(
    faulty: Faulty, client: Client, times: Callable[[int, int], int]
) -> None:
    """The first line of each watch is cut in two; the third watch is whole."""
    if not times(1, 0):
        pytest.skip("each watch that fails lengthens the pause; runs with --full-counts")
    faulty.proxy.add(Cut(), verb="watch", resource="pods", times=2)
    await faulty.proxy.until(lambda: faulty.proxy.cut(verb="watch"))
    await it_runs(faulty, client)
    assert faulty.proxy.count("watch") <= 5


async def test_lists_that_fail_are_tried_again_without_haste(
    faulty: Faulty, client: Client, times: Callable[[int, int], int]
) -> None:
    if not times(1, 0):
        pytest.skip("each watch that fails lengthens the pause; runs with --full-counts")
    proxy = faulty.proxy
    for fault in (PAUSE, Cut()):
        proxy.add(fault, verb="list", resource="pods", times=1)
    await proxy.until(lambda: proxy.cut(verb="watch"))
    await it_runs(faulty, client)
    await proxy.until(lambda: proxy.live("watch") == 1)
    assert proxy.count("list", "pods") <= 4
    first, second = (one.at for one in proxy.asked("list", "pods")[:2])
    assert second - first >= 1


async def test_a_session_that_only_its_name_shows_has_its_output_and_its_end(
    faulty: Faulty, client: Client, times: Callable[[int, int], int]
) -> None:
    """List and watch are away for longer than the supervisor waits for them."""
    if not times(1, 0):
        pytest.skip("the supervisor is patient for 10 s; runs with --full-counts")
    held = faulty.proxy.add(Hold(), verb="list", resource="pods")
    await faulty.proxy.until(lambda: faulty.proxy.cut(verb="watch"))
    session = await client.create(HELLO)
    assert await client.status(session) == {"kind": "exited", "code": 0}
    assert await client.replay(session) == b"hello\r\n"
    faulty.proxy.lift(held)
    await faulty.until_nothing_is_left()


async def test_a_program_whose_attaches_fail_has_all_its_output(
    faulty: Faulty, client: Client
) -> None:
    for fault in (NO_CONTAINER, NO_CONTAINER, page(502), PAUSE, Cut(is_before_head=True)):
        faulty.proxy.add(fault, verb="attach", times=1)
    session = await client.create(ECHO)
    async with client.terminal(session) as terminal:
        await terminal.until(b"ready")
        await terminal.socket.send(b"you\r")
        await terminal.until(b"heard you")
    assert faulty.proxy.count("attach") <= 60
    assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
    assert await client.status(session) == {"kind": "stopped"}
    await faulty.until_nothing_is_left()


async def test_an_attach_that_is_always_refused_floods_nobody(
    faulty: Faulty, client: Client
) -> None:
    faulty.proxy.add(NO_CONTAINER, verb="attach")
    session = await client.create("import time\ntime.sleep(1.5)\nprint('hello')\n")
    assert await client.status(session) == {"kind": "exited", "code": 0}
    assert b"hello\r\n" in await client.replay(session)
    # Every 50 ms for 3 s at most, then with ever longer pauses.
    assert faulty.proxy.count("attach") <= 60 + 15


async def test_an_attach_that_is_cut_comes_back_without_loss(
    faulty: Faulty, client: Client
) -> None:
    session = await client.create(ECHO)
    async with client.terminal(session) as terminal:
        await terminal.until(b"ready")
        for word in (b"one", b"two", b"three"):
            faulty.proxy.forget()
            assert faulty.proxy.cut(verb="attach") == 1
            await faulty.proxy.until(lambda: faulty.proxy.count("attach"))
            await terminal.socket.send(word + b"\r")
            await terminal.until(b"heard " + word)
        assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
        assert await terminal.drain() == 1000
    assert [one["type"] for one in terminal.texts] == ["seq"]


async def test_logs_that_fail_cost_a_short_program_nothing(faulty: Faulty, client: Client) -> None:
    """Without an attach, the log is all there is."""
    proxy = faulty.proxy
    proxy.add(NO_CONTAINER, verb="attach")
    for fault in (TROUBLE, page(502), Cut(), Answer(200, b"hel", after_bytes=1)):
        proxy.add(fault, verb="log", times=1)
    await it_runs(faulty, client)
    assert 4 < proxy.count("log") < 20


async def test_deletions_that_fail_are_done_in_the_end(faulty: Faulty, client: Client) -> None:
    afterwards = Answer(504, TROUBLE.body, is_afterwards=True)
    for resource in ("pods", "configmaps"):
        for fault in (TROUBLE, page(502), Cut(is_before_head=True), afterwards):
            faulty.proxy.add(fault, verb="delete", resource=resource, times=1)
    session = await client.create(ECHO)
    await client.until_running(session)
    assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
    assert await client.status(session) == {"kind": "stopped"}
    await faulty.until_nothing_is_left()
    assert faulty.proxy.count("delete") <= 12


async def test_a_silent_attach_and_a_silent_create_hold_nobody_else_up(
    faulty: Faulty, client: Client, times: Callable[[int, int], int]
) -> None:
    if not times(1, 0):
        pytest.skip("what is silent is waited for at a stop; runs with --full-counts")
    proxy = faulty.proxy
    attach = proxy.add(Silent(), verb="attach", times=1)
    first = await client.create(ECHO)
    await proxy.until(lambda: attach.hits == 1)
    create = proxy.add(Silent(), verb="create", resource="pods", times=1)
    second = await client.create(ECHO)
    await proxy.until(lambda: create.hits == 1)
    async with asyncio.timeout(20):
        await it_ends_at_once(client)
        for session in (first, second):
            assert (await client.http.delete(f"/v1/sessions/{session}")).status_code == 204
            assert await client.status(session) == {"kind": "stopped"}
    await faulty.until_nothing_is_left()


async def it_ends_at_once(client: Client) -> None:
    session = await client.create(HELLO)
    assert await client.status(session) == {"kind": "exited", "code": 0}
