"""Who may create what in the local cluster: Pod Security, quotas, namespaces, accounts."""

from typing import Any

import pytest

from telorunner.localcluster import admission, podsecurity, quota
from telorunner.localcluster.defaulting import default_pod
from telorunner.localcluster.resources import KINDS_BY_PLURAL
from telorunner.localcluster.store import Store, StoreError

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


def with_context(**fields: Any) -> dict[str, Any]:
    return make_spec(make_container(securityContext={**HARDENED, **fields}))


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


def test_a_hardened_pod_may_run_everywhere() -> None:
    for level in ("privileged", "baseline", "restricted"):
        assert podsecurity.violations(level, "latest", make_spec()) is None


def test_a_bare_pod_is_told_everything_that_it_lacks() -> None:
    spec = make_spec({"name": "a", "image": "x"}, {"name": "b", "image": "x"})
    assert podsecurity.violations("restricted", "latest", spec) == (
        'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (containers'
        ' "a", "b" must set securityContext.allowPrivilegeEscalation=false), unrestricted'
        ' capabilities (containers "a", "b" must set securityContext.capabilities.drop=["ALL"]),'
        ' runAsNonRoot != true (pod or containers "a", "b" must set'
        " securityContext.runAsNonRoot=true), seccompProfile (pod or containers"
        ' "a", "b" must set securityContext.seccompProfile.type to "RuntimeDefault" or'
        ' "Localhost")'
    )
    assert podsecurity.violations("baseline", "latest", spec) is None


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (make_spec(hostNetwork=True), "host namespaces (hostNetwork=true)"),
        (
            make_spec(volumes=[{"name": "h", "hostPath": {"path": "/"}}]),
            'restricted volume types (volume "h" uses restricted volume type "hostPath")',
        ),
        (
            make_spec(make_container(ports=[{"containerPort": 80, "hostPort": 80}])),
            'hostPort (container "session" uses hostPort 80)',
        ),
        (
            with_context(privileged=True),
            'privileged (container "session" must not set securityContext.privileged=true)',
        ),
        (
            with_context(capabilities={"drop": ["ALL"], "add": ["CHOWN"]}),
            'unrestricted capabilities (container "session" must not include "CHOWN" in'
            " securityContext.capabilities.add)",
        ),
        (
            with_context(runAsNonRoot=False),
            'runAsNonRoot != true (container "session" must not set'
            " securityContext.runAsNonRoot=false)",
        ),
        (
            with_context(runAsUser=0),
            'runAsUser=0 (container "session" must not set runAsUser=0)',
        ),
        (
            with_context(seccompProfile={"type": "Unconfined"}),
            'seccompProfile (container "session" must not set'
            ' securityContext.seccompProfile.type to "Unconfined")',
        ),
    ],
)
def test_each_rule_of_restricted_says_what_is_wrong(spec: dict[str, Any], said: str) -> None:
    violated = podsecurity.violations("restricted", "latest", spec)
    assert violated == f'violates PodSecurity "restricted:latest": {said}'


def test_what_the_pod_sets_counts_for_its_containers() -> None:
    context = {key: HARDENED[key] for key in ("allowPrivilegeEscalation", "capabilities")}
    spec = make_spec(
        make_container(securityContext=context),
        securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    )
    assert podsecurity.violations("restricted", "latest", spec) is None


def test_a_namespace_enforces_its_level() -> None:
    store = make_store(**{"pod-security.kubernetes.io/enforce": "restricted"})
    admission.check_pod_security(store, NAMESPACE, make_pod())
    bare = make_pod(containers=[{"name": "session", "image": "x"}])
    with pytest.raises(StoreError) as refused:
        admission.check_pod_security(store, NAMESPACE, bare)
    assert (refused.value.status_code, refused.value.reason) == (403, "Forbidden")
    start = 'pods "one" is forbidden: violates PodSecurity "restricted:latest": '
    assert refused.value.message.startswith(start)
    admission.check_pod_security(make_store(), NAMESPACE, bare)


def test_a_quota_refuses_the_pod_too_many() -> None:
    store = with_quota(make_store(), pods="1")
    admission.check_quotas(store, PODS, NAMESPACE, make_pod("one"))
    store.create("pods", make_pod("one"))
    with pytest.raises(StoreError) as refused:
        admission.check_quotas(store, PODS, NAMESPACE, make_pod("two"))
    assert refused.value.message == (
        'pods "two" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1,'
        " limited: pods=1"
    )


def test_pods_that_have_ended_do_not_count() -> None:
    store = with_quota(make_store(), pods="1")
    store.create("pods", {**make_pod("one"), "status": {"phase": "Succeeded"}})
    admission.check_quotas(store, PODS, NAMESPACE, make_pod("two"))


def test_a_quota_on_compute_adds_up_what_is_asked_for() -> None:
    store = with_quota(make_store(), requests_cpu="1", limits_memory="1Gi")
    container = make_container(resources={"limits": {"cpu": "600m", "memory": "512Mi"}})
    store.create("pods", make_pod("one", containers=[container]))
    with pytest.raises(StoreError) as refused:
        admission.check_quotas(store, PODS, NAMESPACE, make_pod("two", containers=[container]))
    assert refused.value.message == (
        'pods "two" is forbidden: exceeded quota: q, requested: requests.cpu=600m,'
        " used: requests.cpu=600m, limited: requests.cpu=1"
    )


def test_a_pod_must_say_what_a_quota_limits() -> None:
    store = with_quota(make_store(), requests_cpu="1", limits_memory="1Gi", pods="9")
    with pytest.raises(StoreError) as refused:
        admission.check_quotas(store, PODS, NAMESPACE, make_pod())
    assert refused.value.message == (
        'pods "one" is forbidden: failed quota: q: must specify limits.memory for: session;'
        " requests.cpu for: session"
    )


def test_other_objects_are_counted_by_their_kind() -> None:
    store = with_quota(make_store(), count__configmaps="1")
    kind = KINDS_BY_PLURAL["configmaps"]
    obj = {"metadata": {"name": "one", "namespace": NAMESPACE}}
    admission.check_quotas(store, kind, NAMESPACE, obj)
    store.create("configmaps", obj)
    with pytest.raises(StoreError, match="requested: count/configmaps=1"):
        admission.check_quotas(store, kind, NAMESPACE, {"metadata": {"name": "two"}})
    admission.check_quotas(store, KINDS_BY_PLURAL["secrets"], NAMESPACE, obj)


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
    store = make_store()
    with pytest.raises(StoreError) as refused:
        admission.check_service_account(store, NAMESPACE, make_pod())
    assert refused.value.message == (
        'pods "one" is forbidden: error looking up service account apps/default: serviceaccount'
        ' "default" not found'
    )


def test_a_limit_range_fills_in_what_a_pod_leaves_out() -> None:
    store = make_store()
    limits = [
        {
            "type": "Container",
            "default": {"cpu": "1", "memory": "1Gi"},
            "defaultRequest": {"cpu": "0.5"},
        }
    ]
    metadata = {"name": "l", "namespace": NAMESPACE}
    store.create("limitranges", {"metadata": metadata, "spec": {"limits": limits}})
    container = make_container(resources={"limits": {"memory": "64Mi"}})
    pod = admission.apply_limit_ranges(store, NAMESPACE, make_pod(containers=[container]))
    assert pod["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1", "memory": "64Mi"},
        "requests": {"cpu": "500m", "memory": "64Mi"},
    }
