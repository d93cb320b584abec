from typing import Any

import pytest

from sessions.pods import failures
from sessions.pods.causes import NODE_LOST
from sessions.pods.failures import block, disappeared, is_running, outcome, own_end, remark
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
DEADLINE = (
    "the session reached its time limit of 60 s (DeadlineExceeded); ask for more time "
    "(limits.ttlSeconds)"
)
EVICTING = (
    "the pod was disrupted: EvictionByEvictionAPI: Eviction API: evicting; start the session again"
)

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
            "reached; ask for more memory (limits.memory)"
        ),
    ),
    (
        "137 alone is a kill",
        pod("Failed", terminated(137)),
        failed(
            'container "session" failed: Error (exit code 137): the container was killed; start '
            "the session again"
        ),
    ),
    (
        "a child was out of memory",
        pod("Failed", terminated(1, "OOMKilled")),
        failed(
            'container "session" failed: OOMKilled (exit code 1): the memory limit of 512Mi was '
            "reached; ask for more memory (limits.memory)"
        ),
    ),
    (
        "a child was out of memory and the code hides it",
        pod("Failed", terminated(0, "OOMKilled")),
        failed(
            'container "session" failed: OOMKilled (exit code 0): the memory limit of 512Mi was '
            "reached; ask for more memory (limits.memory)"
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
        failed("Evicted: The node was low on resource: memory; start the session again"),
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
        failed("OutOfcpu: Node didn't have enough resource: cpu; start the session again"),
    ),
    (
        "disrupted, though the program ended well",
        pod("Succeeded", terminated(0, "Completed"), conditions=DISRUPTED),
        failed(EVICTING),
    ),
    (
        "disrupted",
        pod("Failed", terminated(143), conditions=DISRUPTED),
        failed(f'container "session" failed: Error (exit code 143): {EVICTING}'),
    ),
    (
        "deleted by somebody, and the program ended well on SIGTERM",
        pod(
            "Succeeded",
            terminated(0, "Completed", finishedAt="2026-01-01T00:01:01Z"),
            metadata=DELETED,
        ),
        failed("the pod was deleted; start the session again"),
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


def test_a_container_that_words_its_end_like_a_runtime_is_taken_at_its_word() -> None:
    verdict = outcome(pod("Failed", terminated(1, message=NO_SH)))
    assert verdict == failed(f'container "session" failed: Error (exit code 1): {NO_SH}')


def test_control_characters_of_a_container_do_not_reach_clients() -> None:
    words = "\x1b[2J\x1b]0;owned\x07 lost\x00 \u202ethe\x7f \x9bway\n"
    verdict = outcome(pod("Failed", terminated(1, message=words)))
    assert verdict is not None
    assert verdict.message is not None
    assert verdict.message.endswith(": [2J ]0;owned lost the way")


def test_foreign_sentences_are_cut_at_500_characters() -> None:
    verdict = outcome(pod("Failed", terminated(1, message="x" * 2000)))
    assert verdict is not None
    assert verdict.message == 'container "session" failed: Error (exit code 1): ' + "x" * 500


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        (
            "ErrImageNeverPull",
            "choose pullPolicy missing or always, or an image that the node has",
        ),
        ("InvalidImageName", "check the image's name"),
        (
            "CreateContainerConfigError",
            "the cluster operator must check what the pod refers to",
        ),
        ("CreateContainerError", "the cluster operator must check what the pod refers to"),
    ],
)
def test_waits_without_hope_end_the_start_at_once(reason: str, advice: str) -> None:
    blocked = block(pod("Pending", waiting(reason, "because")))
    assert blocked == failures.Block(
        f'container "session" cannot start: {reason}: because; {advice}', is_hopeless=True
    )


@pytest.mark.parametrize(
    "words",
    [
        "container has runAsNonRoot and image will run as root",
        "container has runAsNonRoot and image has non-numeric user (node), cannot verify user is "
        "non-root",
    ],
)
def test_an_image_that_runs_as_root_or_as_a_named_user_is_told_apart(words: str) -> None:
    kubelets = f'{words} (pod: "telo-run-abcdefghijkl_sessions(1)", container: session)'
    blocked = block(pod("Pending", waiting("CreateContainerConfigError", kubelets)))
    assert blocked == failures.Block(
        f'container "session" cannot start: CreateContainerConfigError: {words}; choose an image '
        "that names a user by number, other than 0 (root)",
        is_hopeless=True,
    )


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "ErrImagePull"])
def test_image_pulls_have_patience(reason: str) -> None:
    blocked = block(pod("Pending", waiting(reason)))
    assert blocked == failures.Block(
        f'container "session" cannot start: {reason}; check the image\'s name and tag; a private '
        "registry needs the operator's pull secret (RUNNER_IMAGE_PULL_SECRET)",
        is_hopeless=False,
    )


def test_a_container_beside_the_sessions_does_not_keep_it_from_starting() -> None:
    beside = waiting("ErrImageNeverPull", name="proxy")
    containers = {"containers": [{"name": "session"}, {"name": "proxy"}]}
    assert block(pod("Pending", waiting("ContainerCreating"), beside, spec=containers)) is None


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
        f"pod disappeared: {EVICTING}"
    )
    assert disappeared(pod("Running", running(), metadata=DELETED)) == failed(
        "pod disappeared: the pod was deleted; start the session again"
    )


