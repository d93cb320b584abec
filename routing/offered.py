"""Asks the cluster what could carry public routes: IngressClasses, and the Gateway API.

Only what the settings leave open is asked for. It decides nothing and owns no task.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from routing.layer import GATEWAY_VERSIONS, IngressClass, Offered, RoutingSettings
from telorunner.aio import Backoff
from telorunner.errors import ClusterError, ClusterUnavailable, ObjectNotFound
from telorunner.kube.client import Call, Cluster
from telorunner.kube.objects import GATEWAY_GROUP, list_objects

T = TypeVar("T")

# Source: https://kubernetes.io/docs/reference/labels-annotations-taints/
DEFAULT_CLASS_ANNOTATION = "ingressclass.kubernetes.io/is-default-class"

# An API server that is just restarting must not decide where sessions are published: about 8 s.
ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.5


async def discover(cluster: Cluster, settings: RoutingSettings) -> Offered:
    """Return what the cluster has; what could not be read is in the answer as a failure.

    A cluster that does not answer is asked a few times, for some seconds in all.
    """
    classes: tuple[IngressClass, ...] | None = None
    versions: tuple[str, ...] = ()
    ingress_failure: ClusterError | None = None
    gateway_failure: ClusterError | None = None
    is_auto, has_gateway = settings.mode == "auto", bool(settings.gateway_name)
    if settings.mode == "ingress" or (is_auto and not has_gateway):
        try:
            classes = await _ask(lambda: _ingress_classes(cluster))
        except ClusterError as exc:
            ingress_failure = exc
    if settings.mode == "gateway" or (is_auto and (has_gateway or not settings.ingress_class)):
        try:
            versions = await _ask(lambda: gateway_versions(cluster))
        except ClusterError as exc:
            gateway_failure = exc
    return Offered(classes, ingress_failure, versions, gateway_failure)


async def _ask(question: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer, a few times; a refusal is one."""
    backoff = Backoff(FIRST_PAUSE_SECONDS)
    for _ in range(ATTEMPTS - 1):
        try:
            return await question()
        except ClusterUnavailable as exc:
            await backoff.wait(exc.retry_after_seconds)
    return await question()


async def _ingress_classes(cluster: Cluster) -> tuple[IngressClass, ...]:
    return tuple(
        IngressClass(found["metadata"]["name"], is_default=_is_default(found))
        for found in await list_objects(cluster, "ingressclasses")
    )


def _is_default(ingress_class: dict[str, Any]) -> bool:
    annotations = ingress_class["metadata"].get("annotations") or {}
    return bool(annotations.get(DEFAULT_CLASS_ANNOTATION) == "true")


async def gateway_versions(cluster: Cluster) -> tuple[str, ...]:
    """Return the versions under which HTTPRoutes are served, the better one first.

    That a group has a version says little: in some releases v1 has no HTTPRoute, or a cluster has
    only some of the definitions.

    Raises:
        ClusterError: The API refused or did not answer.
    """
    # NB: the list of groups first. Below a group that it does not serve, an API server answers with
    # a page, as a proxy does that has lost its way to it: that is no absence.
    groups = (await cluster.request(Call("GET", "/apis"))).get("groups") or ()
    served = {
        version.get("version")
        for group in groups
        if group.get("name") == GATEWAY_GROUP
        for version in group.get("versions") or ()
    }
    wanted = [version for version in GATEWAY_VERSIONS if version in served]
    return tuple([version for version in wanted if await _has_routes(cluster, version)])


async def _has_routes(cluster: Cluster, version: str) -> bool:
    try:
        found = await cluster.request(Call("GET", f"/apis/{GATEWAY_GROUP}/{version}"))
    except ObjectNotFound:
        return False
    return any(resource.get("name") == "httproutes" for resource in found.get("resources") or ())
