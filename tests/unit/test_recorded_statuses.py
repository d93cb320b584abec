"""Recorded pods of a real cluster, and the exact sentence that a client reads of each.

What each recording is stands in `tests/statuses/cases.py` and, for those made by hand, in the file.
"""

import re
from typing import Any

import pytest

from sessions.pods import causes, failures, progress, reading
from sessions.spec import exited
from telorunner.kube.errors import describe, from_status
from tests.statuses.cases import CASES
from tests.statuses.recorded import HANDMADE, RECORDED, Recording, load, recordings, refusals
from tests.statuses.refusals import REFUSALS
from tests.statuses.verdicts import sentence, verdicts

# Recording → how the session ended in a client's eyes, or what it waits for at the end of it.
SENTENCES = {
    "bad-mount": (
        'container "session" failed: StartError (exit code 128): error during container init:'
        ' error mounting "…" to rootfs at "…": open o_path procfd: open …: not a directory:'
        " unknown; choose another image, or ask the cluster operator"
    ),
    "car-after-ends": "exited 0",
    "car-after-fails": "exited 0",
    "car-after-stays": "exited 0",
    "car-before-ends": 'container "session" failed: Error (exit code 3)',
    "car-before-fails": 'container "session" failed: Error (exit code 3)',
    "car-before-stays": 'container "session" failed: Error (exit code 3)',
    "car-image": "exited 0",
    "car-stays-after-storage": (
        "Evicted: Pod ephemeral local storage usage exceeds the total limit of containers"
        " 32Mi; write less, or ask for more ephemeral storage (limits.ephemeralStorage)"
    ),
    "car-stays-at-deadline": (
        "the session reached its time limit of 8 s (DeadlineExceeded); ask for more time"
        " (limits.ttlSeconds)"
    ),
    "car-stays-when-deleted": "the pod was deleted; start the session again",
    "car-stays-when-evicted": (
        "the pod was disrupted: EvictionByEvictionAPI: Eviction API: evicting; start the"
        " session again"
    ),
    "deadline-ends-well": (
        "the session reached its time limit of 8 s (DeadlineExceeded); ask for more time"
        " (limits.ttlSeconds)"
    ),
    "deadline-image": (
        "the session reached its time limit of 4 s (DeadlineExceeded); ask for more time"
        " (limits.ttlSeconds)"
    ),
    "deadline-init": (
        'init container "body-fetch" failed: Error (exit code 137): the session reached its'
        " time limit of 4 s (DeadlineExceeded); ask for more time (limits.ttlSeconds)"
    ),
    "deadline": (
        'container "session" failed: Error (exit code 137): the session reached its time'
        " limit of 4 s (DeadlineExceeded); ask for more time (limits.ttlSeconds)"
    ),
    "deleted-by-force": "pod disappeared: the pod was deleted; start the session again",
    "deleted-ends-well": "the pod was deleted; start the session again",
    "deleted-image": "the pod was deleted; start the session again",
    "deleted-unscheduled": "pod disappeared: the pod was deleted; start the session again",
    "deleted": (
        'container "session" failed: Error (exit code 137): the pod was deleted; start the'
        " session again"
    ),
    "evicted-ends-well": (
        "the pod was disrupted: EvictionByEvictionAPI: Eviction API: evicting; start the"
        " session again"
    ),
    "evicted": (
        'container "session" failed: Error (exit code 137): the pod was disrupted:'
        " EvictionByEvictionAPI: Eviction API: evicting; start the session again"
    ),
    "exit-0": "exited 0",
    "exit-1": 'container "session" failed: Error (exit code 1)',
    "exit-137": (
        'container "session" failed: Error (exit code 137): the container was killed; start'
        " the session again"
    ),
    "exit-143": 'container "session" failed: Error (exit code 143)',
    "exit-3": 'container "session" failed: Error (exit code 3)',
    "image-name": (
        'container "session" cannot start: InvalidImageName: Failed to apply default image'
        ' tag "Telo.Test/None:1": couldn\'t parse image name "Telo.Test/None:1": invalid'
        " reference format: repository name (None) must be lowercase; check the image's name"
    ),
    "image-never-pulled": (
        'container "session" cannot start: ErrImageNeverPull: Container image'
        ' "telo.test/none:1" is not present with pull policy of Never; choose pullPolicy'
        " missing or always, or an image that the node has"
    ),
    "image-pull": (
        'container "session" cannot start: ImagePullBackOff: Back-off pulling image'
        ' "telo.test/none:1": ErrImagePull: failed to pull and unpack image'
        ' "telo.test/none:1": failed to resolve reference "telo.test/none:1": failed to do'
        ' request: Head "…": dial tcp …: connect: connection refused; check the image\'s name'
        " and tag; a private registry needs the operator's pull secret"
        " (RUNNER_IMAGE_PULL_SECRET)"
    ),
    "init-image": (
        'container "body-fetch" cannot start: ImagePullBackOff: Back-off pulling image'
        ' "telo.test/none:1": ErrImagePull: failed to pull and unpack image'
        ' "telo.test/none:1": failed to resolve reference "telo.test/none:1": failed to do'
        ' request: Head "…": dial tcp …: connect: connection refused; the cluster operator'
        " must check RUNNER_INIT_IMAGE"
    ),
    "init-memory": (
        'init container "body-fetch" failed: OOMKilled (exit code 137): the memory limit of'
        " 48Mi was reached; ask for more memory (limits.memory)"
    ),
    "init-no-shell": (
        'init container "body-fetch" failed: StartError (exit code 128): the image has no'
        " shell: RUNNER_INIT_IMAGE needs sh, wget and tar"
    ),
    "init-refused": (
        'init container "body-fetch" failed: Error (exit code 1): the bundle could not be'
        " fetched from the runner (RUNNER_SELF_URL): connection refused"
    ),
    "init-storage": (
        'init container "body-fetch" failed: Error (exit code 137): Evicted: Pod ephemeral'
        " local storage usage exceeds the total limit of containers 32Mi; write less, or ask"
        " for more ephemeral storage (limits.ephemeralStorage)"
    ),
    "memory-of-a-child-0": "exited 0",
    "memory-of-a-child-1": (
        'container "session" failed: OOMKilled (exit code 1): the memory limit of 48Mi was'
        " reached; ask for more memory (limits.memory)"
    ),
    "memory": (
        'container "session" failed: OOMKilled (exit code 137): the memory limit of 48Mi was'
        " reached; ask for more memory (limits.memory)"
    ),
    "native-car-fails": 'container "session" failed: Error (exit code 3)',
    "native-car-image": (
        'container "proxy" cannot start: ErrImageNeverPull: Container image'
        ' "telo.test/none:1" is not present with pull policy of Never; the cluster operator'
        " must check the container that is added to the pod"
    ),
    "native-car": "exited 0",
    "no-bundle": "progress: Preparing the sandbox",
    "no-config-map-key": (
        'container "session" cannot start: CreateContainerConfigError: configmap "none" not'
        " found; the cluster operator must check what the pod refers to"
    ),
    "no-cpu-on-the-node": (
        "OutOfcpu: Pod was rejected: Node didn't have enough resource: cpu; start the session again"
    ),
    "no-cpu": (
        "progress: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu; ask for less"
        " (limits), or the cluster operator must add capacity"
    ),
    "no-node": (
        "progress: Unschedulable: 0/1 nodes are available: 1 node(s) didn't match Pod's node"
        " affinity/selector; the cluster operator must check the cluster's nodes"
    ),
    "no-seccomp-profile": (
        'container "session" cannot start: CreateContainerError: failed to create containerd'
        ' container: cannot load seccomp profile "…": open …: no such file or directory; the'
        " cluster operator must check what the pod refers to"
    ),
    "no-secret-key": (
        'container "session" cannot start: CreateContainerConfigError: secret "none" not'
        " found; the cluster operator must check what the pod refers to"
    ),
    "no-shell": (
        'container "session" failed: StartError (exit code 128): the image has no shell:'
        " inline delivery of the bundle (RUNNER_BUNDLE_DELIVERY) needs sh and tar in the"
        " image"
    ),
    "no-telo-fetched": (
        'container "session" failed: StartError (exit code 128): the image has no telo'
        " command; choose another image"
    ),
    "no-telo": (
        'container "session" failed: Error (exit code 127): the image has no telo command;'
        " choose another image"
    ),
    "not-this-node": (
        "NodeAffinity: Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match"
        " Pod's node affinity/selector; start the session again"
    ),
    "root-image": (
        'container "session" cannot start: CreateContainerConfigError: container has'
        " runAsNonRoot and image will run as root; choose an image that names a user by"
        " number, other than 0 (root)"
    ),
    "storage-of-a-volume": (
        'container "session" failed: Error (exit code 137): Evicted: Usage of EmptyDir volume'
        ' "work" exceeds the limit "8Mi"; write less, or ask for more ephemeral storage'
        " (limits.ephemeralStorage)"
    ),
    "storage": (
        'container "session" failed: Error (exit code 137): Evicted: Pod ephemeral local'
        " storage usage exceeds the total limit of containers 32Mi; write less, or ask for"
        " more ephemeral storage (limits.ephemeralStorage)"
    ),
    "node-lost": "pod disappeared: the node that ran the session is lost; start the session again",
    "node-pressure-on-arrival": (
        "Evicted: Pod was rejected: The node had condition: [DiskPressure]; start the session again"
    ),
    "node-pressure": (
        'container "session" failed: Error (exit code 137): Evicted: The node was low on'
        " resource: memory. Container session was using 47Mi, request is 48Mi, has larger"
        " consumption of memory; start the session again"
    ),
    "node-removed": (
        "the pod was disrupted: DeletionByPodGC: PodGC: node no longer exists; start the"
        " session again"
    ),
    "node-shutdown": (
        'container "session" failed: Error (exit code 137): Terminated: Pod was terminated in'
        " response to imminent node shutdown; start the session again"
    ),
    "preempted": (
        'container "session" failed: Error (exit code 137): the pod was disrupted:'
        " PreemptionByScheduler: default-scheduler: preempting to accommodate a higher"
        " priority pod; start the session again"
    ),
    "tainted": (
        'container "session" failed: Error (exit code 137): the pod was disrupted:'
        " DeletionByTaintManager: Taint manager: deleting due to NoExecute taint; start the"
        " session again"
    ),
    "unknown": "the node that ran the session is lost; start the session again",
}

