"""What a supervisor publishes of a session, and tells of it; in virtual time, on the fake API."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from routing.layer import Decision
from routing.router import inactive_router
from sessions.log import Starts
from sessions.pods.run import INSPECT_PORT
from sessions.spec import Port
from sessions.states import Protocol, StatusKind
from sessions.supervisor.routing import LONGEST_PAUSE_SECONDS, withdraw
from telorunner import aio
from telorunner.errors import StaleFence
from telorunner.kube.client import Cluster
from tests.debug_servers import event, open_debug_server
from tests.engine.gateways import HOST, SESSION_ID
from tests.engine.routers import ACCEPTED, GATEWAY, INGRESS, LIVE, NAME, report
from tests.engine.routingbench import (
    DELETED,
    FORBIDDEN,
    LABELS,
    Bench,
    is_route,
    networking,
    of_routes,
    route,
)
from tests.engine.test_supervisor_network import ADDRESS
from tests.fakes import FakeApi, cut, refuse

pytestmark = pytest.mark.looptime


async def test_two_tcp_ports_and_a_udp_port_are_two_hosts_and_one_service(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    ports = (Port(8080), Port(9090), Port(5353, Protocol.UDP))
    async with networking(fake, tmp_path, *ports) as bench:
        await bench.until(lambda one: one == route("pending", port=9090))
        await bench.api.wait_until(lambda: NAME in bench.api.objects["ingresses"])
        service = bench.api.objects["services"][NAME]
        told = [(one["port"], one["protocol"]) for one in service["spec"]["ports"]]
        assert told == [(8080, "TCP"), (9090, "TCP"), (5353, "UDP")]
        # Its labels are a session's, and it vanishes with the pod that the session has.
        assert service["metadata"]["labels"] == LABELS
        owner = {"apiVersion": "v1", "kind": "Pod", "name": NAME, "uid": "1"}
        assert service["metadata"]["ownerReferences"] == [owner]
        ingress = bench.api.objects["ingresses"][NAME]
        hosts = [rule["host"] for rule in ingress["spec"]["rules"]]
        assert hosts == [HOST, f"9090-{SESSION_ID}.apps.test"]
        report(bench.api, "ingresses", NAME, LIVE)
        events = await bench.until(lambda one: one == route("programmed", port=9090))
        assert of_routes(events) == [
            route("pending"),
            route("pending", port=9090),
            route("programmed"),
            route("programmed", port=9090),
        ]


async def test_endpoints_of_running_name_the_hosts(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    ports = (Port(8080), Port(8080, Protocol.UDP))
    async with networking(fake, tmp_path, *ports) as bench:
        # The row is of a runner that published nothing; what is so now is told, and noted.
        assert (await bench.events())[0]["status"]["endpoints"] == [
            {"host": HOST, "port": 8080, "protocol": "tcp", "url": f"https://{HOST}"},
            {"host": "", "port": 8080, "protocol": "udp"},
        ]


async def test_nothing_is_published_before_the_session_runs(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    async with networking(fake, tmp_path, Port(8080), status=StatusKind.STARTING) as bench:
        await asyncio.sleep(60)
        assert (bench.names(), len(await bench.events())) == ({}, 1)
        # Nor is there anything to withdraw.
        assert await withdraw(bench.session) is False
        bench.session.has_run.set()
        await bench.until(is_route("pending"))


async def test_a_session_without_ports_is_not_published(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    async with networking(fake, tmp_path) as bench:
        await asyncio.sleep(60)
        assert (bench.names(), await withdraw(bench.session)) == ({}, False)
        assert len(await bench.events()) == 1


async def test_without_a_layer_nothing_is_asked_or_told(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    inactive = inactive_router("why")
    async with networking(fake, tmp_path, Port(8080), router=inactive) as bench:
        await asyncio.sleep(10)
        assert not of_routes(await bench.events())
        assert await withdraw(bench.session) is False
        assert bench.api.requests == []


async def test_a_publish_that_fails_is_told_in_words_and_tried_again(
    fake: tuple[FakeApi, Cluster], tmp_path: Path, looptime: float
) -> None:
    api, _ = fake
    refusals = [refuse(403, "Forbidden"), refuse(403, "Forbidden"), cut]
    api.script("create", *refusals)
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await bench.api.wait_until(lambda: NAME in bench.api.objects["ingresses"])
        report(bench.api, "ingresses", NAME, LIVE)
        events = await bench.until(is_route("programmed"))
        away = (
            "publish: could not publish the session's ports: the Kubernetes API cannot be reached."
        )
        assert of_routes(events) == [
            route("pending"),
            {"type": "progress", "phase": "boot", "message": FORBIDDEN},
            # Once, however often.
            route("unprogrammed", FORBIDDEN),
            {"type": "progress", "phase": "boot", "message": away},
            route("unprogrammed", away),
            route("pending"),
            route("programmed"),
        ]
        assert looptime < 10


async def test_what_is_not_the_sessions_own_is_left_alone(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    api, _ = fake
    theirs = api.put(NAME, "services", labels={"app.kubernetes.io/managed-by": "helm"})
    async with networking(fake, tmp_path, Port(8080)) as bench:
        events = await bench.until(is_route("unprogrammed"))
        assert "not this session's" in events[-1]["reason"]
        await asyncio.sleep(300)
        assert api.objects["services"] == {NAME: theirs}
        # It is tried again, ever more seldom.
        assert 5 < api.count("create") < 20


async def test_what_was_taken_is_published_once_it_is_free(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    api, _ = fake
    api.put(NAME, "services", labels={"app.kubernetes.io/managed-by": "helm"})
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await bench.until(is_route("unprogrammed"))
        api.remove(NAME, "services")
        await api.wait_until(lambda: NAME in api.objects["ingresses"])
        report(api, "ingresses", NAME, LIVE)
        events = await bench.until(is_route("programmed"))
        states = [one["state"] for one in events if one["type"] == "route"]
        assert states == ["pending", "unprogrammed", "pending", "programmed"]


async def test_a_route_that_somebody_deletes_is_told_and_published_again(
    fake: tuple[FakeApi, Cluster], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await bench.until_live()
        # All that carries the session's label, say.
        bench.api.remove(NAME, "ingresses")
        bench.api.remove(NAME, "services")
        await bench.until(is_route("unprogrammed"))
        await bench.until_live()
        assert bench.names() == {"services": [NAME], "ingresses": [NAME]}
        states = [one for one in await bench.events() if one["type"] == "route"]
        assert states == [
            route("pending"),
            route("programmed"),
            route("unprogrammed", DELETED),
            route("pending"),
            route("programmed"),
        ]
    (warning,) = (one for one in caplog.records if one.levelname == "WARNING")
    assert warning.getMessage() == (
        "Somebody has deleted a route of the session or its Service; they are made again."
    )


@pytest.mark.parametrize(
    ("decision", "kind", "name", "status"),
    [
        (INGRESS, "ingresses", NAME, LIVE),
        (GATEWAY, "httproutes", f"{NAME}-8080", ACCEPTED),
    ],
    ids=["ingress", "gateway"],
)
async def test_a_service_that_somebody_deletes_alone_is_told_and_made_again(
    fake: tuple[FakeApi, Cluster],
    tmp_path: Path,
    decision: Decision,
    kind: str,
    name: str,
    status: dict[str, Any],
) -> None:
    """An Ingress does not show it, and what a Gateway's controller says is not waited for."""
    api, _ = fake
    async with networking(fake, tmp_path, Port(8080), decision=decision) as bench:
        await api.wait_until(lambda: name in api.objects[kind])
        report(api, kind, name, status)
        await bench.until(is_route("programmed"))
        uid = api.objects[kind][name]["metadata"]["uid"]
        api.remove(NAME, "services")
        await api.wait_until(lambda: NAME in api.objects["services"])
        told = iter((False, True))
        await bench.until(lambda one: is_route("programmed")(one) and next(told))
        assert [one for one in await bench.events() if one["type"] == "route"] == [
            route("pending"),
            route("programmed"),
            route("unprogrammed", "The Service behind the route has been deleted in the cluster."),
            route("pending"),
            route("programmed"),
        ]
        # The route is the one that was there, with its status.
        assert api.objects[kind][name]["metadata"]["uid"] == uid


