"""Statuses as a real kubelet (1.34) reported them for the same containers."""

from typing import Any

import pytest

from telorunner.localcluster.node.status import (
    ContainerView,
    PodView,
    Running,
    Terminated,
    Waiting,
    build_status,
    phase_of,
)

START = 1_795_980_000.0
STARTED = "2026-11-29T19:20:00Z"
LATER = "2026-11-29T19:20:05Z"
CREATING = Waiting("ContainerCreating")
INITIALIZING = Waiting("PodInitializing")


def spec(name: str = "session", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "busybox:1", **more}


def view(state: Any, name: str = "session", **more: Any) -> ContainerView:
    made = "" if isinstance(state, Waiting) else "local://1"
    return ContainerView(spec(name, **more), state, made, "sha256:0" if made else "")


def ended(code: int = 0, reason: str = "", message: str = "") -> Terminated:
    return Terminated(code, reason or ("Error" if code else "Completed"), START, START + 1, message)


def pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "one", "generation": 1},
        "status": {"qosClass": "BestEffort", "phase": "Pending", **status},
    }


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {
        one["type"]: (one["status"], one.get("reason", ""), one.get("message", ""))
        for one in status["conditions"]
    }


def test_a_pod_whose_container_is_being_made() -> None:
    mount = {"name": "cm", "mountPath": "/cm", "readOnly": True}
    shown = PodView((view(CREATING, volumeMounts=[mount]),), started_at=START)
    unready = "containers with unready status: [session]"
    assert build_status(pod(), shown, START) == {
        "phase": "Pending",
        "qosClass": "BestEffort",
        "observedGeneration": 1,
        "conditions": [
            {
                "type": type_,
                "status": "True" if type_ in {"Initialized", "PodScheduled"} else "False",
                "lastProbeTime": None,
                "lastTransitionTime": STARTED,
                "observedGeneration": 1,
                **(
                    {"reason": "ContainersNotReady", "message": unready}
                    if type_ in {"Ready", "ContainersReady"}
                    else {}
                ),
            }
            for type_ in (
                "PodReadyToStartContainers",
                "Initialized",
                "Ready",
                "ContainersReady",
                "PodScheduled",
            )
        ],
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "startTime": STARTED,
        "containerStatuses": [
            {
                "name": "session",
                "image": "busybox:1",
                "imageID": "",
                "state": {"waiting": {"reason": "ContainerCreating"}},
                "lastState": {},
                "ready": False,
                "started": False,
                "restartCount": 0,
                "volumeMounts": [
                    {
                        "name": "cm",
                        "mountPath": "/cm",
                        "readOnly": True,
                        "recursiveReadOnly": "Disabled",
                    }
                ],
            }
        ],
    }


def test_a_running_pod_is_ready() -> None:
    shown = PodView(
        (view(Running(START)),), started_at=START, pod_ip="127.20.0.1", has_sandbox=True
    )
    status = build_status(pod(), shown, START)
    assert status["phase"] == "Running"
    assert status["podIP"] == "127.20.0.1"
    assert status["podIPs"] == [{"ip": "127.20.0.1"}]
    assert set(conditions(status).values()) == {("True", "", "")}
    (container,) = status["containerStatuses"]
    assert container["state"] == {"running": {"startedAt": STARTED}}
    assert (container["ready"], container["started"]) == (True, True)
    assert container["containerID"] == "local://1"


def test_a_pod_that_has_succeeded() -> None:
    shown = PodView((view(ended()),), started_at=START, is_final=True)
    status = build_status(pod(), shown, START)
    assert status["phase"] == "Succeeded"
    assert conditions(status) == {
        "PodReadyToStartContainers": ("False", "", ""),
        "Initialized": ("True", "PodCompleted", ""),
        "Ready": ("False", "PodCompleted", ""),
        "ContainersReady": ("False", "PodCompleted", ""),
        "PodScheduled": ("True", "", ""),
    }
    assert status["containerStatuses"][0]["state"]["terminated"] == {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": STARTED,
        "finishedAt": "2026-11-29T19:20:01Z",
        "containerID": "local://1",
    }


