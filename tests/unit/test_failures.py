from typing import Any

import pytest

from sessions.pods import failures
from sessions.pods.failures import NODE_LOST, block, disappeared, is_running, outcome, remark
from sessions.spec import Status, exited, failed
from tests.unit.pods import condition, pod, running, terminated, waiting

NO_SH = (
    'failed to create containerd task: OCI runtime create failed: exec: "sh": executable file '
    "not found in $PATH: unknown"
)
DISRUPTED = [
    condition("DisruptionTarget", reason="EvictionByEvictionAPI", message="Eviction API: evicting")
]
DELETED = {"deletionTimestamp": "2026-01-01T00:01:02Z", "deletionGracePeriodSeconds": 2}
DEADLINE = "the session reached its time limit of 60 s (DeadlineExceeded)"

VERDICTS: list[tuple[str, dict[str, Any], Status | None]] = [
    ("no status at all", {"metadata": {}}, None),
    ("null everywhere", {"metadata": None, "spec": None, "status": None}, None),
    ("pending", pod("Pending", waiting("ContainerCreating")), None),
    ("running", pod("Running", running()), None),
    (
        "a running container's earlier run is no failure",
        pod("Running", running() | {"lastState": {"terminated": {"exitCode": 1}}}),
        None,
    ),
    ("succeeded", pod("Succeeded", terminated(0, "Completed")), exited(0)),
    (
        "ended, but nobody has said why yet: the time limit may be behind it",
        pod("Running", terminated(0, "Completed")),
        None,
    ),
    ("killed, but nobody has said why yet", pod("Running", terminated(137)), None),
    ("succeeded without a code", pod("Succeeded", terminated(None, "Completed")), exited(0)),
    ("succeeded without statuses", pod("Succeeded", containerStatuses=None), exited(0)),
    ("succeeded with a code, for once", pod("Succeeded", terminated(3, "Completed")), exited(3)),
    (
        "non-zero",
        pod("Failed", terminated(3)),
        failed('container "session" failed: Error (exit code 3)'),
    ),
    (
        "out of memory names the limit",
        pod("Failed", terminated(137, "OOMKilled")),
        failed(
            'container "session" failed: OOMKilled (exit code 137): the memory limit of 512Mi was '
            "reached"
        ),
    ),
    (
        "137 alone is a kill",
        pod("Failed", terminated(137)),
        failed('container "session" failed: Error (exit code 137): the container was killed'),
    ),
    (
        "a child was out of memory",
        pod("Failed", terminated(1, "OOMKilled")),
        failed(
            'container "session" failed: OOMKilled (exit code 1): the memory limit of 512Mi was '
            "reached"
        ),
    ),
    (
        "a child was out of memory and the code hides it",
        pod("Failed", terminated(0, "OOMKilled")),
        failed(
            'container "session" failed: OOMKilled (exit code 0): the memory limit of 512Mi was '
            "reached"
        ),
    ),
    (
        "evicted, statuses null",
        pod(
            "Failed",
            containerStatuses=None,
            initContainerStatuses=None,
            conditions=None,
            reason="Evicted",
            message="The node was low on resource: memory.",
        ),
        failed("Evicted: The node was low on resource: memory."),
    ),
    (
        "deadline while still shown running",
        pod("Failed", running(), reason="DeadlineExceeded", message="Pod was active"),
        failed(DEADLINE),
    ),
    (
        "deadline without statuses",
        pod("Failed", reason="DeadlineExceeded", containerStatuses=None),
        failed(DEADLINE),
    ),
    (
        "deadline met by a program that ends well on SIGTERM",
        pod("Failed", terminated(0, "Completed"), reason="DeadlineExceeded"),
        failed(DEADLINE),
    ),
    (
        "deadline, killed",
        pod("Failed", terminated(137), reason="DeadlineExceeded"),
        failed(f'container "session" failed: Error (exit code 137): {DEADLINE}'),
    ),
    (
        "failed init container first",
        pod(
            "Failed",
            waiting("PodInitializing"),
            initContainerStatuses=[terminated(1, name="body-fetch", message="404\nnot found")],
        ),
        failed('init container "body-fetch" failed: Error (exit code 1): 404 not found'),
    ),
    (
        "a side-car and an init step that worked at the second try are not the cause",
        pod(
            "Failed",
            terminated(4),
            spec={"initContainers": [{"name": "car", "restartPolicy": "Always"}, {"name": "i"}]},
            initContainerStatuses=[
                terminated(137, name="car"),
                terminated(0, "Completed", name="i")
                | {"restartCount": 1, "lastState": {"terminated": {"exitCode": 1}}},
            ],
        ),
        failed('container "session" failed: Error (exit code 4)'),
    ),
    (
        "failed though every container ended well",
        pod("Failed", terminated(0, "Completed")),
        failed("pod failed"),
    ),
    (
        "failed before anything ran",
        pod("Failed", reason="OutOfcpu", message="Node didn't have enough resource: cpu"),
        failed("OutOfcpu: Node didn't have enough resource: cpu"),
    ),
    (
        "disrupted, though the program ended well",
        pod("Succeeded", terminated(0, "Completed"), conditions=DISRUPTED),
        failed("the pod was disrupted: EvictionByEvictionAPI: Eviction API: evicting"),
    ),
    (
        "disrupted",
        pod("Failed", terminated(143), conditions=DISRUPTED),
        failed(
            'container "session" failed: Error (exit code 143): the pod was disrupted: '
            "EvictionByEvictionAPI: Eviction API: evicting"
        ),
    ),
    (
        "deleted by somebody, and the program ended well on SIGTERM",
        pod(
            "Succeeded",
            terminated(0, "Completed", finishedAt="2026-01-01T00:01:01Z"),
            metadata=DELETED,
        ),
        failed("the pod was deleted"),
    ),
    (
        "ended by itself before somebody deleted it",
        pod(
            "Succeeded",
            terminated(0, "Completed", finishedAt="2026-01-01T00:00:59Z"),
            metadata=DELETED,
        ),
        exited(0),
    ),
    ("unknown phase", pod("Unknown", running()), failed(NODE_LOST)),
    (
        "no shell in the image",
        pod("Failed", terminated(128, "StartError", message=NO_SH)),
        failed(
            'container "session" failed: StartError (exit code 128): the image has no shell: '
            "inline delivery of the bundle (RUNNER_BUNDLE_DELIVERY) needs sh and tar in the image"
        ),
    ),
    (
        "no shell in the init image",
        pod(
            "Failed",
            initContainerStatuses=[
                terminated(128, "StartError", message=NO_SH, name="body-fetch"),
            ],
        ),
        failed(
            'init container "body-fetch" failed: StartError (exit code 128): the image has no '
            "shell: RUNNER_INIT_IMAGE needs sh, wget and tar"
        ),
    ),
]


