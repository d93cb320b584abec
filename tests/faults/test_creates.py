"""Creating a session's objects through an API that refuses, fails, or does more than it says."""

import time
from typing import Any

import pytest

from telorunner.kube.objects import delete_if_exists
from tests.clients import Client
from tests.faultrules import (
    CONFLICT,
    EXCEEDED_QUOTA,
    NO_PERMISSION,
    POD_SECURITY,
    WEBHOOK,
    Answer,
    Cut,
    Delay,
    Fault,
    Hold,
    Slow,
    page,
    refusal,
)
from tests.faulty import Faulty, pod_name

pytestmark = pytest.mark.cluster

HELLO = "print('hello')\n"
POD = "create: could not create the session pod"
CONFIG_MAP = "create: could not create the bundle's ConfigMap"
RBAC = (
    "the runner is not permitted to do this (Forbidden, HTTP 403). The cluster operator must check "
    "the runner's RBAC, and that the session namespace (RUNNER_SESSION_NAMESPACE) exists."
)
QUOTA = "the session namespace's resource quota is exhausted (Forbidden, HTTP 403)."
SECURITY = "the session namespace's Pod Security level refuses this pod (Forbidden, HTTP 403)."
BUNDLE_DELETED = (
    "the ConfigMap with the session's bundle was deleted before the pod had mounted it; start the "
    "session again"
)
OTHER = "the Kubernetes API rejected the request (Forbidden, HTTP 403)."
INVALID = "the Kubernetes API rejected the request (Invalid, HTTP 422)."

# What goes by is waited for: each of these once, one after the other.
PASSING: list[Fault] = [
    refusal(500, "InternalError", "etcdserver: leader changed"),
    refusal(504, "Timeout", "request timed out"),
    Answer(503, b"upstream connect error", content_type="text/plain"),
    page(502),
    CONFLICT,
    Cut(is_before_head=True),
]


def done_all_the_same(code: int, reason: str) -> Answer:
    """Return an answer that says no of what was done."""
    answer = refusal(code, reason)
    return Answer(code, answer.body, is_afterwards=True)


async def ended(client: Client) -> tuple[str, dict[str, Any]]:
    session = await client.create(HELLO)
    return session, await client.status(session)


async def it_runs_once(faulty: Faulty, client: Client) -> str:
    """Start a session that says hello; it does so, once, and leaves nothing behind."""
    session, status = await ended(client)
    assert status == {"kind": "exited", "code": 0}
    assert await client.replay(session) == b"hello\r\n"
    await faulty.until_nothing_is_left()
    return session


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (NO_PERMISSION, RBAC),
        (EXCEEDED_QUOTA, QUOTA),
        (POD_SECURITY, SECURITY),
        (WEBHOOK, OTHER),
        (refusal(422, "Invalid", 'Pod "telo-run-x" is invalid: spec: Forbidden'), INVALID),
    ],
)
async def test_a_refusal_is_told_in_words_at_once_and_leaves_nothing(
    faulty: Faulty, client: Client, answer: Answer, words: str
) -> None:
    for resource, operation in (("pods", POD), ("configmaps", CONFIG_MAP)):
        rule = faulty.proxy.add(answer, verb="create", resource=resource)
        _, status = await ended(client)
        assert status == {"kind": "failed", "message": f"{operation}: {words}"}
        assert rule.hits == 1
        faulty.proxy.lift(rule)
    await faulty.until_nothing_is_left()
    # The one that was made before the pod was refused.
    assert faulty.proxy.count("delete", "configmaps") == 1


@pytest.mark.parametrize("resource", ["pods", "configmaps"])
async def test_what_goes_by_is_waited_for(faulty: Faulty, client: Client, resource: str) -> None:
    half = len(PASSING) // 2
    for fault in PASSING[:half] if resource == "pods" else PASSING[half:]:
        faulty.proxy.add(fault, verb="create", resource=resource, times=1)
    await it_runs_once(faulty, client)
    assert faulty.proxy.count("create", resource) == half + 1


