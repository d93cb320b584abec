"""Pods that ask for amounts of resources, quotas, and what is said where they are too much."""

from collections.abc import Callable
from typing import Any

from tests.conformance.client import Answer, Api, Object
from tests.conformance.objects import IMAGE, check_refusal, make_failure

Amounts = dict[str, str]

# How often a real API server is asked until its admission knows what a watch has told already.
CACHE_TRIES = 200


def container(
    name: str = "main",
    requests: Amounts | None = None,
    limits: Amounts | None = None,
    **fields: Any,
) -> Object:
    """Return a container that asks for amounts."""
    given = {"requests": requests, "limits": limits}
    resources = {field: amounts for field, amounts in given.items() if amounts is not None}
    return {"name": name, "image": IMAGE, "resources": resources, **fields}


def pod(*containers: Object, **spec: Any) -> Object:
    """Return a pod that no scheduler cares for."""
    return {
        "metadata": {"name": "one"},
        "spec": {"containers": list(containers), "schedulerName": "none", **spec},
    }


async def try_to_create(
    api: Api, namespace: str, obj: Object, resource: str = "pods", *, dry_run: bool = True
) -> Answer:
    """Ask for an object; a dry run goes through all of admission and leaves nothing."""
    path = f"/api/v1/namespaces/{namespace}/{resource}"
    return await api.request("POST", path, obj, query={"dryRun": "All"} if dry_run else {})


async def check_let_in(api: Api, namespace: str, obj: Object, resource: str = "pods") -> None:
    """Check that an object is let in; the quota that is to do so was told by a watch."""
    answer = await _try_until(api, namespace, obj, resource, lambda answer: answer.status == 201)
    assert answer.status == 201, answer.text


async def check_refused(
    api: Api, namespace: str, obj: Object, expected: Object, resource: str = "pods"
) -> None:
    """Check that an object is refused so; the quota that is to do so was told by a watch."""
    answer = await _try_until(api, namespace, obj, resource, lambda answer: answer.body == expected)
    check_refusal(answer, expected)


async def _try_until(
    api: Api, namespace: str, obj: Object, resource: str, is_right: Callable[[Answer], bool]
) -> Answer:
    """Ask for an object until the answer is right, and return the last one.

    Admission of a real API server reads quotas from a cache that may be a moment behind a watch;
    the local cluster has none, and its first answer is the one that counts.
    """
    for _ in range(CACHE_TRIES if api.is_real else 1):
        answer = await try_to_create(api, namespace, obj, resource)
        if is_right(answer):
            break
    return answer


async def create(api: Api, namespace: str, obj: Object, resource: str = "pods") -> Object:
    """Create an object, which must succeed."""
    found: Object = await api.ask("POST", f"/api/v1/namespaces/{namespace}/{resource}", obj)
    return found


def forbidden(why: str, *, resource: str = "pods", name: str = "one") -> Object:
    """Return the Status of an object that is forbidden."""
    message = f'{resource} "{name}" is forbidden: {why}'
    return make_failure(403, "Forbidden", message, {"name": name, "kind": resource})


async def create_quota(
    api: Api, namespace: str, hard: Amounts, name: str = "q", **spec: Any
) -> Object:
    """Create a quota and return its status once everything in the namespace is counted."""
    if any(entry.endswith("configmaps") for entry in hard):
        # The one that every namespace has comes when it comes.
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        async with api.watch(path, fieldSelector="metadata.name=kube-root-ca.crt") as watch:
            await watch.until("ADDED", "kube-root-ca.crt")
    quota = {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}
    created = await create(api, namespace, quota, "resourcequotas")
    return await until_status(api, namespace, name, created["spec"]["hard"])


async def until_status(
    api: Api, namespace: str, name: str, hard: Amounts, used: Amounts | None = None
) -> Object:
    """Wait until a quota's status names those limits, and those amounts where they are given."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    async with api.watch(path, fieldSelector=f"metadata.name={name}") as watch:
        while True:
            event = await watch.next()
            assert event is not None
            status: Object = event.object.get("status", {})
            is_counted = status.get("hard") == hard and status.get("used") is not None
            if is_counted and (used is None or used.items() <= status["used"].items()):
                return status
