"""Watches: where they begin, what they tell in which order, how they end."""

import asyncio
import itertools
from typing import Any

import pytest

from tests.conformance.client import Api, Event, Object
from tests.conformance.objects import check_refusal, make_configmap, make_failure

MERGE = "application/merge-patch+json"
END_OF_START = {"k8s.io/initial-events-end": "true"}
STREAMED = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


@pytest.fixture
async def maps(namespace: str) -> str:
    """The path of the namespace's ConfigMaps."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


async def make(api: Api, maps: str, name: str = "one", **labels: str) -> Object:
    made: Object = await api.ask("POST", maps, make_configmap(name, labels={"x": "", **labels}))
    return made


def version(of: Object) -> int:
    return int(of["metadata"]["resourceVersion"])


def shown(event: Event | None) -> tuple[str, str]:
    assert event is not None, "the watch has ended"
    return event.type, event.name


async def test_changes_come_in_order_as_they_were_answered(api: Api, maps: str) -> None:
    since = (await api.ask("GET", maps))["metadata"]["resourceVersion"]
    async with api.watch(maps, resourceVersion=since, labelSelector="x") as watch:
        made = await make(api, maps)
        changed = await api.ask("PUT", f"{maps}/one", {**made, "data": {"a": "c"}})
        await api.ask("DELETE", f"{maps}/one")
        added, modified, deleted = await watch.take(3)
    assert (added.type, added.object) == ("ADDED", made)
    assert (modified.type, modified.object) == ("MODIFIED", changed)
    assert deleted.type == "DELETED"
    # The last state, with the version of the deletion.
    assert version(deleted.object) > version(changed)
    last = {**changed["metadata"], "resourceVersion": ""}
    assert {**deleted.object["metadata"], "resourceVersion": ""} == last
    assert deleted.object["data"] == {"a": "c"}


async def test_a_watch_goes_on_from_any_version(api: Api, maps: str) -> None:
    made = [await make(api, maps, name) for name in ("a", "b", "c")]
    since = made[0]["metadata"]["resourceVersion"]
    async with api.watch(maps, resourceVersion=since, labelSelector="x") as watch:
        assert [event.object for event in await watch.take(2)] == made[1:]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": ""}, {"resourceVersion": "0"}])
async def test_a_watch_from_nowhere_begins_with_what_is_there(
    api: Api, maps: str, query: dict[str, str]
) -> None:
    for name in ("a", "b"):
        await make(api, maps, name)
    # The cache of a real one, which version 0 is answered from, may be a moment behind.
    await api.ask("GET", maps)
    async with api.watch(maps, labelSelector="x", **query) as watch:
        started = [shown(event) for event in await watch.take(2)]
        assert sorted(started) == [("ADDED", "a"), ("ADDED", "b")]
        await make(api, maps, "c")
        assert shown(await watch.next()) == ("ADDED", "c")


@pytest.mark.parametrize("query", [{}, STREAMED])
async def test_the_end_of_the_beginning_is_marked(
    api: Api, maps: str, query: dict[str, str]
) -> None:
    made = await make(api, maps)
    asked = {"labelSelector": "x", "allowWatchBookmarks": "true", **query}
    async with api.watch(maps, **asked) as watch:
        assert shown(await watch.next()) == ("ADDED", "one")
        mark = await watch.next()
        assert mark is not None
        assert mark.type == "BOOKMARK"
        assert version(mark.object) >= version(made)
        metadata = {
            "resourceVersion": mark.object["metadata"]["resourceVersion"],
            "annotations": END_OF_START,
        }
        assert mark.object == {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}
        await make(api, maps, "two")
        assert shown(await watch.next()) == ("ADDED", "two")


async def test_nothing_marks_the_beginning_for_who_takes_no_bookmarks(api: Api, maps: str) -> None:
    await make(api, maps)
    async with api.watch(maps, labelSelector="x", timeoutSeconds="1", **STREAMED) as watch:
        assert [shown(event) for event in await watch.rest()] == [("ADDED", "one")]


async def test_a_watch_can_begin_with_what_comes(api: Api, maps: str) -> None:
    await make(api, maps)
    query = {**STREAMED, "sendInitialEvents": "false", "labelSelector": "x"}
    async with api.watch(maps, **query) as watch:
        await make(api, maps, "two")
        assert shown(await watch.next()) == ("ADDED", "two")


async def test_a_watch_ends_in_time_with_a_bookmark_to_go_on_from(
    api: Api, maps: str, standing_namespace: str
) -> None:
    elsewhere = f"/api/v1/namespaces/{standing_namespace}/configmaps"
    await make(api, elsewhere, "busy")
    made = await make(api, maps)
    # The ConfigMap that every namespace has may come only now; it has no such label.
    selected = {"labelSelector": "x", "resourceVersion": made["metadata"]["resourceVersion"]}

    async def change_elsewhere() -> None:
        # Where nothing at all has changed, a real server has no bookmark to send.
        for number in itertools.count():
            patch = {"data": {"number": str(number)}}
            await api.ask("PATCH", f"{elsewhere}/busy", patch, content_type=MERGE)
            await asyncio.sleep(0.25)

    async with asyncio.TaskGroup() as group:
        changing = group.create_task(change_elsewhere())
        async with api.watch(
            maps, allowWatchBookmarks="true", timeoutSeconds="4", **selected
        ) as watch:
            events = await watch.rest()
        changing.cancel()
    await api.ask("DELETE", f"{elsewhere}/busy")
    marks = [event.object for event in events if event.type == "BOOKMARK"]
    assert marks == [event.object for event in events]
    mark = next(one for one in reversed(marks) if "annotations" not in one["metadata"])
    metadata = {"resourceVersion": mark["metadata"]["resourceVersion"]}
    assert mark == {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}
    assert version(mark) >= version(made)


async def test_a_short_watch_ends_cleanly_without_a_word(api: Api, maps: str) -> None:
    made = await make(api, maps)
    since = made["metadata"]["resourceVersion"]
    query = {"resourceVersion": since, "timeoutSeconds": "1"}
    # The ConfigMap that every namespace has may come only now; it has no such label.
    async with api.watch(maps, labelSelector="x", **query) as watch:
        assert await watch.rest() == []


async def test_objects_come_and_go_by_matching(api: Api, maps: str) -> None:
    made = await make(api, maps)
    since = made["metadata"]["resourceVersion"]

    async def label(**labels: str | None) -> Any:
        patch = {"metadata": {"labels": labels}}
        return await api.ask("PATCH", f"{maps}/one", patch, content_type=MERGE)

    async with api.watch(maps, resourceVersion=since, labelSelector="on=1") as watch:
        first = await label(on="1")
        second = await label(more="2")
        third = await label(on="2")
        added, modified, gone = await watch.take(3)
        assert (added.type, added.object) == ("ADDED", first)
        assert (modified.type, modified.object) == ("MODIFIED", second)
        assert gone.type == "DELETED"
        # As it last matched, with the version of the change that ended that.
        assert gone.object["metadata"]["labels"] == second["metadata"]["labels"]
        assert version(gone.object) == version(third)
        await label(on="1")
        assert shown(await watch.next()) == ("ADDED", "one")
        await api.ask("DELETE", f"{maps}/one")
        assert shown(await watch.next()) == ("DELETED", "one")


async def test_one_object_can_be_watched_by_its_name(api: Api, maps: str) -> None:
    since = (await api.ask("GET", maps))["metadata"]["resourceVersion"]
    selector = "metadata.name=two"
    async with api.watch(maps, resourceVersion=since, fieldSelector=selector) as watch:
        await make(api, maps, "one")
        await make(api, maps, "two")
        assert shown(await watch.next()) == ("ADDED", "two")


async def test_a_watch_keeps_to_its_namespace(api: Api, maps: str, standing_namespace: str) -> None:
    since = (await api.ask("GET", maps))["metadata"]["resourceVersion"]
    elsewhere = f"/api/v1/namespaces/{standing_namespace}/configmaps"
    async with (
        api.watch(maps, resourceVersion=since, labelSelector="x") as here,
        api.watch("/api/v1/configmaps", resourceVersion=since, labelSelector="x") as everywhere,
    ):
        await make(api, elsewhere, "there")
        await make(api, maps, "here")
        assert shown(await here.next()) == ("ADDED", "here")
        # What other tests' namespaces still have goes meanwhile.
        seen = []
        while len(seen) < 2:
            if (event := shown(await everywhere.next()))[0] == "ADDED":
                seen.append(event)
        assert seen == [("ADDED", "there"), ("ADDED", "here")]
    await api.ask("DELETE", f"{elsewhere}/there")


async def test_a_version_that_is_long_gone_is_an_event(api: Api, maps: str) -> None:
    async with api.watch(maps, resourceVersion="1") as watch:
        event = await watch.next()
        assert event is not None
        assert event.type == "ERROR"
        message = event.object["message"]
        assert message.startswith("too old resource version: 1 (")
        assert event.object == make_failure(410, "Expired", message)
        assert await watch.next() is None


async def test_a_beginning_that_is_not_yet_is_an_event(api: Api, maps: str) -> None:
    query = {"resourceVersion": "99999999999999999", "timeoutSeconds": "9", **STREAMED}
    async with api.watch(maps, **query) as watch:
        event = await watch.next()
        assert event is not None
        assert (event.type, event.object["code"]) == ("ERROR", 504)
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        assert event.object["details"] == {"causes": [cause], "retryAfterSeconds": 1}


async def test_a_version_that_is_none_is_told(api: Api, maps: str) -> None:
    answer = await api.request("GET", maps, query={"watch": "true", "resourceVersion": "x"})
    problem = 'strconv.ParseUint: parsing "x": invalid syntax'
    message = f'resourceVersion: Invalid value: "x": {problem}'
    check_refusal(answer, make_failure(500, "", message))


@pytest.mark.parametrize("word", ["1", "true", "yes"])
async def test_all_but_no_asks_for_a_watch(api: Api, maps: str, word: str) -> None:
    await make(api, maps)
    query = {"watch": word, "timeoutSeconds": "1", "labelSelector": "x"}
    answer = await api.request("GET", maps, query=query)
    assert answer.body["type"] == "ADDED"
    for no in ("0", "false"):
        listed = await api.request("GET", maps, query={**query, "watch": no})
        assert listed.body["kind"] == "ConfigMapList"
