"""Finds the addresses behind a port of a Service, as they are at the moment. Starts no task.

A Service with a selector leads to the ready pods that it selects; one without to what its
EndpointSlices name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from telorunner.localcluster.ingress.table import Backend
from telorunner.localcluster.store import Store

Object = dict[str, Any]
SERVICE_LABEL = "kubernetes.io/service-name"
_TCP = "TCP"


@dataclass(frozen=True)
class Endpoint:
    """Where an application listens."""

    address: str
    port: int


def find_port(store: Store, backend: Backend) -> tuple[Object, Object] | None:
    """Return the Service of a backend and the tcp port that is meant; None: there is none."""
    service = store.find("services", backend.namespace, backend.service)
    if service is None:
        return None
    wanted = "name" if isinstance(backend.port, str) else "port"
    for port in service["spec"].get("ports") or []:
        if port.get(wanted) == backend.port and port.get("protocol", _TCP) == _TCP:
            return service, port
    return None


def find_endpoints(store: Store, backend: Backend) -> list[Endpoint]:
    """Return the places that are ready to take requests for a backend."""
    found = find_port(store, backend)
    if found is None:
        return []
    service, port = found
    selector = service["spec"].get("selector")
    if selector:
        pods = store.list("pods", backend.namespace)[0]
        return list(_of_pods(pods, service, port))
    return list(_of_slices(store.list("endpointslices", backend.namespace)[0], service, port))


def _of_pods(pods: Iterable[Object], service: Object, port: Object) -> Iterator[Endpoint]:
    wanted = service["spec"]["selector"].items()
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        if wanted <= labels.items() and _takes_requests(pod, service):
            number = _target_port(pod, port)
            if number is not None:
                yield Endpoint(pod["status"]["podIP"], number)


def _takes_requests(pod: Object, service: Object) -> bool:
    status = pod.get("status") or {}
    if "deletionTimestamp" in pod["metadata"] or not status.get("podIP"):
        return False
    if status.get("phase") in ("Succeeded", "Failed"):
        return False
    if service["spec"].get("publishNotReadyAddresses"):
        return True
    ready = [one for one in status.get("conditions") or [] if one["type"] == "Ready"]
    return bool(ready) and ready[0]["status"] == "True"


def _target_port(pod: Object, port: Object) -> int | None:
    """Return the number of a pod's port that a Service's port leads to."""
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    for container in pod["spec"]["containers"]:
        for one in container.get("ports") or []:
            if one.get("name") == target and one.get("protocol", _TCP) == _TCP:
                return int(one["containerPort"])
    return None


def _of_slices(slices: Iterable[Object], service: Object, port: Object) -> Iterator[Endpoint]:
    for one in slices:
        labels = one["metadata"].get("labels") or {}
        is_ours = labels.get(SERVICE_LABEL) == service["metadata"]["name"]
        # Names would have to be looked up.
        if not is_ours or one["addressType"] not in ("IPv4", "IPv6"):
            continue
        for number in _slice_ports(one, port):
            for endpoint in one.get("endpoints") or []:
                if (endpoint.get("conditions") or {}).get("ready") is not False:
                    yield from (Endpoint(each, number) for each in endpoint["addresses"])


def _slice_ports(one: Object, port: Object) -> Iterator[int]:
    for found in one.get("ports") or []:
        is_named = (found.get("name") or "") == (port.get("name") or "")
        if is_named and found.get("protocol", _TCP) == _TCP and found.get("port"):
            yield int(found["port"])
