"""What a list lacks is gone only once the API says so of the object itself; the API is fake."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from telorunner.kube.absence import QUESTIONS_AT_ONCE
from telorunner.kube.client import Cluster
from telorunner.kube.informer import Informer, Subscription
from telorunner.kube.objects import managed_selector
from tests.engine.informers import running
from tests.fakes import MANAGED_BY, FakeApi, Handler, cut, refuse, say

pytestmark = pytest.mark.looptime

EMPTY = say('{"kind":"PodList","metadata":{"resourceVersion":"100"},"items":[]}')
NO_LIST = say('{"status":"ok"}')
GONE = refuse(410, "Expired")


@asynccontextmanager
async def watched(
    api: FakeApi, cluster: Cluster, *lists: Handler
) -> AsyncIterator[tuple[Informer, Subscription]]:
    """Know of a pod; give the informer once its watch has ended and lists are answered so."""
    api.put("a", status={"phase": "Running"})
    api.script("list", api.behave, *lists)
    api.script("watch", GONE)
    async with (
        running(cluster, selector=managed_selector(MANAGED_BY)) as informer,
    ):
        with informer.subscribe("a") as pod:
            await informer.wait_listed()
            yield informer, pod


@pytest.mark.parametrize("false", [EMPTY, NO_LIST], ids=["empty", "no list"])
async def test_a_false_list_takes_nothing_from_what_is_known(
    fake: tuple[FakeApi, Cluster], false: Handler
) -> None:
    api, cluster = fake
    async with watched(api, cluster, *[false] * 3) as (informer, pod):
        await api.wait_for("watch", 2)
        assert api.count("list") == 5
        assert pod.object is not None
        assert informer.is_fresh
        api.remove("a")
        while pod.object is not None:
            await pod.changed()
        # A deletion that the watch tells needs no other witness.
        assert api.count("get") == (3 if false is EMPTY else 0)


async def test_an_informer_that_only_gets_false_lists_is_stale(
    fake: tuple[FakeApi, Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    api, cluster = fake
    async with watched(api, cluster, *[EMPTY] * 100) as (informer, pod):
        await asyncio.sleep(30)
        assert pod.object is not None
        assert not informer.is_fresh
        assert api.count("list") < 15
        assert "a list of pods lacked some that exist" in caplog.text


@pytest.mark.parametrize(
    "unsure", [refuse(500), refuse(403, "Forbidden"), refuse(429), cut, say("<html>", 404)]
)
async def test_what_cannot_be_asked_for_is_taken_to_be_there(
    fake: tuple[FakeApi, Cluster], unsure: Handler
) -> None:
    api, cluster = fake
    # The HTTP client repeats a GET once where a connection that was kept is closed.
    api.script("get", unsure, unsure)
    async with watched(api, cluster) as (_, pod):
        api.remove("a", quietly=True)
        await api.wait_for("list", 3)
        assert pod.object is not None
        while pod.object is not None:
            await pod.changed()
        assert pod.last is not None
        assert pod.last["status"] == {"phase": "Running"}


async def test_another_pod_made_since_the_list_was_read_makes_no_list_false(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake

    async def make_again(request: web.Request) -> web.StreamResponse:
        answer = await EMPTY(request)
        api.remove("a", quietly=True)
        api.put("a", status={"phase": "Pending"}, quietly=True)
        return answer

    async with watched(api, cluster, make_again) as (_, pod):
        await api.wait_for("watch", 2)
        assert pod.object is not None
        assert pod.object["status"] == {"phase": "Pending"}
        assert api.count("list") == 2


async def test_a_pod_whose_label_was_taken_away_is_seen_no_more(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    async with watched(api, cluster) as (_, pod):
        api.put("a", labels={}, status={"phase": "Running"}, quietly=True)
        while pod.object is not None:
            await pod.changed()
        await api.wait_for("watch", 2)
        assert api.count("list") == 2


async def test_many_that_vanished_are_asked_for_a_few_at_once(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    names = [f"pod-{number}" for number in range(200)]
    asked = most = 0

    async def look(request: web.Request) -> web.StreamResponse:
        nonlocal asked, most
        asked += 1
        most = max(most, asked)
        await asyncio.sleep(0.01)
        asked -= 1
        return await api.behave(request)

    for name in names:
        api.put(name)
    api.script("get", *[look] * len(names))
    async with watched(api, cluster) as (informer, pod):
        for name in names:
            api.remove(name, quietly=True)
        await api.wait_for("watch", 2)
        assert informer.snapshot().keys() == {"a"}
        assert pod.object is not None
        assert most == QUESTIONS_AT_ONCE
        assert api.count("get") == len(names)
        assert api.count("list") == 2


async def test_a_false_list_of_many_costs_a_few_questions(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    for number in range(200):
        api.put(f"pod-{number}")
    async with watched(api, cluster, EMPTY) as (informer, _):
        await api.wait_for("watch", 2)
        assert len(informer.snapshot()) == 201
        assert api.count("get") <= 2 * QUESTIONS_AT_ONCE


async def test_a_list_in_which_some_are_missing_brings_what_it_has(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake

    async def without_a(request: web.Request) -> web.StreamResponse:
        listed = await api.behave(request)
        assert isinstance(listed, web.Response)
        assert isinstance(listed.body, bytes)
        body = json.loads(listed.body)
        body["items"] = [one for one in body["items"] if one["metadata"]["name"] != "a"]
        return web.json_response(body)

    api.put("b", status={"phase": "Running"})
    async with watched(api, cluster, without_a) as (informer, pod):
        with informer.subscribe("b") as other:
            api.put("b", status={"phase": "Failed"}, quietly=True)
            await api.wait_for("watch", 2)
            assert other.object is not None
            assert other.object["status"] == {"phase": "Failed"}
        assert pod.object is not None
