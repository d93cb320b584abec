"""Reading a container's log: its parts, its times, and why there may be none."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.attaching import STDIN, attach
from tests.conformance.client import Access, Api
from tests.conformance.objects import make_failure
from tests.conformance.pods import (
    ABSENT_IMAGE,
    Recorder,
    Until,
    has_ended,
    is_running,
    make_container,
    make_group,
    make_shell_pod,
    pods_path,
    standing_pods,
    waits_for,
)

LINES = b"one\ntwo\nerr\nthree\nfour"
TIMED = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (.*)")
# The line that is not finished yet is held back; a return before a line end is not kept.
_TALKS = (
    "echo one; sleep 0.1; echo two; sleep 0.8; echo err >&2; sleep 0.8;"
    " printf 'three\\r\\nfo'; sleep 0.1; printf ur"
)


@pytest.fixture(scope="module")
def pods(access: Access) -> Iterator[str]:
    """The namespace of pods that have written, write and never will."""
    with standing_pods(access, _create) as namespace:
        yield namespace


async def _create(recorder: Recorder) -> None:
    never = {"image": ABSENT_IMAGE, "imagePullPolicy": "Never"}
    init = [make_container("first", "echo init")]
    two = [make_container(name, f"echo {name}; sleep 600") for name in ("a", "b")]
    stays = "printf 'begun\\nunfin'; read -r go; echo ished; sleep 0.2; echo end"
    # What is in a real runtime's pipe at the exit may be lost there.
    lingers = "; sleep 1" if recorder.api.is_real else ""
    pods: dict[str, tuple[Any, Until]] = {
        "talks": (make_shell_pod("talks", _TALKS + lingers), has_ended),
        "stays": (make_shell_pod("stays", stays + lingers, stdin=True), is_running),
        "absent-image": (make_shell_pod("absent-image", "", image=ABSENT_IMAGE), _is_waiting),
        "never": (make_shell_pod("never", "", **never), waits_for("ErrImageNeverPull")),
        "two": (make_group("two", *two, initContainers=init), is_running),
        "init": (
            make_group(
                "init",
                make_container("main", "true"),
                initContainers=[make_container("first", "echo begun; sleep 600")],
            ),
            lambda pod: (
                "running" in pod["status"].get("initContainerStatuses", [{}])[0].get("state", {})
            ),
        ),
        "not-started": (make_shell_pod("not-started", command=["/nope"]), has_ended),
        "nowhere": (
            make_shell_pod("nowhere", "true", spec={"nodeSelector": {"telo.test/no": "a"}}),
            lambda pod: bool(pod["status"].get("conditions")),
        ),
    }
    async with recorder.api.watch(pods_path(recorder.namespace)) as watch:
        await recorder.create(pod for pod, _ in pods.values())
        await recorder.follow(watch, {name: until for name, (_, until) in pods.items()})


def _is_waiting(pod: Any) -> bool:
    reasons = ("ErrImagePull", "ImagePullBackOff")
    return any(waits_for(reason)(pod) for reason in reasons)


async def read(api: Api, namespace: str, pod: str, **query: str) -> bytes:
    answer = await api.request("GET", pods_path(namespace, pod, "log"), query=query)
    assert answer.status == 200, answer.text
    assert answer.headers["Content-Type"] == "text/plain"
    return answer.text


async def test_the_log_of_an_ended_container_is_whole(api: Api, pods: str) -> None:
    assert await read(api, pods, "talks") == LINES
    assert await read(api, pods, "talks", container="main") == LINES
    assert await read(api, pods, "talks", follow="true") == LINES


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"tailLines": "2"}, b"three\nfour"),
        ({"tailLines": "0"}, b""),
        ({"tailLines": "99"}, LINES),
        ({"limitBytes": "5"}, b"one\nt"),
        ({"limitBytes": "3", "tailLines": "2"}, b"thr"),
        ({"sinceTime": "2020-01-01T00:00:00Z"}, LINES),
        ({"sinceTime": "2099-01-01T00:00:00Z"}, b""),
        ({"sinceSeconds": "3600"}, LINES),
    ],
)
async def test_a_log_can_be_cut(
    api: Api, pods: str, query: dict[str, str], expected: bytes
) -> None:
    assert await read(api, pods, "talks", **query) == expected


async def test_each_line_can_have_its_time(api: Api, pods: str) -> None:
    lines = (await read(api, pods, "talks", timestamps="true")).split(b"\n")
    matches = [TIMED.fullmatch(line) for line in lines]
    assert [match and match[1] for match in matches] == LINES.split(b"\n")
    assert sorted(lines) == lines
    # From the moment of a line on, the line itself is in.
    moment = lines[3].split(b" ")[0].decode()
    rest = await read(api, pods, "talks", sinceTime=moment[:19] + "Z")
    assert rest.endswith(b"three\nfour")


async def test_an_unfinished_line_is_held_back_and_following_gets_the_rest(
    api: Api, pods: str
) -> None:
    assert await read(api, pods, "stays") == b"begun\n"
    path = pods_path(pods, "stays", "log")
    async with api.session.get(path, params={"follow": "true"}) as response:
        assert await response.content.readline() == b"begun\n"
        async with attach(api, pods, "stays") as attached:
            await attached.send(STDIN, b"\n")
            assert await response.content.readline() == b"unfinished\n"
            assert await response.content.read() == b"end\n", "it ends with the container"


async def test_the_log_of_each_container_can_be_read(api: Api, pods: str) -> None:
    assert await read(api, pods, "two", container="first") == b"init\n"
    assert await read(api, pods, "two", container="b") == b"b\n"
    assert await read(api, pods, "init", container="first") == b"begun\n"
    assert await read(api, pods, "not-started") == b""


@pytest.mark.parametrize(
    ("pod", "query", "message"),
    [
        (
            "absent-image",
            {},
            'container "main" in pod "absent-image" is waiting to start:'
            " (image can't be pulled|trying and failing to pull image)",
        ),
        ("never", {}, 'container "main" in pod "never" is waiting to start: ErrImageNeverPull'),
        (
            "never",
            {"follow": "true"},
            'container "main" in pod "never" is waiting to start: ErrImageNeverPull',
        ),
        ("init", {}, 'container "main" in pod "init" is waiting to start: PodInitializing'),
        (
            "talks",
            {"previous": "true"},
            'previous terminated container "main" in pod "talks" not found',
        ),
        ("talks", {"container": "x"}, "container x is not valid for pod talks"),
        (
            "two",
            {},
            r"a container name must be specified for pod two, choose one of: \[first a b\]",
        ),
        (
            "talks",
            {"sinceTime": "junk"},
            'parsing time "junk" as "2006-01-02T15:04:05Z07:00": cannot parse "junk" as "2006"',
        ),
        ("talks", {"tailLines": "x"}, 'strconv.ParseInt: parsing "x": invalid syntax'),
    ],
)
async def test_a_log_that_cannot_be_had_is_a_bad_request(
    api: Api, pods: str, pod: str, query: dict[str, str], message: str
) -> None:
    answer = await api.request("GET", pods_path(pods, pod, "log"), query=query)
    assert answer.status == 400
    assert re.fullmatch(message, answer.body["message"])
    assert answer.body == make_failure(400, "BadRequest", answer.body["message"])


async def test_the_log_of_no_pod_is_not_found(api: Api, pods: str) -> None:
    answer = await api.request("GET", pods_path(pods, "gone", "log"))
    details = {"name": "gone", "kind": "pods"}
    assert answer.status == 404
    assert answer.body == make_failure(404, "NotFound", 'pods "gone" not found', details)


async def test_a_pod_without_a_node_has_an_empty_answer(api: Api, pods: str) -> None:
    answer = await api.request("GET", pods_path(pods, "nowhere", "log"))
    assert (answer.status, answer.text) == (204, b"")


@pytest.mark.parametrize(
    ("query", "field", "reason", "message"),
    [
        (
            {"tailLines": "-1"},
            "tailLines",
            "FieldValueInvalid",
            "Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            {"limitBytes": "0"},
            "limitBytes",
            "FieldValueInvalid",
            "Invalid value: 0: must be greater than 0",
        ),
        (
            {"sinceSeconds": "0"},
            "sinceSeconds",
            "FieldValueInvalid",
            "Invalid value: 0: must be greater than 0",
        ),
        (
            {"sinceSeconds": "1", "sinceTime": "2020-01-01T00:00:00Z"},
            "[]",
            "FieldValueForbidden",
            "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        ({"stream": "Stdout"}, "stream", "FieldValueForbidden", "Forbidden: may not be specified"),
    ],
)
async def test_what_makes_no_sense_is_invalid(
    api: Api, pods: str, query: dict[str, str], field: str, reason: str, message: str
) -> None:
    answer = await api.request("GET", pods_path(pods, "talks", "log"), query=query)
    text = f'PodLogOptions "talks" is invalid: {field}: {message}'
    cause = {"reason": reason, "message": message, "field": field}
    details = {"name": "talks", "kind": "PodLogOptions", "causes": [cause]}
    assert answer.status == 422
    assert answer.body == make_failure(422, "Invalid", text, details)


async def test_a_log_is_read_and_not_written(api: Api, pods: str) -> None:
    answer = await api.request("POST", pods_path(pods, "talks", "log"), {})
    why = "the server does not allow this method on the requested resource"
    assert answer.body == make_failure(405, "MethodNotAllowed", why, {})
