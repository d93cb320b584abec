"""Lists: their version, their pages, and what does not go together in their query."""

import asyncio
import os
import shutil

import pytest

from tests.conformance.client import Api, Object
from tests.conformance.objects import check_refusal, make_configmap, make_failure, make_invalid

FORGET_HISTORY = "TELORUNNER_TEST_FORGET_HISTORY"
TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start"
    " a new list without the continue parameter, or use the continue token in this response to"
    " retrieve the remainder of the results. Continuing with the provided token results in an"
    " inconsistent list - objects that were created, modified, or deleted between the time the"
    " first chunk was returned and now may show up in the list."
)


def names(found: Object) -> list[str]:
    return [one["metadata"]["name"] for one in found["items"]]


@pytest.fixture
async def maps(api: Api, namespace: str) -> str:
    """The path of a namespace's ConfigMaps with those named a to d, labelled x."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in "abcd":
        await api.ask("POST", path, make_configmap(name, labels={"x": ""}))
    return path


async def test_a_list_carries_a_version_and_bare_objects(api: Api, maps: str) -> None:
    newest = await api.ask("GET", f"{maps}/d")
    found = await api.ask("GET", maps, query={"labelSelector": "x"})
    assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
    assert names(found) == ["a", "b", "c", "d"]
    assert set(found["metadata"]) == {"resourceVersion"}
    assert int(found["metadata"]["resourceVersion"]) >= int(newest["metadata"]["resourceVersion"])
    assert not {"kind", "apiVersion"} & set(found["items"][0])


@pytest.mark.parametrize("query", [{"resourceVersion": "0"}, {"resourceVersion": ""}])
async def test_any_version_will_do(api: Api, maps: str, query: dict[str, str]) -> None:
    # The cache of a real one may be a moment behind.
    version = (await api.ask("GET", maps))["metadata"]["resourceVersion"]
    at_least = {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
    for asked in (at_least, query):
        found = await api.ask("GET", maps, query={"labelSelector": "x", **asked})
        assert names(found) == ["a", "b", "c", "d"]


async def test_a_list_can_be_of_an_earlier_moment(api: Api, maps: str) -> None:
    version = (await api.ask("GET", maps))["metadata"]["resourceVersion"]
    await api.ask("DELETE", f"{maps}/b")
    query = {"labelSelector": "x", "resourceVersion": version, "resourceVersionMatch": "Exact"}
    found = await api.ask("GET", maps, query=query)
    assert names(found) == ["a", "b", "c", "d"]
    assert found["metadata"]["resourceVersion"] == version


async def test_the_pages_of_a_list_show_one_moment(api: Api, maps: str) -> None:
    # The one that every namespace has comes when it comes.
    async with api.watch(maps, fieldSelector="metadata.name=kube-root-ca.crt") as watch:
        await watch.until("ADDED", "kube-root-ca.crt")
    first = await api.ask("GET", maps, query={"limit": "2"})
    assert names(first) == ["a", "b"]
    await api.ask("DELETE", f"{maps}/c")
    await api.ask("POST", maps, make_configmap("e"))
    token = first["metadata"]["continue"]
    second = await api.ask("GET", maps, query={"limit": "2", "continue": token})
    assert names(second) == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    token = second["metadata"]["continue"]
    third = await api.ask("GET", maps, query={"limit": "2", "continue": token})
    assert names(third) == ["kube-root-ca.crt"]
    assert set(third["metadata"]) == {"resourceVersion"}
    remaining = [page["metadata"].get("remainingItemCount") for page in (first, second, third)]
    assert remaining == [3, 1, None]


async def test_what_remains_is_not_counted_where_it_is_selected(api: Api, maps: str) -> None:
    page = await api.ask("GET", maps, query={"limit": "3", "labelSelector": "x"})
    assert names(page) == ["a", "b", "c"]
    assert set(page["metadata"]) == {"resourceVersion", "continue"}


# Version 1, after an object named "one".
VALID_TOKEN = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJvbmVcdTAwMDAifQ"
CONTINUE = "invalid continue token: continue key is not valid"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"limit": "x"}, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ({"timeoutSeconds": "1s"}, 'strconv.ParseInt: parsing "1s": invalid syntax'),
        ({"continue": "!!!"}, f"{CONTINUE}: illegal base64 data at input byte 0"),
        (
            {"continue": "bm9uc2Vuc2U"},
            f"{CONTINUE}: invalid character 'o' in literal null (expecting 'u')",
        ),
        (
            {"continue": "eyJ2IjoidjIifQ"},
            f"{CONTINUE}: server does not recognize this encoded version v2",
        ),
        (
            {"continue": "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"},
            f"{CONTINUE}: incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        (
            {"continue": VALID_TOKEN, "resourceVersion": "5"},
            "specifying resource version is not allowed when using continue",
        ),
        (
            {"resourceVersion": "x"},
            'invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint:'
            ' parsing "x": invalid syntax',
        ),
    ],
)
async def test_a_query_that_cannot_be_read_is_told(
    api: Api, standing_namespace: str, query: dict[str, str], message: str
) -> None:
    path = f"/api/v1/namespaces/{standing_namespace}/configmaps"
    answer = await api.request("GET", path, query=query)
    check_refusal(answer, make_failure(400, "BadRequest", message))


MATCH = "resourceVersionMatch"
NEEDS_MATCH = f"sendInitialEvents requires setting {MATCH} to NotOlderThan"


@pytest.mark.parametrize(
    ("query", "faults"),
    [
        (
            {MATCH: "Exact"},
            [("Forbidden", MATCH, f"{MATCH} is forbidden unless resourceVersion is provided")],
        ),
        (
            {MATCH: "Exact", "resourceVersion": "0"},
            [("Forbidden", MATCH, f'{MATCH} "exact" is forbidden for resourceVersion "0"')],
        ),
        (
            {"sendInitialEvents": "true"},
            [("Forbidden", "sendInitialEvents", "sendInitialEvents is forbidden for list")],
        ),
        ({"watch": "1", "sendInitialEvents": "true"}, [("Forbidden", MATCH, NEEDS_MATCH)]),
        (
            {"watch": "1", MATCH: "NotOlderThan"},
            [
                (
                    "Forbidden",
                    MATCH,
                    f"{MATCH} is forbidden for watch unless sendInitialEvents is provided",
                )
            ],
        ),
        (
            {"watch": "1", "continue": "x"},
            [("Forbidden", MATCH, f"{MATCH} is forbidden when continue is provided")],
        ),
    ],
)
async def test_what_does_not_go_together_is_refused(
    api: Api,
    standing_namespace: str,
    query: dict[str, str],
    faults: list[tuple[str, str, str]],
) -> None:
    path = f"/api/v1/namespaces/{standing_namespace}/configmaps"
    answer = await api.request("GET", path, query={**query, "timeoutSeconds": "1"})
    told = [(reason, field, f"{reason}: {why}") for reason, field, why in faults]
    check_refusal(answer, make_invalid("ListOptions", "", *told, group="meta.k8s.io"))


async def test_a_match_that_there_is_not_is_refused(api: Api, standing_namespace: str) -> None:
    path = f"/api/v1/namespaces/{standing_namespace}/configmaps"
    answer = await api.request("GET", path, query={MATCH: "Bogus", "resourceVersion": "1"})
    why = 'Unsupported value: "Bogus": supported values: "Exact", "NotOlderThan", ""'
    fault = ("NotSupported", MATCH, why)
    check_refusal(answer, make_invalid("ListOptions", "", fault, group="meta.k8s.io"))


async def test_a_version_that_is_not_yet_is_told_with_when_to_come_again(
    api: Api, standing_namespace: str
) -> None:
    path = f"/api/v1/namespaces/{standing_namespace}/configmaps"
    answer = await api.request("GET", path, query={"resourceVersion": "99999999999999999"})
    message = answer.body["message"]
    start, _, current = message.rpartition(" ")
    assert start == "Timeout: Too large resource version: 99999999999999999, current:"
    assert current.isdecimal()
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    details = {"causes": [cause], "retryAfterSeconds": 1}
    check_refusal(answer, make_failure(504, "Timeout", message, details))
    assert answer.headers["Retry-After"] == "1"


async def forget_history(api: Api, maps: str) -> None:
    """Make the cluster forget what was before, or skip the test."""
    if api.is_real:
        tool = os.environ.get(FORGET_HISTORY)
        if not tool or not shutil.which(tool):
            pytest.skip(f"{FORGET_HISTORY} names no tool")
        process = await asyncio.create_subprocess_exec(tool)
        assert await process.wait() == 0
        return
    # As many changes as the local one remembers, each larger than the one before.
    for number in range(9):
        await api.ask("POST", maps, make_configmap(f"large-{number}", data={"a": "x" * 1_040_000}))


async def test_a_page_too_old_is_gone_and_brings_a_token_to_go_on(api: Api, maps: str) -> None:
    query = {"labelSelector": "x", "limit": "2"}
    first = await api.ask("GET", maps, query=query)
    old = first["metadata"]["resourceVersion"]
    await api.ask("POST", maps, make_configmap("e", labels={"x": ""}))
    await forget_history(api, maps)
    gone = await api.request(
        "GET", maps, query={**query, "continue": first["metadata"]["continue"]}
    )
    token = gone.body["metadata"]["continue"]
    expected = make_failure(410, "Expired", TOO_OLD) | {"metadata": {"continue": token}}
    check_refusal(gone, expected)
    rest = await api.ask("GET", maps, query={**query, "continue": token, "limit": "9"})
    assert names(rest) == ["c", "d", "e"]
    # The other way to learn of it: a watch is answered with 200 and an event.
    async with api.watch(maps, resourceVersion=old) as watch:
        event = await watch.next()
        assert event is not None
        assert event.type == "ERROR"
        message = event.object["message"]
        assert message.startswith(f"too old resource version: {old} (")
        assert event.object == make_failure(410, "Expired", message)
        assert await watch.next() is None
