"""Lists that lack what exists: nothing ends before the object itself is asked for."""

import pytest

from telorunner.kube.objects import delete_if_exists
from tests.clients import Client
from tests.faultrules import Answer, Fault, page, refusal
from tests.faulty import Faulty, pod_name

pytestmark = pytest.mark.cluster

WAITS = "print('ready', flush=True)\ninput()\nprint('over')\nraise SystemExit(5)\n"
EMPTY = Answer(
    200,
    b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}',
)
# What a gateway says to anything while it knows no way to the API.
FINE = Answer(200, b'{"status":"ok"}')


async def kinds(client: Client, session: str) -> list[str]:
    """Return the kinds of all statuses of a session that has ended."""
    events = await client.events(session)
    return [event["status"]["kind"] for _, event in events if "status" in event]


@pytest.mark.parametrize(
    ("false", "single"),
    [(EMPTY, None), (EMPTY, page(404)), (EMPTY, refusal(500, "InternalError")), (FINE, None)],
    ids=["empty", "empty-and-lost", "empty-and-trouble", "no-list"],
)
async def test_a_false_list_ends_no_session(
    faulty: Faulty, client: Client, false: Fault, single: Fault | None
) -> None:
    proxy = faulty.proxy
    session = await client.create(WAITS)
    async with client.terminal(session) as terminal:
        await terminal.until(b"ready")
        await client.until_running(session)
        proxy.forget()
        if single is not None:
            proxy.add(single, verb="get", resource="pods", times=1)
        rule = proxy.add(false, verb="list", resource="pods", times=1)
        await proxy.until(lambda: proxy.cut(verb="watch"))
        # The true list has been compared with what was known, and the watch goes on from it.
        await proxy.until(lambda: proxy.count("watch") == proxy.live("watch") == 1)
        assert rule.hits == 1
        assert (await client.http.get(f"/v1/sessions/{session}")).json()["status"] == {
            "kind": "running"
        }
        assert proxy.count("list", "pods") == 2
        assert proxy.count("get", "pods") <= 1
        assert set((await faulty.readiness()).values()) == {"ok"}
        await terminal.socket.send(b"\r")
        assert await terminal.drain() == 1000
    assert b"over" in terminal.output
    assert await kinds(client, session) == ["starting", "running", "failed"]
    await faulty.until_nothing_is_left()


async def test_a_pod_that_is_gone_is_told_after_a_false_list_too(
    faulty: Faulty, client: Client
) -> None:
    """It vanishes while nothing is watched; one list is false, the next one right."""
    proxy = faulty.proxy
    gone, stays = await client.create(WAITS), await client.create(WAITS)
    for session in (gone, stays):
        await client.until_running(session)
    rule = proxy.add(refusal(503, "ServiceUnavailable"), verb="list", resource="pods")
    await proxy.until(lambda: proxy.cut(verb="watch"))
    await proxy.until(lambda: rule.hits)
    async with faulty.open_admin() as admin:
        await delete_if_exists(admin, "pods", pod_name(gone), grace_seconds=0)
    proxy.add(EMPTY, verb="list", resource="pods", times=1)
    proxy.lift(rule)
    status = await client.status(gone)
    assert status["kind"] == "failed"
    assert "pod disappeared" in status["message"]
    assert (await client.http.get(f"/v1/sessions/{stays}")).json()["status"]["kind"] == "running"
    assert (await client.http.delete(f"/v1/sessions/{stays}")).status_code == 204
    assert await kinds(client, stays) == ["starting", "running", "stopped"]
    await faulty.until_nothing_is_left()
