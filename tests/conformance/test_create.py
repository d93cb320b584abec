"""Creating objects: what is filled in, what is warned of and what is refused, word for word."""

from typing import Any

import pytest

from tests.conformance.client import Api, Object
from tests.conformance.objects import (
    check_refusal,
    make_configmap,
    make_failure,
    make_invalid,
    make_pod,
)
from tests.conformance.words import (
    NOT_A_DATA_KEY,
    NOT_A_DNS_LABEL,
    NOT_A_LABEL_VALUE,
    NOT_A_NAME_PART,
    NOT_A_QUALIFIED_NAME,
    NOT_A_SUBDOMAIN,
)

LONG = "a" * 254
MAPS = "/api/v1/namespaces/{}/configmaps"


def handled(
    why: str, kind: str = "ConfigMap", said: str = "ConfigMap", version: str = "v1"
) -> Object:
    """Return the Status for a body that has not the shape of its kind."""
    message = f'{said} in version "{version}" cannot be handled as a {kind}: {why}'
    return make_failure(400, "BadRequest", message)


def unread(why: str) -> Object:
    """Return the Status for a body in which no object can be seen."""
    message = (
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get"
        f" version/kind; json parse error: {why}"
    )
    return make_failure(400, "BadRequest", message)


def wrong(field: str, value: str, why: str) -> tuple[str, str, str]:
    return "Invalid", field, f'Invalid value: "{value}": {why}'


async def test_a_new_object_has_what_the_api_gives_it(api: Api, namespace: str) -> None:
    answer = await api.request("POST", MAPS.format(namespace), make_configmap(labels={"a": "b"}))
    assert answer.status == 201
    metadata = answer.body["metadata"]
    assert metadata.pop("uid")
    assert metadata.pop("creationTimestamp").endswith("Z")
    assert int(metadata.pop("resourceVersion")) > 0
    metadata.pop("managedFields", None)
    assert metadata == {"name": "one", "namespace": namespace, "labels": {"a": "b"}}
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("ConfigMap", "v1")
    assert answer.body["data"] == {"a": "b"}


async def test_what_only_the_api_says_is_not_taken_from_a_client(api: Api, namespace: str) -> None:
    old = "2020-01-01T00:00:00Z"
    given = {"uid": "mine", "creationTimestamp": old, "deletionTimestamp": old, "generation": 7}
    made = await api.ask("POST", MAPS.format(namespace), make_configmap(**given))
    assert made["metadata"]["uid"] != "mine"
    assert made["metadata"]["creationTimestamp"] != old
    assert "deletionTimestamp" not in made["metadata"]


async def test_a_version_may_not_be_given(api: Api, standing_namespace: str) -> None:
    body = make_configmap(resourceVersion="5")
    answer = await api.request("POST", MAPS.format(standing_namespace), body)
    message = "resourceVersion should not be set on objects to be created"
    check_refusal(answer, make_failure(500, "", message))


async def test_kind_and_version_may_be_left_out(api: Api, namespace: str) -> None:
    for name, head in (("a", {}), ("b", {"kind": "ConfigMap"}), ("c", {"apiVersion": "v1"})):
        body = {**head, "metadata": {"name": name}, "data": None}
        made = await api.ask("POST", MAPS.format(namespace), body)
        assert (made["kind"], made["apiVersion"]) == ("ConfigMap", "v1")


async def test_a_taken_name_is_told(api: Api, namespace: str) -> None:
    path = MAPS.format(namespace)
    await api.ask("POST", path, make_configmap())
    details = {"name": "one", "kind": "configmaps"}
    expected = make_failure(409, "AlreadyExists", 'configmaps "one" already exists', details)
    check_refusal(await api.request("POST", path, make_configmap()), expected)


async def test_a_name_is_made_of_a_base(api: Api, namespace: str) -> None:
    path = MAPS.format(namespace)
    for base, kept in (("made-", "made-"), ("x" * 70, "x" * 58)):
        made = await api.ask("POST", path, {"metadata": {"generateName": base}})
        assert made["metadata"]["generateName"] == base
        name = made["metadata"]["name"]
        assert (name[:-5], len(name)) == (kept, len(kept) + 5)
        assert set(name[-5:]) <= set("bcdfghjklmnpqrstvwxz2456789")


