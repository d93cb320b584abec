"""What becomes of Services: their status, updates that create, quotas, warnings, their owners."""

from typing import Any

import pytest

from tests.conformance.client import Api, Object
from tests.conformance.networking import (
    endpoint_slices,
    ingresses,
    make_ingress,
    make_service,
    make_slice,
    services,
)
from tests.conformance.objects import check_refusal, make_failure, make_invalid, make_pod

MERGE = "application/merge-patch+json"
POINT = "status.loadBalancer.ingress[0]"


@pytest.fixture
async def path(namespace: str) -> str:
    """The path of the namespace's Services."""
    return services(namespace)


def with_points(*points: Object) -> Object:
    return {"status": {"loadBalancer": {"ingress": list(points)}}}


async def test_what_is_empty_is_not_kept(api: Api, path: str) -> None:
    given: Object = {"selector": {}, "type": "", "sessionAffinity": "", "externalIPs": []}
    ports = [{"name": "", "port": 80, "protocol": "", "nodePort": 0, "targetPort": ""}]
    body = make_service(**given, ports=ports, publishNotReadyAddresses=False)
    spec = (await api.ask("POST", path, body))["spec"]
    assert (spec["type"], spec["sessionAffinity"]) == ("ClusterIP", "None")
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert not {"selector", "externalIPs", "publishNotReadyAddresses"} & set(spec)


async def test_null_in_a_list_stands_for_what_is_empty(api: Api, path: str) -> None:
    answer = await api.request("POST", path, make_service(ports=[None]))
    why = "Invalid value: 0: must be between 1 and 65535, inclusive"
    faults = [("Invalid", f"spec.ports[0].{field}", why) for field in ("port", "targetPort")]
    check_refusal(answer, make_invalid("Service", "web", *faults))


async def test_an_update_of_a_service_that_is_not_there_creates_it(api: Api, path: str) -> None:
    body = make_service()
    body["metadata"]["resourceVersion"] = "7"
    answer = await api.request("PUT", f"{path}/web", body)
    assert answer.status == 201
    assert await api.ask("GET", f"{path}/web") == answer.body
    body = make_service("other")
    body["metadata"]["uid"] = "x"
    answer = await api.request("PUT", f"{path}/other", body)
    key = path.removeprefix("/api/v1/namespaces/").replace("/services", "/other")
    why = (
        'Operation cannot be fulfilled on services "other": StorageError: invalid object, Code: 4,'
        f" Key: /registry/services/specs/{key}, ResourceVersion: 0, AdditionalErrorMsg:"
        " Precondition failed: UID in precondition: x, UID in object meta: "
    )
    details = {"name": "other", "kind": "services"}
    check_refusal(answer, make_failure(409, "Conflict", why, details))


async def test_only_a_load_balancer_has_a_status(api: Api, path: str) -> None:
    await api.ask("POST", path, make_service())
    place, patch = f"{path}/web/status", with_points({"ip": "192.0.2.7"})
    answer = await api.request("PATCH", place, patch, content_type=MERGE)
    why = "Forbidden: may only be used when `spec.type` is 'LoadBalancer'"
    fault = ("Forbidden", "status.loadBalancer.ingress", why)
    check_refusal(answer, make_invalid("Service", "web", fault))
    await api.ask("PUT", f"{path}/web", make_service(type="LoadBalancer"))
    written = await api.ask("PATCH", place, patch, content_type=MERGE)
    point = {"ip": "192.0.2.7", "ipMode": "VIP"}
    assert written["status"] == {"loadBalancer": {"ingress": [point]}}
    back = await api.ask("PUT", f"{path}/web", make_service())
    assert back["status"] == {"loadBalancer": {}}


@pytest.mark.parametrize(
    ("point", "fault"),
    [
        (
            {"ip": "bad", "ipMode": "VIP"},
            (
                "Invalid",
                f"{POINT}.ip",
                'Invalid value: "bad": must be a valid IP address, (e.g. 10.9.8.7 or'
                " 2001:db8::ffff)",
            ),
        ),
        (
            {"ip": "192.0.2.1", "ipMode": "Bogus"},
            (
                "NotSupported",
                f"{POINT}.ipMode",
                'Unsupported value: "Bogus": supported values: "Proxy", "VIP"',
            ),
        ),
        (
            {"hostname": "a.example", "ipMode": "VIP"},
            (
                "Forbidden",
                f"{POINT}.ipMode",
                "Forbidden: may not be specified when `ip` is not set",
            ),
        ),
        (
            {"hostname": "192.0.2.1"},
            (
                "Invalid",
                f"{POINT}.hostname",
                'Invalid value: "192.0.2.1": must be a DNS name, not an IP address',
            ),
        ),
    ],
)
async def test_a_status_with_faults_is_refused(
    api: Api, path: str, point: Object, fault: tuple[str, str, str]
) -> None:
    await api.ask("POST", path, make_service(type="LoadBalancer"))
    patch = with_points(point)
    answer = await api.request("PATCH", f"{path}/web/status", patch, content_type=MERGE)
    check_refusal(answer, make_invalid("Service", "web", fault))


