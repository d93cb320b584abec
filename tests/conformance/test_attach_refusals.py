"""Attaching to what does not run, or not so: the answers of v4 and what v5 says instead."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tests.conformance.attaching import ERROR, STDOUT, V4, V5, attach, refusal
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

TEXT = "text/plain; charset=utf-8"


@pytest.fixture(scope="module")
def pods(access: Access) -> Iterator[str]:
    """The namespace of pods in every state."""
    with standing_pods(access, _create) as namespace:
        yield namespace


async def _create(recorder: Recorder) -> None:
    never = {"image": ABSENT_IMAGE, "imagePullPolicy": "Never"}
    init = [make_container("first", "true")]
    two = [make_container(name, "sleep 600") for name in ("a", "b")]
    pods: dict[str, tuple[Any, Until]] = {
        "never": (make_shell_pod("never", "true", **never), waits_for("ErrImageNeverPull")),
        "ended": (make_shell_pod("ended", "true"), has_ended),
        "not-started": (make_shell_pod("not-started", command=["/nope"]), has_ended),
        "two": (make_group("two", *two, initContainers=init), is_running),
        "terminal": (make_shell_pod("terminal", "sleep 600", stdin=True, tty=True), is_running),
        "nowhere": (
            make_shell_pod("nowhere", "true", spec={"nodeSelector": {"telo.test/no": "a"}}),
            lambda pod: bool(pod["status"].get("conditions")),
        ),
    }
    async with recorder.api.watch(pods_path(recorder.namespace)) as watch:
        await recorder.create(pod for pod, _ in pods.values())
        await recorder.follow(watch, {name: until for name, (_, until) in pods.items()})


@pytest.mark.parametrize(
    ("pod", "container"),
    [("never", "main"), ("ended", "main"), ("not-started", "main"), ("two", "first")],
)
async def test_v4_is_refused_where_nothing_runs(
    api: Api, pods: str, pod: str, container: str
) -> None:
    status, content_type, body = await refusal(api, pods, pod, container=container)
    assert (status, content_type) == (500, TEXT)
    assert body.decode() == f"container {container} not found in pod {pod}_{pods}"


@pytest.mark.parametrize(
    ("pod", "container"),
    [("never", "main"), ("ended", "main"), ("not-started", "main"), ("two", "first")],
)
async def test_v5_is_accepted_where_nothing_runs_and_says_so_on_the_error_channel(
    api: Api, pods: str, pod: str, container: str
) -> None:
    asked = {"stdin": "true", "stdout": "true", "stderr": "true", "container": container}
    async with attach(api, pods, pod, V5, **asked) as attached:
        first, second = await attached.rest()
        assert attached.protocol == V5
        assert attached.close_code == 1000
    assert first == (STDOUT, b"")
    why = f"unable to upgrade connection: container {container} not found in pod {pod}_{pods}"
    assert second[0] == ERROR
    assert orjson.loads(second[1]) == {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {why}",
        "reason": "InternalError",
        "details": {"causes": [{"message": why}]},
        "code": 500,
    }


@pytest.mark.parametrize("protocol", [V4, V5])
@pytest.mark.parametrize(
    ("pod", "container", "code", "message"),
    [
        ("nowhere", "", 400, "pod nowhere does not have a host assigned"),
        (
            "two",
            "",
            400,
            "a container name must be specified for pod two, choose one of: [first a b]",
        ),
        ("two", "x", 400, "container x is not valid for pod two"),
        ("absent", "", 404, 'pods "absent" not found'),
    ],
)
async def test_what_the_api_knows_by_itself_it_refuses_under_both(
    api: Api, pods: str, protocol: str, pod: str, container: str, code: int, message: str
) -> None:
    status, content_type, body = await refusal(api, pods, pod, protocol, container=container)
    assert (status, content_type) == (code, "application/json")
    reason = "NotFound" if code == 404 else "BadRequest"
    details = {"name": pod, "kind": "pods"} if code == 404 else None
    assert orjson.loads(body) == make_failure(code, reason, message, details)


async def test_a_protocol_that_nobody_speaks_is_forbidden(api: Api, pods: str) -> None:
    status, _, body = await refusal(api, pods, "terminal", "v9.channel.k8s.io", stderr="false")
    assert (status, body) == (403, b"")
    # Whether the container runs is looked at first.
    status, _, body = await refusal(api, pods, "ended", "v9.channel.k8s.io")
    assert (status, body) == (500, f"container main not found in pod ended_{pods}".encode())


async def test_v5_is_chosen_where_both_are_offered(api: Api, pods: str) -> None:
    asked = {"stdin": "true", "stdout": "true", "tty": "true"}
    for offered in ((V4, V5), (V5, V4)):
        async with attach(api, pods, "terminal", *offered, **asked) as attached:
            assert attached.protocol == V5


async def test_a_terminal_has_no_stderr_of_its_own(api: Api, pods: str) -> None:
    status, content_type, body = await refusal(api, pods, "terminal")
    assert (status, content_type) == (500, TEXT)
    assert body == b"rpc error: code = InvalidArgument desc = tty and stderr cannot both be true"


async def test_a_stream_must_be_asked_for(api: Api, pods: str) -> None:
    none = {"stdin": "false", "stdout": "false", "stderr": "false"}
    status, content_type, body = await refusal(api, pods, "terminal", **none)
    assert (status, content_type) == (400, TEXT)
    assert body == b"you must specify at least 1 of stdin, stdout, stderr"


async def test_a_request_that_does_not_upgrade_is_a_bad_one(api: Api, pods: str) -> None:
    path = pods_path(pods, "terminal", "attach")
    answer = await api.request("GET", path, query={"stdout": "true"})
    assert answer.status == 400
    assert answer.body == make_failure(400, "BadRequest", "Upgrade request required")
