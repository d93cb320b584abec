"""What publishes sessions is decided at boot, before anything is served; on the fake API."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import orjson
import pytest

from routing.routes import PROOF_HEADER
from tests import fakes
from tests.clients import Client
from tests.fakes import FakeApi, Handler, open_fake_api, refuse, say
from tests.postgres import own_database
from tests.serving import NO_HUB_URL, START_SECONDS, Platform, refusal
from tests.unit.pods import running

pytestmark = pytest.mark.cluster

DEFAULT = {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}
SERVED = say(orjson.dumps({"resources": [{"name": "httproutes"}]}), content_type="application/json")
GROUPS = say(
    orjson.dumps(
        {"groups": [{"name": "gateway.networking.k8s.io", "versions": [{"version": "v1"}]}]}
    ),
    content_type="application/json",
)
DOMAIN = {"SESSION_ROUTING_BASE_DOMAIN": "apps.test"}
GATEWAY = {**DOMAIN, "SESSION_GATEWAY_NAME": "public"}
IMAGE = "telo.test/kernel:1"


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with open_fake_api() as api:
        yield api


def environment(api: FakeApi, folder: Path, **variables: str) -> dict[str, str]:
    return {
        "RUNNER_CLUSTER": "kubeconfig",
        "KUBECONFIG": str(api.kubeconfig(folder)),
        "RUNNER_SESSION_NAMESPACE": fakes.NAMESPACE,
        "RUNNER_MANAGED_BY": fakes.MANAGED_BY,
        "RUNNER_HOST": "127.0.0.1",
        "RUNNER_BUNDLE_DELIVERY": "inline",
        "RUNNER_BASE_IMAGE_API_URL": NO_HUB_URL,
        "RUNNER_IMAGE": IMAGE,
        **variables,
    }


@pytest.mark.parametrize(
    ("variables", "lists", "gets", "said"),
    [
        (DOMAIN, [], [], "SESSION_ROUTING_MODE: auto finds nothing"),
        (DOMAIN, [refuse(403, "Forbidden")], [], "not permitted"),
        ({**GATEWAY, "SESSION_ROUTING_MODE": "gateway"}, [], [], "does not serve"),
        (DOMAIN, [], [GROUPS, SERVED], "SESSION_GATEWAY_NAME: must name the Gateway"),
        (
            {**GATEWAY, "SESSION_INGRESS_TLS_SECRET": "certificate"},
            [],
            [GROUPS, SERVED],
            "SESSION_INGRESS_TLS_SECRET: must not be set",
        ),
        ({"SESSION_ROUTING_BASE_DOMAIN": "*.apps.test"}, [], [], "SESSION_ROUTING_BASE_DOMAIN"),
    ],
)
async def test_a_refusal_is_one_line_and_exit_code_2(
    api: FakeApi,
    tmp_path: Path,
    variables: dict[str, str],
    lists: list[Handler],
    gets: list[Handler],
    said: str,
) -> None:
    api.script("list", *lists)
    api.script("get", *gets)
    told = environment(api, tmp_path, **variables)
    line = await asyncio.to_thread(refusal, tmp_path, **told)
    assert line.startswith("telorunner: SESSION_")
    assert said in line
    # Nobody's session was looked at.
    assert not {"pods", "configmaps"} & {seen.resource for seen in api.requests}


async def served(platform: Platform) -> tuple[str, bool]:
    """Start and stop a platform; return what it says of routes, and the feature `ports`."""
    await asyncio.to_thread(platform.start)
    assert platform.process is not None
    output = platform.process.output
    try:
        async with httpx.AsyncClient(base_url=platform.url, trust_env=False) as client:
            answer = await client.get("/v1/capabilities", timeout=START_SECONDS)
    finally:
        assert await asyncio.to_thread(platform.stop) == 0
    said = [line for line in output if line.startswith("Public routes: ")]
    return said[0].strip(), answer.json()["features"]["ports"]


async def test_the_start_says_the_layer_and_why(api: FakeApi, tmp_path: Path) -> None:
    api.put("nginx", "ingressclasses", metadata=DEFAULT)
    said, has_ports = await served(Platform(tmp_path, environment(api, tmp_path, **DOMAIN)))
    assert said.startswith("Public routes: ingress. The cluster has a default IngressClass.")
    assert has_ports


async def test_without_a_base_domain_nothing_is_asked_of_the_cluster(
    api: FakeApi, tmp_path: Path
) -> None:
    said, has_ports = await served(Platform(tmp_path, environment(api, tmp_path)))
    assert said == "Public routes: none. SESSION_ROUTING_BASE_DOMAIN is not set."
    assert not has_ports
    routing = {"services", "endpointslices", "ingresses", "ingressclasses", "httproutes"}
    assert not routing & {seen.resource for seen in api.requests}


async def test_a_process_without_sessions_decides_too_and_publishes_nothing(
    api: FakeApi, tmp_path: Path
) -> None:
    api.put("nginx", "ingressclasses", metadata=DEFAULT)
    with own_database("routing") as url:
        variables = {**DOMAIN, "SESSION_ROUTE_PROBE_ADDRESS": "http://127.0.0.1:1"}
        environ = environment(api, tmp_path, **variables, DATABASE_URL=url)
        said, has_ports = await served(Platform(tmp_path, environ, "--no-engine"))
    assert said.startswith("Public routes: ingress.")
    assert has_ports
    assert {seen.resource for seen in api.requests} - {""} == {"ingressclasses"}


async def test_a_process_without_sessions_proves_what_another_has_published(
    api: FakeApi, tmp_path: Path
) -> None:
    """A load balancer before both may send a probe to either; only one is led to on purpose."""
    api.put("nginx", "ingressclasses", metadata=DEFAULT)
    with own_database("proofs") as url:
        variables = {**DOMAIN, "SESSION_ROUTE_PROBE_ADDRESS": "http://127.0.0.1:1"}
        environ = environment(api, tmp_path, **variables, DATABASE_URL=url)
        runner, web = Platform(tmp_path, environ), Platform(tmp_path, environ, "--no-engine")
        await asyncio.to_thread(runner.start)
        await asyncio.to_thread(web.start)
        try:
            host, prefix = await published(api, runner.url)
            async with httpx.AsyncClient(trust_env=False, timeout=START_SECONDS) as client:
                answers = [
                    await client.get(f"{one.url}{prefix}/a-nonce", headers={"host": host})
                    for one in (runner, web)
                ]
            ports = [one["ports"][0]["port"] for one in api.objects["endpointslices"].values()]
        finally:
            for platform in (web, runner):
                assert await asyncio.to_thread(platform.stop) == 0
    nonce = f"{prefix.rpartition('/')[2]}/a-nonce"
    assert [(one.status_code, one.text) for one in answers] == [(200, nonce)] * 2
    proofs = [one.headers[PROOF_HEADER] for one in answers]
    assert proofs[0] == proofs[1]
    assert ports == [int(runner.url.rpartition(":")[2])]


async def published(api: FakeApi, url: str) -> tuple[str, str]:
    """Run a session with a port; return its host and the reserved path, as the Ingress has it."""
    client = Client(url, IMAGE)
    try:
        session = await client.create("", ports=[{"port": 8080, "protocol": "tcp"}])
    finally:
        await client.close()
    name = f"telo-run-{session}"
    async with asyncio.timeout(START_SECONDS):
        await api.wait_until(lambda: name in api.objects["pods"])
        made = api.objects["pods"][name]
        labels, spec = made["metadata"]["labels"], made["spec"] | {"nodeName": "node-1"}
        status = {"phase": "Running", "containerStatuses": [running()]}
        api.put(name, labels=labels, spec=spec, status=status)
        await api.wait_until(
            lambda: name in api.objects["ingresses"] and bool(api.objects["endpointslices"])
        )
    (rule,) = api.objects["ingresses"][name]["spec"]["rules"]
    return rule["host"], rule["http"]["paths"][0]["path"]
