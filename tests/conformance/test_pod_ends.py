"""How a pod ends: the order of what is told and the whole of the last status."""

import pytest

from tests.conformance.client import Object
from tests.conformance.pods import (
    NEVER,
    Story,
    conditions_of,
    image_of,
    is_in_order,
    shape,
    state_of,
    status_of,
)

Stories = dict[str, Story]

SCHEDULED = ("True",)
START_FAILED = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed:"
    " runc create failed: unable to start container process: "
)


def unready(*names: str) -> tuple[str, str, str]:
    message = f"containers with unready status: [{' '.join(names)}]"
    return ("False", "ContainersNotReady", message)


def make_condition(type_: str, status: str, **more: str) -> Object:
    return {
        "type": type_,
        "observedGeneration": 1,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": "TIME",
        **more,
    }


def test_a_pod_that_succeeds_is_told_of_step_by_step(stories: Stories) -> None:
    assert is_in_order(
        stories["succeeds"].told(),
        [
            ("Pending", ""),
            ("Pending", "ContainerCreating"),
            ("Running", "running"),
            ("Pending", "Completed"),
            ("Running", "Completed"),
            ("Succeeded", "Completed"),
        ],
    )


def test_its_first_version_has_a_phase_and_no_more(stories: Stories) -> None:
    first, bound = stories["succeeds"].changes[:2]
    assert first.type == "ADDED"
    assert first.object["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}
    assert "nodeName" not in first.object["spec"]
    assert first.object["metadata"]["generation"] == 1
    assert bound.type == "MODIFIED"
    assert bound.object["spec"]["nodeName"]
    condition = make_condition("PodScheduled", "True")
    # The scheduler does not say which generation it saw; the kubelet says it for it.
    del condition["observedGeneration"]
    assert shape(bound.object["status"]) == {
        "phase": "Pending",
        "qosClass": "Guaranteed",
        "conditions": [condition],
    }


def test_its_conditions_follow(stories: Stories) -> None:
    told = stories["succeeds"].conditions()
    done = ("False", "PodCompleted")
    starting = {
        "PodReadyToStartContainers": ("False",),
        "Initialized": ("True",),
        "Ready": unready("main"),
        "ContainersReady": unready("main"),
        "PodScheduled": SCHEDULED,
    }
    running = {
        "PodReadyToStartContainers": ("True",),
        "Initialized": ("True",),
        "Ready": ("True",),
        "ContainersReady": ("True",),
        "PodScheduled": SCHEDULED,
    }
    ended = {
        "PodReadyToStartContainers": ("True",),
        "Initialized": ("True", "PodCompleted"),
        "Ready": done,
        "ContainersReady": done,
        "PodScheduled": SCHEDULED,
    }
    is_there = {"PodReadyToStartContainers": ("True",)}
    is_gone = {"PodReadyToStartContainers": ("False",)}
    assert told[:2] == [{}, {"PodScheduled": SCHEDULED}]
    # A sandbox is there a moment before its container, and gone a moment after it.
    steps = [told[1], starting, starting | is_there, running, ended, ended | is_gone]
    assert is_in_order(told[1:], steps)
    assert running in told


def test_while_it_runs_its_status_is_whole(stories: Stories) -> None:
    story = stories["succeeds"]
    running = next(one.object for one in story.changes if "running" in state_of(one.object))
    resources = {
        "limits": {"cpu": "100m", "memory": "32Mi"},
        "requests": {"cpu": "100m", "memory": "32Mi"},
    }
    assert shape(status_of(running)) == {
        "name": "main",
        "state": {"running": {"startedAt": "TIME"}},
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": image_of(running),
        "imageID": "IMAGE",
        "containerID": "CONTAINER",
        "started": True,
        "allocatedResources": resources["requests"],
        "resources": resources,
    }


def test_the_last_status_of_a_pod_that_succeeded_is_whole(stories: Stories) -> None:
    done = {"reason": "PodCompleted"}
    resources = {
        "limits": {"cpu": "100m", "memory": "32Mi"},
        "requests": {"cpu": "100m", "memory": "32Mi"},
    }
    assert shape(stories["succeeds"].last["status"]) == {
        "observedGeneration": 1,
        "phase": "Succeeded",
        "conditions": [
            make_condition("PodReadyToStartContainers", "False"),
            make_condition("Initialized", "True", **done),
            make_condition("Ready", "False", **done),
            make_condition("ContainersReady", "False", **done),
            make_condition("PodScheduled", "True"),
        ],
        "hostIP": "ADDRESS",
        "hostIPs": [{"ip": "ADDRESS"}],
        "podIP": "ADDRESS",
        "podIPs": [{"ip": "ADDRESS"}],
        "startTime": "TIME",
        "containerStatuses": [
            {
                "name": "main",
                "state": {
                    "terminated": {
                        "exitCode": 0,
                        "reason": "Completed",
                        "startedAt": "TIME",
                        "finishedAt": "TIME",
                        "containerID": "CONTAINER",
                    }
                },
                "lastState": {},
                "ready": False,
                "restartCount": 0,
                "image": image_of(stories["succeeds"].last),
                "imageID": "IMAGE",
                "containerID": "CONTAINER",
                "started": False,
                "allocatedResources": resources["requests"],
                "resources": resources,
            }
        ],
        "qosClass": "Guaranteed",
    }


def test_a_pod_that_fails_tells_the_container_first_and_the_phase_after(stories: Stories) -> None:
    story = stories["fails"]
    assert is_in_order(
        story.told(),
        [
            ("Pending", ""),
            ("Pending", "ContainerCreating"),
            ("Running", "running"),
            ("Pending", "Error"),
            ("Running", "Error"),
            ("Failed", "Error"),
        ],
    )
    failed = ("False", "PodFailed")
    assert conditions_of(story.last) == {
        "PodReadyToStartContainers": ("False",),
        "Initialized": ("True",),
        "Ready": failed,
        "ContainersReady": failed,
        "PodScheduled": SCHEDULED,
    }
    assert "reason" not in story.last["status"]
    assert "message" not in story.last["status"]


@pytest.mark.parametrize(
    ("name", "code", "reason", "message"),
    [
        ("fails", 3, "Error", "told\n"),
        ("fails-silently", 3, "Error", None),
        ("falls-back", 4, "Error", "out\nerr\n"),
        ("says-more", 4, "Error", "word"),
        ("falls-back-not", 0, "Completed", None),
        ("killed", 137, "Error", None),
        ("eats", 137, "OOMKilled", None),
        ("new-folder", 0, "Completed", None),
        ("no-command", 128, "StartError", 'exec: "nope": executable file not found in $PATH'),
        ("no-file", 128, "StartError", 'exec: "/nope": stat /nope: no such file or directory'),
        ("no-program", 128, "StartError", 'exec: "/etc/passwd": permission denied'),
        ("a-folder", 128, "StartError", 'exec: "/etc": permission denied'),
        (
            "no-folder",
            128,
            "StartError",
            "error during container init: mkdir /etc/passwd: not a directory",
        ),
    ],
)
def test_what_a_container_ended_with_is_told(
    stories: Stories, name: str, code: int, reason: str, message: str | None
) -> None:
    pod = stories[name].last
    terminated = shape(state_of(pod)["terminated"])
    if reason == "StartError":
        message = f"{START_FAILED}{message}: unknown"
    assert terminated == {
        "exitCode": code,
        "reason": reason,
        "startedAt": NEVER if reason == "StartError" else "TIME",
        "finishedAt": "TIME",
        "containerID": "CONTAINER",
        **({"message": message} if message else {}),
    }
    assert pod["status"]["phase"] == ("Failed" if code else "Succeeded")
    assert (status_of(pod)["restartCount"], status_of(pod)["lastState"]) == (0, {})


def test_a_pod_that_cannot_start_was_never_told_to_run(stories: Stories) -> None:
    for name in ("no-command", "no-file", "no-program", "a-folder", "no-folder"):
        steps = [
            ("Pending", ""),
            ("Pending", "ContainerCreating"),
            ("Pending", "StartError"),
            ("Failed", "StartError"),
        ]
        assert is_in_order(stories[name].told(), steps)


def test_a_pod_past_its_deadline_is_unready_at_once_and_failed_when_it_has_stopped(
    stories: Stories,
) -> None:
    story = stories["late"]
    assert is_in_order(
        story.told(),
        [
            ("Pending", ""),
            ("Pending", "ContainerCreating"),
            ("Pending", "running"),
            ("Running", "running"),
            ("Failed", "Error"),
        ],
    )
    failed = ("False", "PodFailed")
    told = story.conditions()
    assert told[-3]["Ready"] == ("True",)
    assert told[-2] == {**told[-3], "Ready": failed, "ContainersReady": failed}
    assert told[-1] == {**told[-2], "PodReadyToStartContainers": ("False",)}
    status = story.last["status"]
    assert status["reason"] == "DeadlineExceeded"
    assert status["message"] == "Pod was active on the node longer than the specified deadline"
    assert state_of(story.last)["terminated"]["exitCode"] == 5


def test_past_its_deadline_a_pod_ends_that_never_started(stories: Stories) -> None:
    pod = stories["late-never"].last
    assert pod["status"]["reason"] == "DeadlineExceeded"
    assert pod["status"]["phase"] == "Failed"
    assert conditions_of(pod)["Ready"] == ("False", "PodFailed")


def test_one_failed_container_of_two_fails_the_pod_when_both_have_ended(stories: Stories) -> None:
    story = stories["two"]
    steps = [
        ("Pending", ""),
        ("Pending", "ContainerCreating"),
        ("Running", "running"),
        ("Running", "Error"),
        ("Failed", "Error"),
    ]
    assert is_in_order(story.told("b"), steps)
    between = next(one.object for one in story.changes if "terminated" in state_of(one.object, "a"))
    assert between["status"]["phase"] == "Running"
    assert conditions_of(between)["Ready"] == unready("a")
    names = [one["name"] for one in between["status"]["containerStatuses"]]
    assert names == ["a", "b"], "the statuses are in the order of names"
    first = next(one.object for one in story.changes if state_of(one.object, "a"))
    assert conditions_of(first)["Ready"] == unready("b", "a"), "the message has the spec's order"
    assert state_of(story.last, "a")["terminated"]["exitCode"] == 0
    assert state_of(story.last, "b")["terminated"]["exitCode"] == 1


def test_a_failed_init_container_fails_the_pod_and_nothing_else_starts(stories: Stories) -> None:
    story = stories["init-fails"]
    assert is_in_order(
        story.told("first"),
        [
            ("Pending", ""),
            ("Pending", "PodInitializing"),
            ("Pending", "running"),
            ("Pending", "Error"),
            ("Failed", "Error"),
        ],
    )
    for waiting in ("second", "main"):
        assert state_of(story.last, waiting) == {"waiting": {"reason": "PodInitializing"}}
    message = "containers with incomplete status: [first second]"
    failed = ("False", "PodFailed")
    assert conditions_of(story.last) == {
        "PodReadyToStartContainers": ("False",),
        "Initialized": ("False", "ContainersNotInitialized", message),
        "Ready": failed,
        "ContainersReady": failed,
        "PodScheduled": SCHEDULED,
    }
    assert state_of(story.last, "first")["terminated"]["exitCode"] == 7


def test_an_init_container_runs_before_the_others(stories: Stories) -> None:
    story = stories["init-succeeds"]
    assert is_in_order(
        story.told("first"),
        [
            ("Pending", ""),
            ("Pending", "PodInitializing"),
            ("Pending", "running"),
            ("Pending", "Completed"),
            ("Running", "Completed"),
            ("Succeeded", "Completed"),
        ],
    )
    assert is_in_order(
        story.told("main"),
        [
            ("Pending", ""),
            ("Pending", "PodInitializing"),
            ("Running", "running"),
            ("Pending", "Completed"),
            ("Running", "Completed"),
            ("Succeeded", "Completed"),
        ],
    )
    for change in story.changes:
        status = status_of(change.object, "first")
        if "running" in status.get("state", {}):
            assert (status["ready"], status["started"]) == (False, True)
        elif "terminated" in status.get("state", {}):
            assert (status["ready"], status["started"]) == (True, False)
            assert conditions_of(change.object)["Initialized"][0] == "True"


def test_a_sidecar_starts_first_and_ends_last(stories: Stories) -> None:
    story = stories["sidecar"]
    told = story.told("side")
    starts = [("Pending", ""), ("Pending", "PodInitializing")]
    stays = [("Pending", "running"), ("Running", "running")]
    assert is_in_order(told, [*starts, *stays, ("Running", "Error"), ("Succeeded", "Error")])
    assert set(stays) <= set(told)
    # What is between these two may pass too fast for a kubelet.
    ends = [("Running", "Completed"), ("Succeeded", "Completed")]
    assert is_in_order(story.told("main"), [*starts, *stays, *ends])
    main, side = (state_of(story.last, name)["terminated"] for name in ("main", "side"))
    assert side["finishedAt"] >= main["finishedAt"]
    for change in story.changes:
        main, side = state_of(change.object), status_of(change.object, "side")
        if "running" in main:
            assert "running" in side["state"]
            assert (side["ready"], side["started"]) == (True, True)
        if "terminated" in side.get("state", {}):
            assert "terminated" in main, "the sidecar was there until the end"


def test_a_sidecar_counts_as_ready_and_not_as_the_pods_failure(stories: Stories) -> None:
    story = stories["sidecar"]
    told = [(one["Ready"], one["Initialized"][2:]) for one in story.conditions() if "Ready" in one]
    incomplete = "containers with incomplete status: "
    # The sandbox may be told between the two.
    assert list(dict.fromkeys(told))[:2] == [
        (unready("side", "main"), (f"{incomplete}[side first]",)),
        (unready("main"), (f"{incomplete}[first]",)),
    ]
    assert story.last["status"]["phase"] == "Succeeded"
    assert state_of(story.last, "side")["terminated"]["exitCode"] == 9
    assert conditions_of(story.last)["Ready"] == ("False", "PodCompleted")


def test_every_version_says_which_generation_the_kubelet_saw(stories: Stories) -> None:
    for story in stories.values():
        for change in story.changes:
            status = change.object["status"]
            if "containerStatuses" in status:
                assert status["observedGeneration"] == 1
                assert {one["observedGeneration"] for one in status["conditions"]} == {1}


def test_resource_versions_rise(stories: Stories) -> None:
    for story in stories.values():
        versions = [int(one.object["metadata"]["resourceVersion"]) for one in story.changes]
        assert versions == sorted(set(versions))