async def test_an_api_that_asks_for_a_pause_gets_it(faulty: Faulty, client: Client) -> None:
    pause = refusal(429, "TooManyRequests", "too many requests", retry_after=1)
    for verb in ("create", "delete"):
        faulty.proxy.add(pause, verb=verb, resource="pods", times=1)
    await it_runs_once(faulty, client)
    for verb in ("create", "delete"):
        first, second = (one.at for one in faulty.proxy.asked(verb, "pods"))
        assert second - first >= 1


@pytest.mark.parametrize("resource", ["pods", "configmaps"])
@pytest.mark.parametrize(
    "fault",
    [done_all_the_same(504, "Timeout"), Cut(), done_all_the_same(409, "AlreadyExists")],
    ids=["504", "cut", "exists"],
)
async def test_what_was_made_without_an_answer_is_taken(
    faulty: Faulty, client: Client, resource: str, fault: Fault
) -> None:
    rule = faulty.proxy.add(fault, verb="create", resource=resource, times=1)
    await it_runs_once(faulty, client)
    assert rule.hits == 1
    assert faulty.proxy.count("create", resource) <= 2


async def test_a_pod_that_was_made_behind_a_refusal_goes_too(
    faulty: Faulty, client: Client
) -> None:
    """A proxy gave up on the first request, and the second one met a quota that the first used."""
    faulty.proxy.add(done_all_the_same(504, "Timeout"), verb="create", resource="pods", times=1)
    faulty.proxy.add(EXCEEDED_QUOTA, verb="create", resource="pods", times=1)
    _, status = await ended(client)
    assert status == {"kind": "failed", "message": f"{POD}: {QUOTA}"}
    await faulty.until_nothing_is_left()


async def test_a_slow_api_is_only_slow(faulty: Faulty, client: Client) -> None:
    faulty.proxy.add(Delay(0.3), verb="create")
    faulty.proxy.add(Slow(piece_bytes=64, pause_seconds=0.002), verb="patch")
    faulty.proxy.add(Slow(piece_bytes=1, pause_seconds=0.0001), resource="pods", verb="attach")
    began_at = time.monotonic()
    await it_runs_once(faulty, client)
    assert time.monotonic() - began_at > 0.6
    assert faulty.proxy.count("create") == 2


async def test_a_namespace_that_does_not_exist_is_no_missing_permission(
    faulty: Faulty, client: Client
) -> None:
    missing = refusal(404, "NotFound", 'namespaces "telo-sessions" not found')
    rule = faulty.proxy.add(missing, verb="create", resource="configmaps")
    _, status = await ended(client)
    assert status == {
        "kind": "failed",
        "message": f"{CONFIG_MAP}: the Kubernetes API rejected the request: the session namespace "
        "does not exist (NotFound, HTTP 404). The cluster operator must create it, or correct "
        "RUNNER_SESSION_NAMESPACE.",
    }
    assert rule.hits == 1


async def test_a_bundle_that_is_deleted_before_it_is_mounted_is_told_soon(
    faulty: Faulty, client: Client
) -> None:
    """It goes before the pod is made, and what would make it again is told that it is there."""
    proxy = faulty.proxy
    held = proxy.add(Hold(), verb="create", resource="pods")
    proxy.add(Answer(200, b'{"metadata":{}}'), verb="patch", resource="configmaps", times=1)
    session = await client.create(HELLO)
    await proxy.until(lambda: held.hits)
    async with faulty.open_admin() as admin:
        assert await delete_if_exists(admin, "configmaps", pod_name(session))
    began_at = time.monotonic()
    proxy.lift(held)
    assert await client.status(session) == {"kind": "failed", "message": BUNDLE_DELETED}
    assert time.monotonic() - began_at < 20
    await faulty.until_nothing_is_left()
