"""Makes the objects that publish a session, keeps them at what is wanted, and takes them away.

It writes and lists, and watches nothing. What goes wrong is the caller's, as a `ClusterError`;
everything may be tried again. It owns no task.
"""

import asyncio
from collections.abc import Iterable
from typing import Any
from weakref import WeakValueDictionary

from routing.gateway import GatewayTarget, build_httproute
from routing.ingress import IngressTarget, build_ingress
from routing.offered import gateway_versions
from routing.routes import ProbeBackend, SessionRoutes, object_name, route_name
from routing.service import build_service
from telorunner.aio import Backoff
from telorunner.errors import AlreadyExists, ClusterError, Conflict, ObjectNotFound
from telorunner.kube.client import Cluster
from telorunner.kube.objects import (
    MANAGED_BY_LABEL,
    SESSION_ID_LABEL,
    create,
    delete_if_exists,
    get,
    list_objects,
    managed_selector,
    replace,
)

Object = dict[str, Any]

# A conflict means that somebody else has just written; one who does so for ever is not waited for.
ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.05

# What the API server has given an object of a kind at its creation: it does not let go of it, would
# give it anew, or would not give it again to one that is replaced.
# Source: https://kubernetes.io/docs/reference/kubernetes-api/service-resources/service-v1/
# Source: https://kubernetes.io/docs/concepts/services-networking/ingress/#default-ingress-class
_KEPT_OF_SPEC = {
    "services": ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"),
    "ingresses": ("ingressClassName",),
}


class Publisher:
    """Publishes sessions through one layer: the kind of its target says which."""

    def __init__(
        self, cluster: Cluster, target: IngressTarget | GatewayTarget, probe: ProbeBackend | None
    ) -> None:
        self._cluster = cluster
        self._target = target
        self._probe = probe
        self.resource = "ingresses" if isinstance(target, IngressTarget) else "httproutes"
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def publish(self, routes: SessionRoutes) -> None:
        """Let the cluster have what these routes need, and nothing else of that session.

        Of two that publish one session at the same time, the one that asked last wins.

        Raises:
            AlreadyExists: There is an object of that name which is not the session's.
            ClusterError: The API refused or did not answer; a part of it may be done.
        """
        async with self._lock(routes.session_id):
            # NB: the Service first. A controller looks for it as soon as it sees the route.
            if routes.ports:
                await ensure_object(self._cluster, "services", build_service(routes))
            wanted = self._build_routes(routes)
            if self.resource == "httproutes" or not wanted:
                # A session's Ingress is one object whatever its ports are; there is none besides.
                names = {route["metadata"]["name"] for route in wanted}
                await _delete(self._cluster, self.resource, routes.session_id, names)
            # After that: as soon as a route is there, it is waited for what becomes of it.
            for route in wanted:
                await ensure_object(self._cluster, self.resource, route)
            if not routes.ports:
                await _delete(self._cluster, "services", routes.session_id)

    async def withdraw(self, session_id: str) -> None:
        """Delete what publishes a session; a failure with one kind does not spare the others.

        Raises:
            ClusterError: The API refused or did not answer; something may be left.
        """
        async with self._lock(session_id):
            await _delete_kinds(self._cluster, session_id, (self.resource, "services"))

    async def session_ids(self) -> set[str]:
        """Return the sessions that have an object here which nobody has deleted yet.

        Raises:
            ClusterError: The API refused or did not answer.
        """
        found = set()
        selector = managed_selector(self._cluster.managed_by)
        for resource in (self.resource, "services"):
            for thing in await list_objects(self._cluster, resource, selector=selector):
                metadata = thing["metadata"]
                # What waits only for somebody's finalizer is as good as gone.
                if not metadata.get("deletionTimestamp"):
                    found.add(str(metadata["labels"].get(SESSION_ID_LABEL, "")))
        # What belongs to no session is the runner's own.
        return found - {""}

    def route_of(self, session_id: str, port: int) -> str:
        """Return the name of the object whose status tells of one port."""
        if isinstance(self._target, IngressTarget):
            return object_name(session_id)
        return route_name(session_id, port)

    def _build_routes(self, routes: SessionRoutes) -> list[Object]:
        if not isinstance(self._target, IngressTarget):
            target = self._target
            return [build_httproute(routes, port, target, self._probe) for port in routes.tcp_ports]
        return [build_ingress(routes, self._target, self._probe)] if routes.tcp_ports else []

    def _lock(self, session_id: str) -> asyncio.Lock:
        """Return the session's lock, which lives while somebody holds it or waits for it."""
        return self._locks.setdefault(session_id, asyncio.Lock())


