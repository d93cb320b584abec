"""The tables that kubectl prints, and the paths and queries that the API server reads."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from telorunner.localcluster.ages import age
from telorunner.localcluster.discovery import build_documents
from telorunner.localcluster.paths import Paths
from telorunner.localcluster.queries import list_query
from telorunner.localcluster.resources import (
    GATEWAY_VERSIONS,
    KINDS_BY_PLURAL,
    KNOWN_KINDS,
    served_kinds,
)
from telorunner.localcluster.store import StoreError, timestamp
from telorunner.localcluster.table import render_table

NOW = timestamp()
SPEC = {"containers": [{"name": "c0"}], "initContainers": [{"name": "i"}]}
METADATA = {"name": "one", "namespace": "apps", "creationTimestamp": NOW}


def cells(resource: str, **obj: Any) -> list[Any]:
    """Return the cells of one object's row, without its age."""
    table = render_table(KINDS_BY_PLURAL[resource], [{"metadata": METADATA, **obj}], {})
    columns = [column["name"] for column in table["columnDefinitions"]]
    row = dict(zip(columns, table["rows"][0]["cells"], strict=True))
    return [cell for column, cell in row.items() if column != "Age"]


def pod_status(*states: dict[str, Any], **status: Any) -> dict[str, Any]:
    containers = [
        {"name": f"c{number}", "ready": "running" in state, "restartCount": 0, "state": state}
        for number, state in enumerate(states)
    ]
    return {"phase": "Running", "containerStatuses": containers, **status}


def waiting(reason: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason}}


def ended(exit_code: int, reason: str = "", **fields: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": exit_code, "reason": reason, **fields}}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Pending"}, ["0/1", "Pending"]),
        (pod_status(waiting("ContainerCreating")), ["0/1", "ContainerCreating"]),
        (pod_status(waiting("ImagePullBackOff")), ["0/1", "ImagePullBackOff"]),
        (pod_status({"running": {}}), ["1/1", "Running"]),
        (pod_status(ended(0, "Completed")), ["0/1", "Completed"]),
        (pod_status(ended(137, "OOMKilled")), ["0/1", "OOMKilled"]),
        (pod_status(ended(3)), ["0/1", "ExitCode:3"]),
        (pod_status(ended(0, signal=9)), ["0/1", "Signal:9"]),
        (pod_status(phase="Failed", reason="DeadlineExceeded"), ["0/1", "DeadlineExceeded"]),
        (pod_status(initContainerStatuses=[{"state": {"running": {}}}]), ["0/1", "Init:0/1"]),
        (pod_status(initContainerStatuses=[{"state": ended(1, "Error")}]), ["0/1", "Init:Error"]),
    ],
)
def test_a_pod_is_shown_by_its_state(status: dict[str, Any], expected: list[str]) -> None:
    assert cells("pods", spec=SPEC, status=status)[1:3] == expected


def test_a_pod_that_is_deleted_is_terminating_until_it_has_ended() -> None:
    metadata = {**METADATA, "deletionTimestamp": NOW}
    running = pod_status({"running": {}})
    shown = cells("pods", spec=SPEC, status=running, metadata=metadata)
    assert shown[1:3] == ["1/1", "Terminating"]
    over = pod_status(ended(0, "Completed"), phase="Succeeded")
    shown = cells("pods", spec=SPEC, status=over, metadata=metadata)
    assert shown[1:3] == ["0/1", "Completed"]


