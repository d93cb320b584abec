"""Services: defaults, the address that is given, kept and given back, and what is refused."""

import ipaddress
from typing import Any

import pytest

from tests.conformance.client import Api, Object
from tests.conformance.networking import (
    NOT_A_PORT,
    NOT_DNS1035,
    make_owner,
    make_service,
    services,
)
from tests.conformance.objects import check_refusal, make_failure, make_invalid
from tests.conformance.words import NOT_A_DNS_LABEL

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
RANGE = ipaddress.ip_network("10.96.0.0/16")


@pytest.fixture
async def path(namespace: str) -> str:
    """The path of the namespace's Services."""
    return services(namespace)


@pytest.fixture
async def web(api: Api, path: str) -> Object:
    """A Service that is there."""
    made: Object = await api.ask("POST", path, make_service())
    return made


async def test_a_service_has_everything_filled_in(api: Api, path: str) -> None:
    ports = ({"name": "a", "port": 80}, {"name": "b", "port": 80, "protocol": "UDP"})
    made = await api.ask("POST", path, make_service("web", *ports))
    spec = made["spec"]
    address = spec.pop("clusterIP")
    assert ipaddress.ip_address(address) in RANGE
    assert spec == {
        "clusterIPs": [address],
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "ports": [
            {"name": "a", "port": 80, "protocol": "TCP", "targetPort": 80},
            {"name": "b", "port": 80, "protocol": "UDP", "targetPort": 80},
        ],
        "selector": {"app": "nobody"},
        "sessionAffinity": "None",
        "type": "ClusterIP",
    }
    assert made["status"] == {"loadBalancer": {}}
    assert "generation" not in made["metadata"]


async def test_a_target_port_may_be_a_name(api: Api, path: str) -> None:
    made = await api.ask("POST", path, make_service("web", {"port": 80, "targetPort": "http"}))
    assert made["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": "http"}]