async def test_a_base_that_is_no_name_is_told_beside_the_name(
    api: Api, standing_namespace: str
) -> None:
    answer = await api.request(
        "POST", MAPS.format(standing_namespace), {"metadata": {"generateName": "B_"}}
    )
    name = answer.body["details"]["name"]
    faults = [
        wrong("metadata.generateName", "B_", NOT_A_SUBDOMAIN),
        wrong("metadata.name", name, NOT_A_SUBDOMAIN),
    ]
    check_refusal(answer, make_invalid("ConfigMap", name, *faults))


@pytest.mark.parametrize(
    ("metadata", "faults"),
    [
        (
            {},
            [
                (
                    "Required",
                    "metadata.name",
                    "Required value: name or generateName is required",
                )
            ],
        ),
        ({"name": "A_b"}, [wrong("metadata.name", "A_b", NOT_A_SUBDOMAIN)]),
        ({"name": LONG}, [wrong("metadata.name", LONG, "must be no more than 253 characters")]),
        (
            {"name": "A" * 254},
            [
                wrong("metadata.name", "A" * 254, "must be no more than 253 characters"),
                wrong("metadata.name", "A" * 254, NOT_A_SUBDOMAIN),
            ],
        ),
        (
            {"name": "x", "labels": {"x": "-bad-"}},
            [wrong("metadata.labels", "-bad-", NOT_A_LABEL_VALUE)],
        ),
        (
            {"name": "x", "labels": {"/y": "1"}},
            [wrong("metadata.labels", "/y", "prefix part must be non-empty")],
        ),
        (
            {"name": "x", "labels": {"x/": "1"}},
            [
                wrong("metadata.labels", "x/", "name part must be non-empty"),
                wrong("metadata.labels", "x/", NOT_A_NAME_PART),
            ],
        ),
        (
            {"name": "x", "labels": {"X_/x": "1"}},
            [wrong("metadata.labels", "X_/x", f"prefix part {NOT_A_SUBDOMAIN}")],
        ),
        (
            {"name": "x", "labels": {"x" * 64: "1"}},
            [wrong("metadata.labels", "x" * 64, "name part must be no more than 63 characters")],
        ),
        (
            {"name": "x", "labels": {"x": "a" * 64}},
            [wrong("metadata.labels", "a" * 64, "must be no more than 63 characters")],
        ),
        (
            {"name": "x", "annotations": {"a/b/c": "1"}},
            [wrong("metadata.annotations", "a/b/c", NOT_A_QUALIFIED_NAME)],
        ),
        (
            {"name": "x", "annotations": {"x": "a" * 300_000}},
            [("TooLong", "metadata.annotations", "Too long: may not be more than 262144 bytes")],
        ),
        (
            {"name": "x", "ownerReferences": [{"kind": "Pod"}]},
            [
                wrong("metadata.ownerReferences.apiVersion", "", "version must not be empty"),
                wrong("metadata.ownerReferences.name", "", "must not be empty"),
                wrong("metadata.ownerReferences.uid", "", "must not be empty"),
            ],
        ),
        (
            {"name": "x", "finalizers": ["x"]},
            [
                wrong(
                    "metadata.finalizers[0]",
                    "x",
                    "name is neither a standard finalizer name nor is it fully qualified",
                )
            ],
        ),
    ],
)
async def test_metadata_with_faults_is_refused(
    api: Api, standing_namespace: str, metadata: Object, faults: list[tuple[str, str, str]]
) -> None:
    answer = await api.request("POST", MAPS.format(standing_namespace), {"metadata": metadata})
    check_refusal(answer, make_invalid("ConfigMap", metadata.get("name", ""), *faults))


async def test_one_owner_at_most_is_the_controller(api: Api, standing_namespace: str) -> None:
    owners = [
        {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True}
        for name in "xy"
    ]
    body = make_configmap(ownerReferences=owners)
    shown = (
        '[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"x","controller":true},'
        '{"apiVersion":"v1","kind":"Pod","name":"y","uid":"y","controller":true}]'
    )
    why = (
        f"Invalid value: {shown}: Only one reference can have Controller set to true."
        ' Found "true" in references for Pod/x and Pod/y'
    )
    answer = await api.request("POST", MAPS.format(standing_namespace), body)
    fault = ("Invalid", "metadata.ownerReferences", why)
    check_refusal(answer, make_invalid("ConfigMap", "one", fault))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"data": {"a b": "x"}}, wrong("data[a b]", "a b", NOT_A_DATA_KEY)),
        ({"data": {"..": "x"}}, wrong("data[..]", "..", "must not be '..'")),
        (
            {"data": {"a": "x"}, "binaryData": {"a": "eA=="}},
            wrong("data[a]", "a", "duplicate of key present in binaryData"),
        ),
        (
            {"data": {LONG: "x"}},
            wrong(f"data[{LONG}]", LONG, "must be no more than 253 characters"),
        ),
        (
            {"data": {"a": "x" * 1_100_000}},
            ("TooLong", "[]", "Too long: may not be more than 1048576 bytes"),
        ),
    ],
)
async def test_data_with_faults_is_refused(
    api: Api, standing_namespace: str, content: Object, fault: tuple[str, str, str]
) -> None:
    body = {"metadata": {"name": "one"}, **content}
    answer = await api.request("POST", MAPS.format(standing_namespace), body)
    check_refusal(answer, make_invalid("ConfigMap", "one", fault))


