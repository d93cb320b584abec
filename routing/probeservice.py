"""The Service that reserved paths lead to: one for each runner, without a selector."""

import hashlib
import re
from typing import Any

from routing.publisher import ensure_object
from telorunner.kube.client import Cluster
from telorunner.kube.objects import MANAGED_BY_LABEL, find
from telorunner.values.dns import MAX_LABEL_LENGTH, is_dns_label

SERVICE_PORT = 80
PORT_NAME = "http"

_SUFFIX = "-route-probe"
_DIGEST_CHARACTERS = 8


def service_name(managed_by: str) -> str:
    """Return the name of the Service of one runner, which is a DNS label beginning with a letter.

    A label value may be longer, and have other characters: then a digest keeps two apart.
    """
    name = f"{managed_by}{_SUFFIX}"
    if is_dns_label(name) and name[0].isalpha():
        return name
    digest = hashlib.sha256(managed_by.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    words = re.sub(r"[^a-z0-9]+", "-", managed_by.lower()).strip("-")
    room = MAX_LABEL_LENGTH - len(f"telo--{digest}{_SUFFIX}")
    return f"telo-{words[:room].strip('-')}-{digest}{_SUFFIX}"


async def ensure_service(cluster: Cluster) -> None:
    """Let the Service be there, as it was made: whatever somebody has done to it is undone.

    Raises:
        AlreadyExists: There is one of that name which is not this runner's.
        ClusterError: The API refused or did not answer.
    """
    name = service_name(cluster.managed_by)
    found = await find(cluster, "services", name)
    if found is not None and _is_as_made(found, cluster.managed_by):
        return
    port = {"name": PORT_NAME, "port": SERVICE_PORT, "protocol": "TCP"}
    manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {MANAGED_BY_LABEL: cluster.managed_by}},
        "spec": {"type": "ClusterIP", "ports": [port]},
    }
    await ensure_object(cluster, "services", manifest)


def _is_as_made(service: dict[str, Any], managed_by: str) -> bool:
    labels, spec = service["metadata"].get("labels") or {}, service["spec"]
    ports = [(port.get("name"), port["port"]) for port in spec.get("ports") or ()]
    return (
        labels.get(MANAGED_BY_LABEL) == managed_by
        and ports == [(PORT_NAME, SERVICE_PORT)]
        and not spec.get("selector")
        and spec.get("type", "ClusterIP") == "ClusterIP"
    )
