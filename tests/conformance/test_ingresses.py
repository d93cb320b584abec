"""Ingresses and their classes: defaults, the default class, what is refused, the status."""

import uuid
from collections.abc import AsyncIterator

import pytest

from tests.conformance.client import Api, Object
from tests.conformance.networking import (
    NOT_A_PORT,
    NOT_DNS1035,
    ingresses,
    make_backend,
    make_ingress,
    make_owner,
)
from tests.conformance.objects import check_refusal, make_failure, make_invalid
from tests.conformance.words import NOT_A_SUBDOMAIN

MERGE = "application/merge-patch+json"
GROUP = "networking.k8s.io"
CLASSES = f"/apis/{GROUP}/v1/ingressclasses"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
PATH = "spec.rules[0].http.paths[0]"
NOT_A_WILDCARD = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which"
    " must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric"
    " character (e.g. '*.example.com', regex used for validation is"
    r" '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)

Fault = tuple[str, str, str]


@pytest.fixture
async def path(namespace: str) -> str:
    """The path of the namespace's Ingresses."""
    return ingresses(namespace)


@pytest.fixture
async def class_name(api: Api) -> AsyncIterator[str]:
    """The name of an IngressClass of the test's own, which is the newest default."""
    name = f"telo-conf-{uuid.uuid4().hex[:8]}"
    annotations = {"ingressclass.kubernetes.io/is-default-class": "true"}
    body = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"controller": "telo.test/nobody"},
    }
    await api.ask("POST", CLASSES, body)
    yield name
    await api.ask("DELETE", f"{CLASSES}/{name}")


async def test_an_ingress_is_kept_as_it_was_given(api: Api, path: str) -> None:
    body = make_ingress(tls=[{"hosts": ["a.example"], "secretName": "cert"}])
    made = await api.ask("POST", path, body)
    assert made["spec"] == body["spec"]
    assert made["status"] == {"loadBalancer": {}}
    assert made["metadata"]["generation"] == 1
    assert (await api.ask("GET", f"{path}/web")) == made


async def test_the_generation_counts_changes_of_the_spec(api: Api, path: str) -> None:
    await api.ask("POST", path, make_ingress())
    patch = {"metadata": {"labels": {"a": "b"}}}
    patched = await api.ask("PATCH", f"{path}/web", patch, content_type=MERGE)
    assert patched["metadata"]["generation"] == 1
    replaced = await api.ask("PUT", f"{path}/web", make_ingress(host="b.example"))
    assert replaced["metadata"]["generation"] == 2


@pytest.mark.parametrize("annotation", [None, "other"])
async def test_an_ingress_without_a_class_gets_the_default_one(
    api: Api, path: str, class_name: str, annotation: str | None
) -> None:
    body = make_ingress()
    del body["spec"]["ingressClassName"]
    if annotation:
        body["metadata"]["annotations"] = {"kubernetes.io/ingress.class": annotation}
    answer = await api.request("POST", path, body)
    assert answer.status == 201
    assert answer.body["spec"].get("ingressClassName") == (None if annotation else class_name)
    warning = (
        '299 - "annotation \\"kubernetes.io/ingress.class\\" is deprecated, please use'
        " 'spec.ingressClassName' instead\""
    )
    assert answer.warnings == ([warning] if annotation else [])


async def test_what_is_empty_is_not_kept(api: Api, path: str) -> None:
    rules = [None, {"host": "", "http": {"paths": [one_empty_path()]}}]
    made = await api.ask("POST", path, make_ingress(rules=rules, tls=[{"hosts": []}]))
    shown = {"pathType": "ImplementationSpecific", "backend": make_backend()}
    assert made["spec"]["rules"] == [{}, {"http": {"paths": [shown]}}]
    assert made["spec"]["tls"] == [{}]


def one_empty_path() -> Object:
    return {"path": "", "pathType": "ImplementationSpecific", "backend": make_backend()}


async def test_the_two_ways_to_name_a_class_agree(api: Api, path: str) -> None:
    body = make_ingress()
    body["metadata"]["annotations"] = {"kubernetes.io/ingress.class": "other"}
    text = 'Invalid value: "other": must match `ingressClassName` when both are specified'
    fault = ("Invalid", "annotations.kubernetes.io/ingress.class", text)
    answer = await api.request("POST", path, body)
    check_refusal(answer, make_invalid("Ingress", "web", fault, group=GROUP))


def one_path(**fields: object) -> Object:
    found = {"path": "/", "pathType": "Prefix", "backend": make_backend(), **fields}
    given = {field: value for field, value in found.items() if value is not None}
    return {"rules": [{"http": {"paths": [given]}}]}


