"""Pods that ask for amounts of resources, quotas, and what is said where they are too much."""

from typing import Any

from tests.conformance.client import Answer, Api, Object
from tests.conformance.objects import IMAGE, make_failure

Amounts = dict[str, str]


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
