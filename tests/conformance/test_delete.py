"""Deleting objects: preconditions, grace, finalizers, owners, collections and namespaces."""

import pytest

from tests.conformance.client import Api, Object
from tests.conformance.objects import (
    check_refusal,
    make_configmap,
    make_failure,
    make_invalid,
    make_name,
    make_pod,
)

MERGE = "application/merge-patch+json"
HOLD = "example.com/hold"


@pytest.fixture
async def maps(namespace: str) -> str:
    """The path of the namespace's ConfigMaps."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


def owner(of: Object, **fields: object) -> Object:
    """Return a reference to an object as the owner of another."""
    metadata = of["metadata"]
    named = {"name": metadata["name"], "uid": metadata["uid"]}
    return {"apiVersion": of["apiVersion"], "kind": of["kind"], **named, **fields}


async def test_a_deletion_says_what_is_gone(api: Api, maps: str) -> None:
    made = await api.ask("POST", maps, make_configmap())
    answer = await api.request("DELETE", f"{maps}/one")
    details = {"name": "one", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    expected = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
    assert (answer.status, answer.body) == (200, expected)
    again = make_failure(
        404, "NotFound", 'configmaps "one" not found', {"name": "one", "kind": "configmaps"}
    )
    for method in ("DELETE", "GET"):
        check_refusal(await api.request(method, f"{maps}/one"), again)


async def test_a_precondition_that_does_not_hold_is_a_conflict(api: Api, maps: str) -> None:
    made = await api.ask("POST", maps, make_configmap())
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    told = 'Operation cannot be fulfilled on ConfigMap "one": the {0} in the precondition ({1})'
    told += " does not match the {0} in record ({2}). The object might have been {3}"
    for preconditions, message in (
        ({"uid": "x"}, told.format("UID", "x", uid, "deleted and then recreated")),
        ({"resourceVersion": "1"}, told.format("ResourceVersion", "1", version, "modified")),
    ):
        answer = await api.request("DELETE", f"{maps}/one", {"preconditions": preconditions})
        details = {"name": "one", "kind": "ConfigMap"}
        check_refusal(answer, make_failure(409, "Conflict", message, details))
    both = {"preconditions": {"uid": uid, "resourceVersion": version}}
    await api.ask("DELETE", f"{maps}/one", both)


POLICIES = 'supported values: "Foreground", "Background", "Orphan", "nil"'


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (
            {"propagationPolicy": "Bogus"},
            ("NotSupported", "propagationPolicy", f'Unsupported value: "Bogus": {POLICIES}'),
        ),
        (
            {"dryRun": ["Some"]},
            ("NotSupported", "dryRun", 'Unsupported value: ["Some"]: supported values: "All"'),
        ),
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            (
                "Invalid",
                "propagationPolicy",
                'Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both'
                " set",
            ),
        ),
    ],
)
async def test_options_that_there_are_not_are_refused(
    api: Api, standing_namespace: str, options: Object, fault: tuple[str, str, str]
) -> None:
    path = f"/api/v1/namespaces/{standing_namespace}/configmaps/kube-root-ca.crt"
    answer = await api.request("DELETE", path, options)
    check_refusal(answer, make_invalid("DeleteOptions", "", fault, group="meta.k8s.io"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            b"{nope",
            "couldn't get version/kind; json parse error: invalid character 'n' looking for"
            " beginning of object key string",
        ),
        (
            b'{"kind":"Pod","apiVersion":"v1"}',
            'no kind "Pod" is registered for version "v1" in scheme "pkg/runtime/scheme.go:110"',
        ),
        (
            b'{"gracePeriodSeconds":"x"}',
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds"
            " of type int64",
        ),
    ],
)
async def test_a_body_that_is_no_options_is_told(
    api: Api, standing_namespace: str, body: bytes, message: str
) -> None:
    path = f"/api/v1/namespaces/{standing_namespace}/configmaps/kube-root-ca.crt"
    check_refusal(await api.request("DELETE", path, body), make_failure(500, "", message))


async def test_a_dry_run_deletes_nothing(api: Api, maps: str) -> None:
    await api.ask("POST", maps, make_configmap())
    for body, query in (({"dryRun": ["All"]}, {}), (None, {"dryRun": "All"})):
        answer = await api.ask("DELETE", f"{maps}/one", body, query=query)
        assert answer["status"] == "Success"
    await api.ask("GET", f"{maps}/one")


async def test_an_object_waits_for_its_finalizers(api: Api, maps: str) -> None:
    await api.ask("POST", maps, make_configmap(finalizers=[HOLD]))
    marked = await api.ask("DELETE", f"{maps}/one")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert marked["metadata"]["deletionTimestamp"]
    again = await api.ask("DELETE", f"{maps}/one")
    assert again["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]
    details = {"name": "one", "kind": "configmaps"}
    message = 'object is being deleted: configmaps "one" already exists'
    taken = await api.request("POST", maps, make_configmap())
    check_refusal(taken, make_failure(409, "AlreadyExists", message, details))
    await api.ask("PATCH", f"{maps}/one", {"data": {"a": "late"}}, content_type=MERGE)
    more = {"metadata": {"finalizers": [HOLD, "example.com/more"]}}
    refused = await api.request("PATCH", f"{maps}/one", more, content_type=MERGE)
    why = (
        "Forbidden: no new finalizers can be added if the object is being deleted, found new"
        ' finalizers []string{"example.com/more"}'
    )
    fault = ("Forbidden", "metadata.finalizers", why)
    check_refusal(refused, make_invalid("ConfigMap", "one", fault, fault))
    free = {"metadata": {"finalizers": None}}
    last = await api.ask("PATCH", f"{maps}/one", free, content_type=MERGE)
    assert "finalizers" not in last["metadata"]
    assert (await api.request("GET", f"{maps}/one")).status == 404


async def test_a_pod_without_a_node_goes_at_once_and_says_so(api: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    pod = make_pod(schedulerName="nobody", terminationGracePeriodSeconds=30)
    made = await api.ask("POST", pods, pod)
    shown = await api.ask("DELETE", f"{pods}/one", query={"dryRun": "All"})
    gone = await api.ask("DELETE", f"{pods}/one")
    for answer in (shown, gone):
        assert answer["kind"] == "Pod"
        assert answer["metadata"]["uid"] == made["metadata"]["uid"]
        assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
        assert answer["metadata"]["deletionTimestamp"]
        assert answer["metadata"]["generation"] == 2
    assert (await api.request("GET", f"{pods}/one")).status == 404


async def test_a_finalizer_holds_a_pod(api: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    pod = make_pod(schedulerName="nobody")
    pod["metadata"]["finalizers"] = [HOLD]
    await api.ask("POST", pods, pod)
    await api.ask("DELETE", f"{pods}/one")
    assert (await api.ask("GET", f"{pods}/one"))["metadata"]["deletionGracePeriodSeconds"] == 0
    await api.ask("PATCH", f"{pods}/one", {"metadata": {"finalizers": []}}, content_type=MERGE)
    assert (await api.request("GET", f"{pods}/one")).status == 404


async def test_what_a_pod_owns_goes_with_it(api: Api, namespace: str, maps: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    first = await api.ask("POST", pods, make_pod("first", schedulerName="nobody"))
    second = await api.ask("POST", pods, make_pod("second", schedulerName="nobody"))
    await api.ask("POST", maps, make_configmap("owned", ownerReferences=[owner(first)]))
    shared = make_configmap("shared", ownerReferences=[owner(first), owner(second)])
    await api.ask("POST", maps, shared)
    await api.ask("DELETE", f"{pods}/first")
    await api.until_gone(maps, "owned")
    await api.ask("GET", f"{maps}/shared")
    await api.ask("DELETE", f"{pods}/second")
    await api.until_gone(maps, "shared")


async def test_what_is_owned_by_another_object_of_that_name_goes(
    api: Api, namespace: str, maps: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    pod = await api.ask("POST", pods, make_pod(schedulerName="nobody"))
    other = owner(pod) | {"uid": "4e1f2a6c-0000-4000-8000-000000000000"}
    await api.ask("POST", maps, make_configmap("late", ownerReferences=[other]))
    await api.until_gone(maps, "late")
    await api.ask("GET", f"{pods}/one")


async def test_an_owner_deleted_in_the_foreground_waits_for_what_blocks_it(
    api: Api, maps: str
) -> None:
    made = await api.ask("POST", maps, make_configmap("owner"))
    blocking = owner(made, blockOwnerDeletion=True)
    await api.ask(
        "POST", maps, make_configmap("held", ownerReferences=[blocking], finalizers=[HOLD])
    )
    version = made["metadata"]["resourceVersion"]
    async with api.watch(maps, resourceVersion=version) as watch:
        marked = await api.ask("DELETE", f"{maps}/owner", {"propagationPolicy": "Foreground"})
        assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
        assert marked["metadata"]["deletionTimestamp"]
        while (event := await watch.next()) is not None:
            if event.name == "held" and "deletionTimestamp" in event.object["metadata"]:
                break
        await api.ask("GET", f"{maps}/owner")
        free = {"metadata": {"finalizers": None}}
        await api.ask("PATCH", f"{maps}/held", free, content_type=MERGE)
        await watch.until("DELETED", "held")
        await watch.until("DELETED", "owner")


async def test_orphans_stay_without_their_owner(api: Api, maps: str) -> None:
    made = await api.ask("POST", maps, make_configmap("owner"))
    await api.ask("POST", maps, make_configmap("owned", ownerReferences=[owner(made)]))
    marked = await api.ask("DELETE", f"{maps}/owner", {"propagationPolicy": "Orphan"})
    assert marked["metadata"]["finalizers"] == ["orphan"]
    await api.until_gone(maps, "owner")
    left = await api.ask("GET", f"{maps}/owned")
    assert "ownerReferences" not in left["metadata"]


async def test_a_collection_is_deleted_by_selector(api: Api, maps: str) -> None:
    for name, value in (("a", "1"), ("b", "2")):
        await api.ask("POST", maps, make_configmap(name, labels={"x": value}))
    deleted = await api.ask("DELETE", maps, query={"labelSelector": "x=1"})
    assert deleted["kind"] == "ConfigMapList"
    assert [one["metadata"]["name"] for one in deleted["items"]] == ["a"]
    left = await api.ask("GET", maps, query={"labelSelector": "x"})
    assert [one["metadata"]["name"] for one in left["items"]] == ["b"]


async def test_a_namespace_goes_with_what_is_in_it(api: Api) -> None:
    namespaces, name = "/api/v1/namespaces", make_name()
    maps = f"{namespaces}/{name}/configmaps"
    await api.ask("POST", namespaces, {"metadata": {"name": name, "finalizers": [HOLD]}})
    await api.ask("POST", maps, make_configmap())
    terminating = await api.ask("DELETE", f"{namespaces}/{name}")
    assert terminating["kind"] == "Namespace"
    assert terminating["status"]["phase"] == "Terminating"
    await api.until_gone(maps, "one")
    refused = await api.request("POST", maps, make_configmap("new"))
    why = f"unable to create new content in namespace {name} because it is being terminated"
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {name} is being terminated",
        "field": "metadata.namespace",
    }
    details = {"name": "new", "kind": "configmaps", "causes": [cause]}
    message = f'configmaps "new" is forbidden: {why}'
    check_refusal(refused, make_failure(403, "Forbidden", message, details))
    free = {"metadata": {"finalizers": None}}
    await api.ask("PATCH", f"{namespaces}/{name}", free, content_type=MERGE)
    await api.until_gone(namespaces, name)


@pytest.mark.parametrize("name", ["default", "kube-system"])
async def test_some_namespaces_may_not_be_deleted(api: Api, name: str) -> None:
    path = f"/api/v1/namespaces/{name}"
    answer = await api.request("DELETE", path, query={"dryRun": "All"})
    message = f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    details = {"name": name, "kind": "namespaces"}
    check_refusal(answer, make_failure(403, "Forbidden", message, details))
