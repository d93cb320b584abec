"""The store of the local cluster: versions, conflicts, watches, history."""

import asyncio
from typing import Any

import orjson
import pytest

from telorunner.localcluster.store import Change, HistoryBounds, Store, StoreError

NAMESPACE = "apps"


def make_object(name: str = "one", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": NAMESPACE, **metadata}, "data": {"a": "b"}}


def changed(obj: dict[str, Any], **data: str) -> dict[str, Any]:
    return {**obj, "data": data}


async def collect(store: Store, since: int, count: int) -> list[tuple[str, str, str]]:
    seen = []
    async with asyncio.timeout(5):
        async for type_, obj in store.watch("configmaps", NAMESPACE, since):
            metadata = obj["metadata"]
            seen.append((type_, metadata["name"], metadata["resourceVersion"]))
            if len(seen) == count:
                break
    return seen


def test_a_new_object_gets_uid_version_time_and_kind() -> None:
    store = Store()
    created = store.create("configmaps", make_object())
    assert created["kind"] == "ConfigMap"
    assert created["apiVersion"] == "v1"
    assert created["metadata"]["uid"]
    assert created["metadata"]["resourceVersion"] == str(store.revision)
    assert created["metadata"]["creationTimestamp"].endswith("Z")


def test_every_write_has_a_greater_version() -> None:
    store = Store()
    first = store.create("configmaps", make_object("one"))
    second = store.create("secrets", make_object("one"))
    third = store.replace("configmaps", changed(first, a="c"))
    versions = [int(obj["metadata"]["resourceVersion"]) for obj in (first, second, third)]
    assert versions == sorted(set(versions))


def test_versions_of_a_later_life_are_greater() -> None:
    earlier = Store()
    for number in range(1000):
        earlier.create("configmaps", make_object(f"one-{number}"))
    # At once, as fast as it writes.
    later = Store()
    assert later.revision > earlier.revision


def test_a_taken_name_is_refused_and_says_when_its_holder_is_going() -> None:
    store = Store()
    created = store.create("pods", make_object())
    with pytest.raises(StoreError) as taken:
        store.create("pods", make_object())
    assert (taken.value.status_code, taken.value.reason) == (409, "AlreadyExists")
    assert taken.value.message == 'pods "one" already exists'
    metadata = {**created["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    store.replace("pods", {**created, "metadata": metadata})
    with pytest.raises(StoreError, match='object is being deleted: pods "one" already exists'):
        store.create("pods", make_object())


def test_the_same_name_in_another_namespace_is_another_object() -> None:
    store = Store()
    store.create("configmaps", make_object())
    other = store.create("configmaps", make_object(namespace="others"))
    assert store.get("configmaps", "others", "one") == other
    assert len(store.list("configmaps")[0]) == 2
    assert [obj["metadata"]["namespace"] for obj in store.list("configmaps", "others")[0]] == [
        "others"
    ]


def test_a_missing_object_is_named_with_its_group() -> None:
    store = Store()
    with pytest.raises(StoreError) as missing:
        store.get("ingresses", NAMESPACE, "web")
    assert missing.value.message == 'ingresses.networking.k8s.io "web" not found'
    assert missing.value.to_status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'ingresses.networking.k8s.io "web" not found',
        "reason": "NotFound",
        "details": {"name": "web", "group": "networking.k8s.io", "kind": "ingresses"},
        "code": 404,
    }


def test_a_stale_version_is_a_conflict_and_none_is_not() -> None:
    store = Store()
    first = store.create("configmaps", make_object())
    store.replace("configmaps", changed(first, a="1"))
    with pytest.raises(StoreError) as stale:
        store.replace("configmaps", changed(first, a="2"))
    assert (stale.value.status_code, stale.value.reason) == (409, "Conflict")
    replaced = store.replace("configmaps", {**make_object(), "data": {"a": "3"}})
    assert replaced["data"] == {"a": "3"}
    assert replaced["metadata"]["uid"] == first["metadata"]["uid"]


def test_another_uid_is_a_conflict() -> None:
    store = Store()
    store.create("configmaps", make_object())
    with pytest.raises(StoreError, match="Precondition failed: UID"):
        store.replace("configmaps", make_object(uid="another"))


def test_replacing_the_status_leaves_everything_else() -> None:
    store = Store()
    created = store.create("pods", {**make_object(), "spec": {"a": 1}, "status": {"phase": "x"}})
    new = store.replace(
        "pods", {**created, "spec": {"a": 2}, "status": {"phase": "y"}}, subresource="status"
    )
    assert new["spec"] == {"a": 1}
    assert new["status"] == {"phase": "y"}


async def test_a_replacement_that_changes_nothing_is_no_change() -> None:
    store = Store()
    created = store.create("configmaps", make_object())
    before = store.revision
    assert store.replace("configmaps", created) == created
    assert store.revision == before


def test_what_was_handed_in_is_copied() -> None:
    store = Store()
    given = make_object()
    store.create("configmaps", given)
    given["data"]["a"] = "changed behind its back"
    assert store.get("configmaps", NAMESPACE, "one")["data"] == {"a": "b"}


async def test_a_watch_sees_what_comes_after_its_version_in_order() -> None:
    store = Store()
    first = store.create("configmaps", make_object("one"))
    since = store.revision
    second = store.create("configmaps", make_object("two"))
    store.create("configmaps", make_object("elsewhere", namespace="others"))
    new = store.replace("configmaps", changed(first, a="c"))
    store.remove("configmaps", NAMESPACE, "two")
    assert await collect(store, since, 3) == [
        ("ADDED", "two", second["metadata"]["resourceVersion"]),
        ("MODIFIED", "one", new["metadata"]["resourceVersion"]),
        ("DELETED", "two", str(store.revision)),
    ]


async def test_a_waiting_watch_is_woken_by_a_write() -> None:
    store = Store()
    async with asyncio.TaskGroup() as group:
        watch = group.create_task(collect(store, store.revision, 1))
        await asyncio.sleep(0)
        created = store.create("configmaps", make_object())
    assert watch.result() == [("ADDED", "one", created["metadata"]["resourceVersion"])]


async def test_a_version_out_of_the_history_is_gone() -> None:
    store = Store(HistoryBounds(changes=4))
    since = store.revision
    for number in range(8):
        store.create("configmaps", make_object(f"n{number}"))
    with pytest.raises(StoreError) as gone:
        await collect(store, since, 1)
    assert (gone.value.status_code, gone.value.reason) == (410, "Expired")
    assert len(await collect(store, store.revision - 2, 2)) == 2


async def test_the_history_is_bounded_in_bytes() -> None:
    store = Store(HistoryBounds(bytes=10_000))
    since = store.revision
    for number in range(6):
        store.create("configmaps", {**make_object(f"n{number}"), "data": {"a": "x" * 4000}})
    with pytest.raises(StoreError):
        await collect(store, since, 1)


async def test_a_history_of_small_changes_makes_room_for_a_large_one_at_once() -> None:
    store = Store(HistoryBounds(bytes=100_000))
    since = store.revision
    for number in range(200):
        store.create("configmaps", make_object(f"n{number}"))
    assert len(await collect(store, since, 200)) == 200
    store.create("configmaps", {**make_object("large"), "data": {"a": "x" * 99_000}})
    with pytest.raises(StoreError):
        await collect(store, store.revision - 5, 1)


async def test_forgetting_makes_older_versions_gone_and_keeps_the_newest() -> None:
    store = Store()
    store.create("configmaps", make_object("one"))
    since = store.revision - 1
    store.forget_history()
    with pytest.raises(StoreError) as gone:
        await collect(store, since, 1)
    assert gone.value.status_code == 410
    newest = store.revision
    store.create("configmaps", make_object("two"))
    assert len(await collect(store, newest, 1)) == 1


def test_objects_can_be_read_as_they_stood() -> None:
    store = Store()
    one = store.create("configmaps", make_object("one"))
    store.create("configmaps", make_object("two"))
    then = store.revision
    store.create("configmaps", make_object("three"))
    store.replace("configmaps", changed(one, a="later"))
    store.remove("configmaps", NAMESPACE, "two")
    entries = store.entries_at("configmaps", NAMESPACE, then)
    assert [entry.obj["metadata"]["name"] for entry in entries] == ["one", "two"]
    assert orjson.loads(entries[0].encoded)["data"] == {"a": "b"}
    store.forget_history()
    with pytest.raises(StoreError):
        store.entries_at("configmaps", NAMESPACE, then)


def test_a_change_is_serialised_once_and_kind_and_version_stand_first() -> None:
    store = Store()
    seen: list[Change] = []
    store.observers.append(lambda _, change: seen.append(change))
    created = store.create("configmaps", make_object())
    entry = store.entry("configmaps", NAMESPACE, "one")
    assert seen[0].encoded is entry.encoded
    assert orjson.loads(entry.encoded) == created
    assert entry.encoded.startswith(b'{"kind":"ConfigMap","apiVersion":"v1",')
