"""What else a new pod is refused for, and who speaks first where several would refuse."""

from typing import Any

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
from tests.conformance.objects import IMAGE, check_refusal, make_failure
from tests.conformance.pod_security_specs import HARDENED, labelled_namespace, labels

ACCOUNT = {"serviceAccountName": "nope"}
PRIORITY = {"priorityClassName": "nope"}
RUNTIME = {"runtimeClassName": "nope"}
FAULT = {"restartPolicy": "Sometimes"}

NO_ACCOUNT = 'error looking up service account {}/nope: serviceaccount "nope" not found'
NO_PRIORITY = "no PriorityClass with name nope was found"
NO_RUNTIME = 'pod rejected: RuntimeClass "nope" not found'
TOO_MUCH = "maximum cpu usage per Container is 1, but limit is 7"
NOT_RESTRICTED = (
    'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "a"'
    " must set securityContext.allowPrivilegeEscalation=false)"
)
EXCEEDED = "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0"


def asking(cpu: str, *, hardened: bool = True, **spec: Any) -> Object:
    """Return a pod with one container that asks for CPU."""
    allowed = {} if hardened else {"allowPrivilegeEscalation": True}
    context = {**HARDENED, **allowed}
    return pod(container("a", limits={"cpu": cpu}, securityContext=context), **spec)


async def test_the_first_that_refuses_is_the_one_that_is_heard(api: Api) -> None:
    async with labelled_namespace(api, labels(enforce="restricted")) as namespace:
        limits = [{"type": "Container", "max": {"cpu": "1"}}]
        limit_range = {"metadata": {"name": "limits"}, "spec": {"limits": limits}}
        await create(api, namespace, limit_range, "limitranges")
        await create_quota(api, namespace, {"pods": "0"})
        bad = ACCOUNT | PRIORITY | RUNTIME | FAULT
        for given, why in (
            (asking("7", hardened=False, **bad), NO_ACCOUNT.format(namespace)),
            (asking("7", hardened=False, **PRIORITY, **RUNTIME, **FAULT), NO_PRIORITY),
            (asking("7", hardened=False, **RUNTIME, **FAULT), NO_RUNTIME),
            (asking("7", hardened=False), TOO_MUCH),
            (asking("1", hardened=False), NOT_RESTRICTED),
            (asking("1"), EXCEEDED),
        ):
            await check_refused(api, namespace, given, forbidden(why))
        answer = await try_to_create(api, namespace, asking("7", hardened=False, **FAULT))
        message = 'Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"'
        cause = {
            "reason": "FieldValueNotSupported",
            "message": message,
            "field": "spec.restartPolicy",
        }
        told = f'Pod "one" is invalid: spec.restartPolicy: {message}'
        details = {"name": "one", "kind": "Pod", "causes": [cause]}
        check_refusal(answer, make_failure(422, "Invalid", told, details))


async def test_a_quota_speaks_before_the_name_is_looked_up(api: Api, namespace: str) -> None:
    one = {"metadata": {"name": "one"}}
    await create_quota(api, namespace, {"secrets": "0"})
    why = "exceeded quota: q, requested: secrets=1, used: secrets=0, limited: secrets=0"
    await check_refused(api, namespace, one, forbidden(why, resource="secrets"), "secrets")
    merge, path = "application/merge-patch+json", f"/api/v1/namespaces/{namespace}/resourcequotas/q"
    await api.ask("PATCH", path, {"spec": {"hard": {"secrets": "1"}}}, content_type=merge)
    await until_status(api, namespace, "q", {"secrets": "1"})
    # What is created before admission knows of that would not be counted.
    await check_let_in(api, namespace, one, "secrets")
    await create(api, namespace, one, "secrets")
    why = "exceeded quota: q, requested: secrets=1, used: secrets=1, limited: secrets=1"
    await check_refused(api, namespace, one, forbidden(why, resource="secrets"), "secrets")


