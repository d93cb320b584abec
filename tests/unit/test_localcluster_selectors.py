"""Label and field selectors, and patches, of the local cluster."""

from typing import Any

import pytest

from telorunner.localcluster.patching import apply_patch
from telorunner.localcluster.selectors import selector
from telorunner.localcluster.store import StoreError

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"


def make_pod(phase: str = "Running", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "one", "namespace": "apps", "labels": labels},
        "spec": {"nodeName": "local"},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("text", "labels", "is_selected"),
    [
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "b"}, True),
        ("a=b", {"a": "c"}, False),
        ("a=b", {}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("!a", {"a": "b"}, False),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b,c)", {"a": "d"}, False),
        ("a notin (b,c)", {}, True),
        ("a notin (b,c)", {"a": "b"}, False),
        ("telo.run/session-id=x,app=y", {"telo.run/session-id": "x", "app": "y"}, True),
        ("telo.run/session-id=x,app=y", {"telo.run/session-id": "x"}, False),
        ("a=", {"a": ""}, True),
        ("a=,b", {"a": "", "b": "x"}, True),
        ("n>3", {"n": "4"}, True),
        ("n>3", {"n": "x"}, False),
        ("n<3", {"n": "2"}, True),
    ],
)
def test_a_label_selector_selects(text: str, labels: dict[str, str], is_selected: bool) -> None:
    matches = selector("pods", text, "")
    assert matches is not None
    assert matches(make_pod(**labels)) is is_selected


@pytest.mark.parametrize(
    ("text", "is_selected"),
    [
        ("metadata.name=one", True),
        ("metadata.name!=one", False),
        ("metadata.namespace=apps,status.phase=Running", True),
        ("status.phase!=Succeeded,status.phase!=Failed", True),
        ("spec.nodeName=", False),
    ],
)
def test_a_field_selector_selects(text: str, is_selected: bool) -> None:
    matches = selector("pods", "", text)
    assert matches is not None
    assert matches(make_pod()) is is_selected


def test_events_are_selected_by_what_they_are_about() -> None:
    matches = selector("events", "", "involvedObject.uid=u,source=kubelet")
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"uid": "u"},
        "source": {"component": "kubelet"},
    }
    assert matches is not None
    assert matches(event)


def test_no_selector_selects_everything() -> None:
    assert selector("pods", "", "") is None


@pytest.mark.parametrize("text", ["a b c", "a=b c", "a in b", "=", "a=b,", "a=-b", "!"])
def test_a_label_selector_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(StoreError) as refused:
        selector("pods", text, "")
    assert refused.value.status_code == 400


def test_a_field_that_cannot_be_selected_is_refused() -> None:
    with pytest.raises(StoreError, match=r"field label not supported: spec\.foo"):
        selector("pods", "", "spec.foo=b")
    with pytest.raises(StoreError, match="invalid selector: 'b'; can't understand 'b'"):
        selector("pods", "", "b")


def patched(content_type: str, obj: dict[str, Any], body: bytes) -> dict[str, Any]:
    return apply_patch(content_type, obj, body)[0]


def test_a_merge_patch_sets_and_removes() -> None:
    old = {"metadata": {"labels": {"a": "1", "b": "2"}}, "data": {"x": "y"}}
    body = b'{"metadata":{"labels":{"a":null,"c":"3"}},"data":null}'
    assert patched(MERGE, old, body) == {"metadata": {"labels": {"b": "2", "c": "3"}}}
    assert old["data"] == {"x": "y"}


def test_a_strategic_patch_merges_lists_by_their_key() -> None:
    old = {"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}}
    body = b'{"metadata":{"ownerReferences":[{"uid":"1","kind":"Pod"},{"uid":"2","name":"b"}]}}'
    assert patched(STRATEGIC, old, body) == {
        "metadata": {
            "ownerReferences": [
                {"uid": "1", "name": "a", "kind": "Pod"},
                {"uid": "2", "name": "b"},
            ]
        }
    }


def test_a_strategic_patch_takes_members_out() -> None:
    old = {"metadata": {"ownerReferences": [{"uid": "1"}, {"uid": "2"}]}}
    body = b'{"metadata":{"ownerReferences":[{"uid":"1","$patch":"delete"}]}}'
    assert patched(STRATEGIC, old, body) == {"metadata": {"ownerReferences": [{"uid": "2"}]}}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (b'{"op":"add","path":"/m/c","value":1}', {"m": {"a~b/c": 0, "c": 1}, "l": [1, 2]}),
        (b'{"op":"add","path":"/l/-","value":3}', {"m": {"a~b/c": 0}, "l": [1, 2, 3]}),
        (b'{"op":"add","path":"/l/0","value":3}', {"m": {"a~b/c": 0}, "l": [3, 1, 2]}),
        (b'{"op":"replace","path":"/l/0","value":3}', {"m": {"a~b/c": 0}, "l": [3, 2]}),
        (b'{"op":"remove","path":"/m/a~0b~1c"}', {"m": {}, "l": [1, 2]}),
        (b'{"op":"move","from":"/l","path":"/m/l"}', {"m": {"a~b/c": 0, "l": [1, 2]}}),
        (b'{"op":"copy","from":"/l/1","path":"/n"}', {"m": {"a~b/c": 0}, "l": [1, 2], "n": 2}),
        (b'{"op":"test","path":"/l/1","value":2}', {"m": {"a~b/c": 0}, "l": [1, 2]}),
    ],
)
def test_a_json_patch_does_each_operation(operation: bytes, expected: dict[str, Any]) -> None:
    assert patched(JSON, {"m": {"a~b/c": 0}, "l": [1, 2]}, b"[" + operation + b"]") == expected


@pytest.mark.parametrize(
    "operation",
    [
        b'{"op":"test","path":"/a","value":2}',
        b'{"op":"remove","path":"/nope"}',
        b'{"op":"dance","path":"/a"}',
        b'{"op":"add","path":"/a/b/c","value":1}',
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_refused(operation: bytes) -> None:
    with pytest.raises(StoreError) as refused:
        apply_patch(JSON, {"a": 1}, b"[" + operation + b"]")
    assert refused.value.status_code == 422


def test_another_kind_of_patch_is_refused() -> None:
    with pytest.raises(StoreError) as refused:
        apply_patch("application/json", {}, b"{}")
    assert refused.value.status_code == 415
