"""What subscribers see of a cluster that behaves: list, watch, bookmarks, deletion."""

import asyncio

import pytest

from telorunner import aio
from telorunner.kube.client import Cluster
from telorunner.kube.informer import Informer
from telorunner.kube.objects import managed_selector
from tests.engine.informers import running
from tests.fakes import MANAGED_BY, FakeApi, event_line, lines


async def test_a_subscriber_sees_the_list_then_changes_then_the_deletion(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    api.put("a", status={"phase": "Pending"})
    async with running(cluster, selector=managed_selector(MANAGED_BY)) as informer:
        with informer.subscribe("a") as pod, informer.subscribe("other") as other:
            await pod.changed()
            assert pod.is_listed
            assert pod.object is not None
            assert pod.object["status"] == {"phase": "Pending"}
            await other.changed()
            assert (other.object, other.last) == (None, None)
            await api.wait_for("watch")
            api.put("a", status={"phase": "Running"})
            await pod.changed()
            assert pod.object["status"] == {"phase": "Running"}
            api.put("a", status={"phase": "Succeeded"})
            api.remove("a")
            while pod.object is not None:
                await pod.changed()
            assert pod.last is not None
            assert pod.last["status"] == {"phase": "Succeeded"}
            assert informer.snapshot() == {}


async def test_changed_waits_for_the_first_list_and_returns_at_once_after_it(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    api.put("a")
    informer = Informer(cluster)
    assert not informer.is_fresh
    with informer.subscribe("a") as early:
        assert not early.is_listed
        waiting = aio.start(early.changed(), name="waiting")
        await asyncio.sleep(0)
        assert not waiting.done()
        task = aio.start(informer.run(), name="informer")
        await waiting
        await informer.wait_listed()
        assert informer.is_fresh
        assert early.object is not None
        with informer.subscribe("a") as late:
            await late.changed()
            assert late.object is early.object
    await aio.stop(task)


async def test_the_list_and_the_watch_ask_for_what_is_selected_only(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    api.put("foreign", labels={})
    api.put("own")
    async with running(cluster, selector=managed_selector(MANAGED_BY)) as informer:
        await informer.wait_listed()
        await api.wait_for("watch")
        api.put("foreign-too", labels={})
        api.put("own-too")
        with informer.subscribe("own-too") as pod:
            while pod.object is None:
                await pod.changed()
        assert set(informer.snapshot()) == {"own", "own-too"}
        watch = next(seen for seen in api.requests if seen.verb == "watch")
        assert watch.query["allowWatchBookmarks"] == "true"
        assert int(watch.query["timeoutSeconds"]) <= 55


async def test_managed_fields_are_not_kept(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    api.put("a", metadata={"managedFields": [{"manager": "kubelet"}]})
    async with running(cluster, selector=managed_selector(MANAGED_BY)) as informer:
        await informer.wait_listed()
        assert "managedFields" not in informer.snapshot()["a"]["metadata"]


async def test_many_followers_of_one_object_all_see_it(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    async with running(cluster, selector=managed_selector(MANAGED_BY)) as informer:
        await api.wait_for("watch")
        with informer.subscribe("a") as one, informer.subscribe("a") as two:
            api.put("a")
            for pod in (one, two):
                while pod.object is None:
                    await pod.changed()
        api.put("a")
        assert informer._subscriptions == {}


@pytest.mark.looptime
async def test_a_watch_that_ends_in_its_time_goes_on_from_its_bookmark(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    api.put("a")
    async with running(cluster, selector=managed_selector(MANAGED_BY)):
        await api.wait_for("watch")
        # Changes of objects that are not selected move the version on by bookmarks alone.
        api.put("foreign", labels={})
        await api.wait_for("watch", 2)
        assert api.count("list") == 1
        watches = [seen for seen in api.requests if seen.verb == "watch"]
        assert int(watches[1].query["resourceVersion"]) == api.revision


async def test_objects_of_several_mebibytes_and_any_characters_are_seen(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    thing = api.put("a", metadata={"annotations": {"big": "😀" * 1_400_000}}, quietly=True)
    line = event_line("ADDED", thing)
    assert len(line) > 5 * 2**20
    del api.objects["pods"]["a"]
    # An odd size of the pieces cuts characters of four bytes in two.
    pieces = [line[at : at + 65_537] for at in range(0, len(line), 65_537)]
    api.script("watch", lines(*pieces, then="hang"))
    async with running(cluster, selector=managed_selector(MANAGED_BY)) as informer:
        with informer.subscribe("a") as pod:
            while pod.object is None:
                await pod.changed()
            assert pod.object == thing
        assert api.count("list") == 1
