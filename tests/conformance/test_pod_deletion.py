"""What a deletion does to a pod: who is asked to end, how long it has, and what a watch tells."""

from collections.abc import Mapping
from datetime import datetime
from itertools import groupby

import pytest

from tests.conformance.client import Access, Event, Object
from tests.conformance.pods import (
    ABSENT_IMAGE,
    Recorder,
    Story,
    Until,
    conditions_of,
    has_ended,
    is_running,
    make_container,
    make_group,
    make_shell_pod,
    open_recorder,
    own_loop,
    pods_path,
    shape,
    state_of,
    waits_for,
)

OBEYS = 'trap "sleep 0.5; exit 7" TERM; while :; do sleep 0.1; done'
REFUSES = 'trap "" TERM; while :; do sleep 0.1; done'
LOST = {
    "exitCode": 137,
    "reason": "ContainerStatusUnknown",
    "message": "The container could not be located when the pod was terminated",
    "startedAt": None,
    "finishedAt": None,
}
FINALIZER = "telo.test/keep"

Answers = dict[str, list[Object]]


class Deletions:
    """Pods that were deleted, each in its way: the answers to the requests, and the stories."""

    def __init__(self, stories: Mapping[str, Story], answers: Answers, *, is_real: bool) -> None:
        self.stories = stories
        self.answers = answers
        self.is_real = is_real

    def since(self, name: str) -> list[Event]:
        """Return what was told from the deletion on."""
        changes = self.stories[name].changes
        return [one for one in changes if "deletionTimestamp" in one.object["metadata"]]


def _pods() -> dict[str, tuple[Object, Until]]:
    side = make_container("side", 'trap "exit 0" TERM; while :; do sleep 0.1; done')
    never = {"image": ABSENT_IMAGE, "imagePullPolicy": "Never"}
    kept = make_shell_pod("kept", OBEYS, spec={"terminationGracePeriodSeconds": 20})
    kept["metadata"]["finalizers"] = [FINALIZER]
    long = {"terminationGracePeriodSeconds": 30}
    patient = {"terminationGracePeriodSeconds": 20}
    init = [make_container("first", 'trap "exit 4" TERM; while :; do sleep 0.1; done')]
    return {
        "obeys": (make_shell_pod("obeys", OBEYS, spec=patient), is_running),
        "refuses": (make_shell_pod("refuses", REFUSES), is_running),
        "refuses-longer": (make_shell_pod("refuses-longer", REFUSES, spec=long), is_running),
        "forced": (make_shell_pod("forced", REFUSES, spec=long), is_running),
        "never": (make_shell_pod("never", "true", **never), waits_for("ErrImageNeverPull")),
        "ended": (make_shell_pod("ended", "exit 3"), has_ended),
        "nowhere": (
            make_shell_pod("nowhere", "true", spec={"nodeSelector": {"telo.test/no": "a"}}),
            lambda pod: bool(pod["status"].get("conditions")),
        ),
        "kept": (kept, is_running),
        "initial": (
            make_group("initial", make_container("main", "true"), initContainers=init, **patient),
            lambda pod: "running" in state_of(pod, "first"),
        ),
        "sidecar": (
            make_group(
                "sidecar",
                make_container("main", OBEYS),
                initContainers=[{**side, "restartPolicy": "Always"}],
                **patient,
            ),
            is_running,
        ),
    }


async def _delete(recorder: Recorder, answers: Answers, name: str, **query: str) -> None:
    path = pods_path(recorder.namespace, name)
    answers.setdefault(name, []).append(await recorder.api.ask("DELETE", path, query=query))


async def _delete_all(recorder: Recorder, answers: Answers) -> None:
    await _delete(recorder, answers, "refuses-longer")
    for grace in ("20", "25"):
        await _delete(recorder, answers, "refuses-longer", gracePeriodSeconds=grace)
    await _delete(recorder, answers, "forced", gracePeriodSeconds="0")
    await _delete(recorder, answers, "refuses", gracePeriodSeconds="1")
    for name in ("obeys", "never", "ended", "nowhere", "kept", "initial", "sidecar"):
        await _delete(recorder, answers, name)


def _is_released(pod: Object) -> bool:
    return pod["metadata"].get("deletionGracePeriodSeconds") == 0


