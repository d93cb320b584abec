"""What a ResourceQuota counts, as its status tells: kept up to date, by scope."""

import pytest

from tests.conformance.amounts import (
    check_let_in,
    check_refused,
    container,
    create,
    create_quota,
    forbidden,
    pod,
    try_to_create,
    until_status,
)
from tests.conformance.client import Api, Object

MERGE = "application/merge-patch+json"
PRIORITY = "system-node-critical"
AMOUNTS = {"cpu": "1", "memory": "1Gi"}


async def test_everything_that_is_limited_is_counted_unless_nobody_can(
    api: Api, namespace: str
) -> None:
    hard = {
        "requests.cpu": "5000m",
        "limits.memory": "5120Mi",
        "ephemeral-storage": "4Gi",
        "requests.nvidia.com/gpu": "1",
        "persistentvolumeclaims": "2",
        "requests.storage": "1Gi",
        "pods": "3",
        "count/pods": "3",
        "configmaps": "3",
        "count/configmaps": "3",
        "count/serviceaccounts": "1",
        "count/leases.coordination.k8s.io": "3",
        "count/ingresses.networking.k8s.io": "3",
        "count/events": "4",
        "count/foo": "1",
        "resourcequotas": "2",
        "services": "2",
        "services.loadbalancers": "2",
        "services.nodeports": "2",
    }
    status = await create_quota(api, namespace, hard)
    counted = {name for name in hard if name not in ("count/events", "count/foo")}
    ones = {"configmaps", "count/configmaps", "count/serviceaccounts", "resourcequotas"}
    assert status == {
        "hard": {**hard, "requests.cpu": "5", "limits.memory": "5Gi"},
        "used": {name: "1" if name in ones else "0" for name in counted},
    }
    assert list(status["hard"]) == sorted(hard)
    assert list(status["used"]) == sorted(counted)


async def test_what_is_used_follows_what_is_created_and_deleted(api: Api, namespace: str) -> None:
    hard = {"configmaps": "9", "limits.cpu": "9", "pods": "9", "secrets": "9"}
    await create_quota(api, namespace, hard)
    # Not counted would be what is created before admission knows of the quota.
    told = forbidden("failed quota: q: must specify limits.cpu for: a")
    await check_refused(api, namespace, pod(container("a")), told)
    await create(api, namespace, pod(container("a", {}, {"cpu": "1"})))
    second = pod(container("a", {}, {"cpu": "250m"})) | {"metadata": {"name": "two"}}
    await create(api, namespace, second)
    await create(api, namespace, {"metadata": {"name": "one"}}, "secrets")
    used = {"configmaps": "1", "limits.cpu": "1250m", "pods": "2", "secrets": "1"}
    assert (await until_status(api, namespace, "q", hard, used))["used"] == used
    await api.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/one")
    await api.ask("DELETE", f"/api/v1/namespaces/{namespace}/secrets/one")
    used = {"configmaps": "1", "limits.cpu": "250m", "pods": "1", "secrets": "0"}
    assert (await until_status(api, namespace, "q", hard, used))["used"] == used


async def test_pods_that_have_ended_count_as_objects_only(api: Api, namespace: str) -> None:
    hard = {"count/pods": "9", "pods": "1", "requests.cpu": "1"}
    await create_quota(api, namespace, hard)
    # Not counted would be what is created before admission knows of the quota.
    told = forbidden("failed quota: q: must specify requests.cpu for: a")
    await check_refused(api, namespace, pod(container("a")), told)
    given = pod(container("a", {"cpu": "1"}))
    await create(api, namespace, given)
    another = given | {"metadata": {"name": "two"}}
    why = (
        "exceeded quota: q, requested: pods=1,requests.cpu=1, used: pods=1,requests.cpu=1,"
        " limited: pods=1,requests.cpu=1"
    )
    await check_refused(api, namespace, another, forbidden(why, name="two"))
    path = f"/api/v1/namespaces/{namespace}/pods/one/status"
    await api.ask("PATCH", path, {"status": {"phase": "Failed"}}, content_type=MERGE)
    used = {"count/pods": "1", "pods": "0", "requests.cpu": "0"}
    await until_status(api, namespace, "q", hard, used)
    await check_let_in(api, namespace, another)


