"""What a pod waits for, in the words that the product reads: images, values, room on a node."""

import re

import pytest

from tests.conformance.client import Api
from tests.conformance.pods import (
    ABSENT_IMAGE,
    Story,
    conditions_of,
    is_in_order,
    shape,
    state_of,
    status_of,
)

Stories = dict[str, Story]

INVALID = 'Failed to apply default image tag "{0}": couldn\'t parse image name "{0}": '
UNRESOLVED = (
    f'failed to pull and unpack image "{ABSENT_IMAGE}":'
    f' failed to resolve reference "{ABSENT_IMAGE}": '
)
NOT_HELPFUL = (
    "no new claims to deallocate, preemption: 0/1 nodes are available:"
    " 1 Preemption is not helpful for scheduling."
)


def test_an_absent_image_is_tried_and_then_waited_for(stories: Stories) -> None:
    story = stories["absent"]
    steps = [
        ("Pending", ""),
        ("Pending", "ContainerCreating"),
        ("Pending", "ErrImagePull"),
        ("Pending", "ImagePullBackOff"),
    ]
    assert is_in_order(story.told(), steps)
    states = [state_of(one.object).get("waiting", {}) for one in story.changes]
    tried = next(one for one in states if one.get("reason") == "ErrImagePull")["message"]
    assert tried.startswith(UNRESOLVED)
    # The rest of it is the registry's.
    assert len(tried) > len(UNRESOLVED)
    backed_off = states[-1]["message"]
    assert backed_off == f'Back-off pulling image "{ABSENT_IMAGE}": ErrImagePull: {tried}'


@pytest.mark.parametrize(
    ("name", "reason", "message"),
    [
        (
            "never",
            "ErrImageNeverPull",
            f'Container image "{ABSENT_IMAGE}" is not present with pull policy of Never',
        ),
        (
            "misnamed",
            "InvalidImageName",
            INVALID.format("telo.test/UPPER:1")
            + "invalid reference format: repository name (UPPER) must be lowercase",
        ),
        (
            "malformed",
            "InvalidImageName",
            INVALID.format("telo.test/a b:1") + "invalid reference format",
        ),
        ("no-config-map", "CreateContainerConfigError", 'configmap "gone" not found'),
        ("no-secret", "CreateContainerConfigError", 'secret "gone" not found'),
        (
            "no-key",
            "CreateContainerConfigError",
            "couldn't find key k in ConfigMap {namespace}/kube-root-ca.crt",
        ),
        (
            "root-image",
            "CreateContainerConfigError",
            'container has runAsNonRoot and image will run as root (pod: "{pod}", container: main)',
        ),
        (
            "root-user",
            "CreateContainerConfigError",
            'container\'s runAsUser breaks non-root policy (pod: "{pod}", container: main)',
        ),
    ],
)
def test_what_a_container_waits_for_is_told_in_a_reason_and_a_message(
    stories: Stories, name: str, reason: str, message: str
) -> None:
    story = stories[name]
    metadata = story.last["metadata"]
    shown = f"{name}_{metadata['namespace']}({metadata['uid']})"
    expected = message.format(namespace=metadata["namespace"], pod=shown)
    assert state_of(story.last) == {"waiting": {"reason": reason, "message": expected}}
    steps = [("Pending", ""), ("Pending", "ContainerCreating"), ("Pending", reason)]
    assert is_in_order(story.told(), steps)


def test_a_container_that_waits_has_no_identity_yet(stories: Stories) -> None:
    for name in ("never", "misnamed", "absent"):
        pod = stories[name].last
        status = status_of(pod)
        assert shape({key: value for key, value in status.items() if key != "state"}) == {
            "name": "main",
            "lastState": {},
            "ready": False,
            "restartCount": 0,
            "image": pod["spec"]["containers"][0]["image"],
            "imageID": "",
            "started": False,
        }
        told = conditions_of(pod)
        message = "containers with unready status: [main]"
        assert told["PodReadyToStartContainers"] == ("True",), "the sandbox is there"
        assert told["Ready"] == ("False", "ContainersNotReady", message)
        assert re.fullmatch(r"\d+(\.\d+){3}", pod["status"]["podIP"])


@pytest.mark.parametrize(
    ("name", "obstacle"),
    [
        ("too-big", "1 Insufficient cpu"),
        ("too-big-twice", "1 Insufficient cpu, 1 Insufficient memory"),
        ("nowhere", "1 node(s) didn't match Pod's node affinity/selector"),
    ],
)
def test_a_pod_without_a_node_says_why_in_a_condition(
    stories: Stories, name: str, obstacle: str
) -> None:
    pod = stories[name].last
    message = f"0/1 nodes are available: {obstacle}. {NOT_HELPFUL}"
    condition = {
        "type": "PodScheduled",
        "observedGeneration": 1,
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": "TIME",
        "reason": "Unschedulable",
        "message": message,
    }
    status = shape(pod["status"])
    status.pop("qosClass")
    assert status == {"phase": "Pending", "conditions": [condition]}
    assert "nodeName" not in pod["spec"]


def test_a_pod_whose_volume_is_missing_only_waits(stories: Stories) -> None:
    pod = stories["unmounted"].last
    assert state_of(pod) == {"waiting": {"reason": "ContainerCreating"}}
    assert conditions_of(pod)["PodReadyToStartContainers"] == ("False",)
    assert "podIP" not in pod["status"]


async def test_the_quality_of_service_follows_from_the_resources(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    found = {}
    for name, resources in (
        ("none", {}),
        ("some", {"requests": {"cpu": "10m"}}),
        ("half", {"limits": {"cpu": "10m"}}),
        ("all", {"limits": {"cpu": "10m", "memory": "16Mi"}}),
    ):
        container = {"name": "main", "image": ABSENT_IMAGE, "resources": resources}
        spec = {"containers": [container], "nodeSelector": {"telo.test/no": "a"}}
        pod = {"metadata": {"name": name}, "spec": spec}
        found[name] = (await api.ask("POST", path, pod))["status"]["qosClass"]
    assert found == {
        "none": "BestEffort",
        "some": "Burstable",
        "half": "Burstable",
        "all": "Guaranteed",
    }