async def withdraw_left(cluster: Cluster, session_id: str) -> None:
    """Delete what has published a session, through whatever layer that was.

    For where there is no layer any more; nothing is no failure.

    Raises:
        ClusterError: The API refused or did not answer; something may be left.
    """
    resources, failure = ["ingresses", "services"], None
    # The start has not asked, since nothing is to be published.
    try:
        versions = await gateway_versions(cluster)
    except ClusterError as exc:
        versions, failure = (), exc
    if versions:
        cluster.gateway_version = versions[0]
        resources.insert(0, "httproutes")
    await _delete_kinds(cluster, session_id, resources)
    if failure is not None:
        raise failure


async def _delete_kinds(cluster: Cluster, session_id: str, resources: Iterable[str]) -> None:
    """Delete a session's objects of some kinds; a failure with one does not spare the others."""
    failures: list[ClusterError] = []
    for resource in resources:
        try:
            await _delete(cluster, resource, session_id)
        except ClusterError as exc:
            failures.append(exc)
    if failures:
        raise failures[0]


async def _delete(
    cluster: Cluster, resource: str, session_id: str, kept: Iterable[str] = ()
) -> None:
    """Delete a session's objects of one kind, but those that are kept."""
    selector = f"{managed_selector(cluster.managed_by)},{SESSION_ID_LABEL}={session_id}"
    for thing in await list_objects(cluster, resource, selector=selector):
        metadata = thing["metadata"]
        if metadata["name"] not in kept:
            await delete_if_exists(cluster, resource, metadata["name"], uid=metadata.get("uid"))


async def ensure_object(cluster: Cluster, resource: str, manifest: Object) -> Object:
    """Create an object, or put it in the place of the one that is there; return it as stored.

    Raises:
        AlreadyExists: The one that is there has other labels: it belongs to somebody else.
        Conflict: It is changed or deleted by somebody else again and again.
        ClusterError: The API refused or did not answer.
    """
    backoff = Backoff(FIRST_PAUSE_SECONDS)
    for _ in range(ATTEMPTS - 1):
        try:
            return await _create_or_replace(cluster, resource, manifest)
        except AlreadyExists:
            raise
        except Conflict:
            await backoff.wait()
    return await _create_or_replace(cluster, resource, manifest)


async def _create_or_replace(cluster: Cluster, resource: str, manifest: Object) -> Object:
    try:
        return await create(cluster, resource, manifest)
    except AlreadyExists as exc:
        taken = exc
    try:
        found = await get(cluster, resource, manifest["metadata"]["name"])
        if not _is_same_owner(found, manifest):
            raise taken
        if found["metadata"].get("deletionTimestamp"):
            # What is put in its place would go with it.
            raise Conflict(status=taken.status, reason=taken.reason)
        return await replace(cluster, resource, _carry_over(resource, found, manifest))
    except ObjectNotFound as exc:
        # It was deleted meanwhile.
        raise Conflict(status=taken.status, reason=taken.reason) from exc


def _is_same_owner(found: Object, wanted: Object) -> bool:
    """Tell whether an object is of the same runner and the same session as the wanted one."""
    theirs = found["metadata"].get("labels") or {}
    ours = wanted["metadata"]["labels"]
    return all(
        theirs.get(label) == ours.get(label) for label in (MANAGED_BY_LABEL, SESSION_ID_LABEL)
    )


def _carry_over(resource: str, found: Object, wanted: Object) -> Object:
    """Return what to put in the place of an object: wanted, with what others have added to it."""
    # NB: of a Service not the node ports. The API refuses them where the type is ClusterIP, which
    # ours are; one that somebody has made another type becomes what it was.
    given = {
        field: found["spec"][field]
        for field in _KEPT_OF_SPEC.get(resource, ())
        if field in found["spec"]
    }
    return {**wanted, "metadata": _carry_metadata(found, wanted), "spec": given | wanted["spec"]}


def _carry_metadata(found: Object, wanted: Object) -> Object:
    """Return the metadata of what is put in the place of an object.

    An ingress controller or a cloud keeps account of what it has set up outside the cluster in
    labels, annotations and finalizers of its own: without them that would be left for ever when the
    object goes. The owner is ours alone: with another one besides, it would outlive its pod.
    """
    theirs, ours = found["metadata"], wanted["metadata"]
    metadata = {**ours, "resourceVersion": theirs["resourceVersion"]}
    for field in ("labels", "annotations"):
        if together := {**(theirs.get(field) or {}), **(ours.get(field) or {})}:
            metadata[field] = together
    if theirs.get("finalizers"):
        metadata["finalizers"] = theirs["finalizers"]
    return metadata
