"""REST over real HTTPS: what a client of the local cluster may count on."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from telorunner.errors import ConfigError
from telorunner.localcluster.cluster import ClusterSettings, open_local_cluster
from tests.cluster.localcluster_harness import (
    NAMESPACE,
    Api,
    make_configmap,
    make_pod,
    open_api,
)

CONFIGMAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"


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
    async with open_api(tmp_path, version) as api:
        await api.make_namespace()
        group = f"/apis/gateway.networking.k8s.io/{version}"
        head = {"apiVersion": f"gateway.networking.k8s.io/{version}", "kind": "HTTPRoute"}
        body = {**head, "metadata": {"name": "web"}, "spec": {"hostnames": ["a.example"]}}
        route = await api.call("POST", f"{group}/namespaces/{NAMESPACE}/httproutes", body)
        assert route["apiVersion"] == head["apiVersion"]
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
