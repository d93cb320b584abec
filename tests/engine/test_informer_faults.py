"""What an informer makes of a cluster, or of something on the way, that misbehaves."""

import asyncio
import json

import pytest
from aiohttp import web

from telorunner import aio
from telorunner.kube.client import Cluster
from telorunner.kube.informer import Informer
from tests.engine.informers import running
from tests.fakes import (
    FakeApi,
    Handler,
    begin,
    bookmark_line,
    cut,
    error_line,
    event_line,
    hang,
    lines,
    refuse,
    say,
)

pytestmark = pytest.mark.looptime

POD = {"metadata": {"name": "ghost", "uid": "g", "resourceVersion": "7"}}


async def phase_of(informer: Informer, name: str, phase: str) -> None:
    """Wait until a pod is in a phase."""
    with informer.subscribe(name) as pod:
        while pod.object is None or pod.object["status"]["phase"] != phase:
            await pod.changed()


@pytest.mark.parametrize(
    "broken",
    [
        refuse(410, "Expired"),
        refuse(401, "Unauthorized"),
        refuse(403, "Forbidden"),
        refuse(429, "TooManyRequests"),
        refuse(500, "InternalError"),
        refuse(503, "ServiceUnavailable"),
        cut,
        say("<html><body>\nsign in\n</body></html>"),
        say("<html>", 502),
        lines(),
        lines(error_line(410, "Expired")),
        lines(error_line(500, "InternalError")),
        lines(b'{"type":"ADDED","object":{"metada', then="cut"),
        lines(b'{"type":"ADDED","object":{"metada'),
        lines(b'{"type":"ADDED","object":{"metadata":{"name":"\xff\xfe"}}}\n', then="hang"),
        lines(b'"text"\n', then="hang"),
        lines(b'{"type":"MODIFIED","object":{"metadata":null}}\n', then="hang"),
        lines(*[b"x" * 2**20] * 17, then="hang"),
    ],
)
async def test_a_change_in_the_hole_of_a_broken_watch_is_seen(
    fake: tuple[FakeApi, Cluster], broken: Handler, looptime: float
) -> None:
    """The change is in no watch at all, as if the server had forgotten the event."""
    api, cluster = fake
    api.put("a", status={"phase": "Running"})
    api.put("b", status={"phase": "Running"})
    api.script("watch", broken)
    if broken is cut:
        # The HTTP client repeats a GET once where a connection that was kept is closed.
        api.script("watch", broken)
    async with running(cluster) as informer:
        with informer.subscribe("b") as vanished:
            await informer.wait_listed()
            api.put("a", status={"phase": "Failed"}, quietly=True)
            api.remove("b", quietly=True)
            await phase_of(informer, "a", "Failed")
            while vanished.object is not None:
                await vanished.changed()
            assert vanished.last is not None
            assert vanished.last["status"]["phase"] == "Running"
        assert looptime < 6
        # Nothing has to be asked more than twice to get over one fault.
        assert api.count("list") + api.count("watch") <= 5
        await api.wait_for("watch", 2)
        api.put("a", status={"phase": "Gone"})
        await phase_of(informer, "a", "Gone")


@pytest.mark.parametrize("silent", [lines(then="hang"), hang])
async def test_a_watch_on_which_nothing_comes_is_noticed_within_a_minute(
    fake: tuple[FakeApi, Cluster], silent: Handler, looptime: float
) -> None:
    api, cluster = fake
    api.put("a", status={"phase": "Running"})
    api.script("watch", silent)
    async with running(cluster) as informer:
        await api.wait_for("watch")
        api.put("a", status={"phase": "Failed"}, quietly=True)
        await phase_of(informer, "a", "Failed")
        assert looptime <= 60


async def test_a_watch_that_fell_silent_after_events_is_noticed_within_a_minute(
    fake: tuple[FakeApi, Cluster], looptime: float
) -> None:
    api, cluster = fake
    api.script("watch", lines(event_line("ADDED", POD), then="hang"))
    async with running(cluster) as informer:
        with informer.subscribe("ghost") as pod:
            while pod.object is None:
                await pod.changed()
            # It is not in the list that follows.
            while pod.object is not None:
                await pod.changed()
            assert pod.last == POD
        assert looptime <= 60