@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("a.b", [wrong("metadata.name", "a.b", "must not contain dots")]),
        ("A", [wrong("metadata.name", "A", NOT_A_DNS_LABEL)]),
        (
            "a" * 64,
            [
                wrong(field, "a" * 64, "must be no more than 63 characters")
                for field in ("metadata.name", "metadata.labels")
            ],
        ),
    ],
)
async def test_the_name_of_a_namespace_is_a_label(
    api: Api, name: str, faults: list[tuple[str, str, str]]
) -> None:
    answer = await api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    check_refusal(answer, make_invalid("Namespace", name, *faults))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", unread("unexpected end of JSON input (<empty>)")),
        (
            b"{nope",
            unread("invalid character 'n' looking for beginning of object key string ({nope)"),
        ),
        (b'{"a":', unread('unexpected end of JSON input ({"a":)')),
        (b"nul", unread("invalid character ' ' in literal null (expecting 'l') (6e756c)")),
        (
            b'{"a":1.}',
            unread("invalid character '}' after decimal point in numeric literal ({\"a\":1.})"),
        ),
        (
            b'{"a":"b" "c"} and something more than thirty',
            unread(
                "invalid character '\"' after object key:value pair"
                ' ({"a":"b" "c"} and something mo ...)'
            ),
        ),
        (
            b"[1]",
            unread(
                "json: cannot unmarshal array into Go value of type struct { APIVersion string"
                ' "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
                " (5b315d)"
            ),
        ),
        (
            b'{"kind":5}',
            unread(
                "json: cannot unmarshal number into Go struct field .kind of type string"
                ' ({"kind":5})'
            ),
        ),
        (
            b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"k"}}',
            handled("converting (v1.Pod) to (core.ConfigMap): unknown conversion", said="Pod"),
        ),
        (
            b'{"kind":"Nope","apiVersion":"v1","metadata":{"name":"k"}}',
            handled(
                'no kind "Nope" is registered for version "v1" in scheme'
                ' "pkg/runtime/scheme.go:110"',
                said="Nope",
            ),
        ),
        (
            b'{"kind":"ConfigMap","apiVersion":"apps/v2","metadata":{"name":"k"}}',
            handled(
                'no kind "ConfigMap" is registered for version "apps/v2" in scheme'
                ' "pkg/runtime/scheme.go:110"',
                version="v2",
            ),
        ),
    ],
)
async def test_a_body_that_is_no_such_object_is_told(
    api: Api, standing_namespace: str, body: bytes, expected: Object
) -> None:
    check_refusal(await api.request("POST", MAPS.format(standing_namespace), body), expected)


FIELD = "json: cannot unmarshal {} into Go struct field {} of type {}"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"metadata": "x"}, FIELD.format("string", "ConfigMap.metadata", "v1.ObjectMeta")),
        ({"metadata": {"name": 5}}, FIELD.format("number", "ObjectMeta.metadata.name", "string")),
        (
            {"metadata": {"labels": ["x"]}},
            FIELD.format("array", "ObjectMeta.metadata.labels", "map[string]string"),
        ),
        (
            {"metadata": {"labels": {"x": 1}}},
            FIELD.format("number", "ObjectMeta.metadata.labels", "string"),
        ),
        (
            {"metadata": {"ownerReferences": [{"name": True}]}},
            FIELD.format("bool", "OwnerReference.metadata.ownerReferences.name", "string"),
        ),
        (
            {"metadata": {"generation": 1.5}},
            FIELD.format("number 1.5", "ObjectMeta.metadata.generation", "int64"),
        ),
        ({"data": ["a"]}, FIELD.format("array", "ConfigMap.data", "map[string]string")),
        ({"data": {"a": 5}}, FIELD.format("number", "ConfigMap.data", "string")),
        ({"immutable": "yes"}, FIELD.format("string", "ConfigMap.immutable", "bool")),
        ({"binaryData": {"a": "ab!d"}}, "illegal base64 data at input byte 2"),
        ({"binaryData": {"a": "ab\u00e9d"}}, "illegal base64 data at input byte 2"),
        (
            {"metadata": {"creationTimestamp": "now"}},
            'parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006"',
        ),
    ],
)
async def test_a_value_of_another_type_is_told(
    api: Api, standing_namespace: str, body: Object, why: str
) -> None:
    check_refusal(await api.request("POST", MAPS.format(standing_namespace), body), handled(why))