async def test_who_deletes_a_route_for_ever_is_answered_ever_more_seldom(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    async def delete() -> None:
        while True:
            await api.wait_until(lambda: NAME in api.objects["ingresses"])
            await asyncio.sleep(0.01)
            api.remove(NAME, "ingresses")

    api, _ = fake
    async with networking(fake, tmp_path, Port(8080)) as bench:
        task = aio.start(delete(), name="somebody")
        await asyncio.sleep(600)
        made = bench.count_created("ingresses")
        assert 10 < made < 25
        await aio.stop(task)
        # And nothing was lost by it.
        await api.wait_until(lambda: NAME in api.objects["ingresses"])
        await bench.until_live()
        # After a while without such a thing the next one is mended at once.
        await asyncio.sleep(600)
        api.remove(NAME, "ingresses")
        await asyncio.sleep(1)
        assert bench.names()["ingresses"] == [NAME]


async def test_a_route_that_is_lost_again_in_a_hole_of_the_watch_is_made_again(
    fake: tuple[FakeApi, Cluster], tmp_path: Path, looptime: float
) -> None:
    api, _ = fake

    async def make_unseen(request: web.Request) -> web.StreamResponse:
        # It is deleted before the watch goes on: neither event nor list ever shows it.
        return web.json_response(await request.json(), status=201)

    async with networking(fake, tmp_path, Port(8080)) as bench:
        await bench.until_live()
        api.script("create", api.behave, make_unseen)
        api.remove(NAME, "ingresses")
        async with asyncio.timeout(LONGEST_PAUSE_SECONDS + 5):
            await api.wait_until(lambda: NAME in api.objects["ingresses"])
        assert looptime > LONGEST_PAUSE_SECONDS
        await bench.until_live()
        assert [one for one in await bench.events() if one["type"] == "route"] == [
            route("pending"),
            route("programmed"),
            route("unprogrammed", DELETED),
            route("pending"),
            route("programmed"),
        ]
        # Once nothing is missing, nothing is made any more.
        made = api.count("create")
        await asyncio.sleep(10 * LONGEST_PAUSE_SECONDS)
        assert api.count("create") == made


async def test_only_the_port_whose_route_is_gone_is_told_of(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    api, _ = fake
    names = [f"{NAME}-8080", f"{NAME}-9090"]
    async with networking(fake, tmp_path, Port(8080), Port(9090), decision=GATEWAY) as bench:
        await api.wait_until(lambda: set(api.objects["httproutes"]) == set(names))
        for name in names:
            report(api, "httproutes", name, ACCEPTED)
        for port in (8080, 9090):
            await bench.until(lambda one, port=port: one == route("programmed", port=port))
        # The first attempt to make it again does not get far.
        api.script("create", refuse(403, "Forbidden"))
        before = len(await bench.events())
        api.remove(names[0], "httproutes")
        await api.wait_until(lambda: names[0] in api.objects["httproutes"])
        await asyncio.sleep(1)
        report(api, "httproutes", names[0], ACCEPTED)
        later = iter((False, True))
        is_good = is_route("programmed")
        await bench.until(lambda one: is_good(one) and one["port"] == 8080 and next(later))
        assert of_routes((await bench.events())[before:]) == [
            route("unprogrammed", DELETED),
            route("pending"),
            {"type": "progress", "phase": "boot", "message": FORBIDDEN},
            route("unprogrammed", FORBIDDEN),
            route("pending"),
            route("programmed"),
        ]


async def test_a_refusal_that_stays_is_said_once_and_tried_ever_more_seldom(
    fake: tuple[FakeApi, Cluster], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api, _ = fake
    api.script("create", *[refuse(403, "Forbidden")] * 1000)
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await asyncio.sleep(600)
        assert of_routes(await bench.events()) == [
            route("pending"),
            {"type": "progress", "phase": "boot", "message": FORBIDDEN},
            route("unprogrammed", FORBIDDEN),
        ]
        assert 10 < api.count("create") < 25
    (warning,) = (one for one in caplog.records if one.levelname == "WARNING")
    assert warning.getMessage() == FORBIDDEN


async def test_routes_are_told_again_before_frames_push_them_out(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    async with (
        open_debug_server(ADDRESS, INSPECT_PORT) as server,
        networking(fake, tmp_path, Port(8080), is_inspected=True) as bench,
    ):
        await bench.until(is_route("pending"))
        frames = bench.session.runtime.config.replay_buffer_bytes // 60_000
        server.emit(*(event("large", text="x" * 60_000) for _ in range(frames)), event("last"))
        events = await bench.until(
            lambda one: one["type"] == "debug" and one["frame"]["event"] == "last"
        )
        last_status = max(i for i, one in enumerate(events) if one["type"] == "status")
        assert last_status > 0
        assert route("pending") in events[last_status:]


async def test_an_owner_that_was_overtaken_publishes_nothing_more(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    async def overtaken() -> None:
        bench: Bench
        async with networking(fake, tmp_path, Port(8080), status=StatusKind.STARTING) as bench:
            await bench.log.open(SESSION_ID, fence=2, starts=Starts())
            bench.session.has_run.set()
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await overtaken()
    assert caught.value.subgroup(StaleFence) is not None
    assert fake[0].count("create") == 0


async def test_an_owner_that_is_overtaken_leaves_the_routes_to_the_next(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    api, _ = fake

    async def overtaken() -> None:
        async with networking(fake, tmp_path, Port(8080)) as bench:
            await bench.until_live()
            await bench.log.open(SESSION_ID, fence=2, starts=Starts())
            api.remove(NAME, "services")
            api.remove(NAME, "ingresses")
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await overtaken()
    assert caught.value.subgroup(StaleFence) is not None
    # It is the next owner's to mend, who publishes at once.
    assert not api.objects["ingresses"]
    assert api.count("delete") == 0


async def test_a_lease_that_is_lost_between_two_attempts_is_waited_for(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    api, _ = fake
    api.script("create", refuse(500))
    async with networking(fake, tmp_path, Port(8080)) as bench:
        await bench.until(is_route("unprogrammed"))
        lease = bench.session.owner.lease
        lease.lost()
        await asyncio.sleep(300)
        assert (bench.names(), api.count("create")) == ({}, 1)
        lease.renewed(lease.now())
        await api.wait_until(lambda: NAME in api.objects["ingresses"])
        # The same where something is to be mended.
        lease.lost()
        api.remove(NAME, "ingresses")
        await asyncio.sleep(300)
        assert not api.objects["ingresses"]
        lease.renewed(lease.now())
        await api.wait_until(lambda: NAME in api.objects["ingresses"])


async def test_without_a_lease_nothing_is_published(
    fake: tuple[FakeApi, Cluster], tmp_path: Path
) -> None:
    async with networking(fake, tmp_path, Port(8080), status=StatusKind.STARTING) as bench:
        lease = bench.session.owner.lease
        lease.lost()
        bench.session.has_run.set()
        await asyncio.sleep(60)
        assert bench.names() == {}
        lease.renewed(lease.now())
        await bench.api.wait_until(lambda: NAME in bench.api.objects["ingresses"])