async def test_services_without_an_address_have_other_families(api: Api, path: str) -> None:
    made = await api.ask("POST", path, make_service("one", clusterIP="None"))
    found = {field: made["spec"][field] for field in ("clusterIP", "clusterIPs", "ipFamilies")}
    assert found == {"clusterIP": "None", "clusterIPs": ["None"], "ipFamilies": ["IPv4"]}
    body = make_service("two", clusterIP="None", selector=None)
    made = await api.ask("POST", path, body)
    assert made["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
    assert made["spec"]["ipFamilyPolicy"] == "RequireDualStack"


async def test_a_name_elsewhere_has_no_address(api: Api, path: str) -> None:
    body = {"metadata": {"name": "web"}, "spec": {"type": "ExternalName", "externalName": "a.b"}}
    made = await api.ask("POST", path, body)
    assert made["spec"] == {
        "externalName": "a.b",
        "sessionAffinity": "None",
        "type": "ExternalName",
    }


async def test_a_node_port_is_given_and_kept(api: Api, path: str) -> None:
    made = await api.ask("POST", path, make_service(type="NodePort"))
    number = made["spec"]["ports"][0]["nodePort"]
    assert 30000 <= number <= 32767
    assert made["spec"]["externalTrafficPolicy"] == "Cluster"
    replaced = await api.ask("PUT", f"{path}/web", make_service(type="NodePort"))
    assert replaced["spec"]["ports"][0]["nodePort"] == number
    back = await api.ask("PUT", f"{path}/web", make_service())
    assert "nodePort" not in back["spec"]["ports"][0]
    assert "externalTrafficPolicy" not in back["spec"]


async def test_a_replacement_keeps_the_address_that_it_leaves_out(
    api: Api, path: str, web: Object
) -> None:
    body = make_service("web", {"name": "p81", "port": 81})
    replaced = await api.ask("PUT", f"{path}/web", body)
    for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        assert replaced["spec"][field] == web["spec"][field]
    assert [port["port"] for port in replaced["spec"]["ports"]] == [81]
    same = await api.ask("PUT", f"{path}/web", replaced)
    assert same["metadata"]["resourceVersion"] == replaced["metadata"]["resourceVersion"]


async def test_a_replacement_of_an_older_version_is_a_conflict(
    api: Api, path: str, web: Object
) -> None:
    await api.ask("PUT", f"{path}/web", make_service("web", {"name": "p81", "port": 81}))
    why = (
        'Operation cannot be fulfilled on services "web": the object has been modified; please'
        " apply your changes to the latest version and try again"
    )
    details = {"name": "web", "kind": "services"}
    answer = await api.request("PUT", f"{path}/web", web)
    check_refusal(answer, make_failure(409, "Conflict", why, details))


@pytest.mark.parametrize("fields", [("clusterIP",), ("clusterIP", "clusterIPs")])
async def test_an_address_may_not_change(
    api: Api, path: str, web: Object, fields: tuple[str, ...]
) -> None:
    values: Object = {"clusterIP": "10.96.255.9", "clusterIPs": ["10.96.255.9"]}
    body = make_service(**{field: values[field] for field in fields})
    fault = (
        "Invalid",
        "spec.clusterIPs[0]",
        'Invalid value: ["10.96.255.9"]: may not change once set',
    )
    answer = await api.request("PUT", f"{path}/web", body)
    check_refusal(answer, make_invalid("Service", "web", fault))


async def test_an_address_that_is_taken_is_refused_until_it_is_given_back(
    api: Api, path: str, web: Object
) -> None:
    address = web["spec"]["clusterIP"]
    another = make_service("another", clusterIP=address)
    text = (
        f'Invalid value: ["{address}"]: failed to allocate IP {address}: provided IP is already'
        " allocated"
    )
    answer = await api.request("POST", path, another)
    check_refusal(answer, make_invalid("Service", "another", ("Invalid", "spec.clusterIPs", text)))
    await api.ask("DELETE", f"{path}/web")
    assert (await api.ask("POST", path, another))["spec"]["clusterIP"] == address


async def test_an_address_of_another_network_is_refused(api: Api, path: str) -> None:
    text = (
        'Invalid value: ["192.0.2.1"]: failed to allocate IP 192.0.2.1: the provided network does'
        " not match the current range"
    )
    answer = await api.request("POST", path, make_service(clusterIP="192.0.2.1"))
    check_refusal(answer, make_invalid("Service", "web", ("Invalid", "spec.clusterIPs", text)))


async def test_a_dry_run_gives_no_address_away(api: Api, path: str) -> None:
    shown = await api.ask("POST", path, make_service(), query={"dryRun": "All"})
    assert ipaddress.ip_address(shown["spec"]["clusterIP"]) in RANGE
    assert (await api.ask("GET", path))["items"] == []


TWICE = '{"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}'
PORTS = "spec.ports[0]"
REFUSED: list[tuple[Object, list[tuple[str, str, str]]]] = [
    ({"ports": []}, [("Required", "spec.ports", "Required value")]),
    (
        {"ports": [{"port": 80}, {"port": 81}]},
        [
            ("Required", "spec.ports[0].name", "Required value"),
            ("Required", "spec.ports[1].name", "Required value"),
        ],
    ),
    (
        {"ports": [{"name": "a", "port": 80}, {"name": "a", "port": 81}]},
        [("Duplicate", "spec.ports[1].name", 'Duplicate value: "a"')],
    ),
    (
        {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]},
        [("Duplicate", "spec.ports[1]", f"Duplicate value: {TWICE}")],
    ),
    (
        {"ports": [{"name": "A_b", "port": 80}]},
        [("Invalid", f"{PORTS}.name", f'Invalid value: "A_b": {NOT_A_DNS_LABEL}')],
    ),
    (
        {"ports": [{"port": 0, "targetPort": 1}]},
        [("Invalid", f"{PORTS}.port", f"Invalid value: 0: {NOT_A_PORT}")],
    ),
    (
        {"ports": [{"port": 70000}]},
        [
            ("Invalid", f"{PORTS}.port", f"Invalid value: 70000: {NOT_A_PORT}"),
            ("Invalid", f"{PORTS}.targetPort", f"Invalid value: 70000: {NOT_A_PORT}"),
        ],
    ),
    (
        {"ports": [{"port": 80, "protocol": "tcp"}]},
        [
            (
                "NotSupported",
                f"{PORTS}.protocol",
                'Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"',
            )
        ],
    ),
    (
        {"ports": [{"port": 80, "targetPort": "a--b"}]},
        [
            (
                "Invalid",
                f"{PORTS}.targetPort",
                'Invalid value: "a--b": must not contain consecutive hyphens',
            )
        ],
    ),
    (
        {"ports": [{"port": 80, "nodePort": 30001}]},
        [
            (
                "Forbidden",
                f"{PORTS}.nodePort",
                "Forbidden: may not be used when `type` is 'ClusterIP'",
            )
        ],
    ),
    (
        {"type": "Bogus"},
        [
            (
                "NotSupported",
                "spec.type",
                'Unsupported value: "Bogus": supported values: "ClusterIP", "ExternalName",'
                ' "LoadBalancer", "NodePort"',
            )
        ],
    ),
    (
        {"sessionAffinity": "Bogus"},
        [
            (
                "NotSupported",
                "spec.sessionAffinity",
                'Unsupported value: "Bogus": supported values: "ClientIP", "None"',
            )
        ],
    ),
    (
        {"internalTrafficPolicy": "Bogus"},
        [
            (
                "NotSupported",
                "spec.internalTrafficPolicy",
                'Unsupported value: "Bogus": supported values: "Cluster", "Local"',
            )
        ],
    ),
    (
        {"externalTrafficPolicy": "Local"},
        [
            (
                "Invalid",
                "spec.externalTrafficPolicy",
                'Invalid value: "Local": may only be set for externally-accessible services',
            )
        ],
    ),
    (
        {"ipFamilyPolicy": "RequireDualStack"},
        [
            (
                "Invalid",
                "spec.ipFamilyPolicy",
                'Invalid value: "RequireDualStack": this cluster is not configured for dual-stack'
                " services",
            )
        ],
    ),
    (
        {"ipFamilies": ["IPv6"]},
        [
            (
                "Invalid",
                "spec.ipFamilies[0]",
                'Invalid value: "IPv6": not configured on this cluster',
            )
        ],
    ),
    (
        {"clusterIP": "nonsense"},
        [
            (
                "Invalid",
                "spec.clusterIPs[0]",
                'Invalid value: "nonsense": must be a valid IP address, (e.g. 10.9.8.7 or'
                " 2001:db8::ffff)",
            )
        ],
    ),
    (
        {"type": "ExternalName"},
        [("Required", "spec.externalName", "Required value")],
    ),
]