def backend_fault(text: str, reason: str = "Invalid") -> Fault:
    return (reason, f"{PATH}.backend", text)


REFUSED: list[tuple[Object, list[Fault]]] = [
    (
        {"rules": None},
        [
            (
                "Invalid",
                "spec",
                "Invalid value: null: either `defaultBackend` or `rules` must be specified",
            )
        ],
    ),
    (
        {"rules": []},
        [
            (
                "Invalid",
                "spec",
                "Invalid value: []: either `defaultBackend` or `rules` must be specified",
            )
        ],
    ),
    (
        {"rules": [], "defaultBackend": {}},
        [
            (
                "Invalid",
                "spec.defaultBackend",
                'Invalid value: "": resource or service backend is required',
            )
        ],
    ),
    (
        {"rules": [{"host": "192.0.2.1"}]},
        [
            (
                "Invalid",
                "spec.rules[0].host",
                'Invalid value: "192.0.2.1": must be a DNS name, not an IP address',
            )
        ],
    ),
    (
        {"rules": [{"host": "A.example"}]},
        [("Invalid", "spec.rules[0].host", f'Invalid value: "A.example": {NOT_A_SUBDOMAIN}')],
    ),
    (
        {"rules": [{"host": "a.*.b"}]},
        [("Invalid", "spec.rules[0].host", f'Invalid value: "a.*.b": {NOT_A_WILDCARD}')],
    ),
    (
        {"rules": [{"http": {"paths": []}}]},
        [("Required", "spec.rules[0].http.paths", "Required value")],
    ),
    (
        one_path(pathType=None),
        [("Required", f"{PATH}.pathType", "Required value: pathType must be specified")],
    ),
    (
        one_path(pathType="Regex"),
        [
            (
                "NotSupported",
                f"{PATH}.pathType",
                'Unsupported value: "Regex": supported values: "Exact", "ImplementationSpecific",'
                ' "Prefix"',
            )
        ],
    ),
    (
        one_path(path="a"),
        [("Invalid", f"{PATH}.path", 'Invalid value: "a": must be an absolute path')],
    ),
    (
        one_path(path="/a//b/.."),
        [
            ("Invalid", f"{PATH}.path", "Invalid value: \"/a//b/..\": must not contain '//'"),
            ("Invalid", f"{PATH}.path", "Invalid value: \"/a//b/..\": cannot end with '/..'"),
        ],
    ),
    (
        one_path(backend={}),
        [backend_fault('Invalid value: "": resource or service backend is required')],
    ),
    (
        one_path(backend=make_backend({})),
        [backend_fault("Required value: port name or number is required", "Required")],
    ),
    (
        one_path(backend=make_backend({"name": "a", "number": 1})),
        [backend_fault('Invalid value: "": cannot set both port name & port number')],
    ),
    (
        one_path(backend=make_backend({"number": 70000})),
        [
            (
                "Invalid",
                f"{PATH}.backend.service.port.number",
                f"Invalid value: 70000: {NOT_A_PORT}",
            )
        ],
    ),
    (
        one_path(backend=make_backend({"name": "A"})),
        [
            (
                "Invalid",
                f"{PATH}.backend.service.port.name",
                'Invalid value: "A": must contain only alpha-numeric characters (a-z, 0-9), and'
                " hyphens (-)",
            ),
            (
                "Invalid",
                f"{PATH}.backend.service.port.name",
                'Invalid value: "A": must contain at least one letter (a-z)',
            ),
        ],
    ),
    (
        one_path(backend=make_backend(name="1a")),
        [
            (
                "Invalid",
                f"{PATH}.backend.service.name",
                f'Invalid value: "1a": {NOT_DNS1035}',
            )
        ],
    ),
    (
        {"tls": [{"hosts": ["A"], "secretName": "A"}]},
        [
            ("Invalid", "spec.tls[0].hosts[0]", f'Invalid value: "A": {NOT_A_SUBDOMAIN}'),
            ("Invalid", "spec.tls[0].secretName", f'Invalid value: "A": {NOT_A_SUBDOMAIN}'),
        ],
    ),
    (
        {"ingressClassName": "A"},
        [("Invalid", "spec.ingressClassName", f'Invalid value: "A": {NOT_A_SUBDOMAIN}')],
    ),
]


@pytest.mark.parametrize(("spec", "faults"), REFUSED)
async def test_an_ingress_with_faults_is_refused(
    api: Api, path: str, spec: Object, faults: list[Fault]
) -> None:
    answer = await api.request("POST", path, make_ingress(**spec))
    check_refusal(answer, make_invalid("Ingress", "web", *faults, group=GROUP))


