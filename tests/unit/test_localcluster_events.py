"""Events of the local cluster, and other work of its controllers."""

import asyncio
import logging
from typing import Any

import pytest

from telorunner import aio
from telorunner.localcluster.controllers import Controllers
from telorunner.localcluster.recorder import (
    EVENT_TTL_SECONDS,
    MAX_EVENTS,
    WARNING,
    EventLifetimes,
    EventRecorder,
)
from telorunner.localcluster.store import Store

NAMESPACE = "apps"


class Clock:
    """A clock that goes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_pod(store: Store, name: str = "one") -> dict[str, Any]:
    pod = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {}}
    return store.create("pods", pod)


def names(store: Store) -> list[str]:
    return [event["metadata"]["name"] for event in store.list("events")[0]]


def reasons(store: Store) -> list[str]:
    return [event["reason"] for event in store.list("events")[0]]


def test_an_event_tells_who_saw_what_of_which_object() -> None:
    store = Store()
    pod = make_pod(store)
    events = EventRecorder(store, pod, "kubelet", host="local")
    events.record("Failed", "no", type_=WARNING, field_path="spec.containers{session}")
    (event,), _ = store.list("events", NAMESPACE)
    metadata = event.pop("metadata")
    first = event.pop("firstTimestamp")
    assert metadata["name"].startswith("one.")
    assert event == {
        "kind": "Event",
        "apiVersion": "v1",
        "involvedObject": {
            "kind": "Pod",
            "apiVersion": "v1",
            "namespace": NAMESPACE,
            "name": "one",
            "uid": pod["metadata"]["uid"],
            "resourceVersion": pod["metadata"]["resourceVersion"],
            "fieldPath": "spec.containers{session}",
        },
        "reason": "Failed",
        "message": "no",
        "type": "Warning",
        "count": 1,
        "lastTimestamp": first,
        "eventTime": None,
        "source": {"component": "kubelet", "host": "local"},
        "reportingComponent": "kubelet",
        "reportingInstance": "local",
    }


def test_names_keep_the_order_of_the_events_whoever_records_them() -> None:
    store = Store()
    pod = make_pod(store, "x" * 253)
    recorders = [EventRecorder(store, pod, component) for component in ("kubelet", "scheduler")]
    for number in range(1000):
        recorders[number % 2].record(str(number), "")
    assert reasons(store) == [str(number) for number in range(1000)]
    assert max(len(name) for name in names(store)) <= 253


def test_an_event_lasts_an_hour_after_it_was_last_written() -> None:
    store, clock = Store(), Clock()
    lifetimes = EventLifetimes(store, clock=clock)
    assert lifetimes.remove_expired() == EVENT_TTL_SECONDS
    events = EventRecorder(store, make_pod(store), "kubelet")
    events.record("first", "")
    clock.now += 1000
    events.record("second", "")
    first, _ = store.list("events")[0]
    clock.now += 1000
    store.replace("events", {**first, "count": 2})
    assert lifetimes.remove_expired() == EVENT_TTL_SECONDS - 1000
    clock.now += EVENT_TTL_SECONDS - 1000
    assert lifetimes.remove_expired() == 1000
    assert reasons(store) == ["first"]
    clock.now += 1000
    lifetimes.remove_expired()
    assert reasons(store) == []


def test_an_event_that_was_deleted_is_not_waited_for() -> None:
    store, clock = Store(), Clock()
    lifetimes = EventLifetimes(store, clock=clock)
    EventRecorder(store, make_pod(store), "kubelet").record("first", "")
    store.remove("events", NAMESPACE, names(store)[0])
    clock.now += 10
    assert lifetimes.remove_expired() == EVENT_TTL_SECONDS


async def test_the_oldest_events_go_when_there_are_too_many() -> None:
    store = Store()
    store.create("namespaces", {"metadata": {"name": NAMESPACE}, "spec": {}})
    controllers = aio.start(Controllers(store).run(), name="controllers")
    events = EventRecorder(store, make_pod(store), "kubelet")
    for number in range(MAX_EVENTS + 50):
        events.record(str(number), "")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert reasons(store) == [str(number) for number in range(50, MAX_EVENTS + 50)]
    await aio.stop(controllers)


@pytest.mark.looptime
async def test_the_controllers_end_events_in_time(looptime: float) -> None:
    store = Store()
    loop = asyncio.get_running_loop()
    lifetimes = EventLifetimes(store, clock=loop.time)
    running = aio.start(lifetimes.run(), name="event lifetimes")
    events = EventRecorder(store, make_pod(store), "kubelet")
    await asyncio.sleep(600)
    events.record("first", "")
    await asyncio.sleep(600)
    events.record("second", "")
    await asyncio.sleep(EVENT_TTL_SECONDS - 601)
    assert reasons(store) == ["first", "second"]
    await asyncio.sleep(2)
    assert reasons(store) == ["second"]
    await asyncio.sleep(600)
    assert reasons(store) == []
    await aio.stop(running)


async def test_an_empty_namespace_waits_for_its_finalizers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Looked at again and again at once, it would end in a recursion that only the log tells."""
    store = Store()
    controllers = aio.start(Controllers(store).run(), name="controllers")
    metadata = {"name": "held", "finalizers": ["example.com/hold"]}
    deleted = {**metadata, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    store.create("namespaces", {"metadata": deleted, "spec": {}})
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert store.find("namespaces", "", "held") is not None
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    await aio.stop(controllers)