@pytest.mark.parametrize(("spec", "faults"), REFUSED)
async def test_a_service_with_faults_is_refused(
    api: Api, path: str, spec: Object, faults: list[tuple[str, str, str]]
) -> None:
    body = make_service()
    body["spec"] |= spec
    answer = await api.request("POST", path, body)
    check_refusal(answer, make_invalid("Service", "web", *faults))


async def test_the_name_of_a_service_begins_with_a_letter(api: Api, path: str) -> None:
    answer = await api.request("POST", path, make_service("1web"))
    fault = ("Invalid", "metadata.name", f'Invalid value: "1web": {NOT_DNS1035}')
    check_refusal(answer, make_invalid("Service", "1web", fault))


async def test_a_name_that_is_taken_is_a_conflict(api: Api, path: str, web: Object) -> None:
    answer = await api.request("POST", path, make_service())
    details = {"name": "web", "kind": "services"}
    why = 'services "web" already exists'
    check_refusal(answer, make_failure(409, "AlreadyExists", why, details))


async def test_ports_are_patched_by_their_number(api: Api, path: str, web: Object) -> None:
    patch: Any = {"spec": {"ports": [{"name": "p81", "port": 81}]}}
    patched = await api.ask("PATCH", f"{path}/web", patch, content_type=STRATEGIC)
    assert sorted(port["port"] for port in patched["spec"]["ports"]) == [80, 81]
    patch = {
        "spec": {
            "$setElementOrder/ports": [{"port": 81}],
            "ports": [{"port": 81, "targetPort": 8081}, {"$patch": "delete", "port": 80}],
        }
    }
    patched = await api.ask("PATCH", f"{path}/web", patch, content_type=STRATEGIC)
    port = {"name": "p81", "port": 81, "protocol": "TCP", "targetPort": 8081}
    assert patched["spec"]["ports"] == [port]
    patch = {"spec": {"ports": [{"port": 82}]}}
    patched = await api.ask("PATCH", f"{path}/web", patch, content_type=MERGE)
    assert patched["spec"]["ports"] == [{"port": 82, "protocol": "TCP", "targetPort": 82}]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("spec.type=NodePort", ["two"]),
        ("spec.type!=NodePort", ["one"]),
        ("spec.clusterIP=None", ["one"]),
        ("metadata.name=two", ["two"]),
    ],
)
async def test_services_are_selected_by_their_fields(
    api: Api, path: str, selector: str, names: list[str]
) -> None:
    await api.ask("POST", path, make_service("one", clusterIP="None"))
    await api.ask("POST", path, make_service("two", type="NodePort"))
    found = await api.ask("GET", path, query={"fieldSelector": selector})
    assert [one["metadata"]["name"] for one in found["items"]] == names


async def test_a_watch_sees_a_service_come_change_and_go(api: Api, path: str) -> None:
    async with api.watch(path) as watch:
        await api.ask("POST", path, make_service())
        await api.ask("PUT", f"{path}/web", make_service("web", {"port": 81}))
        deleted = await api.ask("DELETE", f"{path}/web")
        events = await watch.take(3)
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    # A deletion answers with the object, as of pods.
    assert (deleted["kind"], deleted["metadata"]["name"]) == ("Service", "web")


async def test_a_service_goes_with_its_owner(api: Api, path: str, namespace: str) -> None:
    owner = await make_owner(api, namespace)
    body = make_service()
    body["metadata"]["ownerReferences"] = [owner]
    await api.ask("POST", path, body)
    await api.ask("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/owner")
    await api.until_gone(path, "web")


async def test_kubectl_gets_a_table_of_services(api: Api, path: str) -> None:
    await api.ask("POST", path, make_service("web", {"port": 80}))
    body = make_service("far", {"port": 443}, type="LoadBalancer", externalIPs=["192.0.2.1"])
    far = await api.ask("POST", path, body)
    table = await api.ask("GET", path, headers=TABLE)
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Type",
        "Cluster-IP",
        "External-IP",
        "Port(s)",
        "Age",
        "Selector",
    ]
    rows = [[*row["cells"][:5], row["cells"][6]] for row in table["rows"]]
    node_port = far["spec"]["ports"][0]["nodePort"]
    address = far["spec"]["clusterIP"]
    assert rows[0] == [
        "far",
        "LoadBalancer",
        address,
        "192.0.2.1",
        f"443:{node_port}/TCP",
        "app=nobody",
    ]
    assert rows[1][0:2] + rows[1][3:] == ["web", "ClusterIP", "<none>", "80/TCP", "app=nobody"]