async def test_the_status_is_a_part_of_its_own(api: Api, path: str) -> None:
    made = await api.ask("POST", path, make_ingress())
    status = {"loadBalancer": {"ingress": [{"ip": "127.0.0.1"}, {"hostname": "lb.example"}]}}
    body = {**made, "spec": make_ingress(host="b.example")["spec"], "status": status}
    written = await api.ask("PUT", f"{path}/web/status", body)
    assert (written["spec"], written["status"]) == (made["spec"], status)
    assert written["metadata"]["generation"] == 1
    replaced = await api.ask("PUT", f"{path}/web", make_ingress(host="b.example"))
    assert replaced["status"] == status
    patch = {"status": None}
    emptied = await api.ask("PATCH", f"{path}/web/status", patch, content_type=MERGE)
    assert emptied["status"] == {"loadBalancer": {}}


async def test_a_status_with_faults_is_refused(api: Api, path: str) -> None:
    made = await api.ask("POST", path, make_ingress())
    body = {**made, "status": {"loadBalancer": {"ingress": [{"hostname": "192.0.2.1"}]}}}
    text = 'Invalid value: "192.0.2.1": must be a DNS name, not an IP address'
    fault = ("Invalid", "status.loadBalancer.ingress[0].hostname", text)
    answer = await api.request("PUT", f"{path}/web/status", body)
    check_refusal(answer, make_invalid("Ingress", "web", fault, group=GROUP))


async def test_an_ingress_is_deleted_with_a_status_and_goes_with_its_owner(
    api: Api, path: str, namespace: str
) -> None:
    made = await api.ask("POST", path, make_ingress())
    uid = made["metadata"]["uid"]
    deleted = await api.ask("DELETE", f"{path}/web")
    details = {"name": "web", "group": GROUP, "kind": "ingresses", "uid": uid}
    assert (deleted["kind"], deleted["status"]) == ("Status", "Success")
    assert deleted["details"] == details
    body = make_ingress()
    body["metadata"]["ownerReferences"] = [await make_owner(api, namespace)]
    await api.ask("POST", path, body)
    await api.ask("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/owner")
    await api.until_gone(path, "web")


async def test_an_ingress_is_not_selected_by_its_class(api: Api, path: str) -> None:
    answer = await api.request("GET", path, query={"fieldSelector": "spec.ingressClassName=a"})
    why = (
        '"spec.ingressClassName" is not a known field selector: only "metadata.name",'
        ' "metadata.namespace"'
    )
    assert answer.status == 400
    assert why in answer.body["message"]


async def test_kubectl_gets_a_table_of_ingresses(api: Api, path: str) -> None:
    rules = [{"host": f"{name}.example"} for name in "abcd"]
    await api.ask("POST", path, make_ingress(rules=rules, tls=[{"hosts": ["a.example"]}]))
    table = await api.ask("GET", path, headers=TABLE)
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns == ["Name", "Class", "Hosts", "Address", "Ports", "Age"]
    hosts = "a.example,b.example,c.example + 1 more..."
    assert table["rows"][0]["cells"][:5] == ["web", "nobody", hosts, "", "80, 443"]


async def test_a_class_keeps_its_controller(api: Api, class_name: str) -> None:
    found = await api.ask("GET", f"{CLASSES}/{class_name}")
    assert found["metadata"]["generation"] == 1
    patch = {"spec": {"controller": "telo.test/other"}}
    answer = await api.request("PATCH", f"{CLASSES}/{class_name}", patch, content_type=MERGE)
    fault = ("Invalid", "spec.controller", 'Invalid value: "telo.test/other": field is immutable')
    check_refusal(answer, make_invalid("IngressClass", class_name, fault, group=GROUP))


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({}, ("Required", "spec.controller", "Required value")),
        (
            {"controller": "nobody"},
            (
                "Invalid",
                "spec.controller",
                'Invalid value: "nobody": must be a domain-prefixed path (such as "acme.io/foo")',
            ),
        ),
    ],
)
async def test_a_class_with_faults_is_refused(api: Api, spec: Object, fault: Fault) -> None:
    body = {"metadata": {"name": "telo-conf-none"}, "spec": spec}
    answer = await api.request("POST", CLASSES, body)
    check_refusal(answer, make_invalid("IngressClass", "telo-conf-none", fault, group=GROUP))


async def test_a_class_that_is_not_there_is_told(api: Api) -> None:
    answer = await api.request("GET", f"{CLASSES}/telo-conf-none")
    details = {"name": "telo-conf-none", "group": GROUP, "kind": "ingressclasses"}
    why = 'ingressclasses.networking.k8s.io "telo-conf-none" not found'
    check_refusal(answer, make_failure(404, "NotFound", why, details))