async def test_a_body_for_another_namespace_is_refused(api: Api, standing_namespace: str) -> None:
    message = (
        "the namespace of the provided object does not match the namespace sent on the request"
    )
    answer = await api.request(
        "POST", MAPS.format(standing_namespace), make_configmap(namespace="other")
    )
    check_refusal(answer, make_failure(400, "BadRequest", message))


async def test_fields_that_a_kind_does_not_have_are_dropped_and_warned_of(
    api: Api, standing_namespace: str
) -> None:
    body = make_pod("x", bogus=1, schedulerName="nobody")
    body["metadata"]["boo"] = 2
    body["spec"]["containers"][0]["env"] = [{"name": "a", "vaule": "b"}]
    path = f"/api/v1/namespaces/{standing_namespace}/pods"
    fields = ["metadata.boo", "spec.containers[0].env[0].vaule", "spec.bogus"]

    async def make(validation: str) -> tuple[int, list[str], Any]:
        query = {"fieldValidation": validation, "dryRun": "All"}
        async with api.session.post(path, json=body, params=query) as response:
            return response.status, response.headers.getall("Warning", []), await response.json()

    for validation in ("", "Warn"):
        status, warnings, made = await make(validation)
        assert (status, warnings) == (
            201,
            [f'299 - "unknown field \\"{field}\\""' for field in fields],
        )
        assert "bogus" not in made["spec"]
        assert "boo" not in made["metadata"]
    assert (await make("Ignore"))[:2] == (201, [])
    refused = await api.request(
        "POST", path, body, query={"fieldValidation": "Strict", "dryRun": "All"}
    )
    why = ", ".join(f'unknown field "{field}"' for field in fields)
    check_refusal(refused, handled(f"strict decoding error: {why}", "Pod", "Pod"))


async def test_a_field_that_comes_twice_is_told(api: Api, namespace: str) -> None:
    body = b'{"metadata":{"name":"dup"},"data":{"a":"1","a":"2"}}'
    path, why = MAPS.format(namespace), 'duplicate field "data.a"'
    refused = await api.request("POST", path, body, query={"fieldValidation": "Strict"})
    check_refusal(refused, handled(f"strict decoding error: {why}"))
    made = await api.request("POST", path, body)
    assert made.headers["Warning"] == '299 - "duplicate field \\"data.a\\""'
    assert made.body["data"] == {"a": "2"}


async def test_a_dry_run_shows_what_would_be_and_leaves_nothing(
    api: Api, standing_namespace: str
) -> None:
    path = MAPS.format(standing_namespace)
    answer = await api.request("POST", path, make_configmap(), query={"dryRun": "All"})
    assert answer.status == 201
    assert answer.body["metadata"]["uid"]
    assert "resourceVersion" not in answer.body["metadata"]
    assert (await api.request("GET", f"{path}/one")).status == 404


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        (
            {"dryRun": "Some"},
            ("NotSupported", "dryRun", 'Unsupported value: ["Some"]: supported values: "All"'),
        ),
        (
            {"fieldValidation": "Bogus"},
            (
                "NotSupported",
                "fieldValidation",
                'Unsupported value: "Bogus": supported values: "", "Ignore", "Strict", "Warn"',
            ),
        ),
        (
            {"fieldManager": "x" * 129},
            ("TooLong", "fieldManager", "Too long: may not be more than 128 bytes"),
        ),
    ],
)
async def test_options_that_there_are_not_are_refused(
    api: Api, standing_namespace: str, query: dict[str, str], fault: tuple[str, str, str]
) -> None:
    answer = await api.request(
        "POST", MAPS.format(standing_namespace), make_configmap(), query=query
    )
    check_refusal(answer, make_invalid("CreateOptions", "", fault, group="meta.k8s.io"))


async def test_yaml_is_taken_as_well(api: Api, namespace: str) -> None:
    body = b"metadata: {name: one}\ndata: {a: b}\n"
    made = await api.ask("POST", MAPS.format(namespace), body, content_type="application/yaml")
    assert made["data"] == {"a": "b"}