REFUSED = {
    "refused-quota-pods": (
        "the session namespace's resource quota is exhausted (Forbidden, HTTP 403)."
    ),
    "refused-quota-memory": (
        "the session namespace's resource quota is exhausted (Forbidden, HTTP 403)."
    ),
    "refused-pod-security": (
        "the session namespace's Pod Security level refuses this pod (Forbidden, HTTP 403)."
    ),
    "refused-limit-range": "the Kubernetes API rejected the request (Forbidden, HTTP 403).",
    "refused-runtime-class": "the Kubernetes API rejected the request (Forbidden, HTTP 403).",
    "refused-role": (
        "the runner is not permitted to do this (Forbidden, HTTP 403). The cluster operator must "
        "check the runner's RBAC, and that the session namespace (RUNNER_SESSION_NAMESPACE) exists."
    ),
}

ALL = [pytest.param(recording, id=recording.name) for recording in recordings()]


def recorded(name: str) -> Recording:
    return load(RECORDED / f"{name}.json")


def test_every_case_is_recorded_and_every_recording_has_its_sentence() -> None:
    by_hand = {path.stem for path in HANDMADE.glob("*.json")}
    assert {path.stem for path in RECORDED.glob("*.json")} == set(CASES) | set(REFUSALS)
    assert set(SENTENCES) == set(CASES) | by_hand
    assert set(REFUSED) == set(REFUSALS)