async def _record(access: Access) -> Deletions:
    pods, answers = _pods(), Answers()
    async with open_recorder(access) as recorder:
        path = pods_path(recorder.namespace)
        async with recorder.api.watch(path) as watch:
            await recorder.create(pod for pod, _ in pods.values())
            await recorder.follow(watch, {name: until for name, (_, until) in pods.items()})
            await _delete_all(recorder, answers)
            # By then more than one second is over, and of the twenty many are left.
            await recorder.follow(watch, {"refuses": None})
            await _delete(recorder, answers, "refuses-longer", gracePeriodSeconds="1")
            gone: dict[str, Until | None] = dict.fromkeys(pods)
            await recorder.follow(watch, {**gone, "kept": _is_released})
            patch = {"metadata": {"finalizers": None}}
            await recorder.api.ask(
                "PATCH",
                pods_path(recorder.namespace, "kept"),
                patch,
                content_type="application/merge-patch+json",
            )
            await recorder.follow(watch, {"kept": None})
        await recorder.take_events({"obeys": "Killing"})
        return Deletions(recorder.stories, answers, is_real=recorder.api.is_real)


@pytest.fixture(scope="module")
def deletions(access: Access) -> Deletions:
    """What was told of pods that were deleted, all at once."""
    with own_loop() as runner:
        return runner.run(_record(access))


def graces(changes: list[Event]) -> list[tuple[str, int, str]]:
    """Return the kind of each change, the grace period in it and the phase; each once.

    How often a kubelet writes between them depends on what else it has to do.
    """
    told = (
        (
            one.type,
            one.object["metadata"]["deletionGracePeriodSeconds"],
            one.object["status"]["phase"],
        )
        for one in changes
    )
    return [step for step, _ in groupby(told)]


def seconds_between(first: str, second: str) -> float:
    moments = (datetime.fromisoformat(one) for one in (second, first))
    return (next(moments) - next(moments)).total_seconds()


def test_a_deletion_is_told_step_by_step(deletions: Deletions) -> None:
    changes = deletions.since("obeys")
    assert graces(changes) == [
        ("MODIFIED", 20, "Running"),
        ("MODIFIED", 20, "Failed"),
        ("MODIFIED", 0, "Failed"),
        ("DELETED", 0, "Failed"),
    ]
    asked = changes[0].object
    seen = next(one.object for one in changes if one.object["status"]["observedGeneration"] == 2)
    assert (asked["metadata"]["generation"], asked["status"]["observedGeneration"]) == (2, 1)
    assert seen["metadata"]["generation"] == 2
    # A kubelet that has much to do tells what it has seen together with the end.
    assert deletions.is_real or (seen is changes[1].object and is_running(seen))
    # In the end the time is that of the removal.
    last = changes[-1].object
    finished_at = state_of(last)["terminated"]["finishedAt"]
    assert seconds_between(finished_at, last["metadata"]["deletionTimestamp"]) >= 0
    assert last["metadata"]["deletionTimestamp"] < asked["metadata"]["deletionTimestamp"]


def test_the_last_version_of_a_deleted_pod_has_its_end(deletions: Deletions) -> None:
    pod = deletions.since("obeys")[-1].object
    failed = ("False", "PodFailed")
    assert shape(state_of(pod)["terminated"]) == {
        "exitCode": 7,
        "reason": "Error",
        "startedAt": "TIME",
        "finishedAt": "TIME",
        "containerID": "CONTAINER",
    }
    assert conditions_of(pod) == {
        "PodReadyToStartContainers": ("False",),
        "Initialized": ("True",),
        "Ready": failed,
        "ContainersReady": failed,
        "PodScheduled": ("True",),
    }
    assert "reason" not in pod["status"]
    assert int(pod["metadata"]["resourceVersion"]) > int(
        deletions.since("obeys")[-2].object["metadata"]["resourceVersion"]
    )


def test_the_request_is_answered_with_the_marked_pod(deletions: Deletions) -> None:
    (answer,) = deletions.answers["obeys"]
    metadata = answer["metadata"]
    assert (answer["kind"], metadata["name"]) == ("Pod", "obeys")
    assert metadata["deletionGracePeriodSeconds"] == 20
    marked = deletions.since("obeys")[0].object["metadata"]
    for key in ("uid", "resourceVersion", "deletionTimestamp", "generation"):
        assert metadata[key] == marked[key]


