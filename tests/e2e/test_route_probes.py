"""Public hosts on a real cluster that do not work, whatever their status says: probes tell.

Most of the time goes by until a failure counts: what can be waited for together is.
"""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from telorunner.kube import objects
from tests import routed
from tests.e2e.conftest import Serving, apart
from tests.e2e.entrances import (
    CLASS,
    PLAIN,
    Entrance,
    apply,
    delete,
    patch,
)
from tests.engine.gateways import tls_secret
from tests.realcluster import kubectl

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

INGRESS = {"SESSION_INGRESS_CLASS": CLASS}
GATEWAY = {"SESSION_GATEWAY_NAME": PLAIN}


async def test_a_route_that_leads_elsewhere_or_nowhere_is_found_out_and_flips_back(
    serve: Serving, entrance: Entrance, tmp_path: Path
) -> None:
    async with asyncio.TaskGroup() as group:
        for name, layer in (("ingress", take_ingresses), ("gateway", take_httproutes)):
            group.create_task(layer(serve, entrance, apart(tmp_path, name)))


async def take_ingresses(serve: Serving, entrance: Entrance, own: dict[str, str]) -> None:
    async with serve(**entrance.runner(), **INGRESS, **own) as client:
        taken, lost = [await routed.create(client, 8080) for _ in range(2)]
        for session in (taken, lost):
            await routed.works(client, session)
        apply(entrance, await intruding_ingress(entrance, taken, leads_to=lost))
        # The controller lets go of it, and leaves its status as it was.
        patch(entrance, "ingress", f"telo-run-{lost}", {"spec": {"ingressClassName": "nobody"}})
        assert await routed.reason(client, taken) == (
            "gateway: Something else answers: the host leads to another place."
        )
        assert (
            await routed.reason(client, lost)
            == "gateway: The gateway has no such route (HTTP 404)."
        )
        async with entrance.cluster.opened() as api:
            for session in (taken, lost):
                found = await objects.get(api, "ingresses", f"telo-run-{session}")
                assert found["status"]["loadBalancer"]["ingress"]
        delete(entrance, "ingress", "intruder")
        patch(entrance, "ingress", f"telo-run-{lost}", {"spec": {"ingressClassName": CLASS}})
        for session in (taken, lost):
            await routed.works(client, session, times=2)
            await routed.stop(client, session)


async def intruding_ingress(entrance: Entrance, session: str, leads_to: str) -> dict[str, Any]:
    """Return somebody's Ingress that takes a session's reserved path to another application."""
    backend = {"service": {"name": f"telo-run-{leads_to}", "port": {"number": 8080}}}
    path = await entrance.reserved_path(session)
    rule = {"path": path, "pathType": "Prefix", "backend": backend}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": "intruder",
            # More than any rule has by its length.
            "annotations": {"traefik.ingress.kubernetes.io/router.priority": "100000"},
        },
        "spec": {
            "ingressClassName": CLASS,
            "rules": [{"host": entrance.host(session), "http": {"paths": [rule]}}],
        },
    }


async def take_httproutes(serve: Serving, entrance: Entrance, own: dict[str, str]) -> None:
    async with serve(**entrance.runner(), **GATEWAY, **own) as client:
        taken, lost = [await routed.create(client, 8080) for _ in range(2)]
        for session in (taken, lost):
            await routed.works(client, session)
        apply(entrance, await intruding_httproute(entrance, taken, leads_to=lost))
        rules = lead_nowhere(entrance, f"telo-run-{lost}-8080")
        assert await routed.reason(client, taken) == (
            "gateway: Something else answers: the host leads to another place."
        )
        assert await routed.reason(client, lost) == (
            "backend: The gateway does not reach what the route leads to (HTTP 502)."
        )
        for session in (taken, lost):
            assert await conditions(entrance, session) == {
                "Accepted": "True",
                "ResolvedRefs": "True",
            }
        delete(entrance, "httproute", "intruder")
        patch(entrance, "httproute", f"telo-run-{lost}-8080", {"spec": {"rules": rules}})
        for session in (taken, lost):
            await routed.works(client, session, times=2)
            await routed.stop(client, session)


