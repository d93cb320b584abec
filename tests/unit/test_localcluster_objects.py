"""What the API makes of objects: defaults, faults, what may change, how they go."""

import base64
from typing import Any

import pytest

from telorunner.localcluster import deletion, strategies
from telorunner.localcluster.defaulting import default_pull_policy, qos_class
from telorunner.localcluster.deletion import DeleteOptions
from telorunner.localcluster.quantities import canonical, total
from telorunner.localcluster.resources import KINDS_BY_PLURAL
from telorunner.localcluster.store import Store, StoreError

NAMESPACE = "apps"


def make_object(name: str = "one", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": NAMESPACE}, **fields}


def make_pod(name: str = "one", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "session", "image": "busybox:1"}]
    return make_object(name, spec={"containers": containers, **spec})


def prepared(resource: str, obj: dict[str, Any]) -> dict[str, Any]:
    kind = KINDS_BY_PLURAL[resource]
    new = strategies.prepare_create(Store(), kind, obj)
    strategies.check_new(kind, new)
    return new


def refused(resource: str, obj: dict[str, Any]) -> StoreError:
    with pytest.raises(StoreError) as caught:
        prepared(resource, obj)
    return caught.value


def update(resource: str, store: Store, obj: dict[str, Any]) -> dict[str, Any]:
    kind = KINDS_BY_PLURAL[resource]
    old = store.get(resource, NAMESPACE, obj["metadata"]["name"])
    new = strategies.prepare_update(store, kind, old, obj)
    strategies.check_update(kind, old, new)
    return new


def stored(resource: str, obj: dict[str, Any]) -> tuple[Store, dict[str, Any]]:
    store = Store()
    return store, store.create(resource, prepared(resource, obj))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0.1", "100m"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("64Mi", "64Mi"),
        ("2k", "2k"),
        ("1e26", "100e24"),
        ("999999999999E", "999999999999E"),
        ("8Ei", "9223372036854775807"),
    ],
)
def test_quantities_are_written_canonically(given: str, expected: str) -> None:
    assert canonical(given) == expected


