"""What a ResourceQuota refuses, in the words of a real cluster."""

import re

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
from tests.conformance.objects import check_refusal

# What, how much of it is used and how much is allowed.
EXCEEDED = "exceeded quota: q, requested: {0}=1, used: {0}={1}, limited: {0}={2}"
# As operators write them; what is told of them is in canonical form.
HARD = {
    "pods": "2",
    "requests.cpu": "1000m",
    "requests.memory": "1Gi",
    "limits.cpu": "2000m",
    "limits.memory": "2048Mi",
    "requests.ephemeral-storage": "1G",
    "limits.ephemeral-storage": "2Gi",
}
MISSING = (
    "limits.cpu for: session; limits.memory for: session; requests.cpu for: session;"
    " requests.memory for: session"
)
ALL_UNSAID = f"failed quota: q: must specify {MISSING}"
SMALL = {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Mi"}


async def test_everything_that_is_exceeded_is_told_in_canonical_form(
    api: Api, namespace: str
) -> None:
    await create_quota(api, namespace, HARD)
    big = container(
        "main",
        {"cpu": "1.5", "memory": "1.5Gi", "ephemeral-storage": "1500M"},
        {"cpu": "2500m", "memory": "3072Mi", "ephemeral-storage": "3Gi"},
    )
    await check_refused(
        api,
        namespace,
        pod(big),
        forbidden(
            "exceeded quota: q, requested: limits.cpu=2500m,limits.ephemeral-storage=3Gi,"
            "limits.memory=3Gi,requests.cpu=1500m,requests.ephemeral-storage=1500M,"
            "requests.memory=1536Mi, used: limits.cpu=0,limits.ephemeral-storage=0,"
            "limits.memory=0,requests.cpu=0,requests.ephemeral-storage=0,requests.memory=0,"
            " limited: limits.cpu=2,limits.ephemeral-storage=2Gi,limits.memory=2Gi,"
            "requests.cpu=1,requests.ephemeral-storage=1G,requests.memory=1Gi"
        ),
    )


async def test_only_what_is_exceeded_is_told_with_what_is_used(api: Api, namespace: str) -> None:
    await create_quota(api, namespace, HARD)
    await check_refused(api, namespace, pod(container("session")), forbidden(ALL_UNSAID))
    first = container(
        "main",
        {"cpu": "900m", "memory": "1000Mi", "ephemeral-storage": "900M"},
        {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"},
    )
    await create(api, namespace, pod(first))
    await until_status(api, namespace, "q", await _hard(api, namespace), {"pods": "1"})
    second = container(
        "main",
        {"cpu": "0.2", "memory": "100Mi", "ephemeral-storage": "200M"},
        {"cpu": "1.0001", "memory": "1025Mi", "ephemeral-storage": "1Gi"},
    )
    await check_refused(
        api,
        namespace,
        pod(second),
        forbidden(
            "exceeded quota: q, requested: limits.cpu=1001m,limits.memory=1025Mi,"
            "requests.cpu=200m,requests.ephemeral-storage=200M,requests.memory=100Mi,"
            " used: limits.cpu=1,limits.memory=1Gi,requests.cpu=900m,"
            "requests.ephemeral-storage=900M,requests.memory=1000Mi, limited: limits.cpu=2,"
            "limits.memory=2Gi,requests.cpu=1,requests.ephemeral-storage=1G,requests.memory=1Gi"
        ),
    )


async def _hard(api: Api, namespace: str) -> dict[str, str]:
    found = await api.ask("GET", f"/api/v1/namespaces/{namespace}/resourcequotas/q")
    hard: dict[str, str] = found["spec"]["hard"]
    return hard


UNSAID: tuple[tuple[list[Object], list[Object], str], ...] = (
    (
        [container("z"), container("a", {"cpu": "1"})],
        [container("k"), container("b")],
        "limits.cpu for: a,b,k,z; limits.memory for: a,b,k,z; requests.cpu for: b,k,z;"
        " requests.memory for: a,b,k,z",
    ),
    (
        [container("a", SMALL, SMALL), container("b", SMALL)],
        [container("i", limits=SMALL)],
        "limits.cpu for: b; limits.memory for: b",
    ),
    (
        [container("session")],
        [],
        MISSING,
    ),
)


async def test_what_a_quota_limits_must_be_said_by_every_container(
    api: Api, namespace: str
) -> None:
    await create_quota(api, namespace, HARD)
    for containers, init, missing in UNSAID:
        given = pod(*containers, initContainers=init)
        told = forbidden(f"failed quota: q: must specify {missing}")
        await check_refused(api, namespace, given, told)


async def test_what_is_not_said_is_told_before_what_is_exceeded(api: Api, namespace: str) -> None:
    await create_quota(api, namespace, {"pods": "0"}, "aa")
    await create_quota(api, namespace, {"cpu": "1", "memory": "1Gi"}, "zz")
    told = "failed quota: zz: must specify cpu for: a; memory for: a"
    await check_refused(api, namespace, pod(container("a")), forbidden(told))
    amounts = {"cpu": "1", "memory": "1Gi"}
    told = "exceeded quota: aa, requested: pods=1, used: pods=0, limited: pods=0"
    await check_refused(api, namespace, pod(container("a", amounts, amounts)), forbidden(told))


ALWAYS: Object = {"restartPolicy": "Always"}
# One that ends before the others begin, and one that stays with those after it.
INIT: tuple[tuple[list[Object], str], ...] = (
    ([container("i", {"memory": "6G"}), container("s", {"memory": "1Gi"}, **ALWAYS)], "6G"),
    ([container("s", {"memory": "1Gi"}, **ALWAYS), container("i", {"memory": "6Gi"})], "7Gi"),
    ([container("s", {"memory": "5Gi"}, **ALWAYS)], "6Gi"),
    ([container("i", {"memory": "5Gi"})], "5Gi"),
)


async def test_init_containers_count_as_long_as_they_run(api: Api, namespace: str) -> None:
    await create_quota(api, namespace, {"requests.memory": "4Gi"})
    for init, amount in INIT:
        given = pod(container("main", {"memory": "1Gi"}), initContainers=init)
        told = (
            f"exceeded quota: q, requested: requests.memory={amount}, used: requests.memory=0,"
            " limited: requests.memory=4Gi"
        )
        await check_refused(api, namespace, given, forbidden(told))


async def test_sums_are_written_as_what_was_added_up(api: Api, namespace: str) -> None:
    await create_quota(api, namespace, {"memory": "4Gi"})
    for notations, told in (
        (("3Gi", "3e9"), "6221225472"),
        (("3e9", "2e9"), "5e9"),
        (("2500M", "2500M"), "5G"),
        (("3000Mi", "2000Mi"), "5000Mi"),
        (("4294967296", "1"), "4294967297"),
    ):
        containers = [
            container(f"c{index}", {"memory": one}) for index, one in enumerate(notations)
        ]
        why = f"exceeded quota: q, requested: memory={told}, used: memory=0, limited: memory=4Gi"
        await check_refused(api, namespace, pod(*containers), forbidden(why))


COUNTED: tuple[tuple[str, Object, dict[str, int]], ...] = (
    ("configmaps", {}, {"configmaps": 1, "count/configmaps": 1}),
    ("secrets", {}, {"count/secrets": 1, "secrets": 1}),
    ("services", {"ports": [{"port": 80}]}, {"count/services": 1, "services": 1}),
    ("pods", {"containers": [container()]}, {"count/pods": 1, "pods": 1}),
    ("serviceaccounts", {}, {"count/serviceaccounts": 1}),
    ("resourcequotas", {"hard": {"pods": "1"}}, {"count/resourcequotas": 1}),
    (
        "services",
        {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}], "type": "NodePort"},
        {"count/services": 1, "services": 1, "services.nodeports": 2},
    ),
    (
        "services",
        {"ports": [{"port": 80}], "type": "LoadBalancer"},
        {
            "count/services": 1,
            "services": 1,
            "services.loadbalancers": 1,
            "services.nodeports": 1,
        },
    ),
)


