"""Public hosts on a real cluster that do not work: each is found out, told why, and flips back."""

from typing import Any

import orjson
import pytest

from telorunner.kube import objects
from tests import routed
from tests.e2e.conftest import Served, Serving
from tests.e2e.entrances import (
    CLASS,
    PLAIN,
    Entrance,
    apply,
    delete,
    gateway,
    patch,
    tls_secret,
)
from tests.realcluster import kubectl, role_rules, set_role

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

LAYERS = {
    "ingress": {"SESSION_INGRESS_CLASS": CLASS},
    "gateway": {"SESSION_GATEWAY_NAME": PLAIN},
}


async def reason(client: Served, session: str, *, times: int = 1) -> str:
    """Wait until a session's host is told as one that does not work; return why."""
    test = routed.is_route("unprogrammed", times=times)
    return str((await routed.until(client, session, test))[-1]["reason"])


async def works(client: Served, session: str, *, times: int = 1) -> None:
    await routed.until(client, session, routed.is_route("programmed", times=times))


async def test_what_takes_an_ingress_away_is_found_out_whatever_its_status_says(
    serve: Serving, entrance: Entrance
) -> None:
    async with serve(**entrance.runner(), **LAYERS["ingress"]) as client:
        taken, lost = [await routed.create(client, 8080) for _ in range(2)]
        for session in (taken, lost):
            await works(client, session)
        apply(entrance, await intruding_ingress(entrance, taken, leads_to=lost))
        # The controller lets go of it, and leaves its status as it was.
        patch(entrance, "ingress", f"telo-run-{lost}", {"spec": {"ingressClassName": "nobody"}})
        assert await reason(client, taken) == (
            "gateway: Something else answers: the host leads to another place."
        )
        assert await reason(client, lost) == "gateway: The gateway has no such route (HTTP 404)."
        async with entrance.cluster.opened() as api:
            for session in (taken, lost):
                found = await objects.get(api, "ingresses", f"telo-run-{session}")
                assert found["status"]["loadBalancer"]["ingress"]
        delete(entrance, "ingress", "intruder")
        patch(entrance, "ingress", f"telo-run-{lost}", {"spec": {"ingressClassName": CLASS}})
        for session in (taken, lost):
            await works(client, session, times=2)
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


