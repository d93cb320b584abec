"""HTTPRoutes and Gateways: both versions, defaults, what a schema refuses, the status.

A real cluster has them once `gateway-crds` has been run; without it these tests are skipped.
"""

from typing import Any

import orjson
import pytest

from tests.conformance.client import Api, Object
from tests.conformance.networking import GATEWAY, gateway_path, make_owner, make_route
from tests.conformance.objects import check_refusal, make_failure, make_invalid

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
KIND = "HTTPRoute"
NOT_EVALUATED = (
    "Invalid",
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid;"
    " correct the existing errors to complete validation",
)
WAITING = {
    "lastTransitionTime": "1970-01-01T00:00:00Z",
    "message": "Waiting for controller",
    "reason": "Pending",
    "status": "Unknown",
}

Fault = tuple[str, str, str]


@pytest.fixture(autouse=True)
async def gateway_api(api: Api) -> None:
    """Skip where the cluster has no Gateway API."""
    if (await api.request("GET", f"/apis/{GATEWAY}")).status == 404:
        pytest.skip("the cluster does not serve the Gateway API")


@pytest.fixture
async def path(namespace: str) -> str:
    """The path of the namespace's HTTPRoutes in version v1."""
    return gateway_path("v1", namespace, "httproutes")


def default_match() -> Object:
    return {"path": {"type": "PathPrefix", "value": "/"}}


async def test_a_route_has_everything_filled_in(api: Api, path: str) -> None:
    made = await api.ask("POST", path, make_route())
    backend = {"group": "", "kind": "Service", "name": "web", "port": 80, "weight": 1}
    assert made["spec"] == {
        "parentRefs": [{"group": GATEWAY, "kind": "Gateway", "name": "nobody"}],
        "hostnames": ["a.example"],
        "rules": [{"matches": [default_match()], "backendRefs": [backend]}],
    }
    assert "status" not in made
    assert made["metadata"]["generation"] == 1


async def test_a_route_without_rules_has_one(api: Api, path: str) -> None:
    body = make_route()
    del body["spec"]["rules"]
    made = await api.ask("POST", path, body)
    assert made["spec"]["rules"] == [{"matches": [default_match()]}]


async def test_both_versions_show_the_same_route(api: Api, namespace: str) -> None:
    v1, beta = (gateway_path(one, namespace, "httproutes") for one in ("v1", "v1beta1"))
    made = await api.ask("POST", beta, make_route(version="v1beta1"))
    assert made["apiVersion"] == f"{GATEWAY}/v1beta1"
    shown = await api.ask("GET", f"{v1}/web")
    assert shown == {**made, "apiVersion": f"{GATEWAY}/v1"}
    assert await api.ask("GET", f"{beta}/web") == made
    for path, version in ((v1, "v1"), (beta, "v1beta1")):
        listed = await api.ask("GET", path)
        assert listed["apiVersion"] == f"{GATEWAY}/{version}"
        assert listed["kind"] == "HTTPRouteList"
        assert [one["apiVersion"] for one in listed["items"]] == [f"{GATEWAY}/{version}"]
        async with api.watch(path) as watch:
            (event,) = await watch.take(1)
        assert event.object["apiVersion"] == f"{GATEWAY}/{version}"
    patch = {"spec": {"hostnames": ["b.example"]}}
    patched = await api.ask("PATCH", f"{beta}/web", patch, content_type=MERGE)
    assert patched["apiVersion"] == f"{GATEWAY}/v1beta1"
    assert patched["metadata"]["generation"] == 2


async def test_a_route_of_the_other_version_is_refused(api: Api, path: str) -> None:
    answer = await api.request("POST", path, make_route(version="v1beta1"))
    why = (
        f"the API version in the data ({GATEWAY}/v1beta1) does not match the expected API version"
        f" ({GATEWAY}/v1)"
    )
    check_refusal(answer, make_failure(400, "BadRequest", why))


