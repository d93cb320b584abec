"""REST over real HTTPS: what a client of the local cluster may count on."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from telorunner.errors import ConfigError
from telorunner.localcluster.cluster import ClusterSettings, open_local_cluster
from tests.cluster.localcluster_harness import (
    MERGE,
    NAMESPACE,
    Api,
    make_configmap,
    make_pod,
    open_api,
)

CONFIGMAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with open_api(tmp_path) as api:
        await api.make_namespace()
        yield api


def names(found: dict[str, list[dict[str, dict[str, str]]]]) -> list[str]:
    return [item["metadata"]["name"] for item in found["items"]]


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic eDp5"])
async def test_nobody_gets_in_without_the_token(api: Api, header: str | None) -> None:
    headers = {"Authorization": header} if header else {"Authorization": ""}
    for path in ("/version", "/api/v1/pods", f"{PODS}/one/attach?stdout=1"):
        answer = await api.call("GET", path, headers=headers, expect=401)
        assert (answer["kind"], answer["reason"]) == ("Status", "Unauthorized")


async def test_the_scheme_of_the_token_has_no_case(api: Api) -> None:
    headers = {"Authorization": f"bearer {api.cluster.token}"}
    await api.call("GET", "/version", headers=headers)


async def test_the_certificate_is_checked(api: Api) -> None:
    async with aiohttp.ClientSession() as stranger:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await stranger.get(f"{api.cluster.url}/version")


async def test_a_cluster_says_that_it_is_no_sandbox(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_api(tmp_path):
        warned = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert "NO SANDBOX" in warned[0].getMessage()


async def test_a_second_cluster_on_the_folder_is_refused(api: Api, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a local cluster is running for this folder already"):
        async with open_local_cluster(ClusterSettings(data_dir=tmp_path)):
            pass


async def test_access_survives_a_restart_and_objects_do_not(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await api.make_namespace()
        created = await api.call("POST", CONFIGMAPS, make_configmap())
        kubeconfig = api.cluster.kubeconfig.read_bytes()
    async with open_api(tmp_path) as api:
        assert api.cluster.kubeconfig.read_bytes() == kubeconfig
        await api.call("GET", f"{CONFIGMAPS}/one", expect=404)
        # A watch from before the restart is told to list again.
        version = created["metadata"]["resourceVersion"]
        event = await api.get("/api/v1/configmaps", {"watch": "1", "resourceVersion": version})
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_the_session_namespace_is_there_and_restricted(api: Api) -> None:
    namespace = await api.call("GET", "/api/v1/namespaces/telo-sessions")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert namespace["status"] == {"phase": "Active"}
    await api.until_found("serviceaccounts", "telo-sessions", "default")
    refused = await api.call(
        "POST", "/api/v1/namespaces/telo-sessions/pods", make_pod(), expect=403
    )
    assert refused["message"].startswith(
        'pods "one" is forbidden: violates PodSecurity "restricted:latest":'
        ' allowPrivilegeEscalation != false (container "session" must set'
    )


async def test_an_object_is_created_read_changed_and_deleted(api: Api) -> None:
    created = await api.call("POST", CONFIGMAPS, make_configmap(), expect=201)
    assert created["metadata"]["namespace"] == NAMESPACE
    assert await api.call("GET", f"{CONFIGMAPS}/one") == created
    replaced = await api.call("PUT", f"{CONFIGMAPS}/one", {**created, "data": {"a": "c"}})
    assert replaced["metadata"]["uid"] == created["metadata"]["uid"]
    patch = {"metadata": {"labels": {"x": "y"}}}
    patched = await api.call("PATCH", f"{CONFIGMAPS}/one", patch, headers={"Content-Type": MERGE})
    assert (patched["metadata"]["labels"], patched["data"]) == ({"x": "y"}, {"a": "c"})
    gone = await api.call("DELETE", f"{CONFIGMAPS}/one")
    assert gone["status"] == "Success"
    assert gone["details"] == {
        "name": "one",
        "kind": "configmaps",
        "uid": created["metadata"]["uid"],
    }
    await api.call("GET", f"{CONFIGMAPS}/one", expect=404)
    await api.call("DELETE", f"{CONFIGMAPS}/one", expect=404)


async def test_conflicts_are_told(api: Api) -> None:
    created = await api.call("POST", CONFIGMAPS, make_configmap())
    taken = await api.call("POST", CONFIGMAPS, make_configmap(), expect=409)
    assert taken["reason"] == "AlreadyExists"
    await api.call("PUT", f"{CONFIGMAPS}/one", {**created, "data": {}})
    stale = await api.call("PUT", f"{CONFIGMAPS}/one", {**created, "data": {"x": ""}}, expect=409)
    assert stale["reason"] == "Conflict"
    options = {"preconditions": {"uid": "another"}}
    await api.call("DELETE", f"{CONFIGMAPS}/one", options, expect=409)


async def test_a_name_can_be_generated(api: Api) -> None:
    body = {"metadata": {"generateName": "made-"}}
    made = [(await api.call("POST", CONFIGMAPS, body))["metadata"]["name"] for _ in range(3)]
    assert len(set(made)) == 3
    assert all(name.startswith("made-") and len(name) == 10 for name in made)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{nope", 400),
        (b"[1]", 400),
        ({"kind": "Pod", "metadata": {"name": "a"}}, 400),
        ({"apiVersion": "v2", "metadata": {"name": "a"}}, 400),
        ({"metadata": {"name": "a", "namespace": "other"}}, 400),
        ({"metadata": {"name": "a", "labels": ["x"]}}, 400),
        ({"metadata": {"name": 5}}, 400),
        ({"metadata": "x"}, 400),
        ({"metadata": {"name": "A"}}, 422),
        ({"metadata": {}}, 422),
        ({"metadata": {"name": "a"}, "data": {"x": "y" * 4 * 1024 * 1024}}, 413),
    ],
)
async def test_a_body_that_is_no_such_object_is_refused(
    api: Api, body: object, status: int
) -> None:
    answer = await api.call("POST", CONFIGMAPS, body, expect=status)
    assert (answer["kind"], answer["status"]) == ("Status", "Failure")


async def test_a_dry_run_leaves_nothing(api: Api) -> None:
    shown = await api.call("POST", CONFIGMAPS, make_configmap(), query={"dryRun": "All"})
    assert shown["metadata"]["uid"]
    await api.call("GET", f"{CONFIGMAPS}/one", expect=404)


async def test_methods_and_paths_that_are_not_served_are_told(api: Api) -> None:
    await api.call("PUT", PODS, {}, expect=405)
    await api.call("POST", f"{PODS}/one", {}, expect=405)
    await api.call("POST", "/api/v1/pods", make_pod(), expect=405)
    await api.call("GET", "/api/v1/nonsense", expect=404)


async def test_a_list_is_selected_and_carries_a_version(api: Api) -> None:
    await api.call("POST", CONFIGMAPS, make_configmap("a", labels={"x": "1"}))
    await api.call("POST", CONFIGMAPS, make_configmap("b", labels={"x": "2"}))
    found = await api.get(CONFIGMAPS, {"labelSelector": "x"})
    assert names(found) == ["a", "b"]
    assert found["kind"] == "ConfigMapList"
    assert "kind" not in found["items"][0]
    assert int(found["metadata"]["resourceVersion"]) == api.cluster.store.revision
    assert names(await api.get(CONFIGMAPS, {"labelSelector": "x in (2)"})) == ["b"]
    assert names(await api.get(CONFIGMAPS, {"fieldSelector": "metadata.name=a"})) == ["a"]
    everywhere = await api.get("/api/v1/configmaps", {"labelSelector": "x=1"})
    assert names(everywhere) == ["a"]


async def test_the_pages_of_a_list_show_one_moment(api: Api) -> None:
    for name in "abcd":
        await api.call("POST", CONFIGMAPS, make_configmap(name, labels={"x": ""}))
    query = {"labelSelector": "x", "limit": "2"}
    first = await api.get(CONFIGMAPS, query)
    assert names(first) == ["a", "b"]
    await api.call("DELETE", f"{CONFIGMAPS}/c")
    await api.call("POST", CONFIGMAPS, make_configmap("e", labels={"x": ""}))
    token = first["metadata"]["continue"]
    second = await api.get(CONFIGMAPS, {**query, "continue": token})
    assert names(second) == ["c", "d"]
    assert "continue" not in second["metadata"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_page_token_that_is_too_old_is_gone_and_brings_a_new_one(api: Api) -> None:
    for name in "abc":
        await api.call("POST", CONFIGMAPS, make_configmap(name, labels={"x": ""}))
    query = {"labelSelector": "x", "limit": "2"}
    first = await api.get(CONFIGMAPS, query)
    await api.call("POST", CONFIGMAPS, make_configmap("d", labels={"x": ""}))
    api.cluster.store.forget_history()
    token = first["metadata"]["continue"]
    gone = await api.get(CONFIGMAPS, {**query, "continue": token}, expect=410)
    assert gone["reason"] == "Expired"
    rest = await api.get(CONFIGMAPS, {**query, "continue": gone["metadata"]["continue"]})
    assert names(rest) == ["c", "d"]
    await api.get(CONFIGMAPS, {"limit": "1", "continue": "nonsense"}, expect=400)


async def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    await api.call("POST", CONFIGMAPS, make_configmap("a", labels={"x": "1"}))
    await api.call("POST", CONFIGMAPS, make_configmap("b", labels={"x": "2"}))
    assert names(await api.call("DELETE", CONFIGMAPS, query={"labelSelector": "x=1"})) == ["a"]
    assert names(await api.get(CONFIGMAPS, {"labelSelector": "x"})) == ["b"]


async def test_kubectl_gets_tables(api: Api) -> None:
    await api.call("POST", CONFIGMAPS, make_configmap())
    table = await api.call("GET", f"{CONFIGMAPS}/one", headers=TABLE)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"][0]["cells"][:2] == ["one", 1]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    listed = await api.call("GET", CONFIGMAPS, headers=TABLE)
    assert [row["cells"][0] for row in listed["rows"]] == ["kube-root-ca.crt", "one"]


async def test_discovery_tells_what_is_served(api: Api) -> None:
    assert (await api.call("GET", "/version"))["gitVersion"] == "v1.34.4"
    groups = (await api.call("GET", "/apis"))["groups"]
    assert "networking.k8s.io" in [group["name"] for group in groups]
    assert "gateway.networking.k8s.io" not in [group["name"] for group in groups]
    core = await api.call("GET", "/api/v1")
    assert {"pods", "pods/attach", "pods/log"} <= {one["name"] for one in core["resources"]}
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await api.call("POST", path, review))["status"] == {"allowed": True}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_the_gateway_api_is_served_where_it_is_asked_for(
    tmp_path: Path, version: str
) -> None:
    async with open_api(tmp_path, gateway_api_version=version) as api:
        await api.make_namespace()
        group = f"/apis/gateway.networking.k8s.io/{version}"
        body = {"metadata": {"name": "web"}, "spec": {"hostnames": ["a.example"]}}
        route = await api.call("POST", f"{group}/namespaces/{NAMESPACE}/httproutes", body)
        assert route["apiVersion"] == f"gateway.networking.k8s.io/{version}"
        assert names(await api.call("GET", f"{group}/httproutes")) == ["web"]


async def test_a_service_keeps_its_address_in_a_replacement(api: Api) -> None:
    def make_service(port: int) -> dict[str, object]:
        return {"metadata": {"name": "web"}, "spec": {"ports": [{"name": "p", "port": port}]}}

    created = await api.call("POST", SERVICES, make_service(80))
    replaced = await api.call("PUT", f"{SERVICES}/web", make_service(81))
    assert replaced["spec"]["clusterIP"] == created["spec"]["clusterIP"]
    assert replaced["spec"]["ports"][0]["targetPort"] == 81


async def test_the_status_of_an_ingress_is_a_subresource(api: Api) -> None:
    path = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses"
    spec = {"rules": [{"host": "a.example"}]}
    created = await api.call("POST", path, {"metadata": {"name": "web"}, "spec": spec})
    status = {"loadBalancer": {"ingress": [{"ip": "127.0.0.1"}]}}
    body = {**created, "spec": {"rules": []}, "status": status}
    updated = await api.call("PUT", f"{path}/web/status", body)
    assert (updated["spec"], updated["status"]) == (spec, status)
    again = await api.call("PUT", f"{path}/web", {**updated, "status": {}})
    assert again["status"] == status
