"""Create, read, list, patch, replace and delete Kubernetes objects as plain JSON.

Only objects of the session namespace and the few cluster-wide kinds that the runner reads. Nothing
here decides or retries.
"""

from typing import Any
from urllib.parse import quote

from telorunner.errors import Conflict, ObjectNotFound
from telorunner.kube.client import Call, Cluster
from telorunner.kube.errors import NotKubernetesError, from_exception

SESSION_ID_LABEL = "telo.run/session-id"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"

# What kubectl asks for; a page of 500 pods is a few MiB.
PAGE_OBJECTS = 500

# A page of a large list takes the API server longer than one object does.
LIST_SECONDS = 30.0

_NAMESPACED = {
    "pods": "/api/v1",
    "configmaps": "/api/v1",
    "secrets": "/api/v1",
    "services": "/api/v1",
    "events": "/api/v1",
    "endpointslices": "/apis/discovery.k8s.io/v1",
    "ingresses": "/apis/networking.k8s.io/v1",
}
_CLUSTER_WIDE = {
    "namespaces": "/api/v1",
    "runtimeclasses": "/apis/node.k8s.io/v1",
    "ingressclasses": "/apis/networking.k8s.io/v1",
}
# What is served in one of several versions: `Cluster.gateway_version` says which to use.
_OF_GATEWAY_API = frozenset({"httproutes"})

GATEWAY_GROUP = "gateway.networking.k8s.io"


def collection_path(cluster: Cluster, resource: str) -> str:
    """Return the quoted path of all objects of a resource that the runner may see."""
    if resource in _CLUSTER_WIDE:
        return f"{_CLUSTER_WIDE[resource]}/{resource}"
    if resource in _OF_GATEWAY_API:
        prefix = f"/apis/{GATEWAY_GROUP}/{cluster.gateway_version}"
    else:
        prefix = _NAMESPACED[resource]
    return f"{prefix}/namespaces/{quote(cluster.namespace, safe='')}/{resource}"


def object_path(cluster: Cluster, resource: str, name: str) -> str:
    """Return the quoted path of one object."""
    return f"{collection_path(cluster, resource)}/{quote(name, safe='')}"


def session_labels(managed_by: str, session_id: str) -> dict[str, str]:
    """Return the labels of every object of a session."""
    return {MANAGED_BY_LABEL: managed_by, SESSION_ID_LABEL: session_id}


def managed_selector(managed_by: str) -> str:
    """Return the label selector of everything that this runner made."""
    return f"{MANAGED_BY_LABEL}={managed_by}"


def is_selected(found: dict[str, Any], selector: str) -> bool:
    """Tell whether an object has the labels that a selector of `managed_selector()` asks for."""
    labels = found["metadata"].get("labels") or {}
    terms = (term.partition("=") for term in selector.split(",") if term)
    return all(labels.get(name) == value for name, _, value in terms)


def owner_reference(owner: dict[str, Any]) -> dict[str, str]:
    """Return the reference that lets an object vanish with its pod.

    Without `blockOwnerDeletion`, which clusters that check finalizer rights refuse.
    """
    return {
        "apiVersion": owner.get("apiVersion", "v1"),
        "kind": owner.get("kind", "Pod"),
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


async def create(cluster: Cluster, resource: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """Create an object and return it as stored.

    Raises:
        AlreadyExists: There is one of that name.
        ClusterError: The API refused or did not answer; then the object may exist all the same.
    """
    return await cluster.request(Call("POST", collection_path(cluster, resource), body=manifest))


async def find(cluster: Cluster, resource: str, name: str) -> dict[str, Any] | None:
    """Return one object; None: the API says that there is none of that name.

    Raises:
        ClusterError: The API refused or did not answer; then nothing is known of it.
    """
    try:
        return await get(cluster, resource, name)
    except ObjectNotFound:
        return None


async def get(cluster: Cluster, resource: str, name: str) -> dict[str, Any]:
    """Return one object.

    Raises:
        ObjectNotFound: There is none of that name.
        ClusterError: The API refused or did not answer.
    """
    return await cluster.request(Call("GET", object_path(cluster, resource, name)))


async def patch(
    cluster: Cluster, resource: str, name: str, merge_patch: dict[str, Any]
) -> dict[str, Any]:
    """Change an object by a JSON merge patch (RFC 7386) and return it as stored.

    Raises:
        ObjectNotFound: There is none of that name.
        ClusterError: The API refused or did not answer.
    """
    path = object_path(cluster, resource, name)
    content_type = "application/merge-patch+json"
    return await cluster.request(Call("PATCH", path, body=merge_patch, content_type=content_type))


async def replace(cluster: Cluster, resource: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """Put a whole object in the place of the one of its name, and return it as stored.

    With a `resourceVersion` in it, only that very state is replaced.

    Raises:
        ObjectNotFound: There is none of that name.
        Conflict: It has been changed since that state.
        ClusterError: The API refused or did not answer.
    """
    path = object_path(cluster, resource, manifest["metadata"]["name"])
    return await cluster.request(Call("PUT", path, body=manifest))


async def delete_if_exists(
    cluster: Cluster,
    resource: str,
    name: str,
    *,
    grace_seconds: int | None = None,
    uid: str | None = None,
) -> bool:
    """Ask for the deletion of an object; return False if there is nothing (more) to delete.

    Args:
        cluster: Where.
        resource: Such as `pods`.
        name: The object's name.
        grace_seconds: What a pod's containers get after SIGTERM; None leaves it to the object.
        uid: Delete only this very object; one of the same name but another uid stays.

    Raises:
        ClusterError: The API refused or did not answer.
    """
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    options["propagationPolicy"] = "Background"
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    if uid is not None:
        options["preconditions"] = {"uid": uid}
    try:
        await cluster.request(Call("DELETE", object_path(cluster, resource, name), body=options))
    except ObjectNotFound:
        return False
    except Conflict:
        # There is another object of that name, or this one was changed at that very moment.
        if uid is None or await _uid(cluster, resource, name) == uid:
            raise
        return False
    return True


async def _uid(cluster: Cluster, resource: str, name: str) -> str:
    """Return the uid of an object, empty if there is none of that name."""
    found = await find(cluster, resource, name)
    return str(found["metadata"].get("uid") or "") if found is not None else ""


async def list_objects(
    cluster: Cluster, resource: str, *, selector: str = ""
) -> list[dict[str, Any]]:
    """Return all objects that a label selector matches.

    Raises:
        ClusterError: The API refused or did not answer.
    """
    objects, _ = await list_with_version(cluster, resource, selector=selector)
    return objects


async def list_with_version(
    cluster: Cluster, resource: str, *, selector: str = ""
) -> tuple[list[dict[str, Any]], str]:
    """Return all matching objects, and the resource version to watch from.

    Raises:
        ResourceExpired: The list changed too much between two pages; list again.
        ClusterError: The API refused or did not answer.
    """
    query = {"limit": str(PAGE_OBJECTS)}
    if selector:
        query["labelSelector"] = selector
    objects: list[dict[str, Any]] = []
    while True:
        call = Call("GET", collection_path(cluster, resource), query)
        page = await cluster.request(call, timeout_seconds=LIST_SECONDS)
        if "items" not in page:
            # Other JSON, which a gateway may answer to anything, would be a list of nothing.
            raise from_exception(NotKubernetesError("the answer is no list"))
        objects += page["items"] or []
        metadata = page.get("metadata") or {}
        if not metadata.get("continue"):
            return objects, str(metadata.get("resourceVersion") or "")
        query = {**query, "continue": metadata["continue"]}