def test_who_does_not_end_when_asked_is_killed(deletions: Deletions) -> None:
    changes = deletions.since("refuses")
    assert graces(changes)[0] == ("MODIFIED", 1, "Running")
    assert graces(changes)[-1] == ("DELETED", 0, "Failed")
    terminated = state_of(changes[-1].object)["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (137, "Error")
    # A kubelet gives everybody two seconds; a time has no fractions.
    asked = changes[0].object["metadata"]["deletionTimestamp"]
    assert seconds_between(asked, terminated["finishedAt"]) >= 0


def test_a_grace_period_can_be_made_shorter_and_not_longer(deletions: Deletions) -> None:
    answers = deletions.answers["refuses-longer"]
    first, shorter, longer, last = (answer["metadata"] for answer in answers)
    assert first["deletionGracePeriodSeconds"] == 30
    assert shorter["deletionGracePeriodSeconds"] == 20
    assert longer["deletionGracePeriodSeconds"] == 20
    # It counts from the first request, and when it is over already the shortest is given.
    assert seconds_between(shorter["deletionTimestamp"], first["deletionTimestamp"]) == 10
    assert longer["deletionTimestamp"] == shorter["deletionTimestamp"]
    # It wrote nothing: a later version is the kubelet's, which tells what it has seen.
    same_status = answers[1]["status"] == answers[2]["status"]
    assert (longer["resourceVersion"] == shorter["resourceVersion"]) is same_status
    assert last["deletionGracePeriodSeconds"] == 1
    # Thirty seconds before the first end was the first request.
    assert seconds_between(last["deletionTimestamp"], first["deletionTimestamp"]) < 29
    assert last["generation"] == first["generation"] == 2
    final = deletions.since("refuses-longer")[-1].object
    assert state_of(final)["terminated"]["exitCode"] == 137


def test_a_forced_deletion_removes_the_pod_while_it_runs(deletions: Deletions) -> None:
    changes = deletions.since("forced")
    assert graces(changes) == [("MODIFIED", 0, "Running"), ("DELETED", 0, "Running")]
    assert "running" in state_of(changes[-1].object)


@pytest.mark.parametrize(("name", "phase"), [("ended", "Failed"), ("nowhere", "Pending")])
def test_a_pod_of_which_nothing_runs_goes_at_once(
    deletions: Deletions, name: str, phase: str
) -> None:
    assert graces(deletions.since(name)) == [("MODIFIED", 0, phase), ("DELETED", 0, phase)]
    assert deletions.answers[name][0]["metadata"]["deletionGracePeriodSeconds"] == 0


def test_a_pod_that_was_about_to_start_ends_as_failed(deletions: Deletions) -> None:
    changes = deletions.since("never")
    assert graces(changes)[-2:] == [("MODIFIED", 0, "Failed"), ("DELETED", 0, "Failed")]
    pod = changes[-1].object
    assert state_of(pod) == {"terminated": LOST}
    message = "containers with unready status: [main]"
    assert conditions_of(pod)["Ready"] == ("False", "ContainersNotReady", message)


def test_a_pod_in_its_init_container_ends_as_failed(deletions: Deletions) -> None:
    pod = deletions.since("initial")[-1].object
    assert pod["status"]["phase"] == "Failed"
    assert state_of(pod, "first")["terminated"]["exitCode"] == 4
    assert state_of(pod) == {"waiting": {"reason": "PodInitializing"}}
    assert conditions_of(pod)["Ready"] == ("False", "PodFailed")


def test_a_finalizer_keeps_a_pod_that_has_ended(deletions: Deletions) -> None:
    changes = deletions.since("kept")
    released = [one for one in changes if _is_released(one.object)]
    assert released[0].type == "MODIFIED"
    assert released[0].object["metadata"]["finalizers"] == [FINALIZER]
    assert released[0].object["status"]["phase"] == "Failed"
    assert released[-1].type == "DELETED"
    assert state_of(released[-1].object)["terminated"]["exitCode"] == 7


def test_a_sidecar_is_asked_when_the_others_have_ended(deletions: Deletions) -> None:
    pod = deletions.since("sidecar")[-1].object
    main, side = (state_of(pod, name)["terminated"] for name in ("main", "side"))
    assert (main["exitCode"], side["exitCode"]) == (7, 0)
    assert side["finishedAt"] >= main["finishedAt"]
    assert conditions_of(pod)["Initialized"] == ("True",)


def test_stopping_is_an_event(deletions: Deletions) -> None:
    assert deletions.stories["obeys"].messages("Killing") == {"Stopping container main"}