def test_a_killed_child_is_remarked_though_the_session_ended_well() -> None:
    assert remark(pod("Succeeded", terminated(0, "OOMKilled"))) == (
        "A process of the session was killed: the memory limit of 512Mi was reached; ask for more "
        "memory (limits.memory)"
    )
    assert remark(pod("Succeeded", terminated(0, "Completed"))) is None
    assert remark(pod("Succeeded", containerStatuses=None)) is None


STATES: dict[str, dict[str, Any] | None] = {
    "none": None,
    "waiting": waiting("ContainerCreating"),
    "running": running(),
    "ended": terminated(0, "Completed"),
    "failed": terminated(7),
    "no code": terminated(None),
}
FAILED_7 = failed('container "session" failed: Error (exit code 7)')
TRUTH: dict[str, dict[str, Status | None]] = {
    "Pending": dict.fromkeys(STATES),
    "Running": dict.fromkeys(STATES),
    "Succeeded": {
        "none": exited(0),
        "waiting": exited(0),
        "running": exited(0),
        "ended": exited(0),
        "failed": exited(7),
        "no code": exited(0),
    },
    "Failed": {
        "none": failed("pod failed"),
        "waiting": failed("pod failed"),
        "running": failed("pod failed"),
        "ended": failed("pod failed"),
        "failed": FAILED_7,
        "no code": failed("pod failed"),
    },
    "Unknown": dict.fromkeys(STATES, failed(NODE_LOST)),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("phase", TRUTH)
def test_phase_and_container_have_one_verdict_together(phase: str, state: str) -> None:
    status = STATES[state]
    seen = pod(phase, *([status] if status else []))
    assert outcome(seen) == TRUTH[phase][state]
    # An earlier run of a container is nobody's verdict.
    if status:
        again = {**status, "restartCount": 1, "lastState": {"terminated": {"exitCode": 9}}}
        assert outcome(pod(phase, again)) == TRUTH[phase][state]


BESIDE = {
    "containers": [
        {"name": "session", "resources": {"limits": {"memory": "512Mi"}}},
        {"name": "proxy"},
    ]
}


def test_a_container_killed_for_memory_beside_the_session_does_not_end_it() -> None:
    killed = terminated(137, "OOMKilled", name="proxy")
    seen = pod("Running", killed, running(), spec=BESIDE)
    assert outcome(seen) is None
    assert own_end(seen) is None
    assert is_running(seen)


def test_a_session_killed_for_memory_beside_a_container_that_goes_on_has_ended() -> None:
    seen = pod("Running", running("proxy"), terminated(137, "OOMKilled"), spec=BESIDE)
    assert outcome(seen) is None
    assert own_end(seen) == failed(
        'container "session" failed: OOMKilled (exit code 137): the memory limit of 512Mi was '
        "reached; ask for more memory (limits.memory)"
    )


@pytest.mark.parametrize(
    "more",
    [
        {"metadata": DELETED},
        {"conditions": DISRUPTED},
        {"reason": "Evicted", "message": "The node was low on resource: memory."},
        {"conditions": [condition("Ready", "False", reason="PodFailed")]},
        {"conditions": [condition("Ready", "False", reason="PodCompleted")]},
    ],
    ids=["deleted", "disrupted", "evicted", "decided to fail", "decided to succeed"],
)
def test_a_pod_that_is_ended_as_a_whole_has_no_end_of_the_sessions_own(
    more: dict[str, Any],
) -> None:
    seen = pod("Running", running("proxy"), terminated(0, "Completed"), spec=BESIDE, **more)
    assert own_end(seen) is None


def test_a_failed_pod_is_explained_by_whoever_failed() -> None:
    broken = terminated(2, name="proxy")
    assert outcome(pod("Failed", broken, terminated(0), spec=BESIDE)) == exited(0)
    assert outcome(pod("Failed", broken, terminated(4), spec=BESIDE)) == failed(
        'container "session" failed: Error (exit code 4)'
    )
    assert outcome(pod("Failed", broken, waiting("ContainerCreating"), spec=BESIDE)) == failed(
        'container "proxy" failed: Error (exit code 2)'
    )


def test_the_last_state_before_a_deleted_pod_is_gone_still_tells_of_the_deletion() -> None:
    """By then the kubelet has set the grace to 0, and the time to when it was done."""
    done = {"deletionTimestamp": "2026-01-01T00:01:04Z", "deletionGracePeriodSeconds": 0}
    grace = {"terminationGracePeriodSeconds": 2}
    ended = terminated(0, "Completed", finishedAt="2026-01-01T00:01:03Z")
    assert disappeared(pod("Succeeded", ended, spec=grace, metadata=done)) == failed(
        "the pod was deleted; start the session again"
    )
    long_ago = terminated(0, "Completed", finishedAt="2026-01-01T00:00:40Z")
    assert disappeared(pod("Succeeded", long_ago, spec=grace, metadata=done)) == exited(0)