SCOPED: dict[str, Object] = {
    "terminating": {"scopes": ["Terminating"]},
    "not-terminating": {"scopes": ["NotTerminating"]},
    "best-effort": {"scopes": ["BestEffort"]},
    "not-best-effort": {"scopes": ["NotBestEffort"]},
    "both": {"scopes": ["Terminating", "NotBestEffort"]},
    "priority": {
        "scopeSelector": {
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": [PRIORITY]}
            ]
        }
    },
    "no-priority": {
        "scopeSelector": {
            "matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]
        }
    },
    "best-effort-selected": {
        "scopeSelector": {"matchExpressions": [{"scopeName": "BestEffort", "operator": "Exists"}]}
    },
}
PODS: dict[str, Object] = {
    "plain": pod(container()),
    "bound": pod(container(), activeDeadlineSeconds=60),
    "burst": pod(container("main", {"cpu": "1"})),
    "bound-burst": pod(container("main", {"cpu": "1"}), activeDeadlineSeconds=60),
    "critical": pod(container("main", AMOUNTS, AMOUNTS), priorityClassName=PRIORITY),
}
# Which pods are in which scope.
IN_SCOPE = {
    "terminating": {"bound", "bound-burst"},
    "not-terminating": {"plain", "burst", "critical"},
    "best-effort": {"plain", "bound"},
    "not-best-effort": {"burst", "bound-burst", "critical"},
    "both": {"bound-burst"},
    "priority": {"critical"},
    "no-priority": {"plain", "bound", "burst", "bound-burst"},
    "best-effort-selected": {"plain", "bound"},
}


@pytest.mark.parametrize("scope", SCOPED)
async def test_a_quota_with_a_scope_is_about_the_pods_in_it(
    api: Api, namespace: str, scope: str
) -> None:
    await create_quota(api, namespace, {"pods": "0"}, scope, **SCOPED[scope])
    for name, given in PODS.items():
        named = given | {"metadata": {"name": name}}
        why = f"exceeded quota: {scope}, requested: pods=1, used: pods=0, limited: pods=0"
        if name in IN_SCOPE[scope]:
            await check_refused(api, namespace, named, forbidden(why, name=name))
    # Admission knows of the quota by now, and lets these in all the same.
    for name, given in PODS.items():
        if name not in IN_SCOPE[scope]:
            answer = await try_to_create(api, namespace, given | {"metadata": {"name": name}})
            assert answer.status == 201, (name, answer.text)
    configmap = {"metadata": {"name": "one"}}
    assert (await try_to_create(api, namespace, configmap, "configmaps")).status == 201


async def test_a_quota_with_a_scope_counts_the_pods_in_it(api: Api, namespace: str) -> None:
    hard = {"pods": "9", "requests.cpu": "9"}
    await create_quota(api, namespace, hard, "bursting", scopes=["NotBestEffort"])
    await create_quota(api, namespace, {"pods": "9"}, "idle", scopes=["BestEffort"])
    # Not counted would be what is created before admission knows of the quota.
    why = (
        "exceeded quota: bursting, requested: requests.cpu=10, used: requests.cpu=0,"
        " limited: requests.cpu=9"
    )
    await check_refused(api, namespace, pod(container("a", {"cpu": "10"})), forbidden(why))
    for name in ("burst", "critical"):
        await create(api, namespace, PODS[name] | {"metadata": {"name": name}})
    refused = await try_to_create(api, namespace, PODS["plain"])
    # In no scope that limits what it leaves out.
    assert refused.status == 201
    used = {"pods": "2", "requests.cpu": "2"}
    await until_status(api, namespace, "bursting", hard, used)
    await until_status(api, namespace, "idle", {"pods": "9"}, {"pods": "0"})
