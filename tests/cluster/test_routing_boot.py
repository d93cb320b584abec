"""What publishes sessions is decided at boot, before anything is served; on the fake API."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import orjson
import pytest

from tests import fakes
from tests.fakes import FakeApi, Handler, open_fake_api, refuse, say
from tests.postgres import own_database
from tests.serving import MANAGE, NO_HUB_URL, START_SECONDS, Platform

pytestmark = pytest.mark.cluster

DEFAULT = {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}
SERVED = say(orjson.dumps({"resources": [{"name": "httproutes"}]}), content_type="application/json")
ABSENT = refuse(404, "NotFound")
DOMAIN = {"SESSION_ROUTING_BASE_DOMAIN": "apps.test"}
GATEWAY = {**DOMAIN, "SESSION_GATEWAY_NAME": "public"}


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
        **variables,
    }


@pytest.mark.parametrize(
    ("variables", "lists", "gets", "said"),
    [
        (DOMAIN, [], [ABSENT] * 2, "SESSION_ROUTING_MODE: auto finds nothing"),
        (DOMAIN, [refuse(403, "Forbidden")], [ABSENT] * 2, "not permitted"),
        ({**GATEWAY, "SESSION_ROUTING_MODE": "gateway"}, [], [ABSENT] * 2, "does not serve"),
        (DOMAIN, [], [SERVED, ABSENT], "SESSION_GATEWAY_NAME: must name the Gateway"),
        (
            {**GATEWAY, "SESSION_INGRESS_TLS_SECRET": "certificate"},
            [],
            [SERVED] * 2,
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
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(MANAGE), "serve"],
        env={
            "PATH": os.environ["PATH"],
            "RUNNER_DATA_DIR": str(tmp_path),
            "PORT": "0",
            **environment(api, tmp_path, **variables),
        },
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.splitlines()
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
