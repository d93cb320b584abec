"""The task that fetches the repository's tags, against a hub that behaves or does not."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest
from django.db import connection

from catalog import refresher, refreshrow
from catalog.offer import offered_images
from catalog.refresher import Refresher
from catalog.refreshrow import RefreshState
from telorunner import aio
from telorunner.database import access
from tests import hub as hubs
from tests.builders import IMAGE
from tests.engine.refreshes import NOW, images, revision, settings_of
from tests.hub import FakeHub, Handler, open_fake_hub, refuse

pytestmark = pytest.mark.usefixtures("transactional_db")


class World:
    """A hub and any number of refreshers on this loop's clock."""

    def __init__(self, hub: FakeHub) -> None:
        self.hub = hub
        self.config = settings_of(base_image_api_url=hub.url, base_image_refresh_seconds=100)

    def now(self) -> datetime:
        return NOW + timedelta(seconds=asyncio.get_running_loop().time())

    @asynccontextmanager
    async def refreshing(self, count: int = 1) -> AsyncIterator[None]:
        """Run refreshers, each as in a process of its own."""
        tasks = [
            aio.start(Refresher(self.config, now=self.now).run(), name=f"tag refresher {number}")
            for number in range(count)
        ]
        try:
            yield
            assert not any(task.done() for task in tasks)
        finally:
            await aio.stop(*tasks)

    async def state(self) -> RefreshState:
        return await access.aread(refreshrow.read_state, self.config, self.now())

    async def until(self, condition: Callable[[RefreshState], bool]) -> RefreshState:
        """Wait for a state; virtual time passes meanwhile."""
        while not condition(state := await self.state()):
            pass
        return state

    async def until_tried(self, times: int) -> RefreshState:
        """Wait until that many requests came and what they brought is written down."""
        await self.hub.until_requests(times)
        return await self.until(lambda state: not state.is_running)

    async def offered(self) -> list[str]:
        return await access.aread(offered_images, self.config)

    def gaps(self) -> list[float]:
        """Return the seconds between the requests."""
        times = [asked.at for asked in self.hub.requests]
        return [later - earlier for earlier, later in itertools.pairwise(times)]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with open_fake_hub(["1.1.0", "1.0.0", "latest"]) as hub:
        yield World(hub)


@asynccontextmanager
async def table_away() -> AsyncIterator[None]:
    """Let every access to the row fail for the length of the block."""
    await access.awrite(execute, "ALTER TABLE catalog_tagrefresh RENAME TO away_tagrefresh")
    try:
        yield
    finally:
        await access.awrite(execute, "ALTER TABLE away_tagrefresh RENAME TO catalog_tagrefresh")


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [
        (record.levelno, record.getMessage())
        for record in caplog.records
        if record.name == refresher.__name__
    ]


def complaints(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(level, text) for level, text in lines(caplog) if level >= logging.WARNING]


