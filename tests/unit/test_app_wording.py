"""What is said about the pods of catalog apps, whose image and limits the operator chose."""

from typing import Any

import pytest

from sessions.pods.failures import block, outcome
from sessions.pods.progress import step
from sessions.pods.wording import told
from sessions.spec import failed
from tests.unit.pods import condition, pod, terminated, waiting

LABELS = {"labels": {"telo.run/app": "code-helper"}}
CHECK = "the cluster operator must check the app's image"
NO_SH = 'exec: "sh": executable file not found in $PATH: unknown'


def app_pod(phase: str, *containers: dict[str, Any], **status: Any) -> dict[str, Any]:
    return pod(phase, *containers, metadata=LABELS, **status)


@pytest.mark.parametrize(
    ("reason", "message", "advice"),
    [
        (
            "CreateContainerConfigError",
            "container has runAsNonRoot and image will run as root",
            "the cluster operator must give the app an image that names a user by number, other "
            "than 0 (root), or set its allow_root",
        ),
        (
            "CreateContainerConfigError",
            "container has runAsNonRoot and image has non-numeric user (node), cannot verify user "
            "is non-root",
            "the cluster operator must give the app an image that names a user by number, other "
            "than 0 (root), or set its allow_root",
        ),
        (
            "CreateContainerConfigError",
            "because",
            "the cluster operator must check what the pod refers to",
        ),
        (
            "ErrImageNeverPull",
            "because",
            "the cluster operator must set the app's pull policy to missing or always, or give it "
            "an image that the node has",
        ),
        ("InvalidImageName", "because", CHECK),
        (
            "ImagePullBackOff",
            "because",
            f"{CHECK} and tag; a private registry needs the pull secret (RUNNER_IMAGE_PULL_SECRET)",
        ),
        ("ImageInspectError", "because", CHECK),
        # No fixed text of the runner's needs a shell in an app's image.
        (
            "CreateContainerError",
            NO_SH,
            "the cluster operator must check what the pod refers to",
        ),
    ],
)
def test_a_wait_says_what_the_operator_can_do(reason: str, message: str, advice: str) -> None:
    blocked = block(app_pod("Pending", waiting(reason, message)))
    assert blocked is not None
    assert blocked.message == f'container "session" cannot start: {reason}: {message}; {advice}'


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (
            app_pod("Failed", terminated(137, "OOMKilled")),
            'container "session" failed: OOMKilled (exit code 137): the memory limit of 512Mi was '
            "reached; the cluster operator may allow apps more memory (RUNNER_APP_MAX_MEMORY)",
        ),
        (
            app_pod("Failed", reason="DeadlineExceeded", containerStatuses=None),
            "the session reached its time limit of 60 s (DeadlineExceeded); the cluster operator "
            "may allow apps more time (RUNNER_APP_MAX_TTL_SECONDS)",
        ),
        (
            app_pod("Failed", reason="Evicted", message="exceeded its ephemeral storage"),
            "Evicted: exceeded its ephemeral storage; write less, or the cluster operator may "
            "allow apps more ephemeral storage (RUNNER_APP_MAX_EPHEMERAL_STORAGE)",
        ),
        (
            app_pod("Failed", terminated(128, "StartError", message=NO_SH)),
            'container "session" failed: StartError (exit code 128): the image has no sh command; '
            + CHECK,
        ),
        (
            app_pod("Failed", terminated(1, message="the image has no luck")),
            'container "session" failed: Error (exit code 1): the image has no luck',
        ),
    ],
)
def test_an_end_says_what_the_operator_can_do(seen: dict[str, Any], message: str) -> None:
    assert outcome(seen) == failed(message)


def test_a_full_cluster_is_the_operators_matter() -> None:
    unschedulable = condition(
        "PodScheduled", "False", reason="Unschedulable", message="1 Insufficient cpu."
    )
    seen = app_pod("Pending", spec={"nodeName": None}, conditions=[unschedulable])
    found = step(seen)
    assert found is not None
    assert found.message == (
        "Unschedulable: 1 Insufficient cpu; the cluster operator must add capacity, or allow apps "
        "less (RUNNER_APP_MAX_*)"
    )


@pytest.mark.parametrize(
    ("image", "said", "read"),
    [
        (
            "registry.example:5000/team/helper:1.2",
            'failed to pull and unpack image "registry.example:5000/team/helper:1.2": failed to '
            'resolve reference "registry.example:5000/team/helper:1.2": not found',
            'failed to pull and unpack image "…": failed to resolve reference "…": not found',
        ),
        (
            "helper",
            'Back-off pulling image "helper": failed to resolve "docker.io/library/helper:latest"',
            'Back-off pulling image "…": failed to resolve "…"',
        ),
        (
            "registry.example/helper:1",
            "lookup registry.example: no such host",
            "lookup …: no such host",
        ),
        (
            "registry.example:5000/helper:1",
            "dial tcp: lookup registry.example on 10.0.0.1:53: no such host.",
            "dial tcp: lookup … on …: no such host.",
        ),
        (
            "registry:5000/helper",
            "Get registry:5000/v2: lookup registry: no such host",
            "Get …/v2: lookup …: no such host",
        ),
        (
            "team/helper",
            "pull access denied for team/helper, repository does not exist",
            "pull access denied for …, repository does not exist",
        ),
        (
            "team/helper:1",
            "index.docker.io/team/helper:1: team/helper is private",
            "index.docker.io/…: … is private",
        ),
        (
            "helper:1",
            "pull access denied for helper, repository does not exist",
            "pull access denied for …, repository does not exist",
        ),
        (
            "registry.example/team/helper@sha256:" + "0" * 64,
            f"registry.example/team/helper@sha256:{'0' * 64}: repository team/helper not found",
            "…: repository … not found",
        ),
        ("No Image", 'couldn\'t parse image name "No Image"', 'couldn\'t parse image name "…"'),
    ],
)
def test_the_image_of_an_app_is_not_told(image: str, said: str, read: str) -> None:
    assert told(pod(spec=spec_of(image), metadata=LABELS), said) == read


def test_an_image_whose_name_begins_with_the_namespaces_is_not_told() -> None:
    metadata = {**LABELS, "namespace": "telo"}
    seen = pod(spec=spec_of("telo/helper:1"), metadata=metadata)
    assert told(seen, 'pod telo/x: pulling "telo/helper:1"') == 'pod x: pulling "…"'


def test_a_client_that_chose_its_image_by_itself_is_told_its_name() -> None:
    said = 'pulling "registry.example/helper:1": lookup registry.example: no such host'
    spec = spec_of("registry.example/helper:1")
    assert told(pod(spec=spec), said) == said
    assert told(pod(spec=spec, metadata=LABELS), said) != said


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("node", "0/3 nodes are available: 1 node is full."),
        ("node", 'exec: "node": executable file not found in $PATH'),
        ("node", 'quoted "no-node" and "node-18"'),
        ("team/helper:1", "lookup docker.io: no such host"),
        ("team/helper:1", "other-team/helper:1 and team/helper-2:1"),
        ("a:1", "data:1, a:12 and a:1.5"),
        ("node:5000/a", "0/3 nodes are available: host my.node, node.example"),
    ],
)
def test_what_only_looks_like_the_image_of_an_app_is_told_whole(image: str, said: str) -> None:
    assert told(pod(spec=spec_of(image), metadata=LABELS), said) == said


def spec_of(image: str) -> dict[str, Any]:
    return {"containers": [{"name": "session", "image": image}]}
