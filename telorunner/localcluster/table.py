"""The tables that kubectl prints: columns and cells for each kind. Pure.

Kinds without columns of their own get name and age. Cells are what the real API server puts
there, as far as the local cluster has it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from telorunner.localcluster import networkcolumns
from telorunner.localcluster.ages import age
from telorunner.localcluster.podcolumns import pod_cells
from telorunner.localcluster.resources import ResourceKind

Cells = list[Any]
_NONE = "<none>"


@dataclass(frozen=True)
class Columns:
    """The columns of a kind (those in `wide` only with `-o wide`) and what fills them."""

    names: tuple[str, ...]
    cells: Callable[[dict[str, Any]], Cells]
    wide: tuple[str, ...] = ()
    name_column: str = "Name"

    def definitions(self, *, is_custom: bool = False) -> list[dict[str, Any]]:
        """Return the column definitions of a Table; those of custom kinds tell times as such."""
        return [
            {
                "name": name,
                "type": "date" if is_custom and name == "Age" else "string",
                "format": "name" if name == self.name_column else "",
                "description": "",
                "priority": 1 if name in self.wide else 0,
            }
            for name in self.names
        ]


def render_table(
    kind: ResourceKind,
    objects: Iterable[dict[str, Any]],
    metadata: dict[str, Any],
    *,
    with_columns: bool = True,
) -> dict[str, Any]:
    """Return a Table of objects; `metadata` is that of the list or object that it stands for."""
    columns = _COLUMNS.get(kind.plural, _GENERIC)
    rows = []
    for obj in objects:
        head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        row = {"cells": columns.cells(obj), "object": {**head, "metadata": obj["metadata"]}}
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": (
            columns.definitions(is_custom=kind.is_custom) if with_columns else None
        ),
        "rows": rows,
    }


def _name(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["name"])


def _age(obj: dict[str, Any]) -> str:
    return age(obj["metadata"].get("creationTimestamp"))


def _pod(obj: dict[str, Any]) -> Cells:
    ready, status, restarts = pod_cells(obj)
    pod_status = obj.get("status") or {}
    node = obj["spec"].get("nodeName", _NONE)
    address = pod_status.get("podIP", _NONE)
    return [_name(obj), ready, status, restarts, _age(obj), address, node, _NONE, _NONE]


def _node(obj: dict[str, Any]) -> Cells:
    status = obj.get("status") or {}
    info = status.get("nodeInfo") or {}
    conditions = status.get("conditions") or []
    is_ready = any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)
    shown = "Ready" if is_ready else "NotReady"
    if obj["spec"].get("unschedulable"):
        shown += ",SchedulingDisabled"
    addresses = {found["type"]: found["address"] for found in status.get("addresses") or []}
    return [
        _name(obj),
        shown,
        _NONE,
        _age(obj),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", _NONE),
        addresses.get("ExternalIP", _NONE),
        info.get("osImage", "<unknown>"),
        info.get("kernelVersion", "<unknown>"),
        info.get("containerRuntimeVersion", "<unknown>"),
    ]


def _event(obj: dict[str, Any]) -> Cells:
    about = obj.get("involvedObject") or {}
    source = obj.get("source") or {}
    last = obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"]["creationTimestamp"]
    first = obj.get("firstTimestamp") or last
    return [
        age(last),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        about.get("fieldPath", ""),
        ", ".join(filter(None, (source.get("component"), source.get("host")))),
        (obj.get("message") or "").strip(),
        age(first),
        obj.get("count") or 1,
        _name(obj),
    ]


def _quota(obj: dict[str, Any]) -> Cells:
    status = obj.get("status") or {}
    used = status.get("used") or {}
    shown: dict[bool, list[str]] = {False: [], True: []}
    for name, hard in sorted((status.get("hard") or {}).items()):
        shown[name.startswith("limits.")].append(f"{name}: {used.get(name, '0')}/{hard}")
    return [_name(obj), ", ".join(shown[False]), ", ".join(shown[True]), _age(obj)]


def _configmap(obj: dict[str, Any]) -> Cells:
    count = len(obj.get("data") or {}) + len(obj.get("binaryData") or {})
    return [_name(obj), count, _age(obj)]


_GENERIC = Columns(("Name", "Age"), lambda obj: [_name(obj), _age(obj)])
_COLUMNS = {
    "configmaps": Columns(("Name", "Data", "Age"), _configmap),
    "events": Columns(
        (
            "Last Seen",
            "Type",
            "Reason",
            "Object",
            "Subobject",
            "Source",
            "Message",
            "First Seen",
            "Count",
            "Name",
        ),
        _event,
        wide=("Subobject", "Source", "First Seen", "Count", "Name"),
    ),
    "endpointslices": Columns(
        ("Name", "AddressType", "Ports", "Endpoints", "Age"), networkcolumns.endpoint_slice_cells
    ),
    "gatewayclasses": Columns(
        ("Name", "Controller", "Accepted", "Age", "Description"),
        networkcolumns.gateway_class_cells,
        wide=("Description",),
    ),
    "gateways": Columns(
        ("Name", "Class", "Address", "Programmed", "Age"), networkcolumns.gateway_cells
    ),
    "httproutes": Columns(("Name", "Hostnames", "Age"), networkcolumns.http_route_cells),
    "ingressclasses": Columns(
        ("Name", "Controller", "Parameters", "Age"), networkcolumns.ingress_class_cells
    ),
    "ingresses": Columns(
        ("Name", "Class", "Hosts", "Address", "Ports", "Age"), networkcolumns.ingress_cells
    ),
    "limitranges": Columns(
        ("Name", "Created At"), lambda obj: [_name(obj), obj["metadata"]["creationTimestamp"]]
    ),
    "namespaces": Columns(
        ("Name", "Status", "Age"),
        lambda obj: [_name(obj), (obj.get("status") or {}).get("phase", ""), _age(obj)],
    ),
    "nodes": Columns(
        (
            "Name",
            "Status",
            "Roles",
            "Age",
            "Version",
            "Internal-IP",
            "External-IP",
            "OS-Image",
            "Kernel-Version",
            "Container-Runtime",
        ),
        _node,
        wide=("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
    ),
    "pods": Columns(
        (
            "Name",
            "Ready",
            "Status",
            "Restarts",
            "Age",
            "IP",
            "Node",
            "Nominated Node",
            "Readiness Gates",
        ),
        _pod,
        wide=("IP", "Node", "Nominated Node", "Readiness Gates"),
    ),
    "resourcequotas": Columns(("Name", "Request", "Limit", "Age"), _quota),
    "runtimeclasses": Columns(
        ("Name", "Handler", "Age"), lambda obj: [_name(obj), obj.get("handler", ""), _age(obj)]
    ),
    "secrets": Columns(
        ("Name", "Type", "Data", "Age"),
        lambda obj: [_name(obj), obj.get("type", ""), len(obj.get("data") or {}), _age(obj)],
    ),
    "serviceaccounts": Columns(
        ("Name", "Secrets", "Age"),
        lambda obj: [_name(obj), len(obj.get("secrets") or []), _age(obj)],
    ),
    "services": Columns(
        ("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"),
        networkcolumns.service_cells,
        wide=("Selector",),
    ),
}
