from typing import Any

import pytest

from sessions.pods.progress import PULLING, Step, is_mounting, step
from tests.unit.pods import condition, pod, running, terminated, waiting

READY = condition("PodReadyToStartContainers")
UNSCHEDULABLE = condition(
    "PodScheduled",
    "False",
    reason="Unschedulable",
    message="0/1 nodes are available: 1 Insufficient cpu.",
)

STEPS: list[tuple[str, dict[str, Any], Step | None]] = [
    ("just created", {"metadata": {}, "spec": {}, "status": {}}, Step("Scheduling")),
    ("null everywhere", {"spec": None, "status": None}, Step("Scheduling")),
    (
        "no node fits",
        pod("Pending", node="", conditions=[UNSCHEDULABLE]),
        Step(
            "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu; ask for less (limits), or "
            "the cluster operator must add capacity"
        ),
    ),
    ("bound", pod("Pending", conditions=None), Step("Preparing the sandbox")),
    (
        "sandbox in the making",
        pod(
            "Pending",
            waiting("ContainerCreating"),
            conditions=[condition("PodReadyToStartContainers", "False")],
        ),
        Step("Preparing the sandbox"),
    ),
    (
        "sandbox there",
        pod("Pending", waiting("ContainerCreating"), conditions=[READY]),
        Step(PULLING, 1.0),
    ),
    (
        "init container runs",
        pod(
            "Pending",
            waiting("PodInitializing"),
            conditions=[READY],
            initContainerStatuses=[running("body-fetch")],
        ),
        Step("Delivering application"),
    ),
    (
        "image trouble",
        pod("Pending", waiting("ErrImagePull", "no such host"), conditions=[READY]),
        Step('Container "session" is waiting: ErrImagePull: no such host'),
    ),
    ("running", pod("Running", running()), None),
    ("ended", pod("Succeeded", terminated(0)), None),
]


@pytest.mark.parametrize(
    ("seen", "said"), [row[1:] for row in STEPS], ids=[row[0] for row in STEPS]
)
def test_each_pod_says_what_it_waits_for(seen: dict[str, Any], said: Step | None) -> None:
    assert step(seen) == said


def test_foreign_sentences_are_cut() -> None:
    said = step(pod("Pending", waiting("ErrImagePull", "x" * 2000)))
    assert said is not None
    assert len(said.message) == 500


@pytest.mark.parametrize(
    "found",
    [
        pod("Pending", conditions=None),
        pod("Pending", waiting("ContainerCreating")),
        pod("Pending", waiting("PodInitializing")),
        pod(
            "Pending",
            waiting("ContainerCreating"),
            conditions=[condition("PodReadyToStartContainers", "False")],
        ),
        pod("Pending", waiting("ContainerCreating"), podIP=None),
    ],
)
def test_a_pod_without_a_sandbox_may_still_have_to_mount(found: dict[str, Any]) -> None:
    assert is_mounting(found)


@pytest.mark.parametrize(
    "found",
    [
        pod("Pending", node=""),
        pod("Pending", waiting("ContainerCreating"), conditions=[READY]),
        pod("Pending", waiting("ContainerCreating"), podIP="10.1.2.3"),
        pod("Pending", waiting("ErrImagePull")),
        pod(
            "Pending",
            waiting("ContainerCreating"),
            metadata={"deletionTimestamp": "2026-01-01T00:00:02Z"},
        ),
        pod("Running", running()),
        pod("Failed", terminated(1)),
    ],
)
def test_what_has_a_sandbox_or_waits_for_another_thing_mounts_nothing(
    found: dict[str, Any],
) -> None:
    assert not is_mounting(found)
