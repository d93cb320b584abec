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
        ("team/helper:1", "lookup docker.io: no such host", "lookup docker.io: no such host"),
        ("No Image", 'couldn\'t parse image name "No Image"', 'couldn\'t parse image name "…"'),
    ],
)
def test_the_image_of_an_app_is_not_told(image: str, said: str, read: str) -> None:
    spec = {"containers": [{"name": "session", "image": image}]}
    assert told(pod(spec=spec, metadata=LABELS), said) == read
    # A client that chose its image by itself needs its name.
    assert told(pod(spec=spec), said) == said
