"""EndpointSlices: defaults, generations, what is refused."""

import pytest

from tests.conformance.client import Api, Object
from tests.conformance.networking import endpoint_slices, make_owner, make_slice
from tests.conformance.objects import check_refusal, make_invalid
from tests.conformance.words import NOT_A_DNS_LABEL, NOT_A_SUBDOMAIN

MERGE = "application/merge-patch+json"
GROUP = "discovery.k8s.io"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}

Fault = tuple[str, str, str]


@pytest.fixture
async def path(namespace: str) -> str:
    """The path of the namespace's EndpointSlices."""
    return endpoint_slices(namespace)


async def test_a_slice_has_everything_filled_in(api: Api, path: str) -> None:
    made = await api.ask("POST", path, make_slice(ports=[{"port": 8080}]))
    assert made["endpoints"] == [{"addresses": ["192.0.2.1"], "conditions": {}}]
    assert made["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
    assert made["metadata"]["generation"] == 1


async def test_a_slice_of_nothing_shows_its_lists(api: Api, path: str) -> None:
    body = make_slice()
    del body["endpoints"], body["ports"]
    for empty in (body, make_slice("web-2", endpoints=[], ports=[])):
        made = await api.ask("POST", path, empty)
        assert (made["endpoints"], made["ports"]) == (None, None)


async def test_the_generation_counts_changes_and_labels(api: Api, path: str) -> None:
    await api.ask("POST", path, make_slice())
    generations = []
    for patch in (
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"labels": {"a": "b"}}},
        {"endpoints": [{"addresses": ["192.0.2.2"]}]},
    ):
        patched = await api.ask("PATCH", f"{path}/web-1", patch, content_type=MERGE)
        generations.append(patched["metadata"]["generation"])
    assert generations == [1, 2, 3]


async def test_a_replacement_needs_no_version(api: Api, path: str) -> None:
    await api.ask("POST", path, make_slice())
    body = make_slice(endpoints=[{"addresses": ["192.0.2.3"], "conditions": {"ready": True}}])
    replaced = await api.ask("PUT", f"{path}/web-1", body)
    assert replaced["endpoints"] == body["endpoints"]


def one_address(address: str, kind: str = "IPv4") -> Object:
    return {"addressType": kind, "endpoints": [{"addresses": [address]}]}


ADDRESS = "endpoints[0].addresses[0]"
REFUSED: list[tuple[Object, list[Fault]]] = [
    ({"addressType": None}, [("Required", "addressType", "Required value")]),
    (
        {"addressType": "Bogus"},
        [
            (
                "NotSupported",
                "addressType",
                'Unsupported value: "Bogus": supported values: "FQDN", "IPv4", "IPv6"',
            )
        ],
    ),
    (
        {"endpoints": [{"addresses": []}]},
        [
            (
                "Required",
                "endpoints[0].addresses",
                "Required value: must contain at least 1 address",
            )
        ],
    ),
    (
        one_address("2001:db8::1"),
        [
            (
                "Invalid",
                "endpoints[0].addresses",
                'Invalid value: "2001:db8::1": must be an IPv4 address',
            )
        ],
    ),
    (
        one_address("0.0.0.0"),  # noqa: S104 - an address that is refused
        [("Invalid", ADDRESS, 'Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)')],
    ),
    (
        one_address("169.254.0.1"),
        [
            (
                "Invalid",
                ADDRESS,
                'Invalid value: "169.254.0.1": may not be in the link-local range'
                " (169.254.0.0/16, fe80::/10)",
            )
        ],
    ),
    (
        one_address("a"),
        [
            (
                "Invalid",
                ADDRESS,
                'Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
            )
        ],
    ),
    (
        one_address("::ffff:192.0.2.1", "IPv6"),
        [
            (
                "Invalid",
                ADDRESS,
                'Invalid value: "::ffff:192.0.2.1": must not be an IPv4-mapped IPv6 address',
            )
        ],
    ),
    (
        {"endpoints": [{"addresses": ["192.0.2.1"], "nodeName": "A"}]},
        [("Invalid", "endpoints[0].nodeName", f'Invalid value: "A": {NOT_A_SUBDOMAIN}')],
    ),
    (
        {"addressType": None, "endpoints": [None], "ports": [{"port": 1, "protocol": "tcp"}]},
        [
            ("Required", "addressType", "Required value"),
            (
                "NotSupported",
                "ports[0].protocol",
                'Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"',
            ),
            (
                "Required",
                "endpoints[0].addresses",
                "Required value: must contain at least 1 address",
            ),
        ],
    ),
    (
        {"ports": [{"name": "A", "port": 1}]},
        [("Invalid", "ports[0].name", f'Invalid value: "A": {NOT_A_DNS_LABEL}')],
    ),
    (
        {"ports": [{"port": 1}, {"port": 2}]},
        [("Duplicate", "ports[1].name", 'Duplicate value: ""')],
    ),
    (
        {"ports": [{"port": 1, "protocol": "tcp"}]},
        [
            (
                "NotSupported",
                "ports[0].protocol",
                'Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"',
            )
        ],
    ),
]