async def test_a_watch_that_never_ends_and_brings_bookmarks_only_is_given_up_within_a_minute(
    fake: tuple[FakeApi, Cluster], looptime: float
) -> None:
    api, cluster = fake
    api.put("a", status={"phase": "Running"})

    async def bookmarks(request: web.Request) -> web.StreamResponse:
        response = await begin(request)
        while True:
            await response.write(bookmark_line(101))
            await asyncio.sleep(10)

    api.script("watch", bookmarks)
    async with running(cluster) as informer:
        await api.wait_for("watch")
        api.put("a", status={"phase": "Failed"}, quietly=True)
        await phase_of(informer, "a", "Failed")
        assert looptime <= 60


@pytest.mark.parametrize("empty", [lines(), lines(bookmark_line(101)), cut, refuse(500)])
async def test_a_server_that_ends_every_watch_is_not_asked_in_a_tight_loop(
    fake: tuple[FakeApi, Cluster], empty: Handler
) -> None:
    api, cluster = fake
    api.script("watch", *[empty] * 1000)
    async with running(cluster):
        await asyncio.sleep(60)
        assert 5 <= api.count("watch") <= 40
        assert api.count("list") <= 30


@pytest.mark.parametrize("expired", [refuse(410, "Expired"), lines(error_line(410, "Expired"))])
async def test_a_version_that_is_always_too_old_is_not_asked_for_in_a_tight_loop(
    fake: tuple[FakeApi, Cluster], expired: Handler, looptime: float
) -> None:
    api, cluster = fake
    api.script("watch", expired, expired)
    async with running(cluster):
        await api.wait_for("watch", 2)
        before = len(api.requests)
        await asyncio.sleep(4.9)
        assert len(api.requests) - before == 0
        await api.wait_for("watch", 3)
        assert looptime < 10


