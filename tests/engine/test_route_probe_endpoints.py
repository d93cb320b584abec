"""The runner's end of the probes: a Service without a selector, and who stands behind it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from routing.probeendpoints import ProbeEndpoints
from routing.probeservice import service_name
from telorunner import aio
from telorunner.kube.client import Cluster
from telorunner.values.dns import is_dns_label
from tests.engine.gateways import listening_at
from tests.fakes import FakeApi, hang, refuse

pytestmark = pytest.mark.looptime

SERVICE = "fake-runner-route-probe"
SELF_URL = "http://10.1.2.3:8062"


@asynccontextmanager
async def kept(
    cluster: Cluster, port: int | None = 8062, self_url: str = SELF_URL
) -> AsyncIterator[ProbeEndpoints]:
    listen_port = None if port is None else listening_at(port)
    endpoints = ProbeEndpoints(cluster, listen_port=listen_port, self_url=self_url)
    task = aio.start(endpoints.run(), name="endpoints")
    try:
        yield endpoints
        assert not task.done()
    finally:
        await aio.stop(task)


async def until(endpoints: ProbeEndpoints, is_usable: bool) -> None:
    while endpoints.is_usable is not is_usable:  # noqa: ASYNC110 - nobody is told of it
        await asyncio.sleep(0.1)


def slices(api: FakeApi) -> list[dict[str, Any]]:
    return list(api.objects["endpointslices"].values())


async def test_a_process_is_behind_the_service_until_it_stops(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    async with kept(cluster) as endpoints:
        assert endpoints.is_usable is None
        await until(endpoints, True)
        service = api.objects["services"][SERVICE]
        assert service["spec"] == {
            "type": "ClusterIP",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        }
        assert service["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "fake-runner"}
        (own,) = slices(api)
        assert own["metadata"]["labels"] == {
            "app.kubernetes.io/managed-by": "fake-runner",
            "kubernetes.io/service-name": SERVICE,
            "endpointslice.kubernetes.io/managed-by": "telorunner",
        }
        assert own["addressType"] == "IPv4"
        assert own["endpoints"] == [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}]
        assert own["ports"] == [{"name": "http", "port": 8062, "protocol": "TCP"}]
    assert slices(api) == []
    assert list(api.objects["services"]) == [SERVICE]


@pytest.mark.parametrize("self_url", ["", "http://runner.telo-runner.svc:8062"])
async def test_the_address_is_the_one_that_leads_to_the_api_server(
    fake: tuple[FakeApi, Cluster], self_url: str
) -> None:
    api, cluster = fake
    async with kept(cluster, 9000, self_url) as endpoints:
        await until(endpoints, True)
        (own,) = slices(api)
        assert own["endpoints"][0]["addresses"] == ["127.0.0.1"]
        assert own["ports"][0]["port"] == 9000


async def test_an_address_of_version_six_is_told_as_one(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    async with kept(cluster, 9000, "http://[fd00::7]:8062") as endpoints:
        await until(endpoints, True)
        (own,) = slices(api)
        assert own["addressType"] == "IPv6"
        assert own["endpoints"][0]["addresses"] == ["fd00::7"]


async def test_a_process_that_stops_while_it_is_put_behind_the_service_leaves_nothing(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake

    async def unanswered(request: Any) -> Any:
        await api.behave(request)
        return await hang(request)

    api.script("create", api.behave, unanswered)
    async with kept(cluster):
        await api.wait_until(lambda: bool(slices(api)))
    assert slices(api) == []


async def test_what_somebody_deletes_comes_back(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    async with kept(cluster) as endpoints:
        await until(endpoints, True)
        api.remove(SERVICE, "services")
        api.remove(slices(api)[0]["metadata"]["name"], "endpointslices")
        await asyncio.sleep(25)
        assert len(slices(api)) == 1
        assert list(api.objects["services"]) == [SERVICE]


SPEC = {"type": "ClusterIP", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}


@pytest.mark.parametrize(
    "change",
    [
        {"ports": [{"name": "http", "port": 81, "protocol": "TCP"}]},
        {"ports": [{"name": "web", "port": 80, "protocol": "TCP"}]},
        {"ports": None},
        {"selector": {"app": "somebody's"}},
        {"type": "ExternalName", "externalName": "elsewhere.test"},
    ],
    ids=["port", "name", "no ports", "selector", "type"],
)
async def test_what_somebody_does_to_the_service_is_undone(
    fake: tuple[FakeApi, Cluster], change: dict[str, Any]
) -> None:
    api, cluster = fake
    async with kept(cluster) as endpoints:
        await until(endpoints, True)
        kept_labels = api.objects["services"][SERVICE]["metadata"]["labels"]
        api.put(SERVICE, "services", labels=kept_labels, spec={**SPEC, **change})
        await asyncio.sleep(25)
        assert api.objects["services"][SERVICE]["spec"] == SPEC


@pytest.mark.parametrize("more", [{}, {"selector": {"app": "theirs"}}])
async def test_a_service_of_somebody_else_is_left_alone(
    fake: tuple[FakeApi, Cluster], caplog: pytest.LogCaptureFixture, more: dict[str, Any]
) -> None:
    api, cluster = fake
    theirs = {"ports": [{"name": "http", "port": 80}], **more}
    api.put(SERVICE, "services", labels={"app": "theirs"}, spec=theirs)
    async with kept(cluster) as endpoints:
        await until(endpoints, False)
        await asyncio.sleep(100)
        assert endpoints.is_usable is False
        assert api.objects["services"][SERVICE]["spec"] == theirs
        assert slices(api) == []
    assert "AlreadyExists, HTTP 409" in caplog.text


async def test_a_doubt_is_looked_after_soon_but_not_at_any_rate(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    async with kept(cluster) as endpoints:
        await until(endpoints, True)
        api.remove(slices(api)[0]["metadata"]["name"], "endpointslices")
        endpoints.doubt()
        await asyncio.sleep(6)
        assert len(slices(api)) == 1
        asked, renewed = api.count("list"), api.count("update")
        for _ in range(600):
            endpoints.doubt()
            await asyncio.sleep(0.1)
        assert api.count("list") - asked <= 12
        # Each is an event for everything that routes.
        assert api.count("update") - renewed <= 3


async def test_two_processes_stand_side_by_side(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    async with kept(cluster) as first, kept(cluster, self_url="http://10.1.2.4:8062") as second:
        await until(first, True)
        await until(second, True)
        await asyncio.sleep(600)
        assert len(slices(api)) == 2
    assert slices(api) == []


@pytest.mark.parametrize("seconds", [30, 60, 300])
async def test_after_an_outage_nobody_is_taken_for_dead(
    fake: tuple[FakeApi, Cluster], seconds: int
) -> None:
    """All are silent while the cluster is away, and one of them is the first to be back."""
    api, cluster = fake
    over_at = 0.0

    async def answer(request: Any) -> Any:
        is_away = asyncio.get_running_loop().time() < over_at
        return await (refuse(503) if is_away else api.behave)(request)

    for verb in ("get", "list", "update", "create"):
        api.script(verb, *[answer] * 500)
    async with kept(cluster) as first, kept(cluster, self_url="http://10.1.2.4:8062") as second:
        await until(first, True)
        await until(second, True)
        for _ in range(5):
            over_at = asyncio.get_running_loop().time() + seconds
            await asyncio.sleep(seconds + 200)
            assert api.count("delete") == 0


# Whether or not the other one has renewed it last, and whether or not that has been seen.
@pytest.mark.parametrize(("leaving", "seconds"), [(0, 1), (0, 100), (1, 100)])
async def test_processes_at_one_address_leave_each_other_their_slice(
    fake: tuple[FakeApi, Cluster], leaving: int, seconds: float
) -> None:
    api, cluster = fake
    both = [ProbeEndpoints(cluster, listen_port=listening_at(1), self_url=SELF_URL) for _ in "ab"]
    tasks = []
    for one in both:
        tasks.append(aio.start(one.run(), name="endpoints"))
        await until(one, True)
    await asyncio.sleep(seconds)
    await aio.stop(tasks.pop(leaving))
    assert len(slices(api)) == 1
    await asyncio.sleep(100)
    assert len(slices(api)) == 1
    await aio.stop(*tasks)
    assert slices(api) == []


async def test_a_slice_that_somebody_else_changes_too_is_no_failure(
    fake: tuple[FakeApi, Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    api, cluster = fake
    async with kept(cluster) as endpoints:
        await until(endpoints, True)
        api.script("update", *[refuse(409, "Conflict")] * 2)
        for _ in range(400):
            await asyncio.sleep(0.1)
            assert endpoints.is_usable is True
        assert api.count("update") >= 3
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


async def test_what_a_dead_process_has_left_goes_within_two_minutes(
    fake: tuple[FakeApi, Cluster],
) -> None:
    """Its clock may have been wrong: how long it says nothing counts, not what it said."""
    api, cluster = fake
    labels = {
        "kubernetes.io/service-name": SERVICE,
        "endpointslice.kubernetes.io/managed-by": "telorunner",
    }
    future = {"annotations": {"telo.run/heartbeat": "2999-01-01T00:00:00+00:00"}}
    api.put("dead", "endpointslices", labels=labels, metadata=future)
    foreign = {**labels, "endpointslice.kubernetes.io/managed-by": "somebody"}
    api.put("foreign", "endpointslices", labels=foreign)
    async with kept(cluster) as endpoints:
        await until(endpoints, True)
        await asyncio.sleep(50)
        assert "dead" in api.objects["endpointslices"]
        await asyncio.sleep(60)
        assert "dead" not in api.objects["endpointslices"]
        assert "foreign" in api.objects["endpointslices"]


async def test_a_process_that_starts_anew_at_its_address_takes_its_place(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    async with kept(cluster) as endpoints:
        await until(endpoints, True)
        left = slices(api)[0]
    api.objects["endpointslices"][left["metadata"]["name"]] = left
    async with kept(cluster) as endpoints:
        await until(endpoints, True)
        assert len(slices(api)) == 1


async def test_a_process_that_does_not_listen_looks_for_one_that_does(
    fake: tuple[FakeApi, Cluster],
) -> None:
    api, cluster = fake
    async with kept(cluster, None) as asking:
        await until(asking, False)
        assert slices(api) == []
        async with kept(cluster) as answering:
            await until(answering, True)
            await until(asking, True)
        await until(asking, False)


async def test_a_runner_that_may_not_is_said_once_and_tries_on(
    fake: tuple[FakeApi, Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    api, cluster = fake
    api.script("create", api.behave, *[refuse(403, "Forbidden")] * 5)
    async with kept(cluster) as endpoints:
        await until(endpoints, False)
        await until(endpoints, True)
    told = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.getMessage() for record in told] == [
        "Public hosts are not probed, only their status counts: could not keep the Service that "
        "probes lead to: the runner is not permitted to do this (Forbidden, HTTP 403). The "
        "cluster operator must check the runner's RBAC, and that the session namespace "
        "(RUNNER_SESSION_NAMESPACE) exists."
    ]


async def test_a_cluster_that_is_away_takes_nothing_back(fake: tuple[FakeApi, Cluster]) -> None:
    api, cluster = fake
    async with kept(cluster) as endpoints:
        await until(endpoints, True)
        api.script("get", *[refuse(503)] * 10)
        await asyncio.sleep(60)
        assert endpoints.is_usable is True
        await asyncio.sleep(400)
        api.script("delete", refuse(503))
    # It could not be taken away; the stop has not waited for it.
    assert len(slices(api)) == 1


@pytest.mark.parametrize(
    "managed_by", ["telo-k8s-runner", "Team_A.runner", "7up", "x" * 63, "-", "a" * 51, "A", "_"]
)
def test_the_services_name_is_a_label_for_every_runner(managed_by: str) -> None:
    name = service_name(managed_by)
    assert is_dns_label(name)
    assert name[0].isalpha()
    assert name.endswith("-route-probe")


def test_two_runners_have_two_services() -> None:
    names = ["telo", "Telo", "te.lo", "te-lo", "te_lo", "x" * 62, "x" * 63]
    assert len({service_name(name) for name in names}) == len(names)