def test_kinds_have_their_columns() -> None:
    assert cells("configmaps", data={"a": ""}, binaryData={"b": ""}) == ["one", 2]
    assert cells("secrets", data={"a": ""}, type="Opaque") == ["one", "Opaque", 1]
    assert cells("namespaces", status={"phase": "Active"}) == ["one", "Active"]
    spec = {"clusterIP": "10.96.0.9", "ports": [{"port": 80}], "selector": {"a": "b"}}
    assert cells("services", spec=spec) == [
        "one",
        "ClusterIP",
        "10.96.0.9",
        "<none>",
        "80/TCP",
        "a=b",
    ]
    hard, used = {"pods": "3", "limits.cpu": "1"}, {"pods": "1", "limits.cpu": "0"}
    assert cells("resourcequotas", status={"hard": hard, "used": used}) == [
        "one",
        "pods: 1/3",
        "limits.cpu: 0/1",
    ]
    assert cells("leases") == ["one"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (5, "5s"),
        (119, "119s"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 120, "3h2m"),
        (47 * 3600, "47h"),
        (3 * 86400, "3d"),
        (3 * 86400 + 3600, "3d1h"),
    ],
)
def test_an_age_is_short(seconds: int, shown: str) -> None:
    moment = datetime.now(UTC) - timedelta(seconds=seconds)
    assert age(timestamp(moment)) == shown


def test_every_known_kind_has_a_table_a_path_and_a_place_in_discovery() -> None:
    kinds = served_kinds(["v1"])
    assert len(kinds) == len(KNOWN_KINDS)
    documents = build_documents(kinds, "127.0.0.1:1")
    paths = Paths(kinds)
    for kind in kinds:
        root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        listed = {resource["name"] for resource in documents[root]["resources"]}
        assert {kind.plural, *(f"{kind.plural}/{sub}" for sub in kind.subresources)} <= listed
        middle = "/namespaces/apps" if kind.namespaced else ""
        target = paths.target(f"{root}{middle}/{kind.plural}/one")
        assert target is not None
        assert (target.kind, target.name) == (kind, "one")


def test_the_gateway_api_is_served_on_request_only() -> None:
    groups = {kind.group for kind in served_kinds()}
    assert "gateway.networking.k8s.io" not in groups
    both = served_kinds(GATEWAY_VERSIONS)
    assert [kind.api_version for kind in both if kind.plural == "httproutes"] == [
        "gateway.networking.k8s.io/v1",
        "gateway.networking.k8s.io/v1beta1",
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", ("pods", None, "", "")),
        ("/api/v1/namespaces", ("namespaces", None, "", "")),
        ("/api/v1/namespaces/a", ("namespaces", None, "a", "")),
        ("/api/v1/namespaces/a/status", ("namespaces", None, "a", "status")),
        ("/api/v1/namespaces/a/pods", ("pods", "a", "", "")),
        ("/api/v1/namespaces/a/pods/p/log", ("pods", "a", "p", "log")),
        ("/apis/networking.k8s.io/v1/namespaces/a/ingresses/i", ("ingresses", "a", "i", "")),
    ],
)
def test_a_path_names_its_target(path: str, expected: tuple[str, str | None, str, str]) -> None:
    target = Paths(served_kinds()).target(path)
    assert target is not None
    found = (target.kind.plural, target.namespace, target.name, target.subresource)
    assert found == expected


def test_paths_that_are_not_served_are_told_apart() -> None:
    paths = Paths(served_kinds())
    assert paths.target("/nonsense") is None
    assert paths.target("/apis/apps/v1/deployments") is None
    for path in ("/api/v1/nonsense", "/api/v1/pods/p", "/api/v1/namespaces/a/pods/p/nonsense"):
        with pytest.raises(StoreError, match="could not find the requested resource"):
            paths.target(path)


@pytest.mark.parametrize(
    "query", [{"limit": "x"}, {"timeoutSeconds": "1s"}, {"resourceVersion": "zz"}]
)
def test_a_query_that_cannot_be_read_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(StoreError, match="invalid syntax"):
        list_query("pods", query)


def test_a_watch_without_a_version_begins_with_what_is_there() -> None:
    assert list_query("pods", {"watch": "1"}).wants_initial_events
    assert list_query("pods", {"watch": "1", "resourceVersion": "0"}).wants_initial_events
    assert not list_query("pods", {"watch": "1", "resourceVersion": "7"}).wants_initial_events