async def test_a_replacement_must_name_the_version_that_it_replaces(api: Api, path: str) -> None:
    made = await api.ask("POST", path, make_route())
    details = {
        "name": "web",
        "group": GATEWAY,
        "kind": "httproutes",
        "causes": [
            {
                "reason": "FieldValueInvalid",
                "message": "Invalid value: 0: must be specified for an update",
                "field": "metadata.resourceVersion",
            }
        ],
    }
    why = (
        f'httproutes.{GATEWAY} "web" is invalid: metadata.resourceVersion: Invalid value: 0: must'
        " be specified for an update"
    )
    for place in (f"{path}/web", f"{path}/web/status"):
        answer = await api.request("PUT", place, make_route())
        check_refusal(answer, make_failure(422, "Invalid", why, details))
    replaced = await api.ask("PUT", f"{path}/web", {**made, "spec": make_route()["spec"]})
    assert replaced["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_an_older_version_is_a_conflict(api: Api, path: str) -> None:
    made = await api.ask("POST", path, make_route())
    changed = {**made, "spec": {**made["spec"], "hostnames": ["b.example"]}}
    await api.ask("PUT", f"{path}/web", changed)
    why = (
        f'Operation cannot be fulfilled on httproutes.{GATEWAY} "web": the object has been'
        " modified; please apply your changes to the latest version and try again"
    )
    details = {"name": "web", "group": GATEWAY, "kind": "httproutes"}
    answer = await api.request("PUT", f"{path}/web", made)
    check_refusal(answer, make_failure(409, "Conflict", why, details))


def in_body(field: str, value: str, why: str) -> Fault:
    return ("Invalid", field, f"Invalid value: {value}: {field} in body {why}")


def one_rule(**fields: Any) -> Object:
    return {"rules": [fields]}


def in_parents(what: str) -> Fault:
    text = (
        f'Invalid value: "array": sectionName must be {what} when parentRefs includes 2 or more'
        " references to the same parent"
    )
    return ("Invalid", "spec.parentRefs", text)


HOST = r"should match '^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'"
BACKEND = "spec.rules[0].backendRefs[0]"
MATCH = "spec.rules[0].matches[0].path"
REFUSED: list[tuple[Object, list[Fault]]] = [
    ({"hostnames": ["A_b"]}, [in_body("spec.hostnames[0]", '"A_b"', HOST)]),
    (
        {"hostnames": [f"a{number}.example" for number in range(17)]},
        [
            ("TooMany", "spec.hostnames", "Too many: 17: must have at most 16 items"),
            NOT_EVALUATED,
        ],
    ),
    (
        {"parentRefs": [{}]},
        [("Required", "spec.parentRefs[0].name", "Required value"), NOT_EVALUATED],
    ),
    (
        {"rules": []},
        [
            (
                "Invalid",
                "spec.rules",
                "Invalid value: 0: spec.rules in body should have at least 1 items",
            )
        ],
    ),
    (
        {"parentRefs": [{"name": "a"}, {"name": "a", "port": 1}]},
        [in_parents("unique")],
    ),
    (
        {"parentRefs": [{"name": "a"}, {"name": "a", "sectionName": "b"}]},
        [in_parents("specified")],
    ),
    (
        {"hostnames": [""]},
        [in_body("spec.hostnames[0]", '""', "should be at least 1 chars long")],
    ),
    (
        one_rule(backendRefs=[{"name": "web"}]),
        [("Invalid", BACKEND, 'Invalid value: "object": Must have port for Service reference')],
    ),
    (
        one_rule(backendRefs=[{"name": "web", "port": 0}]),
        [in_body(f"{BACKEND}.port", "0", "should be greater than or equal to 1")],
    ),
    (
        one_rule(backendRefs=[{"name": "web", "port": 70000}]),
        [in_body(f"{BACKEND}.port", "70000", "should be less than or equal to 65535")],
    ),
    (
        one_rule(backendRefs=[{"name": "web", "port": "http"}]),
        [
            (
                "TypeInvalid",
                f"{BACKEND}.port",
                f'Invalid value: "string": {BACKEND}.port in body must be of type integer:'
                ' "string"',
            ),
            NOT_EVALUATED,
        ],
    ),
    (
        one_rule(matches=[{"path": {"type": "Bogus"}}]),
        [
            (
                "NotSupported",
                f"{MATCH}.type",
                'Unsupported value: "Bogus": supported values: "Exact", "PathPrefix",'
                ' "RegularExpression"',
            ),
            NOT_EVALUATED,
        ],
    ),
    (
        one_rule(matches=[{"path": {"value": "a"}}]),
        [
            (
                "Invalid",
                MATCH,
                "Invalid value: \"object\": value must be an absolute path and start with '/' when"
                " type one of ['Exact', 'PathPrefix']",
            )
        ],
    ),
    (
        one_rule(matches=[{"path": {"value": "/a b"}}]),
        [
            (
                "Invalid",
                MATCH,
                'Invalid value: "object": must only contain valid characters (matching'
                " ^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$) for types ['Exact',"
                " 'PathPrefix']",
            )
        ],
    ),
]


@pytest.mark.parametrize(("spec", "faults"), REFUSED)
async def test_a_route_with_faults_is_refused(
    api: Api, path: str, spec: Object, faults: list[Fault]
) -> None:
    answer = await api.request("POST", path, make_route(**spec))
    check_refusal(answer, make_invalid(KIND, "web", *faults, group=GATEWAY))


@pytest.mark.parametrize("head", ["kind", "apiVersion"])
async def test_a_route_says_what_it_is(api: Api, path: str, head: str) -> None:
    body = make_route()
    del body[head]
    sent = orjson.dumps(body)
    answer = await api.request("POST", path, sent)
    why = (
        f"the object provided is unrecognized (must be of type {KIND}): Object 'Kind' is missing in"
        f" '{sent.decode()}' ({sent[:30].decode()} ...)"
    )
    if head == "apiVersion":
        why = (
            f"the API version in the data () does not match the expected API version ({GATEWAY}/v1)"
        )
    check_refusal(answer, make_failure(400, "BadRequest", why))


async def test_a_patch_leaves_the_version_as_it_is(api: Api, path: str) -> None:
    await api.ask("POST", path, make_route())
    patch = {"apiVersion": f"{GATEWAY}/v1beta1"}
    answer = await api.request("PATCH", f"{path}/web", patch, content_type=MERGE)
    fault = ("Invalid", "apiVersion", f'Invalid value: "{GATEWAY}/v1beta1": must be {GATEWAY}/v1')
    check_refusal(answer, make_invalid(KIND, "web", fault, group=GATEWAY))


async def test_a_field_that_there_is_not_is_dropped_and_told(api: Api, path: str) -> None:
    answer = await api.request("POST", path, make_route(bogus=1))
    assert answer.status == 201
    assert answer.warnings == ['299 - "unknown field \\"spec.bogus\\""']
    assert "bogus" not in answer.body["spec"]


def parent_status(**condition: Any) -> Object:
    condition = {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
        **condition,
    }
    parent = {"group": GATEWAY, "kind": "Gateway", "name": "nobody"}
    return {
        "parents": [
            {
                "parentRef": parent,
                "controllerName": "telo.test/nobody",
                "conditions": [condition],
            }
        ]
    }


async def test_the_status_is_a_part_of_its_own(api: Api, path: str) -> None:
    made = await api.ask("POST", path, {**make_route(), "status": parent_status()})
    assert "status" not in made
    status = parent_status()
    changed = {**made, "spec": {"hostnames": ["b.example"]}, "status": status}
    written = await api.ask("PUT", f"{path}/web/status", changed)
    assert (written["spec"], written["status"]) == (made["spec"], status)
    assert written["metadata"]["generation"] == 1
    spec = {**made["spec"], "hostnames": ["b.example"]}
    replaced = await api.ask("PUT", f"{path}/web", {**written, "spec": spec, "status": {}})
    assert replaced["status"] == status
    assert replaced["metadata"]["generation"] == 2


async def test_a_status_with_faults_is_refused(api: Api, path: str) -> None:
    made = await api.ask("POST", path, make_route())
    body = {**made, "status": parent_status(status="Perhaps")}
    field = "status.parents[0].conditions[0].status"
    text = 'Unsupported value: "Perhaps": supported values: "True", "False", "Unknown"'
    faults = [("NotSupported", field, text), NOT_EVALUATED]
    answer = await api.request("PUT", f"{path}/web/status", body)
    check_refusal(answer, make_invalid(KIND, "web", *faults, group=GATEWAY))


async def test_a_status_is_told_of_by_its_own_fields(api: Api, path: str) -> None:
    made = await api.ask("POST", path, make_route())
    condition = "parents[0].conditions[0]"
    for fields, reason, text in (
        (
            {"observedGeneration": -1},
            "Invalid",
            f"Invalid value: -1: {condition}.observedGeneration in body should be greater than or"
            " equal to 0",
        ),
        (
            {"lastTransitionTime": "x"},
            "TypeInvalid",
            f'Invalid value: "x": {condition}.lastTransitionTime in body must be of type date-time:'
            ' "x"',
        ),
    ):
        body = {**made, "status": parent_status(**fields)}
        faults = [(reason, f"status.{condition}.{next(iter(fields))}", text)]
        faults += [NOT_EVALUATED] if reason == "TypeInvalid" else []
        answer = await api.request("PUT", f"{path}/web/status", body)
        check_refusal(answer, make_invalid(KIND, "web", *faults, group=GATEWAY))
    answer = await api.request("PUT", f"{path}/web/status", {**made, "status": {}})
    faults = [("Required", "status.parents", "Required value"), NOT_EVALUATED]
    check_refusal(answer, make_invalid(KIND, "web", *faults, group=GATEWAY))


async def test_a_strategic_patch_is_not_for_custom_kinds(api: Api, path: str) -> None:
    await api.ask("POST", path, make_route())
    answer = await api.request("PATCH", f"{path}/web", {}, content_type=STRATEGIC)
    why = (
        "the body of the request was in an unknown format - accepted media types include:"
        " application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )
    check_refusal(answer, make_failure(415, "UnsupportedMediaType", why))


async def test_a_route_is_selected_by_metadata_alone(api: Api, path: str) -> None:
    await api.ask("POST", path, make_route())
    found = await api.ask("GET", path, query={"fieldSelector": "metadata.name=web"})
    assert len(found["items"]) == 1
    answer = await api.request("GET", path, query={"fieldSelector": "spec.hostnames=a"})
    assert answer.status == 400
    assert "field label not supported: spec.hostnames" in answer.body["message"]


async def test_a_route_is_deleted_with_a_status_and_goes_with_its_owner(
    api: Api, path: str, namespace: str
) -> None:
    made = await api.ask("POST", path, make_route())
    deleted = await api.ask("DELETE", f"{path}/web")
    uid = made["metadata"]["uid"]
    assert deleted["details"] == {
        "name": "web",
        "group": GATEWAY,
        "kind": "httproutes",
        "uid": uid,
    }
    body = make_route()
    body["metadata"]["ownerReferences"] = [await make_owner(api, namespace)]
    await api.ask("POST", path, body)
    await api.ask("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/owner")
    await api.until_gone(path, "web")


async def test_routes_that_are_not_there_are_told(api: Api, path: str) -> None:
    answer = await api.request("GET", f"{path}/none")
    details = {"name": "none", "group": GATEWAY, "kind": "httproutes"}
    why = f'httproutes.{GATEWAY} "none" not found'
    check_refusal(answer, make_failure(404, "NotFound", why, details))


async def test_a_gateway_waits_for_its_controller(api: Api, namespace: str) -> None:
    path = gateway_path("v1", namespace, "gateways")
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    spec = {"gatewayClassName": "nobody", "listeners": [listener]}
    body = {
        "apiVersion": f"{GATEWAY}/v1",
        "kind": "Gateway",
        "metadata": {"name": "web"},
        "spec": spec,
    }
    made = await api.ask("POST", path, body)
    allowed = {"namespaces": {"from": "Same"}}
    assert made["spec"]["listeners"] == [{**listener, "allowedRoutes": allowed}]
    conditions = [{**WAITING, "type": kind} for kind in ("Accepted", "Programmed")]
    assert made["status"] == {"conditions": conditions}
    table = await api.ask("GET", path, headers=TABLE)
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns == ["Name", "Class", "Address", "Programmed", "Age"]
    assert table["rows"][0]["cells"][:4] == ["web", "nobody", None, "Unknown"]


async def test_kubectl_gets_a_table_of_routes(api: Api, path: str) -> None:
    await api.ask("POST", path, make_route(hostnames=["a.example", "b.example"]))
    table = await api.ask("GET", path, headers=TABLE)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Hostnames", "Age"]
    assert table["rows"][0]["cells"][:2] == ["web", '["a.example","b.example"]']


async def test_discovery_tells_both_versions(api: Api) -> None:
    group = await api.ask("GET", f"/apis/{GATEWAY}")
    assert group["preferredVersion"]["version"] == "v1"
    assert [one["version"] for one in group["versions"]][:2] == ["v1", "v1beta1"]
    for version in ("v1", "v1beta1"):
        found = await api.ask("GET", f"/apis/{GATEWAY}/{version}")
        served = {one["name"]: one for one in found["resources"]}
        assert {"httproutes", "httproutes/status", "gateways", "gatewayclasses"} <= set(served)
        assert served["httproutes"]["kind"] == KIND
        assert served["gateways"]["shortNames"] == ["gtw"]
