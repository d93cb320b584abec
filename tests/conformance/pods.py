"""Pods of every fate, and what a cluster tells of them from their creation on.

What is told is kept as it came; `shape` and `told` make it comparable between clusters. Nothing
here asserts what is told: the tests do.
"""

import asyncio
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.client import Access, Api, Event, Object, Watch, open_api
from tests.conformance.objects import IMAGE, make_name

# How long all pods of a recording take together, on a machine with two busy processors.
STORY_SECONDS = 90.0
ABSENT_IMAGE = "telo.test/absent:9"
# What the local cluster has in place of the image that a real one is given.
LOCAL_IMAGE = "busybox:1"

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_TIMES = ("lastTransitionTime", "startedAt", "finishedAt", "startTime")
_CONTAINER_ID = re.compile(r"[a-z]+://[0-9a-f]{64}")
_IMAGE_ID = re.compile(r"sha256:[0-9a-f]{64}")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
_ADDRESSES = ("hostIP", "podIP", "ip")
NEVER = "1970-01-01T00:00:00Z"
# How a kubelet says that its own cache of ConfigMaps or Secrets is late; it tries again then.
UNREAD = " cache: timed out waiting for the condition"

# Until when a pod is watched.
Until = Callable[[Object], bool]


def make_container(name: str, text: str | None = None, **fields: Any) -> Object:
    """Return a container that runs a shell text, or what `command` says."""
    container: Object = {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "10m"}},
    }
    if text is not None:
        container["command"] = ["sh", "-c", text]
    return {**container, **fields}


def make_shell_pod(
    name: str, text: str | None = None, *, spec: Object | None = None, **container: Any
) -> Object:
    """Return a pod with the container `main`; `spec` has further fields of the pod's."""
    return make_group(name, make_container("main", text, **container), **(spec or {}))


def make_group(name: str, *containers: Object, **spec: Any) -> Object:
    """Return a pod with these containers."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": list(containers),
            **spec,
        },
    }


def fit(access: Access, pod: Object) -> Object:
    """Return a pod with the image that the cluster has."""
    if access.kind == "real":
        return pod
    spec = dict(pod["spec"])
    for group in ("initContainers", "containers"):
        if group in spec:
            spec[group] = [
                {**one, "image": LOCAL_IMAGE} if one["image"] == IMAGE else one
                for one in spec[group]
            ]
    return {**pod, "spec": spec}


def image_of(pod: Object) -> str:
    """Return the image of a pod's first container."""
    found: str = pod["spec"]["containers"][0]["image"]
    return found


def pods_path(namespace: str, *rest: str) -> str:
    """Return the path of a namespace's pods, or of what is below one of them."""
    return "/".join((f"/api/v1/namespaces/{namespace}/pods", *rest))


def is_running(pod: Object) -> bool:
    """Return whether all containers are told to run."""
    return bool(pod["status"].get("phase") == "Running")


def has_ended(pod: Object) -> bool:
    """Return whether the phase says that nothing of the pod runs any more."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def has_left(pod: Object) -> bool:
    """Return whether a pod has ended and its sandbox is gone, which may be told a moment later."""
    sandbox = conditions_of(pod).get("PodReadyToStartContainers")
    return has_ended(pod) and sandbox == ("False",)


def waits_for(reason: str, container: str = "main") -> Until:
    """Return a test: the container waits for that reason, and not for a kubelet's own cache."""

    def waits(pod: Object) -> bool:
        waiting = state_of(pod, container).get("waiting", {})
        is_unread = waiting.get("message", "").endswith(UNREAD)
        return waiting.get("reason") == reason and not is_unread

    return waits


def state_of(pod: Object, container: str = "main") -> Object:
    """Return the state that a pod's status has for a container, {} before it has one."""
    state: Object = status_of(pod, container).get("state", {})
    return state


def status_of(pod: Object, container: str = "main") -> Object:
    """Return the status of a container, {} before there is one."""
    for group in ("initContainerStatuses", "containerStatuses"):
        for status in pod["status"].get(group) or []:
            if status["name"] == container:
                found: Object = status
                return found
    return {}


@dataclass
class Story:
    """One pod's life as a watch told it, and the Event objects about it."""

    changes: list[Event] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)

    def end_at(self, until: Until) -> None:
        """Leave out what was told after the first version of the pod that is so."""
        number = next(n for n, one in enumerate(self.changes) if until(one.object))
        del self.changes[number + 1 :]

    @property
    def last(self) -> Object:
        """Return the newest version of the pod."""
        return self.changes[-1].object

    def told(self, container: str = "main") -> list[tuple[str, str]]:
        """Return the phases with the container's state, each once: "" before there is a state."""
        found: list[tuple[str, str]] = []
        for change in self.changes:
            pair = (change.object["status"]["phase"], _word(state_of(change.object, container)))
            if not found or found[-1] != pair:
                found.append(pair)
        return found

    def conditions(self) -> list[Object]:
        """Return every version of the conditions, by type, each once."""
        found: list[Object] = []
        for change in self.changes:
            conditions = conditions_of(change.object)
            if not found or found[-1] != conditions:
                found.append(conditions)
        return found

    def reasons(self, component: str = "") -> list[str]:
        """Return the reasons of the events in the order of their first time, each once."""
        wanted = [one for one in self.events if one["reportingComponent"].startswith(component)]
        return list(dict.fromkeys(one["reason"] for one in wanted))

    def messages(self, reason: str) -> set[str]:
        """Return what the events of a reason say."""
        return {one["message"] for one in self.events if one["reason"] == reason}