async def test_a_history_that_is_forgotten_leads_to_one_list(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    api.put("a", status={"phase": "Running"})
    async with running(cluster) as informer:
        await api.wait_for("watch")
        api.forget_history()
        api.put("a", status={"phase": "Failed"}, quietly=True)
        api.script("watch", lines(error_line(410, "Expired")))
        await phase_of(informer, "a", "Failed")
        await api.wait_for("watch", 3)
        assert api.count("list") == 2


async def test_states_are_right_within_seconds_of_the_end_of_an_outage(
    fake: tuple[FakeApi, Cluster], looptime: float
) -> None:
    api, cluster = fake
    api.put("a", status={"phase": "Running"})
    is_away = True

    async def away(request: web.Request) -> web.StreamResponse:
        if not is_away:
            return await api.behave(request)
        api.script("list", away)
        return await cut(request)

    api.script("list", api.behave, away)
    api.script("watch", cut, cut)
    async with running(cluster) as informer:
        await informer.wait_listed()
        assert informer.is_fresh
        await api.wait_for("list", 2)
        lost_at = float(looptime)
        assert informer.is_fresh
        await asyncio.sleep(11)
        assert not informer.is_fresh
        api.put("a", status={"phase": "Failed"}, quietly=True)
        await asyncio.sleep(109)
        assert api.count("list") < 80
        is_away = False
        await phase_of(informer, "a", "Failed")
        assert informer.is_fresh
        assert looptime - lost_at <= 126


async def test_a_cluster_that_is_away_at_the_start_is_waited_for(
    fake: tuple[FakeApi, Cluster], looptime: float
) -> None:
    api, cluster = fake
    api.put("a", status={"phase": "Running"})
    api.script("list", hang, cut, cut, refuse(503), say("<html>"), say('{"items":[{}]}'))
    async with running(cluster) as informer:
        assert not informer.is_fresh
        await informer.wait_listed()
        assert informer.is_fresh
        assert looptime < 60
        assert set(informer.snapshot()) == {"a"}


async def test_what_was_seen_already_is_no_news_after_a_new_list(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    done = api.put("a", status={"phase": "Succeeded"})
    # The same event comes by list, by watch and by the list after it.
    api.script("watch", lines(event_line("MODIFIED", done), then="cut"))
    async with running(cluster) as informer:
        with informer.subscribe("a") as pod:
            await pod.changed()
            news = aio.start(pod.changed(), name="news")
            await api.wait_for("watch", 2)
            await asyncio.sleep(1)
            assert not news.done()
            await aio.stop(news)


async def test_another_object_of_the_same_name_is_seen_as_itself(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    old = api.put("a", status={"phase": "Running"})
    api.script("watch", refuse(500))
    async with running(cluster) as informer:
        await informer.wait_listed()
        api.remove("a", quietly=True)
        new = api.put("a", status={"phase": "Pending"}, quietly=True)
        await phase_of(informer, "a", "Pending")
        assert informer.snapshot()["a"]["metadata"]["uid"] == new["metadata"]["uid"]
        assert new["metadata"]["uid"] != old["metadata"]["uid"]


async def test_what_was_learned_otherwise_outlives_a_list_that_was_asked_for_before(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    learned, listed = asyncio.Event(), asyncio.Event()

    async def late(request: web.Request) -> web.StreamResponse:
        await learned.wait()
        return await say('{"metadata":{"resourceVersion":"100"},"items":[]}')(request)

    async def later(request: web.Request) -> web.StreamResponse:
        await listed.wait()
        return await api.behave(request)

    api.script("list", late, later)
    api.script("watch", refuse(410, "Expired"))
    async with running(cluster) as informer:
        await api.wait_for("list")
        with informer.subscribe("ghost") as pod:
            informer.learn(json.loads(json.dumps(POD)))
            learned.set()
            await api.wait_for("list", 2)
            assert pod.object == POD
            assert informer.snapshot() == {"ghost": POD}
            # What was asked for afterwards knows better.
            listed.set()
            while pod.object is not None:
                await pod.changed()
            assert pod.last == POD
            assert informer.snapshot() == {}


async def test_what_was_learned_behind_a_working_watch_leads_to_one_list(
    fake: tuple[FakeApi, Cluster],
) -> None:
    """It may have been read before a deletion that the watch has told already."""
    api, cluster = fake
    async with running(cluster) as informer:
        await api.wait_for("watch")
        with informer.subscribe("ghost") as pod:
            informer.learn(json.loads(json.dumps(POD)))
            assert pod.object == POD
            while pod.object is not None:
                await pod.changed()
        await api.wait_for("watch", 2)
        assert informer.is_fresh
        assert api.count("list") == 2


@pytest.mark.parametrize("broken", [hang, refuse(503)], ids=["while one ends", "in a pause"])
async def test_many_may_learn_otherwise_at_once(
    fake: tuple[FakeApi, Cluster], broken: Handler
) -> None:
    """A watch that is ending already, or has failed, cannot be ended once more."""
    api, cluster = fake
    api.script("watch", broken)
    async with running(cluster) as informer:
        await api.wait_for("watch")
        await asyncio.sleep(0.01)
        with informer.subscribe("ghost1") as first, informer.subscribe("ghost2") as second:
            for name in ("ghost1", "ghost2"):
                informer.learn({"metadata": {**POD["metadata"], "name": name}})
                await asyncio.sleep(0)
            while first.object is not None:
                await first.changed()
            while second.object is not None:
                await second.changed()
        await api.wait_for("watch", 2)
        assert informer.is_fresh


async def test_what_is_known_by_the_watch_is_not_learned_otherwise(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    known = api.put("a", status={"phase": "Failed"})
    async with running(cluster) as informer:
        await informer.wait_listed()
        informer.learn({**known, "status": {"phase": "Running"}})
        assert informer.snapshot()["a"]["status"] == {"phase": "Failed"}


async def test_an_exception_nobody_thought_of_does_not_end_the_watch(
    fake: tuple[FakeApi, Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    api, cluster = fake
    api.put("a", status={"phase": "Running"})
    # An object without a name raises KeyError where nothing expects it.
    api.script("list", api.behave, say('{"items":[{}]}'), hang)
    api.script("watch", refuse(410, "Expired"))
    async with running(cluster) as informer:
        await informer.wait_listed()
        assert informer.is_fresh
        await api.wait_for("list", 3)
        assert not informer.is_fresh
        assert "KeyError" in caplog.text
        await api.wait_for("watch", 2)
        assert informer.is_fresh
        api.put("a", status={"phase": "Failed"})
        await phase_of(informer, "a", "Failed")