@pytest.mark.parametrize("recording", ALL)
def test_a_client_reads_this_sentence(recording: Recording) -> None:
    assert sentence(recording) == SENTENCES[recording.name]


@pytest.mark.parametrize("recording", ALL)
def test_no_step_is_told_as_another_end(recording: Recording) -> None:
    """A runner may miss any of the steps; what it sees must never make it tell something else."""
    assert len(set(verdicts(recording))) <= 1


@pytest.mark.parametrize("recording", ALL)
def test_nothing_internal_is_told(recording: Recording) -> None:
    for _, _, pod in recording:
        ended, block = failures.outcome(pod), failures.block(pod)
        step, own_end = progress.step(pod), failures.own_end(pod)
        told = [
            ended.message if ended else None,
            own_end.message if own_end else None,
            block.message if block else None,
            step.message if step else None,
            failures.disappeared(pod).message,
        ]
        for text in filter(None, told):
            assert not re.search(
                r"://|\d+\.\d+\.\d+\.\d+|/var/|/run/|node-1|sessions_|0000-0000|c0ffee|containerd:",
                text,
            ), text


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_told_without_the_apis_words(name: str) -> None:
    answer = recorded(name).content
    failure = from_status(answer["httpStatus"], answer["status"], "create pods")
    operation = "create: could not create the session pod"
    assert describe(failure, operation) == f"{operation}: {REFUSED[name]}"