def is_in_order(told: Sequence[Any], steps: Sequence[Any]) -> bool:
    """Return whether the first and last step were told, and between them steps in this order.

    A kubelet that has much to do may be too late to see what passes.
    """
    rest = iter(steps)
    is_whole = bool(told) and (told[0], told[-1]) == (steps[0], steps[-1])
    return is_whole and all(one in rest for one in told)


def _word(state: Object) -> str:
    for kind, detail in state.items():
        return str(detail.get("reason", kind))
    return ""


def conditions_of(pod: Object) -> dict[str, tuple[str, ...]]:
    """Return each condition as its status with reason and message, where it has them."""
    return {
        one["type"]: tuple(
            one[key] for key in ("status", "reason", "message") if one.get(key) is not None
        )
        for one in pod["status"].get("conditions") or []
    }


def shape(value: Any, key: str = "") -> Any:
    """Return a status with words for what differs between runs, whose form it checks."""
    if isinstance(value, Mapping):
        return {name: shape(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [shape(one, key) for one in value]
    for keys, form, word in (
        (_TIMES, _TIME, "TIME"),
        (("containerID",), _CONTAINER_ID, "CONTAINER"),
        (("imageID",), _IMAGE_ID, "IMAGE"),
        (_ADDRESSES, _ADDRESS, "ADDRESS"),
    ):
        if key in keys and value not in ("", None, NEVER):
            assert form.fullmatch(value), f"{key}: {value}"
            return word
    return value


@dataclass(frozen=True)
class Recorder:
    """Creates pods in one namespace and keeps what is told of them."""

    api: Api
    namespace: str
    stories: dict[str, Story] = field(default_factory=dict)

    async def create(self, pods: Iterable[Object]) -> None:
        """Create pods, one after the other."""
        for pod in pods:
            await self.api.ask("POST", pods_path(self.namespace), fit(self.api.access, pod))

    async def follow(self, watch: Watch, until: Mapping[str, Until | None]) -> None:
        """Keep what a watch tells until all pods named are so, or gone where it says None."""
        missing = {name for name, test in until.items() if not self._is_so(name, test)}
        async with asyncio.timeout(STORY_SECONDS):
            while missing:
                event = await watch.next()
                assert event is not None, f"the watch has ended before {sorted(missing)}"
                event.object["metadata"].pop("managedFields", None)
                self.stories.setdefault(event.name, Story()).changes.append(event)
                if event.name in missing and self._is_so(event.name, until[event.name]):
                    missing.remove(event.name)

    def _is_so(self, name: str, test: Until | None) -> bool:
        """Return whether a pod was last told to be so, or to be gone where that is None."""
        if name not in self.stories:
            return False
        last = self.stories[name].changes[-1]
        return last.type == "DELETED" if test is None else test(last.object)

    async def take_events(self, expected: Mapping[str, str]) -> None:
        """Take the Event objects once each pod named has one with that reason or message.

        Left out is that a kubelet with much to do has not read a ConfigMap in time.
        """
        path = f"/api/v1/namespaces/{self.namespace}/events"
        missing = set(expected.items())
        async with asyncio.timeout(STORY_SECONDS), self.api.watch(path) as watch:
            while missing:
                event = await watch.next()
                assert event is not None, f"the watch has ended before {missing}"
                name = event.object["involvedObject"]["name"]
                missing -= {(name, event.object[field]) for field in ("reason", "message")}
        listed = (await self.api.ask("GET", path))["items"]
        found = [one for one in listed if not one["message"].endswith(UNREAD)]
        found.sort(key=lambda one: (_first_time(one), int(one["metadata"]["resourceVersion"])))
        for event_object in found:
            name = event_object["involvedObject"]["name"]
            self.stories.setdefault(name, Story()).events.append(event_object)


def _first_time(event: Object) -> str:
    found: str = event["firstTimestamp"] or event["eventTime"][:19] + "Z"
    return found


@asynccontextmanager
async def open_recorder(access: Access) -> AsyncIterator[Recorder]:
    """Open a recorder with a namespace of its own, which goes in the end."""
    async with open_api(access) as api:
        name = make_name()
        accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
        await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        async with api.watch(accounts, fieldSelector="metadata.name=default") as watch:
            await watch.until("ADDED", "default")
        try:
            yield Recorder(api, name)
        finally:
            await api.request("DELETE", f"/api/v1/namespaces/{name}")


def own_loop() -> asyncio.Runner:
    """Return a runner for fixtures that are no coroutines.

    `asyncio.run()` would drop the loop that pytest's plugin keeps, which nobody closes then.
    """
    return asyncio.Runner(loop_factory=asyncio.new_event_loop)


@contextmanager
def standing_pods(access: Access, create: Callable[[Recorder], Awaitable[None]]) -> Iterator[str]:
    """Create pods for all tests of a module; give the name of their namespace."""
    with own_loop() as runner:
        stack = AsyncExitStack()
        try:
            recorder = runner.run(stack.enter_async_context(open_recorder(access)))
            runner.run(create(recorder))
            yield recorder.namespace
        finally:
            runner.run(stack.aclose())


async def record(
    access: Access, pods: Mapping[str, tuple[Object, Until]], events: Mapping[str, str]
) -> dict[str, Story]:
    """Run pods, all at once, each until its test holds, and return what was told of them.

    `events` names for some of them the reason or the message of the last event to wait for.
    """
    async with open_recorder(access) as recorder:
        path = pods_path(recorder.namespace)
        async with recorder.api.watch(path) as watch:
            await recorder.create(pod for pod, _ in pods.values())
            await recorder.follow(watch, {name: until for name, (_, until) in pods.items()})
        # How often a kubelet tries again depends on how long the others take.
        for name, (_, until) in pods.items():
            recorder.stories[name].end_at(until)
        await recorder.take_events(events)
        return recorder.stories