async def intruding_httproute(entrance: Entrance, session: str, leads_to: str) -> dict[str, Any]:
    """Return somebody's HTTPRoute that takes a session's reserved path to another application."""
    path = {"type": "PathPrefix", "value": await entrance.reserved_path(session)}
    rule = {
        # A rule that names the method too comes before one that does not.
        "matches": [{"path": path, "method": "GET"}],
        "backendRefs": [{"name": f"telo-run-{leads_to}", "port": 8080}],
    }
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "intruder"},
        "spec": {
            "parentRefs": [{"name": PLAIN}],
            "hostnames": [entrance.host(session)],
            "rules": [rule],
        },
    }


def lead_nowhere(entrance: Entrance, route: str) -> list[dict[str, Any]]:
    """Send the reserved path of an HTTPRoute to where nobody listens; return its rules before."""
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    apply(entrance, {**named("v1", "Service", "nowhere"), "spec": {"ports": ports}})
    addresses = named("discovery.k8s.io/v1", "EndpointSlice", "nowhere")
    addresses["metadata"]["labels"] = {"kubernetes.io/service-name": "nowhere"}
    endpoint = {"addresses": [entrance.self_host], "conditions": {"ready": True}}
    closed = [{"name": "http", "port": 1, "protocol": "TCP"}]
    more = {"addressType": "IPv4", "endpoints": [endpoint], "ports": closed}
    apply(entrance, {**addresses, **more})
    found = orjson.loads(kubectl("get", "httproute", route, "-n", entrance.namespace, "-ojson"))
    reserved, *others = found["spec"]["rules"]
    changed = {**reserved, "backendRefs": [{"name": "nowhere", "port": 80}]}
    patch(entrance, "httproute", route, {"spec": {"rules": [changed, *others]}})
    return [reserved, *others]


def named(version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


async def conditions(entrance: Entrance, session: str) -> dict[str, str]:
    """Return what the controller says of a session's HTTPRoute."""
    async with entrance.cluster.opened() as api:
        found = await objects.get(api, "httproutes", f"telo-run-{session}-8080")
    (parent,) = found["status"]["parents"]
    return {one["type"]: one["status"] for one in parent["conditions"]}


async def test_a_certificate_for_other_names_and_an_unknown_name_are_found_out(
    serve: Serving, entrance: Entrance, tmp_path: Path
) -> None:
    async with asyncio.TaskGroup() as group:
        for name, fault in (("tls", show_another_certificate), ("dns", have_no_name)):
            group.create_task(fault(serve, entrance, apart(tmp_path, name)))


async def show_another_certificate(serve: Serving, entrance: Entrance, own: dict[str, str]) -> None:
    # No other certificate of the namespace is for these hosts.
    domain = f"private.{entrance.base_domain}"
    apply(entrance, tls_secret("private", *entrance.certificates.pair("*.elsewhere.test")))
    variables = {
        **entrance.runner(has_tls=True),
        **INGRESS,
        **own,
        "SESSION_INGRESS_TLS_SECRET": "private",
        "SESSION_ROUTING_BASE_DOMAIN": domain,
    }
    async with serve(**variables) as client:
        session = await routed.create(client, 8080)
        # It has none for these hosts, and shows one that it makes itself.
        assert await routed.reason(client, session) == "tls: The certificate is signed by itself."
        right = tls_secret("private", *entrance.certificates.pair(f"*.{domain}"))
        patch(entrance, "secret", "private", {"data": right["data"]})
        await routed.works(client, session)
        await entrance.until(f"8080-{session}.{domain}", 200, has_tls=True)
        await routed.stop(client, session)
    delete(entrance, "secret", "private")


async def have_no_name(serve: Serving, entrance: Entrance, own: dict[str, str]) -> None:
    variables = {
        **entrance.runner(),
        **INGRESS,
        **own,
        "SESSION_ROUTE_PROBE_ADDRESS": "resolve",
        "SESSION_ROUTING_BASE_DOMAIN": f"{entrance.namespace}.invalid",
    }
    async with serve(**variables) as client:
        session = await routed.create(client, 8080)
        assert (await routed.reason(client, session)).startswith("dns: The name ")
        await routed.stop(client, session)