async def test_what_is_refused_before_it_has_a_name_is_called_by_what_is_known(
    api: Api, namespace: str
) -> None:
    for spec, why in (
        (ACCOUNT, NO_ACCOUNT.format(namespace)),
        (PRIORITY, NO_PRIORITY),
        (RUNTIME, NO_RUNTIME),
    ):
        for metadata, name in (({"generateName": "gen-"}, "gen-"), ({}, "Unknown")):
            given = pod(container("a"), **spec) | {"metadata": metadata}
            answer = await try_to_create(api, namespace, given)
            check_refusal(answer, forbidden(why, name=name))


async def test_a_priority_is_no_business_of_whoever_creates_a_pod(api: Api, namespace: str) -> None:
    for spec, computed in (({}, 0), ({"priorityClassName": "system-cluster-critical"}, 2000000000)):
        why = (
            "the integer value of priority (7) must not be provided in pod spec; priority admission"
            f" controller computed {computed} from the given PriorityClass name"
        )
        answer = await try_to_create(api, namespace, pod(container("a"), priority=7, **spec))
        check_refusal(answer, forbidden(why))
        answer = await try_to_create(api, namespace, pod(container("a"), **spec))
        assert answer.body["spec"]["priority"] == computed


async def test_nothing_comes_into_a_namespace_that_is_not_there(api: Api) -> None:
    for resource, given in (("pods", pod(container("a"))), ("configmaps", {"metadata": {}})):
        answer = await try_to_create(api, "telo-conf-none", given, resource)
        details = {"name": "telo-conf-none", "kind": "namespaces"}
        message = 'namespaces "telo-conf-none" not found'
        check_refusal(answer, make_failure(404, "NotFound", message, details))


async def test_nothing_comes_into_a_namespace_that_ends(api: Api, namespace: str) -> None:
    held = {"metadata": {"name": "held", "finalizers": ["telo.test/held"]}}
    await create(api, namespace, held, "configmaps")
    await api.ask("DELETE", f"/api/v1/namespaces/{namespace}")
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    for resource, metadata, name in (
        ("configmaps", {"name": "one"}, "one"),
        ("configmaps", {"generateName": "gen-"}, "gen-"),
        ("secrets", {}, "Unknown"),
        ("pods", {"name": "one"}, "one"),
    ):
        spec = {"containers": [{"name": "a", "image": IMAGE}], **ACCOUNT, **FAULT}
        given = {"metadata": metadata} | ({"spec": spec} if resource == "pods" else {})
        answer = await try_to_create(api, namespace, given, resource)
        expected = forbidden(why, resource=resource, name=name)
        expected["details"]["causes"] = [cause]
        check_refusal(answer, expected)
    path = f"/api/v1/namespaces/{namespace}/configmaps/held"
    merge = "application/merge-patch+json"
    await api.ask("PATCH", path, {"metadata": {"finalizers": None}}, content_type=merge)


def _toleration(condition: str) -> Object:
    return {
        "key": f"node.kubernetes.io/{condition}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }


NOT_READY, UNREACHABLE = _toleration("not-ready"), _toleration("unreachable")


TOLERATIONS: tuple[tuple[list[Object], list[Object]], ...] = (
    ([], [NOT_READY, UNREACHABLE]),
    ([NOT_READY | {"tolerationSeconds": 5}], [UNREACHABLE]),
    ([{"operator": "Exists"}], []),
    ([{"operator": "Exists", "effect": "NoExecute"}], []),
    ([{"operator": "Exists", "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
    ([{"key": NOT_READY["key"], "operator": "Exists"}], [UNREACHABLE]),
)


async def test_pods_bear_a_node_that_is_gone_for_a_while(api: Api, namespace: str) -> None:
    for given, added in TOLERATIONS:
        answer = await try_to_create(api, namespace, pod(container("a"), tolerations=given))
        assert answer.body["spec"]["tolerations"] == [*given, *added]