def test_a_session_ends_though_an_injected_container_goes_on() -> None:
    for name, end in (
        ("car-after-stays", exited(0)),
        ("car-image", exited(0)),
        ("car-before-stays", None),
    ):
        last = recorded(name).pods[-1]
        assert failures.outcome(last) is None
        assert failures.own_end(last) == (end or verdicts(recorded(name))[0])


@pytest.mark.parametrize(
    "name",
    ["deadline", "car-stays-at-deadline", "car-stays-when-deleted", "car-stays-when-evicted"],
)
def test_what_ends_a_pod_as_a_whole_is_no_end_of_the_containers_own(name: str) -> None:
    assert all(failures.own_end(pod) is None for pod in recorded(name).pods)


def test_a_kubelet_that_has_decided_is_waited_for_though_containers_still_run() -> None:
    """At a time limit it tells so by the Ready condition, seconds before the phase."""
    pods = recorded("car-stays-at-deadline").pods
    (decided,) = [pod for pod in pods[:-1] if reading.condition(pod, "Ready").get("reason")][-1:]
    statuses = recorded("car-stays-at-deadline").pods[-1]["status"]["containerStatuses"]
    session = next(status for status in statuses if status["name"] == "session")
    others = [
        status for status in decided["status"]["containerStatuses"] if status["name"] != "session"
    ]
    # As a kubelet that reports each container by itself would show it.
    mixed = {**decided, "status": {**decided["status"], "containerStatuses": [session, *others]}}
    assert failures.has_terminated(mixed)
    assert failures.own_end(mixed) is None


def test_a_time_limit_that_only_ended_a_container_beside_the_session_is_none_of_its() -> None:
    last = recorded("car-stays-at-deadline").pods[-1]
    earlier = _with_session(last, finishedAt="2026-01-01T00:00:05Z")
    assert failures.outcome(earlier) == exited(0)
    assert causes.pod_cause(last).startswith("the session reached its time limit of 8 s")


def test_a_killed_child_of_a_session_that_ended_well_is_told_beside_it() -> None:
    assert failures.remark(recorded("memory-of-a-child-0").pods[-1]) == (
        "A process of the session was killed: the memory limit of 48Mi was reached; ask for more "
        "memory (limits.memory)"
    )


def test_the_refusals_are_those_that_were_recorded() -> None:
    assert {refusal.name for refusal in refusals()} == set(REFUSALS)


def _with_session(pod: dict[str, Any], **ended: Any) -> dict[str, Any]:
    statuses = [
        {**status, "state": {"terminated": {**status["state"]["terminated"], **ended}}}
        if status["name"] == "session"
        else status
        for status in pod["status"]["containerStatuses"]
    ]
    return {**pod, "status": {**pod["status"], "containerStatuses": statuses}}
