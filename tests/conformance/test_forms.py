"""The forms of an answer: tables as kubectl asks for them, metadata alone."""

import re

import pytest

from tests.conformance.client import Api
from tests.conformance.objects import make_configmap, make_pod

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
METADATA = "application/json;as=PartialObjectMetadata{};v=v1;g=meta.k8s.io"
WIDE = ["IP", "Node", "Nominated Node", "Readiness Gates"]


@pytest.fixture
async def base(api: Api, namespace: str) -> str:
    """The path of a namespace with one ConfigMap and one pod that stays pending."""
    path = f"/api/v1/namespaces/{namespace}"
    await api.ask("POST", f"{path}/configmaps", make_configmap())
    await api.ask("POST", f"{path}/pods", make_pod(schedulerName="nobody"))
    return path


@pytest.mark.parametrize(
    ("resource", "columns", "cells"),
    [
        ("configmaps", ["Name", "Data", "Age"], ["one", 1]),
        (
            "pods",
            ["Name", "Ready", "Status", "Restarts", "Age", *WIDE],
            ["one", "0/1", "Pending", "0"],
        ),
    ],
)
async def test_kubectl_gets_tables(
    api: Api, base: str, resource: str, columns: list[str], cells: list[object]
) -> None:
    path = f"{base}/{resource}"
    query = {"fieldSelector": "metadata.name=one"}
    for table in (
        await api.ask("GET", f"{path}/one", headers=TABLE),
        await api.ask("GET", path, headers=TABLE, query=query),
    ):
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        found = table["columnDefinitions"]
        assert [column["name"] for column in found] == columns
        assert [column["priority"] for column in found] == [
            int(column in WIDE) for column in columns
        ]
        (row,) = table["rows"]
        assert row["cells"][: len(cells)] == cells
        assert re.fullmatch("[0-9]+s", row["cells"][len(cells)])
        assert row["cells"][len(cells) + 1 :] == ["<none>"] * len(columns[len(cells) + 1 :])
        assert row["object"]["kind"] == "PartialObjectMetadata"
        assert row["object"]["metadata"]["name"] == "one"


async def test_a_watch_can_be_of_tables(api: Api, base: str) -> None:
    query = {"watch": "1", "timeoutSeconds": "1", "fieldSelector": "metadata.name=one"}
    answer = await api.request("GET", f"{base}/configmaps", query=query, headers=TABLE)
    assert answer.body["type"] == "ADDED"
    table = answer.body["object"]
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"][0]["cells"][:2] == ["one", 1]


async def test_metadata_can_be_asked_for_alone(api: Api, base: str) -> None:
    path = f"{base}/configmaps"
    full = await api.ask("GET", f"{path}/one")
    expected = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": full["metadata"],
    }
    one = await api.ask("GET", f"{path}/one", headers={"Accept": METADATA.format("")})
    assert one == expected
    query = {"fieldSelector": "metadata.name=one"}
    listed = await api.ask("GET", path, headers={"Accept": METADATA.format("List")}, query=query)
    assert listed["kind"] == "PartialObjectMetadataList"
    assert listed["items"] == [expected]


async def test_discovery_tells_what_is_served(api: Api) -> None:
    core = await api.ask("GET", "/api/v1")
    found = {one["name"]: one for one in core["resources"]}
    assert {"pods", "pods/attach", "pods/log", "pods/status"} <= set(found)
    assert found["pods"]["shortNames"] == ["po"]
    assert found["pods"]["verbs"] == [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ]
    groups = (await api.ask("GET", "/apis"))["groups"]
    assert "networking.k8s.io" in [group["name"] for group in groups]


async def test_an_administrator_may_do_everything(api: Api) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    spec = {"resourceAttributes": {"verb": "create", "resource": "pods"}}
    review = await api.ask("POST", path, {"spec": spec})
    assert review["spec"] == spec
    assert review["status"]["allowed"] is True