@pytest.mark.looptime
class TestRefresher:
    async def test_it_fetches_at_once_and_again_when_that_is_due(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        async with world.refreshing():
            await world.until_tried(1)
            assert await world.offered() == images("1.1.0", "1.0.0")
            await world.until_tried(2)
            world.hub.tags = ["1.2.0", "1.1.0"]
            await world.until_tried(3)
            assert await world.offered() == images("1.2.0", "1.1.0")
        assert world.hub.requests[0].at < 1
        assert all(100 <= gap < 102 for gap in world.gaps())
        assert "If-None-Match" in world.hub.requests[1].headers
        # Two of the three brought another list.
        assert [level for level, _ in lines(caplog)] == [logging.INFO] * 2

    async def test_of_two_processes_one_fetches(self, world: World) -> None:
        async with world.refreshing(2):
            await world.until_tried(3)
        assert all(gap >= 100 for gap in world.gaps())

    @pytest.mark.parametrize(
        "failure",
        [
            refuse(429),
            refuse(503),
            hubs.html,
            hubs.hang,
            hubs.cut,
            hubs.drop,
            hubs.huge(3_000_000),
            hubs.redirect("/elsewhere"),
        ],
    )
    async def test_the_last_good_list_outlives_any_failure(
        self, world: World, failure: Handler, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with world.refreshing():
            await world.until_tried(1)
            before = await access.aread(revision)
            world.hub.always(failure)
            state = await world.until_tried(3)
            assert state.problem.startswith(world.hub.url)
            assert await world.offered() == images("1.1.0", "1.0.0")
            assert await access.aread(revision) == before
            world.hub.always(None)
            state = await world.until(lambda state: not state.problem)
            assert state.tag_count == 3
        # One line as it begins; that it goes on is no news.
        assert [level for level, _ in complaints(caplog)] == [logging.WARNING]

    async def test_every_failed_try_is_one_line(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        world.hub.script(refuse(503), refuse(503), refuse(503))
        async with world.refreshing():
            await world.until_tried(4)
        levels = [level for level, _ in lines(caplog)]
        assert levels == [logging.WARNING, logging.INFO, logging.INFO, logging.INFO]
        assert all("\n" not in text for _, text in lines(caplog))

    async def test_a_cold_start_with_a_failure_offers_the_default(self, world: World) -> None:
        world.hub.always(refuse(503))
        async with world.refreshing():
            await world.until_tried(2)
            assert await world.offered() == [IMAGE]

    async def test_retry_after_is_waited_for(self, world: World) -> None:
        world.hub.script(refuse(429, retry_after="60"), refuse(503, retry_after="200"))
        async with world.refreshing():
            await world.until_tried(3)
            assert await world.offered() == images("1.1.0", "1.0.0")
        assert 60 <= world.gaps()[0] < 62
        assert 200 <= world.gaps()[1] < 202

    async def test_what_is_asked_for_elsewhere_begins_within_two_seconds(
        self, world: World
    ) -> None:
        async with world.refreshing():
            await world.until_tried(1)
            assert await access.awrite(refreshrow.ask, world.config, world.now()) is None
            # NB: after the write, for virtual time passes while a thread works.
            asked_at = asyncio.get_running_loop().time()
            await world.until_tried(2)
        assert world.hub.requests[1].at - asked_at <= 2

    async def test_a_fault_of_its_own_is_logged_and_tried_again_later(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        """No setting admits such a repository: whatever cannot happen, happens."""
        world.config = world.config.model_copy(update={"base_image_repo": "No Repository"})
        async with world.refreshing():
            state = await world.until(lambda state: bool(state.problem))
        assert state.problem == "Fetching the tags failed for a reason that only the log knows."
        assert state.next_at is not None
        assert [level for level, _ in complaints(caplog)] == [logging.ERROR]

    async def test_where_the_catalog_is_switched_off_nothing_is_asked(self, world: World) -> None:
        config = world.config.model_copy(update={"base_image_catalog_enabled": False})
        await Refresher(config).run()
        assert world.hub.count == 0

    async def test_it_outlives_the_database(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with world.refreshing():
            await world.until_tried(1)
            async with table_away():
                while not complaints(caplog):
                    await access.aread(revision)
                for _ in range(100):
                    await access.aread(revision)
            await access.awrite(refreshrow.ask, world.config, world.now())
            await world.until_tried(2)
            assert await world.offered() == images("1.1.0", "1.0.0")
        # However often it failed meanwhile.
        assert len(complaints(caplog)) == 1


async def test_one_that_is_stopped_leaves_the_fetch_to_the_next_at_once(world: World) -> None:
    """In real time: what it writes on its way out is bounded by seconds of the loop's."""
    world.hub.script(hubs.hang)
    async with world.refreshing():
        await world.hub.until_requests(1)
        assert (await world.state()).is_running
    assert await access.aread(refreshrow.is_due, world.config, world.now())
    async with world.refreshing():
        await world.until_tried(2)
        assert await world.offered() == images("1.1.0", "1.0.0")
