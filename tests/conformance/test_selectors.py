"""Selectors: every form that selects, and every form that cannot be read."""

import pytest

from tests.conformance.client import Api
from tests.conformance.objects import check_refusal, make_configmap, make_failure, make_pod
from tests.conformance.words import (
    NOT_A_LABEL_VALUE,
    NOT_A_NAME_PART,
    NOT_A_QUALIFIED_NAME,
    NOT_A_SUBDOMAIN,
)

LABELS = {
    "none": {},
    "one": {"x": "1"},
    "two": {"x": "2", "y": "b"},
    "void": {"x": ""},
}


async def selected(api: Api, path: str, **query: str) -> str:
    """Return the names of what a query selects, in the list's order."""
    found = await api.ask("GET", path, query=query)
    return " ".join(one["metadata"]["name"] for one in found["items"])


async def test_labels_select(api: Api, namespace: str) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    for name, labels in LABELS.items():
        await api.ask("POST", maps, make_configmap(name, labels={"all": "", **labels}))

    for selector, expected in {
        "x": "one two void",
        "!x": "none",
        "x=1": "one",
        "x==1": "one",
        "x = 1 , !y": "one",
        "x!=1": "none two void",
        "x in (1, 2)": "one two",
        "x in (1,)": "one void",
        "x in ()": "void",
        "x notin (1,2)": "none void",
        "x notin ()": "none one two",
        "x=": "void",
        "x!=": "none one two",
        "x>1": "two",
        "x<2": "one",
        "x in (1,2),y": "two",
        "x=1,x=2": "",
        "in=in": "",
    }.items():
        found = await selected(api, maps, labelSelector=f"all,{selector}")
        assert found == expected, selector


async def test_fields_select(api: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for name in ("a", "b"):
        await api.ask("POST", pods, make_pod(name, schedulerName="nobody"))

    for selector, expected in {
        "metadata.name=a": "a",
        "metadata.name==a": "a",
        "metadata.name!=a": "b",
        "metadata.name=a,metadata.name=b": "",
        "metadata.name=a,": "a",
        f"metadata.namespace={namespace}": "a b",
        "status.phase=Pending": "a b",
        "status.phase!=Pending": "",
        "spec.nodeName=": "a b",
        "spec.nodeName=x": "",
        "spec.restartPolicy=Never,spec.schedulerName=nobody": "a b",
        "spec.serviceAccountName=default": "a b",
        "spec.hostNetwork=false": "a b",
        "status.podIP=": "a b",
        "status.podIPs=": "a b",
        "metadata.name=a\\,b": "",
    }.items():
        assert await selected(api, pods, fieldSelector=selector) == expected, selector


UNREADABLE = "unable to parse requirement: "
NO_IDENTIFIER = "expected: !, identifier, or 'end of string'"
NO_END = "expected: ',' or 'end of string'"
NO_OPERATOR = "expected: in, notin, =, ==, !=, gt, lt"


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("x=a=b", f"found '=', {NO_END}"),
        ("x=a b", f"found 'b', {NO_END}"),
        ("!x=a", f"found '=', {NO_END}"),
        ("x in (a)y", f"found 'y', {NO_END}"),
        ("=a", f"found '=', {NO_IDENTIFIER}"),
        (",", f"found ',', {NO_IDENTIFIER}"),
        ("(x)", f"found '(', {NO_IDENTIFIER}"),
        ("x,,y", "found ',', expected: identifier after ','"),
        ("x,", "found '', expected: identifier after ','"),
        ("!", f"{UNREADABLE}found '', expected: identifier"),
        ("!,x", f"{UNREADABLE}found ',', expected: identifier"),
        ("x=!", f"{UNREADABLE}found '!', expected: identifier"),
        ("x y", f"{UNREADABLE}found 'y', {NO_OPERATOR}"),
        ("x in", f"{UNREADABLE}found '' expected: '('"),
        ("x in a", f"{UNREADABLE}found 'a' expected: '('"),
        ("x in (a", f"{UNREADABLE}found '', expected: ',' or ')'"),
        ("x in (a b)", f"{UNREADABLE}found 'b', expected: ',' or ')'"),
        ("x in (a=b)", f"{UNREADABLE}found '=', expected: ',' or ')'"),
        (
            "x>a",
            f"{UNREADABLE}values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value"
            " must be an integer",
        ),
        ("x=-", f'{UNREADABLE}values[0][x]: Invalid value: "-": {NOT_A_LABEL_VALUE}'),
        (
            "x=" + "a" * 64,
            f'{UNREADABLE}values[0][x]: Invalid value: "{"a" * 64}": must be no more than 63'
            " characters",
        ),
        ("-x", f'{UNREADABLE}<nil>: Invalid value: "-x": {NOT_A_NAME_PART}'),
        ("x/y/z", f'{UNREADABLE}<nil>: Invalid value: "x/y/z": {NOT_A_QUALIFIED_NAME}'),
        ("X/y", f'{UNREADABLE}<nil>: Invalid value: "X/y": prefix part {NOT_A_SUBDOMAIN}'),
    ],
)
async def test_a_label_selector_that_cannot_be_read_is_told(
    api: Api, standing_namespace: str, selector: str, message: str
) -> None:
    path = f"/api/v1/namespaces/{standing_namespace}/configmaps"
    for query in ({}, {"watch": "1", "timeoutSeconds": "1"}):
        answer = await api.request("GET", path, query={"labelSelector": selector, **query})
        check_refusal(answer, make_failure(400, "BadRequest", message))


ONLY = 'only "metadata.name", "metadata.namespace"'


@pytest.mark.parametrize(
    ("resource", "selector", "message"),
    [
        ("configmaps", "data.a=b", f'"data.a" is not a known field selector: {ONLY}'),
        ("configmaps", "=x", f'"" is not a known field selector: {ONLY}'),
        ("limitranges", "x=y", f'"x" is not a known field selector: {ONLY}'),
        ("pods", "spec.containers=x", "field label not supported: spec.containers"),
        ("pods", "metadata.labels=x", "field label not supported: metadata.labels"),
        ("events", "bogus=x", "field label not supported: bogus"),
        ("secrets", "bogus=x", "field label not supported: bogus"),
        ("services", "bogus=x", "field label not supported: bogus"),
        (
            "configmaps",
            "metadata.name",
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
        ),
        (
            "configmaps",
            "metadata.name=a=b",
            "invalid field selector: unescaped character in value: 61",
        ),
        (
            "configmaps",
            "metadata.name=a\\x",
            "invalid field selector: invalid escape sequence: \\x",
        ),
    ],
)
async def test_a_field_selector_that_cannot_be_used_is_told(
    api: Api, standing_namespace: str, resource: str, selector: str, message: str
) -> None:
    path = f"/api/v1/namespaces/{standing_namespace}/{resource}"
    for query in ({}, {"watch": "1", "timeoutSeconds": "1"}):
        answer = await api.request("GET", path, query={"fieldSelector": selector, **query})
        check_refusal(answer, make_failure(400, "BadRequest", message))
