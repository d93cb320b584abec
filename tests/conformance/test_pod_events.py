"""The Event objects about pods: who says what about which container, and in which form."""

import re

import pytest

from tests.conformance.client import Object
from tests.conformance.pods import ABSENT_IMAGE, Story, image_of
from tests.conformance.test_pod_ends import START_FAILED
from tests.conformance.test_pod_waits import NOT_HELPFUL

Stories = dict[str, Story]

PRESENT = 'Container image "{image}" already present on machine'


def find_event(story: Story, reason: str) -> Object:
    return next(one for one in story.events if one["reason"] == reason)


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("succeeds", ["Pulled", "Created", "Started"]),
        ("no-command", ["Pulled", "Created", "Failed"]),
        ("absent", ["Pulling", "Failed", "BackOff"]),
        ("never", ["ErrImageNeverPull", "Failed"]),
        ("misnamed", ["InspectFailed", "Failed"]),
        ("no-config-map", ["Pulled", "Failed"]),
        ("late", ["Pulled", "Created", "Started", "DeadlineExceeded", "Killing"]),
        ("unmounted", ["FailedMount"]),
    ],
)
def test_a_kubelet_records_events_in_this_order(
    stories: Stories, name: str, reasons: list[str]
) -> None:
    # Those of one second have no order of their own.
    found = stories[name].reasons("kubelet")
    assert sorted(found) == sorted(reasons)
    for reason in reasons[:-1]:
        first, last = find_event(stories[name], reason), find_event(stories[name], reasons[-1])
        assert first["firstTimestamp"] <= last["lastTimestamp"]


@pytest.mark.parametrize(
    ("name", "reason", "type_", "messages"),
    [
        ("succeeds", "Pulled", "Normal", {PRESENT}),
        ("succeeds", "Created", "Normal", {"Created container: main"}),
        ("succeeds", "Started", "Normal", {"Started container main"}),
        (
            "no-command",
            "Failed",
            "Warning",
            {
                f'Error: {START_FAILED}exec: "nope": executable file not found in $PATH: unknown',
            },
        ),
        ("absent", "Pulling", "Normal", {f'Pulling image "{ABSENT_IMAGE}"'}),
        ("absent", "BackOff", "Normal", {f'Back-off pulling image "{ABSENT_IMAGE}"'}),
        (
            "never",
            "ErrImageNeverPull",
            "Warning",
            {f'Container image "{ABSENT_IMAGE}" is not present with pull policy of Never'},
        ),
        ("never", "Failed", "Warning", {"Error: ErrImageNeverPull"}),
        ("misnamed", "Failed", "Warning", {"Error: InvalidImageName"}),
        ("no-config-map", "Failed", "Warning", {'Error: configmap "gone" not found'}),
        (
            "late",
            "DeadlineExceeded",
            "Normal",
            {"Pod was active on the node longer than the specified deadline"},
        ),
        ("late", "Killing", "Normal", {"Stopping container main"}),
        ("sidecar", "Killing", "Normal", {"Stopping container side"}),
        (
            "unmounted",
            "FailedMount",
            "Warning",
            {'MountVolume.SetUp failed for volume "v" : configmap "gone" not found'},
        ),
        (
            "too-big",
            "FailedScheduling",
            "Warning",
            {f"0/1 nodes are available: 1 Insufficient cpu. {NOT_HELPFUL}"},
        ),
    ],
)
def test_an_event_says_what_happened(
    stories: Stories, name: str, reason: str, type_: str, messages: set[str]
) -> None:
    story = stories[name]
    image = image_of(story.last)
    assert story.messages(reason) == {one.replace("{image}", image) for one in messages}
    assert {one["type"] for one in story.events if one["reason"] == reason} == {type_}


def test_a_failed_pull_is_told_three_times_in_other_words(stories: Stories) -> None:
    messages = stories["absent"].messages("Failed")
    assert {"Error: ErrImagePull", "Error: ImagePullBackOff"} < messages
    wholes = messages - {"Error: ErrImagePull", "Error: ImagePullBackOff"}
    # One for each attempt, where a resolver tells it in other words.
    assert wholes
    for whole in wholes:
        assert whole.startswith(f'Failed to pull image "{ABSENT_IMAGE}": failed to pull and unpack')


def test_an_event_names_the_pod_and_the_container(stories: Stories) -> None:
    for name, reason, field_path in (
        ("succeeds", "Started", "spec.containers{main}"),
        ("sidecar", "Killing", "spec.initContainers{side}"),
        ("late", "DeadlineExceeded", None),
        ("succeeds", "Scheduled", None),
    ):
        story = stories[name]
        metadata = story.last["metadata"]
        involved = dict(find_event(story, reason)["involvedObject"])
        assert involved.pop("resourceVersion").isdigit()
        expected = {
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": name,
            "uid": metadata["uid"],
            "apiVersion": "v1",
        }
        assert involved == expected | ({"fieldPath": field_path} if field_path else {})


def test_a_kubelets_event_has_the_older_form(stories: Stories) -> None:
    story = stories["succeeds"]
    event = find_event(story, "Started")
    node = story.last["spec"]["nodeName"]
    assert re.fullmatch(r"succeeds\.[0-9a-f]{16}", event["metadata"]["name"])
    assert event["firstTimestamp"] == event["lastTimestamp"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", event["firstTimestamp"])
    assert event["source"] == {"component": "kubelet", "host": node}
    assert (event["count"], event["eventTime"]) == (1, None)
    assert (event["reportingComponent"], event["reportingInstance"]) == ("kubelet", node)
    assert "action" not in event


def test_a_schedulers_event_has_the_newer_form(stories: Stories) -> None:
    story = stories["succeeds"]
    namespace, node = story.last["metadata"]["namespace"], story.last["spec"]["nodeName"]
    event = find_event(story, "Scheduled")
    assert event["message"] == f"Successfully assigned {namespace}/succeeds to {node}"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event["eventTime"])
    assert (event["firstTimestamp"], event["lastTimestamp"]) == (None, None)
    assert (event["source"], event["action"]) == ({}, "Binding")
    assert "count" not in event
    assert event["reportingComponent"] == "default-scheduler"
    assert event["reportingInstance"].startswith("default-scheduler-")
    assert find_event(stories["too-big"], "FailedScheduling")["action"] == "Scheduling"
