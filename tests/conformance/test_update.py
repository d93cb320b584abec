"""Replacing and patching objects: conflicts, what may not change, the kinds of patch."""

import pytest

from tests.conformance.client import Api, Object
from tests.conformance.objects import (
    check_refusal,
    make_configmap,
    make_failure,
    make_invalid,
    make_pod,
)
from tests.conformance.words import NOT_A_LABEL_VALUE

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
MODIFIED = (
    'Operation cannot be fulfilled on configmaps "one": the object has been modified; please apply'
    " your changes to the latest version and try again"
)
IMMUTABLE = "Forbidden: field is immutable when `immutable` is set"
REJECTED = make_failure(
    422, "Invalid", "the server rejected our request due to an error in our request", {}
)


def conflict(why: str) -> Object:
    return make_failure(409, "Conflict", why, {"name": "one", "kind": "configmaps"})


@pytest.fixture
async def maps(namespace: str) -> str:
    """The path of the namespace's ConfigMaps."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
async def one(api: Api, maps: str) -> Object:
    """A ConfigMap that is there."""
    made: Object = await api.ask("POST", maps, make_configmap())
    return made


async def test_a_replacement_keeps_what_the_api_gave(api: Api, maps: str, one: Object) -> None:
    changed = await api.ask("PUT", f"{maps}/one", {**one, "data": {"a": "c"}})
    assert changed["data"] == {"a": "c"}
    for field in ("uid", "creationTimestamp"):
        assert changed["metadata"][field] == one["metadata"][field]
    assert int(changed["metadata"]["resourceVersion"]) > int(one["metadata"]["resourceVersion"])


async def test_a_replacement_that_changes_nothing_leaves_the_version(
    api: Api, maps: str, one: Object
) -> None:
    same = await api.ask("PUT", f"{maps}/one", one)
    assert same["metadata"]["resourceVersion"] == one["metadata"]["resourceVersion"]


async def test_a_replacement_of_an_older_version_is_a_conflict(
    api: Api, maps: str, one: Object
) -> None:
    await api.ask("PUT", f"{maps}/one", {**one, "data": {"a": "c"}})
    for stale in ({**one, "data": {"a": "d"}}, one):
        check_refusal(await api.request("PUT", f"{maps}/one", stale), conflict(MODIFIED))
    patch = {"metadata": {"resourceVersion": one["metadata"]["resourceVersion"]}}
    answer = await api.request("PATCH", f"{maps}/one", patch, content_type=MERGE)
    check_refusal(answer, conflict(MODIFIED))


@pytest.mark.parametrize("version", [None, "", "0"])
async def test_a_replacement_without_a_version_always_wins(
    api: Api, maps: str, one: Object, version: str | None
) -> None:
    metadata = {} if version is None else {"resourceVersion": version}
    body = make_configmap(data={"a": "mine"}, **metadata)
    assert (await api.ask("PUT", f"{maps}/one", body))["data"] == {"a": "mine"}


async def test_a_version_that_is_no_number_is_told(api: Api, maps: str, one: Object) -> None:
    answer = await api.request("PUT", f"{maps}/one", make_configmap(resourceVersion="x"))
    message = 'strconv.ParseUint: parsing "x": invalid syntax'
    check_refusal(answer, make_failure(500, "", message))


async def test_another_uid_is_a_conflict_in_a_replacement_and_a_fault_in_a_patch(
    api: Api, maps: str, namespace: str, one: Object
) -> None:
    why = (
        'Operation cannot be fulfilled on configmaps "one": StorageError: invalid object, Code: 4,'
        f" Key: /registry/configmaps/{namespace}/one, ResourceVersion: 0, AdditionalErrorMsg:"
        " Precondition failed: UID in precondition: x, UID in object meta:"
        f" {one['metadata']['uid']}"
    )
    answer = await api.request("PUT", f"{maps}/one", make_configmap(uid="x"))
    check_refusal(answer, conflict(why))
    patch = {"metadata": {"uid": "x"}}
    answer = await api.request("PATCH", f"{maps}/one", patch, content_type=MERGE)
    fault = ("Invalid", "metadata.uid", 'Invalid value: "x": field is immutable')
    check_refusal(answer, make_invalid("ConfigMap", "one", fault, fault))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (
            {"name": "two"},
            "the name of the object (two) does not match the name on the URL (one)",
        ),
        (
            {},
            "the name of the object (one based on URL) was undeterminable: name must be provided",
        ),
        (
            {"name": "one", "namespace": "other"},
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ],
)
async def test_a_replacement_of_something_else_is_refused(
    api: Api, maps: str, one: Object, metadata: Object, message: str
) -> None:
    answer = await api.request("PUT", f"{maps}/one", {"metadata": metadata})
    check_refusal(answer, make_failure(400, "BadRequest", message))


async def test_what_is_not_there_cannot_be_replaced(api: Api, maps: str) -> None:
    message = 'configmaps "none" not found'
    details = {"name": "none", "kind": "configmaps"}
    answer = await api.request("PUT", f"{maps}/none", make_configmap("none"))
    check_refusal(answer, make_failure(404, "NotFound", message, details))


async def test_faults_of_metadata_are_told_as_often_as_they_are_found(
    api: Api, maps: str, one: Object
) -> None:
    answer = await api.request("PUT", f"{maps}/one", make_configmap(labels={"x": "-"}))
    fault = ("Invalid", "metadata.labels", f'Invalid value: "-": {NOT_A_LABEL_VALUE}')
    check_refusal(answer, make_invalid("ConfigMap", "one", *[fault] * 4))


async def test_a_dry_run_of_a_replacement_shows_and_changes_nothing(
    api: Api, maps: str, one: Object
) -> None:
    body = make_configmap(data={"a": "dry"})
    shown = await api.ask("PUT", f"{maps}/one", body, query={"dryRun": "All"})
    assert shown["data"] == {"a": "dry"}
    for field in ("uid", "resourceVersion"):
        assert shown["metadata"][field] == one["metadata"][field]
    assert (await api.ask("GET", f"{maps}/one"))["data"] == one["data"]


async def test_the_data_of_an_immutable_configmap_stays(api: Api, maps: str) -> None:
    def body(**fields: object) -> Object:
        return {**make_configmap("one"), "immutable": True, **fields}

    await api.ask("POST", maps, body())
    for changed, fields in (
        (body(data={"a": "c"}), ["data"]),
        (body(binaryData={"b": "eA=="}), ["binaryData"]),
        (make_configmap(), ["immutable"]),
        (make_configmap(data={"a": "c"}), ["immutable", "data"]),
    ):
        answer = await api.request("PUT", f"{maps}/one", changed)
        faults = [("Forbidden", field, IMMUTABLE) for field in fields]
        check_refusal(answer, make_invalid("ConfigMap", "one", *faults))
    labelled = body()
    labelled["metadata"]["labels"] = {"x": "y"}
    await api.ask("PUT", f"{maps}/one", labelled)


@pytest.mark.parametrize("kind", [MERGE, STRATEGIC])
async def test_a_merge_patch_sets_and_removes(api: Api, maps: str, one: Object, kind: str) -> None:
    patch = {"metadata": {"labels": {"x": "y"}}, "data": {"a": None, "b": "c"}}
    patched = await api.ask("PATCH", f"{maps}/one", patch, content_type=kind)
    assert (patched["metadata"]["labels"], patched["data"]) == ({"x": "y"}, {"b": "c"})
    again = await api.ask("PATCH", f"{maps}/one", {}, content_type=kind)
    assert again["metadata"]["resourceVersion"] == patched["metadata"]["resourceVersion"]


async def test_a_strategic_patch_merges_owners_by_uid(api: Api, maps: str, one: Object) -> None:
    def owner(uid: str) -> Object:
        return {"apiVersion": "v1", "kind": "Node", "name": uid, "uid": uid}

    for uid in ("a", "b"):
        patch = {"metadata": {"ownerReferences": [owner(uid)]}}
        query = {"dryRun": "All"}
        patched = await api.ask("PATCH", f"{maps}/one", patch, content_type=STRATEGIC, query=query)
        assert [one["uid"] for one in patched["metadata"]["ownerReferences"]] == [uid]


async def test_a_json_patch_does_each_operation(api: Api, maps: str, one: Object) -> None:
    operations = [
        {"op": "test", "path": "/data/a", "value": "b"},
        {"op": "add", "path": "/data/b", "value": "1"},
        {"op": "copy", "from": "/data/b", "path": "/data/c"},
        {"op": "move", "from": "/data/a", "path": "/data/d"},
        {"op": "replace", "path": "/data/b", "value": "2"},
    ]
    patched = await api.ask("PATCH", f"{maps}/one", operations, content_type=JSON_PATCH)
    assert patched["data"] == {"b": "2", "c": "1", "d": "b"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": "other"},
        {"op": "remove", "path": "/data/none"},
        {"op": "dance", "path": "/data/a"},
    ],
)
async def test_a_json_patch_that_cannot_be_applied_is_refused(
    api: Api, maps: str, one: Object, operation: Object
) -> None:
    answer = await api.request("PATCH", f"{maps}/one", [operation], content_type=JSON_PATCH)
    # The real one has more to say of it, which depends on its library.
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")


BAD = "invalid character 'n' looking for beginning of object key string"
NO_MAP = "json: cannot unmarshal array into Go value of type map[string]interface {}"
NO_LIST = "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (MERGE, b"{nope", f"error decoding patch: {BAD}"),
        (MERGE, b"", "error decoding patch: unexpected end of JSON input"),
        (MERGE, b"[1]", f"error decoding patch: {NO_MAP}"),
        (STRATEGIC, b"{nope", BAD),
        (STRATEGIC, b"[1]", NO_MAP),
        (JSON_PATCH, b"{nope", f"error decoding patch: {BAD}"),
        (JSON_PATCH, b"{}", f"error decoding patch: {NO_LIST}"),
    ],
)
async def test_a_body_that_is_no_patch_is_told(
    api: Api, maps: str, one: Object, kind: str, body: bytes, message: str
) -> None:
    answer = await api.request("PATCH", f"{maps}/one", body, content_type=kind)
    check_refusal(answer, make_failure(400, "BadRequest", message))


async def test_a_patch_to_a_field_that_there_is_not_is_warned_of_or_refused(
    api: Api, maps: str, one: Object
) -> None:
    path, patch = f"{maps}/one", {"bogus": 1}
    patched = await api.request("PATCH", path, patch, content_type=STRATEGIC)
    assert patched.headers["Warning"] == '299 - "unknown field \\"bogus\\""'
    assert "bogus" not in patched.body
    query = {"fieldValidation": "Strict"}
    refused = await api.request("PATCH", path, patch, content_type=STRATEGIC, query=query)
    text = 'Invalid value: "map[bogus:1]": strict decoding error: unknown field "bogus"'
    cause = {"reason": "FieldValueInvalid", "message": text, "field": "patch"}
    message = f' "" is invalid: patch: {text}'
    check_refusal(refused, make_failure(422, "Invalid", message, {"causes": [cause]}))


async def test_a_patch_that_leaves_another_kind_is_refused(
    api: Api, maps: str, one: Object
) -> None:
    answer = await api.request("PATCH", f"{maps}/one", {"kind": "Pod"}, content_type=MERGE)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    why = "converting (v1.Pod) to (core.ConfigMap): unknown conversion"
    assert answer.body["message"].endswith(f": {why}")
    assert answer.body["details"]["causes"][0]["field"] == "patch"
    ignored = await api.ask("PATCH", f"{maps}/one", {"kind": "Pod"}, content_type=STRATEGIC)
    assert ignored["kind"] == "ConfigMap"


async def test_a_pod_keeps_its_spec_but_for_a_few_fields(api: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    made = await api.ask("POST", pods, make_pod(schedulerName="nobody"))
    assert made["metadata"]["generation"] == 1
    change = {"spec": {"containers": [{"name": "main", "command": ["x"]}]}}
    refused = await api.request("PATCH", f"{pods}/one", change, content_type=STRATEGIC)
    assert (refused.status, refused.body["reason"]) == (422, "Invalid")
    # What follows is a comparison of Go structures.
    assert refused.body["message"].startswith(
        'Pod "one" is invalid: spec: Forbidden: pod updates may not change fields other than'
        " `spec.containers[*].image`,`spec.initContainers[*].image`,"
        "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously"
        " negative)"
    )
    image = {"spec": {"containers": [{"name": "main", "image": "x:1"}]}}
    patched = await api.ask("PATCH", f"{pods}/one", image, content_type=STRATEGIC)
    assert patched["metadata"]["generation"] == 2


async def test_the_status_of_a_pod_is_a_place_of_its_own(api: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await api.ask("POST", pods, make_pod(schedulerName="nobody"))
    told = {"status": {"message": "hello"}, "spec": {"nodeName": "x"}}
    patched = await api.ask("PATCH", f"{pods}/one/status", told, content_type=MERGE)
    assert patched["status"]["message"] == "hello"
    assert "nodeName" not in patched["spec"]
    other = {"status": {"message": "other"}}
    ignored = await api.ask("PATCH", f"{pods}/one", other, content_type=MERGE)
    assert ignored["status"]["message"] == "hello"
    stale = {**patched, "metadata": {"name": "one", "resourceVersion": "1"}}
    refused = await api.request("PUT", f"{pods}/one/status", stale)
    assert (refused.status, refused.body["reason"]) == (409, "Conflict")
