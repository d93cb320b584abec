"""Public hosts on a real cluster as a controller, or the API, says that they do not work."""

import pytest

from telorunner.kube import objects
from tests import routed
from tests.e2e.conftest import Serving
from tests.e2e.entrances import CLASS, Entrance, apply, delete, gateway, patch
from tests.realcluster import role_rules, set_role

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

INGRESS = {"SESSION_INGRESS_CLASS": CLASS}


async def test_a_gateway_that_takes_no_routes_from_the_namespace_is_told_in_its_own_words(
    serve: Serving, entrance: Entrance
) -> None:
    nobody = {"from": "Selector", "selector": {"matchLabels": {"of": "nobody"}}}
    apply(entrance, gateway(entrance, "closed", "http", **nobody))
    async with serve(**entrance.runner(), SESSION_GATEWAY_NAME="closed") as client:
        session = await routed.create(client, 8080)
        assert (await routed.reason(client, session)).startswith("NotAllowedByListeners")
        assert (await entrance.get(entrance.host(session))).status_code == 404
        opened = gateway(entrance, "closed", "http")["spec"]
        patch(entrance, "gateway", "closed", {"spec": opened})
        await routed.works(client, session)
        await entrance.until(entrance.host(session), 200)
        await routed.stop(client, session)
    delete(entrance, "gateway", "closed")


async def test_a_gateway_that_comes_late_is_taken(serve: Serving, entrance: Entrance) -> None:
    variables = {"SESSION_GATEWAY_NAME": "late", "SESSION_ROUTE_READY_TIMEOUT_SECONDS": "1"}
    async with serve(**entrance.runner(), **variables) as client:
        session = await routed.create(client, 8080)
        told = await routed.reason(client, session)
        assert told.startswith("No controller has reported on this route within 1 s;")
        assert f'Check that the Gateway "{entrance.namespace}/late" exists' in told
        apply(entrance, gateway(entrance, "late", "http"))
        await routed.works(client, session)
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
        assert await routed.reason(client, session) == (
            "No controller has reported on this route within 2 s; it may work or not. Check that "
            'an ingress controller serves the ingress class "nobody". Asked directly, the host '
            "does not work: gateway: The gateway has no such route (HTTP 404)."
        )
        # It is there all the same, for whoever comes late.
        document = (await client.http.get(f"/v1/sessions/{session}")).json()
        assert document["status"]["kind"] == "running"
        patch(entrance, "ingress", f"telo-run-{session}", {"spec": {"ingressClassName": CLASS}})
        await routed.works(client, session)
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
        **INGRESS,
        "SESSION_ROUTE_PROBE": "false",
        "SESSION_ROUTE_READY_TIMEOUT_SECONDS": "1",
    }
    set_role(entrance.namespace, blind)
    try:
        async with serve(**variables) as client:
            session = await routed.create(client, 8080)
            assert await routed.reason(client, session) == (
                "Could not read the status of Ingresses: the runner is not permitted to do this "
                "(Forbidden, HTTP 403). The cluster operator must check the runner's RBAC, and "
                "that the session namespace (RUNNER_SESSION_NAMESPACE) exists."
            )
            set_role(entrance.namespace, role_rules())
            await routed.works(client, session)
            await routed.stop(client, session)
    finally:
        set_role(entrance.namespace, role_rules())


async def test_a_service_of_somebody_else_is_left_alone_and_told(
    serve: Serving, entrance: Entrance
) -> None:
    variables = {**entrance.runner(), **INGRESS}
    async with serve(**variables) as client:
        session = await routed.create(client, 8080)
        await routed.works(client, session)
    # While no runner is there that would make its own again.
    name = f"telo-run-{session}"
    delete(entrance, "service", name)
    foreign = {"metadata": {"name": name}, "spec": {"ports": [{"port": 1}]}}
    async with entrance.cluster.opened() as api:
        uid = (await objects.create(api, "services", foreign))["metadata"]["uid"]
        async with serve(**variables) as client:
            told = await routed.reason(client, session)
            assert told.startswith("publish: could not publish the session's ports: there is an")
            found = await objects.get(api, "services", name)
            assert (found["metadata"]["uid"], found["spec"]["ports"][0]["port"]) == (uid, 1)
            await objects.delete_if_exists(api, "services", name)
            await routed.works(client, session)
            await routed.stop(client, session)