def test_quantities_are_added_up() -> None:
    assert total(["500m", "1", "0.25"]) == "1750m"
    assert total(["512Mi", "512Mi"]) == "1Gi"
    assert total([]) == "0"


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1", "IfNotPresent"),
        ("registry.example:5000/busybox", "Always"),
        ("registry.example:5000/busybox:1", "IfNotPresent"),
        ("busybox@sha256:00", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_from_the_tag(image: str, policy: str) -> None:
    assert default_pull_policy(image) == policy


def test_a_pod_gets_its_defaults() -> None:
    container = {
        "name": "session",
        "image": "busybox:1",
        "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": "0.5", "memory": "64Mi"}},
    }
    pod = prepared(
        "pods",
        make_pod(containers=[container], volumes=[{"name": "c", "configMap": {"name": "x"}}]),
    )
    spec = pod["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["serviceAccountName"] == "default"
    assert spec["schedulerName"] == "default-scheduler"
    assert len(spec["tolerations"]) == 2
    assert spec["volumes"][0]["configMap"] == {"name": "x", "defaultMode": 0o644}
    assert spec["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    amounts = {"cpu": "500m", "memory": "64Mi"}
    assert spec["containers"][0]["resources"] == {"limits": amounts, "requests": amounts}
    assert pod["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}
    assert pod["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        (
            {"limits": {"cpu": "1", "memory": "1Mi"}, "requests": {"cpu": "1", "memory": "1Mi"}},
            "Guaranteed",
        ),
    ],
)
def test_the_quality_of_service_follows_from_resources(
    resources: dict[str, Any], expected: str
) -> None:
    assert qos_class({"containers": [{"name": "a", "resources": resources}]}) == expected


@pytest.mark.parametrize(
    ("resource", "obj", "message"),
    [
        ("pods", make_object(spec={}), 'Pod "one" is invalid: spec.containers: Required value'),
        (
            "pods",
            make_pod(containers=[{}]),
            'Pod "one" is invalid: [spec.containers[0].name: Required value,'
            " spec.containers[0].image: Required value]",
        ),
        (
            "pods",
            make_pod(restartPolicy="Sometimes"),
            'Pod "one" is invalid: spec.restartPolicy: Unsupported value: "Sometimes": supported'
            ' values: "Always", "OnFailure", "Never"',
        ),
        (
            "pods",
            make_pod(activeDeadlineSeconds=0),
            'Pod "one" is invalid: spec.activeDeadlineSeconds: Invalid value: 0: must be between'
            " 1 and 2147483647, inclusive",
        ),
        (
            "pods",
            make_pod(
                containers=[
                    {
                        "name": "a",
                        "image": "x",
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    }
                ]
            ),
            'Pod "one" is invalid: spec.containers[0].volumeMounts[0].name: Not found: "v"',
        ),
        (
            "configmaps",
            make_object(data={"x": "y" * (1024 * 1024 + 1)}),
            'ConfigMap "one" is invalid: []: Too long: may not be more than 1048576 bytes',
        ),
        (
            "configmaps",
            make_object(data={"x": ""}, binaryData={"x": ""}),
            'ConfigMap "one" is invalid: data[x]: Invalid value: "x": duplicate of key present in'
            " binaryData",
        ),
        (
            "services",
            make_object(spec={"ports": [{"port": 1}, {"name": "b", "port": 2}]}),
            'Service "one" is invalid: spec.ports[0].name: Required value',
        ),
        (
            "ingresses",
            make_object(spec={}),
            'Ingress.networking.k8s.io "one" is invalid: spec: Invalid value: null: either'
            " `defaultBackend` or `rules` must be specified",
        ),
        (
            "configmaps",
            {"metadata": {"namespace": NAMESPACE}},
            'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is'
            " required",
        ),
    ],
)
def test_an_invalid_object_is_refused_in_the_real_words(
    resource: str, obj: dict[str, Any], message: str
) -> None:
    error = refused(resource, obj)
    assert (error.status_code, error.reason) == (422, "Invalid")
    assert error.message == message


@pytest.mark.parametrize("name", ["A", "a_b", "-a", "a..b", "a" * 254])
def test_a_name_that_is_no_subdomain_is_refused(name: str) -> None:
    assert "metadata.name: Invalid value" in refused("configmaps", make_object(name)).message


def test_quantities_that_cannot_be_read_are_refused() -> None:
    container = {"name": "a", "image": "x", "resources": {"limits": {"memory": "1x"}}}
    assert refused("pods", make_pod(containers=[container])).status_code == 400


def test_the_texts_of_a_secret_are_encoded_into_its_data() -> None:
    secret = prepared("secrets", make_object(stringData={"a": "b"}))
    assert secret["data"] == {"a": base64.b64encode(b"b").decode()}
    assert secret["type"] == "Opaque"
    assert "stringData" not in secret


def test_an_immutable_configmap_keeps_its_data_but_not_its_labels() -> None:
    store, created = stored("configmaps", make_object(immutable=True, data={"a": "b"}))
    with pytest.raises(StoreError, match="field is immutable when `immutable` is set"):
        update("configmaps", store, {**created, "data": {"a": "c"}})
    with pytest.raises(StoreError, match="immutable: Forbidden"):
        update("configmaps", store, {**created, "immutable": False})
    metadata = {**created["metadata"], "labels": {"x": "y"}}
    labelled = update("configmaps", store, {**created, "metadata": metadata})
    assert labelled["metadata"]["labels"] == {"x": "y"}


def test_a_pod_may_change_its_deadline_and_image_only() -> None:
    store, created = stored("pods", make_pod())
    spec = created["spec"]
    new = update("pods", store, {**created, "spec": {**spec, "activeDeadlineSeconds": 5}})
    assert new["metadata"]["generation"] == 2
    image = [{**spec["containers"][0], "image": "busybox:2"}]
    update("pods", store, {**created, "spec": {**spec, "containers": image}})
    with pytest.raises(StoreError, match="pod updates may not change fields other than"):
        update("pods", store, {**created, "spec": {**spec, "restartPolicy": "Never"}})


def test_an_update_keeps_the_status_and_what_only_the_api_sets() -> None:
    store, created = stored("pods", make_pod())
    new = update("pods", store, {**created, "status": {"phase": "Running"}})
    assert new["status"] == created["status"]


def test_a_service_keeps_its_address() -> None:
    ports = [{"port": 80}]
    store, created = stored("services", make_object(spec={"ports": ports}))
    address = created["spec"]["clusterIP"]
    assert address.startswith("10.96.")
    new = update("services", store, make_object(spec={"ports": [{"port": 81}]}))
    assert new["spec"]["clusterIP"] == address
    with pytest.raises(StoreError, match="may not change once set"):
        update("services", store, make_object(spec={"ports": ports, "clusterIP": "10.96.9.9"}))


def test_two_services_have_two_addresses() -> None:
    store, first = stored("services", make_object(spec={"ports": [{"port": 80}]}))
    second = strategies.prepare_create(
        store, KINDS_BY_PLURAL["services"], make_object("two", spec={"ports": [{"port": 80}]})
    )
    assert first["spec"]["clusterIP"] != second["spec"]["clusterIP"]


def test_a_route_must_name_the_version_that_it_replaces() -> None:
    store, created = stored("httproutes", make_object(spec={}))
    with pytest.raises(StoreError, match="must be specified for an update"):
        update("httproutes", store, make_object(spec={"hostnames": ["a"]}))
    update("httproutes", store, {**created, "spec": {"hostnames": ["a"]}})


def delete(store: Store, obj: dict[str, Any], seconds: int | None = None) -> dict[str, Any]:
    return deletion.delete(store, KINDS_BY_PLURAL["pods"], obj, DeleteOptions(seconds))


def bound_pod(phase: str = "Running") -> tuple[Store, dict[str, Any]]:
    store, created = stored("pods", make_pod(terminationGracePeriodSeconds=7))
    pod = {**created, "spec": {**created["spec"], "nodeName": "local"}, "status": {"phase": phase}}
    return store, store.replace("pods", pod)


def test_a_running_pod_is_marked_and_stays_until_its_node_removes_it() -> None:
    store, pod = bound_pod()
    answer = delete(store, pod)
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 7
    assert answer["metadata"]["deletionTimestamp"]
    assert store.get("pods", NAMESPACE, "one") == answer


def test_a_second_deletion_can_only_shorten_the_grace_period() -> None:
    store, pod = bound_pod()
    marked = delete(store, pod)
    shorter = delete(store, marked, 2)
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 2
    assert delete(store, shorter, 20)["metadata"]["deletionGracePeriodSeconds"] == 2


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_goes_at_once(phase: str) -> None:
    store, pod = bound_pod(phase)
    assert delete(store, pod)["metadata"]["deletionGracePeriodSeconds"] == 0
    assert store.find("pods", NAMESPACE, "one") is None


def test_a_pod_without_a_node_or_grace_goes_at_once() -> None:
    store, pod = stored("pods", make_pod())
    delete(store, pod)
    assert store.find("pods", NAMESPACE, "one") is None
    store, pod = bound_pod()
    delete(store, pod, 0)
    assert store.find("pods", NAMESPACE, "one") is None


def test_a_precondition_that_does_not_hold_is_a_conflict() -> None:
    store, pod = bound_pod()
    with pytest.raises(StoreError) as conflict:
        deletion.delete(store, KINDS_BY_PLURAL["pods"], pod, DeleteOptions(uid="another"))
    assert conflict.value.status_code == 409
    assert "the UID in the precondition (another) does not match" in conflict.value.message


def test_an_object_with_finalizers_waits_for_the_last_of_them() -> None:
    store = Store()
    kind = KINDS_BY_PLURAL["configmaps"]
    metadata = {"name": "one", "namespace": NAMESPACE, "finalizers": ["a.example/b"]}
    created = store.create("configmaps", {"metadata": metadata})
    marked = deletion.delete(store, kind, created, DeleteOptions())
    waiting = store.get("configmaps", NAMESPACE, "one")
    assert marked == waiting
    assert "deletionTimestamp" in waiting["metadata"]
    deletion.finish_if_released(store, kind, waiting)
    assert store.find("configmaps", NAMESPACE, "one") is not None
    bare = {key: value for key, value in waiting["metadata"].items() if key != "finalizers"}
    deletion.finish_if_released(
        store, kind, store.replace("configmaps", {**waiting, "metadata": bare})
    )
    assert store.find("configmaps", NAMESPACE, "one") is None