async def test_the_metadata_is_written_with_the_status(api: Api, path: str, namespace: str) -> None:
    patch: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"selector": {"c": "d"}}}
    places = {path: make_service(), ingresses(namespace): make_ingress()}
    for collection, body in places.items():
        made = await api.ask("POST", collection, body)
        place = f"{collection}/web/status"
        written = await api.ask("PATCH", place, patch, content_type=MERGE)
        assert (written["metadata"]["labels"], written["spec"]) == ({"a": "b"}, made["spec"])
        # As a whole it loses what is left out, as everywhere.
        assert "labels" not in (await api.ask("PUT", place, made | fresh(written)))["metadata"]


def fresh(written: Object) -> Object:
    metadata = {field: written["metadata"][field] for field in ("name", "resourceVersion")}
    return {"metadata": metadata}


async def test_a_health_check_has_a_port_that_stays(api: Api, path: str) -> None:
    spec: Any = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    made = await api.ask("POST", path, make_service(**spec))
    number = made["spec"]["healthCheckNodePort"]
    assert 30000 <= number <= 32767
    replaced = await api.ask("PUT", f"{path}/web", make_service(**spec))
    assert replaced["spec"]["healthCheckNodePort"] == number
    another = make_service(**spec, healthCheckNodePort=number - 1 if number > 30000 else number + 1)
    answer = await api.request("PUT", f"{path}/web", another)
    fault = ("Forbidden", "spec.healthCheckNodePort", "Forbidden: field is immutable")
    check_refusal(answer, make_invalid("Service", "web", fault))
    back = await api.ask("PUT", f"{path}/web", make_service(type="LoadBalancer"))
    assert "healthCheckNodePort" not in back["spec"]


async def test_the_class_of_a_load_balancer_stays(api: Api, path: str) -> None:
    await api.ask("POST", path, make_service(type="LoadBalancer", loadBalancerClass="a.b/c"))
    answer = await api.request("PUT", f"{path}/web", make_service(type="LoadBalancer"))
    why = "Invalid value: null: may not change once set"
    check_refusal(
        answer, make_invalid("Service", "web", ("Invalid", "spec.loadBalancerClass", why))
    )


@pytest.mark.parametrize(
    ("spec", "warnings"),
    [
        ({"externalName": "a.b"}, ['spec.externalName is ignored when spec.type is not \\"Exter']),
        ({"clusterIP": "None", "sessionAffinity": "ClientIP"}, ["spec.SessionAffinity is ignored"]),
        (
            {"externalIPs": ["192.0.2.01"]},
            ['spec.externalIPs[0]: non-standard IP address \\"192.0.2.01\\" will be considered'],
        ),
        ({}, []),
    ],
)
async def test_what_does_nothing_is_warned_of(
    api: Api, path: str, spec: Object, warnings: list[str]
) -> None:
    answer = await api.request("POST", path, make_service(**spec))
    assert answer.status == 201
    assert len(answer.warnings) == len(warnings)
    for told, expected in zip(answer.warnings, warnings, strict=True):
        assert told.startswith(f'299 - "{expected}')


async def test_a_quota_counts_services(api: Api, namespace: str, path: str) -> None:
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    hard = {"services": "1", "services.nodeports": "0"}
    async with api.watch(quotas) as watch:
        await api.ask("POST", quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
        # A quota refuses what it limits until it has been counted.
        while (event := await watch.next()) is not None and not event.object.get("status"):
            pass
    await api.ask("POST", path, make_service())
    for body, taken in (
        (make_service("two"), "services=1, used: services=1, limited: services=1"),
        (
            make_service("two", type="NodePort"),
            "services=1,services.nodeports=1, used: services=1,services.nodeports=0, limited:"
            " services=1,services.nodeports=0",
        ),
    ):
        answer = await api.request("POST", path, body)
        why = f'services "two" is forbidden: exceeded quota: q, requested: {taken}'
        details = {"name": "two", "kind": "services"}
        check_refusal(answer, make_failure(403, "Forbidden", why, details))


async def test_what_leads_to_a_pod_goes_with_it(api: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    # No node will ever have it: it goes at once.
    pod = await api.ask("POST", pods, make_pod(nodeSelector={"telo.test/nobody": "here"}))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": pod["metadata"]["uid"]}
    bodies = {
        services(namespace): make_service(),
        ingresses(namespace): make_ingress(),
        endpoint_slices(namespace): make_slice(),
    }
    for collection, body in bodies.items():
        body["metadata"]["ownerReferences"] = [owner]
        await api.ask("POST", collection, body)
    await api.ask("DELETE", f"{pods}/one")
    for collection, body in bodies.items():
        await api.until_gone(collection, body["metadata"]["name"])
