"""Who may create what in the local cluster: Pod Security, quotas, namespaces, accounts."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from telorunner.localcluster import admission, limitranges, podsecurity, quota
from telorunner.localcluster.defaulting import default_pod
from telorunner.localcluster.podsecurity import ENFORCE, WARN, Demand
from telorunner.localcluster.resources import KINDS_BY_PLURAL, ResourceKind
from telorunner.localcluster.store import Store, StoreError, timestamp

NAMESPACE = "apps"
PODS = KINDS_BY_PLURAL["pods"]
HARDENED: dict[str, Any] = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def make_container(name: str = "session", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "busybox:1", "securityContext": HARDENED, **fields}


def make_spec(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"containers": list(containers or (make_container(),)), **fields}


def make_pod(name: str = "one", **fields: Any) -> dict[str, Any]:
    pod = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": make_spec(**fields)}
    return default_pod(pod)


def make_store(**labels: str) -> Store:
    store = Store()
    store.create("namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    return store


def with_quota(store: Store, **hard: str) -> Store:
    entries = {name.replace("__", "/").replace("_", "."): value for name, value in hard.items()}
    found = {"metadata": {"name": "q", "namespace": NAMESPACE}, "spec": {"hard": entries}}
    store.create("resourcequotas", found)
    return store


def violations(level: str, version: str, spec: dict[str, Any]) -> str | None:
    return podsecurity.violations(Demand(level, version), {"metadata": {}, "spec": spec})


def admit(store: Store, kind: ResourceKind, obj: dict[str, Any]) -> list[str]:
    return admission.validate(store, kind, NAMESPACE, obj)


def test_a_hardened_pod_may_run_everywhere() -> None:
    for level in ("privileged", "baseline", "restricted"):
        for version in ("v1.0", "v1.24", "latest"):
            assert violations(level, version, make_spec()) is None


@pytest.mark.parametrize("version", ["v1.34", "v1.35", "v1.1000", "latest"])
def test_no_version_is_laxer_than_the_newest_that_is_known(version: str) -> None:
    # What stands in no version table must not fall out of the newest one.
    assert violations("restricted", version, make_spec(hostNetwork=True, hostPID=True)) == (
        f'PodSecurity "restricted:{version}": host namespaces (hostNetwork=true, hostPID=true)'
    )


def test_what_the_pod_sets_counts_for_its_containers() -> None:
    context = {key: HARDENED[key] for key in ("allowPrivilegeEscalation", "capabilities")}
    spec = make_spec(
        make_container(securityContext=context),
        securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    )
    assert violations("restricted", "latest", spec) is None


def test_a_namespace_enforces_its_level_and_warns_of_another() -> None:
    store = make_store(**{f"pod-security.kubernetes.io/{ENFORCE}": "restricted"})
    assert admit(store, PODS, make_pod()) == []
    bare = make_pod(containers=[{"name": "session", "image": "x"}])
    with pytest.raises(StoreError) as refused:
        admit(store, PODS, bare)
    assert (refused.value.status_code, refused.value.reason) == (403, "Forbidden")
    start = 'pods "one" is forbidden: violates PodSecurity "restricted:latest": '
    assert refused.value.message.startswith(start)
    store = make_store(**{f"pod-security.kubernetes.io/{WARN}": "restricted"})
    (warning,) = admit(store, PODS, bare)
    assert warning.startswith('would violate PodSecurity "restricted:latest": ')


@pytest.mark.parametrize(
    ("had", "has", "is_looked_at"),
    [
        (Demand("baseline", "latest"), Demand("restricted", "latest"), True),
        (Demand("restricted", "latest"), Demand("baseline", "latest"), False),
        (Demand("restricted", "latest"), Demand("baseline", "v1.20"), True),
        (Demand("restricted", "v1.20"), Demand("restricted", "latest"), True),
        (Demand("restricted", "latest"), Demand("restricted", "latest"), False),
        (Demand("restricted", "latest"), Demand("privileged", "v1.20"), False),
    ],
)
def test_a_demand_that_may_refuse_more_is_held_against_the_pods_that_are_there(
    had: Demand, has: Demand, is_looked_at: bool
) -> None:
    assert has.may_refuse_more_than(had) == is_looked_at


def test_a_quota_refuses_the_pod_too_many() -> None:
    store = with_quota(make_store(), pods="1")
    admit(store, PODS, make_pod("one"))
    store.create("pods", make_pod("one"))
    with pytest.raises(StoreError) as refused:
        admit(store, PODS, make_pod("two"))
    assert refused.value.message == (
        'pods "two" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1,'
        " limited: pods=1"
    )


def test_pods_that_have_ended_do_not_count() -> None:
    store = with_quota(make_store(), pods="1")
    store.create("pods", {**make_pod("one"), "status": {"phase": "Succeeded"}})
    admit(store, PODS, make_pod("two"))


def test_pods_that_should_have_been_gone_do_not_count() -> None:
    now = datetime.now(UTC)
    for seconds_ago, amount in ((10, "1"), (60, "0")):
        pod = make_pod()
        pod["metadata"]["deletionTimestamp"] = timestamp(now - timedelta(seconds=seconds_ago))
        pod["metadata"]["deletionGracePeriodSeconds"] = 30
        assert quota.used(PODS, [pod], "pods") == amount
        assert quota.used(PODS, [pod], "count/pods") == "1"


def test_other_objects_are_counted_by_their_kind() -> None:
    store = with_quota(make_store(), count__configmaps="1")
    kind = KINDS_BY_PLURAL["configmaps"]
    obj = {"metadata": {"name": "one", "namespace": NAMESPACE}}
    admit(store, kind, obj)
    store.create("configmaps", obj)
    with pytest.raises(StoreError, match="requested: count/configmaps=1"):
        admit(store, kind, {"metadata": {"name": "two"}})
    admit(store, KINDS_BY_PLURAL["secrets"], obj)


def test_an_init_container_counts_where_it_needs_the_most() -> None:
    big = make_container("init", resources={"requests": {"cpu": "2"}})
    small = make_container(resources={"requests": {"cpu": "500m"}})
    pod = make_pod(initContainers=[big], containers=[small, {**small, "name": "other"}])
    assert quota.usage(PODS, pod, "requests.cpu") == "2"
    pod = make_pod(initContainers=[small], containers=[small, {**small, "name": "other"}])
    assert quota.usage(PODS, pod, "requests.cpu") == "1"


def test_a_namespace_must_be_there_and_stay() -> None:
    store = make_store()
    kind = KINDS_BY_PLURAL["configmaps"]
    admission.check_namespace(store, kind, NAMESPACE, "one")
    with pytest.raises(StoreError) as missing:
        admission.check_namespace(store, kind, "nowhere", "one")
    assert (missing.value.status_code, missing.value.message) == (
        404,
        'namespaces "nowhere" not found',
    )
    found = store.get("namespaces", "", NAMESPACE)
    metadata = {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    store.replace("namespaces", {**found, "metadata": metadata})
    with pytest.raises(StoreError) as terminating:
        admission.check_namespace(store, kind, NAMESPACE, "one")
    assert terminating.value.message == (
        'configmaps "one" is forbidden: unable to create new content in namespace apps because it'
        " is being terminated"
    )


def test_a_service_account_must_be_there() -> None:
    with pytest.raises(StoreError) as refused:
        admission.mutate(make_store(), PODS, NAMESPACE, make_pod(), "gen-")
    assert refused.value.message == (
        'pods "gen-" is forbidden: error looking up service account apps/default: serviceaccount'
        ' "default" not found'
    )


def test_a_limit_range_fills_in_what_a_pod_leaves_out() -> None:
    store = with_account(make_store())
    limits = [
        {
            "type": "Container",
            "default": {"cpu": "1", "memory": "1Gi"},
            "defaultRequest": {"cpu": "0.5"},
        }
    ]
    given = {"metadata": {"name": "l", "namespace": NAMESPACE}, "spec": {"limits": limits}}
    store.create("limitranges", limitranges.default_limit_range(given))
    container = make_container(resources={"limits": {"memory": "64Mi"}})
    pod = admission.mutate(store, PODS, NAMESPACE, make_pod(containers=[container]), "one")
    assert pod["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1", "memory": "64Mi"},
        "requests": {"cpu": "500m", "memory": "64Mi"},
    }
    assert pod["status"]["qosClass"] == "Burstable"


def test_a_runtime_class_brings_its_overhead_and_its_nodes() -> None:
    store = with_account(make_store())
    runtime_class = {
        "metadata": {"name": "heavy"},
        "handler": "heavy",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"heavy": "yes"}},
    }
    store.create("runtimeclasses", runtime_class)
    given = make_pod(
        runtimeClassName="heavy",
        nodeSelector={"mine": "1"},
        containers=[make_container(resources={"requests": {"cpu": "1"}})],
    )
    pod = admission.mutate(store, PODS, NAMESPACE, given, "one")
    assert pod["spec"]["nodeSelector"] == {"mine": "1", "heavy": "yes"}
    assert quota.usage(PODS, pod, "requests.cpu") == "1250m"


def with_account(store: Store) -> Store:
    account = {"metadata": {"name": "default", "namespace": NAMESPACE}}
    store.create("serviceaccounts", account)
    return store