@pytest.mark.parametrize(
    ("seen", "verdict"), [row[1:] for row in VERDICTS], ids=[row[0] for row in VERDICTS]
)
def test_each_pod_has_one_verdict(seen: dict[str, Any], verdict: Status | None) -> None:
    assert outcome(seen) == verdict


def test_foreign_sentences_are_cut_at_500_characters() -> None:
    verdict = outcome(pod("Failed", terminated(1, message="x" * 2000)))
    assert verdict is not None
    assert verdict.message == 'container "session" failed: Error (exit code 1): ' + "x" * 500


@pytest.mark.parametrize(
    "reason",
    ["ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError"],
)
def test_waits_without_hope_end_the_start_at_once(reason: str) -> None:
    blocked = block(pod("Pending", waiting(reason, "because")))
    assert blocked == failures.Block(
        f'container "session" cannot start: {reason}: because', is_hopeless=True
    )


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "ErrImagePull"])
def test_image_pulls_have_patience(reason: str) -> None:
    blocked = block(pod("Pending", waiting(reason)))
    assert blocked == failures.Block(
        f'container "session" cannot start: {reason}', is_hopeless=False
    )


def test_an_image_without_a_shell_names_the_setting_where_creating_fails() -> None:
    blocked = block(pod("Pending", waiting("CreateContainerError", NO_SH)))
    assert blocked is not None
    assert "RUNNER_BUNDLE_DELIVERY" in blocked.message


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", ""])
def test_ordinary_waits_block_nothing(reason: str) -> None:
    assert block(pod("Pending", waiting(reason))) is None


def test_only_the_sessions_own_running_container_is_the_proof() -> None:
    assert is_running(pod("Running", running()))
    assert is_running(pod("Pending", running()))
    assert not is_running(pod("Running", running("other")))
    assert not is_running(pod("Running", containerStatuses=None))


def test_a_pod_that_vanished_is_judged_by_what_was_last_seen() -> None:
    assert disappeared(None) == failed("pod disappeared")
    assert disappeared(pod("Running", running())) == failed("pod disappeared")
    assert disappeared(pod("Succeeded", terminated(0))) == exited(0)
    assert disappeared(pod("Running", running(), conditions=DISRUPTED)) == failed(
        "pod disappeared: the pod was disrupted: EvictionByEvictionAPI: Eviction API: evicting"
    )
    assert disappeared(pod("Running", running(), metadata=DELETED)) == failed(
        "pod disappeared: the pod was deleted"
    )


def test_a_killed_child_is_remarked_though_the_session_ended_well() -> None:
    assert remark(pod("Succeeded", terminated(0, "OOMKilled"))) == (
        "A process of the session was killed: the memory limit of 512Mi was reached"
    )
    assert remark(pod("Succeeded", terminated(0, "Completed"))) is None
    assert remark(pod("Succeeded", containerStatuses=None)) is None