@pytest.mark.parametrize(("fields", "faults"), REFUSED)
async def test_a_slice_with_faults_is_refused(
    api: Api, path: str, fields: Object, faults: list[Fault]
) -> None:
    answer = await api.request("POST", path, make_slice(**fields))
    check_refusal(answer, make_invalid("EndpointSlice", "web-1", *faults, group=GROUP))


async def test_only_the_local_cluster_takes_endpoints_on_loopback(api: Api, path: str) -> None:
    """Its pods are there, and its runner too."""
    answer = await api.request("POST", path, make_slice(**one_address("127.0.0.1")))
    if not api.is_real:
        assert answer.status == 201
        return
    text = 'Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)'
    fault = ("Invalid", ADDRESS, text)
    check_refusal(answer, make_invalid("EndpointSlice", "web-1", fault, group=GROUP))


async def test_names_in_the_place_of_addresses_are_warned_of(api: Api, path: str) -> None:
    answer = await api.request("POST", path, make_slice(**one_address("a.example", "FQDN")))
    assert answer.status == 201
    assert answer.warnings == ['299 - "spec.addressType: FQDN endpoints are deprecated"']


async def test_the_type_of_the_addresses_stays(api: Api, path: str) -> None:
    await api.ask("POST", path, make_slice())
    body = make_slice(**one_address("2001:db8::1", "IPv6"))
    answer = await api.request("PUT", f"{path}/web-1", body)
    fault = ("Invalid", "addressType", 'Invalid value: "IPv6": field is immutable')
    check_refusal(answer, make_invalid("EndpointSlice", "web-1", fault, group=GROUP))


async def test_slices_are_found_by_the_name_of_their_service(api: Api, path: str) -> None:
    await api.ask("POST", path, make_slice())
    for name, found in (("web", 1), ("other", 0)):
        query = {"labelSelector": f"kubernetes.io/service-name={name}"}
        assert len((await api.ask("GET", path, query=query))["items"]) == found


async def test_a_slice_goes_with_its_owner(api: Api, path: str, namespace: str) -> None:
    body = make_slice()
    body["metadata"]["ownerReferences"] = [await make_owner(api, namespace)]
    await api.ask("POST", path, body)
    await api.ask("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/owner")
    await api.until_gone(path, "web-1")


async def test_kubectl_gets_a_table_of_slices(api: Api, path: str) -> None:
    endpoints = [{"addresses": [f"192.0.2.{number}"]} for number in range(1, 6)]
    await api.ask("POST", path, make_slice("web-1", endpoints=endpoints))
    await api.ask("POST", path, make_slice("web-2", endpoints=[], ports=[]))
    table = await api.ask("GET", path, headers=TABLE)
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns == ["Name", "AddressType", "Ports", "Endpoints", "Age"]
    addresses = "192.0.2.1,192.0.2.2,192.0.2.3 + 2 more..."
    assert [row["cells"][:4] for row in table["rows"]] == [
        ["web-1", "IPv4", "8080", addresses],
        ["web-2", "IPv4", "<unset>", "<unset>"],
    ]