def test_an_ended_container_shows_before_the_phase_does() -> None:
    shown = PodView((view(ended(3)),), started_at=START, has_sandbox=True)
    status = build_status(pod(phase="Running"), shown, START)
    assert status["phase"] == "Running"
    assert conditions(status)["Ready"] == ("False", "PodFailed", "")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_init_containers_hold_the_others_back() -> None:
    shown = PodView(
        (view(INITIALIZING),),
        (view(ended(), "a"), view(Running(START), "body-fetch")),
        started_at=START,
        has_sandbox=True,
    )
    status = build_status(pod(), shown, START)
    assert status["phase"] == "Pending"
    assert conditions(status)["Initialized"] == (
        "False",
        "ContainersNotInitialized",
        "containers with incomplete status: [body-fetch]",
    )
    ready = [(one["name"], one["ready"], one["started"]) for one in status["initContainerStatuses"]]
    assert ready == [("a", True, False), ("body-fetch", False, True)]


def test_a_failed_init_container_fails_the_pod() -> None:
    failed = PodView(
        (view(INITIALIZING),), (view(ended(4), "body-fetch"),), started_at=START, is_final=True
    )
    status = build_status(pod(), failed, START)
    assert status["phase"] == "Failed"
    assert conditions(status)["Ready"] == ("False", "PodFailed", "")
    assert conditions(status)["Initialized"][0] == "False"
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


@pytest.mark.parametrize("container", [ended(143), CREATING])
def test_a_pod_stopped_for_a_reason_says_it_at_the_end(container: Any) -> None:
    shown = PodView(
        (view(container),), started_at=START, reason="DeadlineExceeded", message="too long"
    )
    assert "reason" not in build_status(pod(phase="Running"), shown, START)
    final = PodView(**{**vars(shown), "is_final": True})
    status = build_status(pod(phase="Running"), final, START)
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "DeadlineExceeded",
        "too long",
    )


def test_a_condition_that_stays_keeps_its_time() -> None:
    first = build_status(pod(), PodView((view(CREATING),), started_at=START), START)
    running = PodView((view(Running(START)),), started_at=START, has_sandbox=True)
    second = build_status(pod(**first), running, START + 5)
    times = {one["type"]: one["lastTransitionTime"] for one in second["conditions"]}
    assert times == {
        "PodReadyToStartContainers": LATER,
        "Initialized": STARTED,
        "Ready": LATER,
        "ContainersReady": LATER,
        "PodScheduled": STARTED,
    }


@pytest.mark.parametrize(
    ("states", "phase"),
    [
        ([CREATING], "Pending"),
        ([Running(START), CREATING], "Pending"),
        ([Running(START), ended(1)], "Running"),
        ([ended(), ended()], "Succeeded"),
        ([ended(), ended(1)], "Failed"),
    ],
)
def test_the_phase_follows_from_the_containers(states: list[Any], phase: str) -> None:
    assert phase_of(PodView(tuple(view(state) for state in states))) == phase


def test_statuses_are_in_order_of_name() -> None:
    shown = PodView((view(CREATING, "session"), view(CREATING, "agent")))
    names = [one["name"] for one in build_status(pod(), shown, START)["containerStatuses"]]
    assert names == ["agent", "session"]


def test_messages_stand_beside_their_reasons() -> None:
    waiting = PodView((view(Waiting("ErrImagePull", "no such image")),))
    state = build_status(pod(), waiting, START)["containerStatuses"][0]["state"]
    assert state == {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    killed = PodView((view(ended(137, "OOMKilled", "used too much")),))
    state = build_status(pod(), killed, START)["containerStatuses"][0]["state"]
    assert state["terminated"]["reason"] == "OOMKilled"
    assert state["terminated"]["message"] == "used too much"