async def test_what_takes_an_httproute_away_is_found_out_whatever_its_status_says(
    serve: Serving, entrance: Entrance
) -> None:
    async with serve(**entrance.runner(), **LAYERS["gateway"]) as client:
        taken, lost = [await routed.create(client, 8080) for _ in range(2)]
        for session in (taken, lost):
            await works(client, session)
        apply(entrance, await intruding_httproute(entrance, taken, leads_to=lost))
        rules = lead_nowhere(entrance, f"telo-run-{lost}-8080")
        assert await reason(client, taken) == (
            "gateway: Something else answers: the host leads to another place."
        )
        assert await reason(client, lost) == (
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
            await works(client, session, times=2)
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


async def test_a_gateway_that_takes_no_routes_from_the_namespace_is_told_in_its_own_words(
    serve: Serving, entrance: Entrance
) -> None:
    nobody = {"from": "Selector", "selector": {"matchLabels": {"of": "nobody"}}}
    apply(entrance, gateway(entrance, "closed", "http", **nobody))
    async with serve(**entrance.runner(), SESSION_GATEWAY_NAME="closed") as client:
        session = await routed.create(client, 8080)
        assert (await reason(client, session)).startswith("NotAllowedByListeners")
        assert (await entrance.get(entrance.host(session))).status_code == 404
        opened = gateway(entrance, "closed", "http")["spec"]
        patch(entrance, "gateway", "closed", {"spec": opened})
        await works(client, session)
        await entrance.until(entrance.host(session), 200)
        await routed.stop(client, session)
    delete(entrance, "gateway", "closed")


async def test_a_gateway_that_comes_late_is_taken(serve: Serving, entrance: Entrance) -> None:
    variables = {"SESSION_GATEWAY_NAME": "late", "SESSION_ROUTE_READY_TIMEOUT_SECONDS": "1"}
    async with serve(**entrance.runner(), **variables) as client:
        session = await routed.create(client, 8080)
        told = await reason(client, session)
        assert told.startswith("No controller has reported on this route within 1 s;")
        assert f'Check that the Gateway "{entrance.namespace}/late" exists' in told
        apply(entrance, gateway(entrance, "late", "http"))
        await works(client, session)
        await entrance.until(entrance.host(session), 200)
        await routed.stop(client, session)
    delete(entrance, "gateway", "late")


async def test_a_controller_that_never_comes_is_told_as_what_to_check(
    serve: Serving, entrance: Entrance
) -> None:
    variables = {
        **entrance.runner(),
        "SESSION_INGRESS_CLASS": "nobody",
        "SESSION_ROUTE_READY_TIMEOUT_SECONDS": "2",
    }
    async with serve(**variables) as client:
        session = await routed.create(client, 8080)
        assert await reason(client, session) == (
            "No controller has reported on this route within 2 s; it may work or not. Check that "
            'an ingress controller serves the ingress class "nobody". Asked itself, the host does '
            "not work: gateway: The gateway has no such route (HTTP 404)."
        )
        # It is there all the same, for whoever comes late.
        document = (await client.http.get(f"/v1/sessions/{session}")).json()
        assert document["status"]["kind"] == "running"
        patch(entrance, "ingress", f"telo-run-{session}", {"spec": {"ingressClassName": CLASS}})
        await works(client, session)
        await routed.stop(client, session)


async def test_a_status_that_may_not_be_read_is_told_as_that(
    serve: Serving, entrance: Entrance
) -> None:
    unread = {"list", "watch"}
    blind = [
        {**rule, "verbs": sorted(set(rule["verbs"]) - unread)}
        if rule["resources"] == ["ingresses"]
        else rule
        for rule in role_rules()
    ]
    variables = {
        **entrance.runner(),
        **LAYERS["ingress"],
        "SESSION_ROUTE_PROBE": "false",
        "SESSION_ROUTE_READY_TIMEOUT_SECONDS": "1",
    }
    set_role(entrance.namespace, blind)
    try:
        async with serve(**variables) as client:
            session = await routed.create(client, 8080)
            assert await reason(client, session) == (
                "Could not read the status of Ingresses: the runner is not permitted to do this "
                "(Forbidden, HTTP 403). The cluster operator must check the runner's RBAC."
            )
            set_role(entrance.namespace, role_rules())
            await works(client, session)
            await routed.stop(client, session)
    finally:
        set_role(entrance.namespace, role_rules())


async def test_a_certificate_for_other_names_is_found_out(
    serve: Serving, entrance: Entrance
) -> None:
    # No other certificate of the namespace is for these hosts.
    domain = f"private.{entrance.base_domain}"
    apply(entrance, tls_secret("private", entrance.certificates, "*.elsewhere.test"))
    variables = {
        **entrance.runner(has_tls=True),
        **LAYERS["ingress"],
        "SESSION_INGRESS_TLS_SECRET": "private",
        "SESSION_ROUTING_BASE_DOMAIN": domain,
    }
    async with serve(**variables) as client:
        session = await routed.create(client, 8080)
        assert (await reason(client, session)).startswith("tls: The certificate is ")
        right = tls_secret("private", entrance.certificates, f"*.{domain}")
        patch(entrance, "secret", "private", {"data": right["data"]})
        await works(client, session)
        await entrance.until(f"8080-{session}.{domain}", 200, has_tls=True)
        await routed.stop(client, session)
    delete(entrance, "secret", "private")


async def test_a_name_that_nobody_knows_is_found_out(serve: Serving, entrance: Entrance) -> None:
    variables = {
        **entrance.runner(),
        **LAYERS["ingress"],
        "SESSION_ROUTE_PROBE_ADDRESS": "resolve",
        "SESSION_ROUTING_BASE_DOMAIN": f"{entrance.namespace}.invalid",
    }
    async with serve(**variables) as client:
        session = await routed.create(client, 8080)
        assert (await reason(client, session)).startswith("dns: The name ")
        await routed.stop(client, session)


async def test_a_service_of_somebody_else_is_left_alone_and_told(
    serve: Serving, entrance: Entrance
) -> None:
    async with serve(**entrance.runner(), **LAYERS["ingress"]) as client:
        session = await routed.create(client, 8080)
        name = f"telo-run-{session}"
        foreign = {"metadata": {"name": name}, "spec": {"ports": [{"port": 1}]}}
        async with entrance.cluster.opened() as api:
            # At once: its name is known before its pod runs.
            uid = (await objects.create(api, "services", foreign))["metadata"]["uid"]
            told = await reason(client, session)
            assert told.startswith("publish: could not publish the session's ports: there is an")
            found = await objects.get(api, "services", name)
            assert (found["metadata"]["uid"], found["spec"]["ports"][0]["port"]) == (uid, 1)
            await objects.delete_if_exists(api, "services", name)
        await works(client, session)
        await routed.stop(client, session)