async def test_objects_are_counted_by_their_kind(api: Api, namespace: str) -> None:
    hard = {name: "0" for _, _, asked in COUNTED for name in asked}
    status = await create_quota(api, namespace, hard)
    for resource, spec, asked in COUNTED:
        obj = {"metadata": {"name": "one"}, **({"spec": spec} if spec else {})}
        requested = ",".join(f"{name}={count}" for name, count in asked.items())
        used = ",".join(f"{name}={status['used'][name]}" for name in asked)
        limited = ",".join(f"{name}=0" for name in asked)
        why = f"exceeded quota: q, requested: {requested}, used: {used}, limited: {limited}"
        expected = forbidden(why, resource=resource)
        await check_refused(api, namespace, obj, expected, resource)


async def test_a_name_that_was_made_up_is_the_one_that_is_told(api: Api, namespace: str) -> None:
    await create_quota(api, namespace, {"configmaps": "0"})
    named, told = {"metadata": {"name": "one"}}, EXCEEDED.format("configmaps", 1, 0)
    expected = forbidden(told, resource="configmaps")
    await check_refused(api, namespace, named, expected, "configmaps")
    obj = {"metadata": {"generateName": "gen-"}}
    answer = await try_to_create(api, namespace, obj, "configmaps")
    name = answer.body["details"]["name"]
    assert re.fullmatch("gen-[a-z0-9]{5}", name)
    check_refusal(answer, forbidden(told, resource="configmaps", name=name))


async def test_a_quota_that_was_lowered_refuses_from_then_on(api: Api, namespace: str) -> None:
    another = pod(container()) | {"metadata": {"name": "two"}}

    async def change(hard: str, used: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/resourcequotas/q"
        merge = "application/merge-patch+json"
        await api.ask("PATCH", path, {"spec": {"hard": {"pods": hard}}}, content_type=merge)
        await until_status(api, namespace, "q", {"pods": hard}, {"pods": used})

    def refused(used: int, hard: int) -> Object:
        return forbidden(EXCEEDED.format("pods", used, hard), name="two")

    # By way of none at all, which shows that admission counts what is created then.
    await create_quota(api, namespace, {"pods": "0"})
    await check_refused(api, namespace, another, refused(0, 0))
    await change("1", "0")
    await check_let_in(api, namespace, another)
    await create(api, namespace, pod(container()))
    await check_refused(api, namespace, another, refused(1, 1))
    await change("2", "1")
    await check_let_in(api, namespace, another)
    await change("0", "1")
    await check_refused(api, namespace, another, refused(1, 0))


async def test_amounts_of_a_quota_must_be_amounts(api: Api, namespace: str) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"cpu": "1x"}}}
    answer = await try_to_create(api, namespace, quota, "resourcequotas")
    assert (answer.status, answer.body["message"]) == (
        400,
        'ResourceQuota in version "v1" cannot be handled as a ResourceQuota: quantities must match'
        " the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    )
