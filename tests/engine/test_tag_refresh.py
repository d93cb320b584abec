"""Fetching the repository's tags, as the database knows it: claims, lists, failures, wishes."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from catalog import refreshrow
from catalog.dockerhub import Fetched
from catalog.models import BaseImageTag, TagRefresh
from catalog.offer import offered_images
from catalog.refreshrow import Claim, RefreshState
from catalog.tags import Tag
from telorunner.conf import Settings
from telorunner.database import access
from tests.builders import IMAGE
from tests.engine.refreshes import NOW, images, revision, settings_of

pytestmark = pytest.mark.usefixtures("transactional_db")

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def listed(*names: str, etag: str = '"1"') -> Fetched:
    """Return a fetched list, newest first."""
    dated = [Tag(name, NOW - place * HOUR) for place, name in enumerate(names)]
    return Fetched(tuple(dated), etag)


class Desk:
    """A process's view of the row, at a time that the test sets."""

    def __init__(self, config: Settings) -> None:
        self.config = config
        self.now = NOW

    def claim(self) -> Claim | None:
        return access.write(refreshrow.claim, self.config, self.now)

    def claimed(self) -> Claim:
        claimed = self.claim()
        assert claimed is not None
        return claimed

    def find(self, *names: str, etag: str = '"1"') -> bool:
        """Fetch a list with success; tell whether it is another one."""
        fetched = listed(*names, etag=etag)
        return access.write(refreshrow.record_list, self.config, self.claimed(), fetched, self.now)

    def fail(self, **more: Any) -> None:
        access.write(refreshrow.record_failure, self.claimed(), "It broke.", self.now, **more)

    def ask(self) -> datetime | None:
        return access.write(refreshrow.ask, self.config, self.now)

    def is_due(self) -> bool:
        return access.read(refreshrow.is_due, self.config, self.now)

    def state(self) -> RefreshState:
        return access.read(refreshrow.read_state, self.config, self.now)

    def offered(self) -> list[str]:
        return access.read(offered_images, self.config)

    def until_due(self) -> timedelta:
        """Let time pass until the refresh is due; return how long that took."""
        began = self.now
        state = self.state()
        if state.next_at is not None:
            self.now = state.next_at - SECOND
            assert not self.is_due()
            self.now += SECOND
        assert self.is_due()
        return self.now - began


@pytest.fixture
def desk() -> Desk:
    return Desk(settings_of())


class TestClaims:
    async def test_of_many_that_claim_at_once_one_fetches(self, desk: Desk) -> None:
        """On PostgreSQL they are transactions that overlap."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(access.awrite(refreshrow.claim, desk.config, NOW))
                for _ in range(16)
            ]
        assert sum(task.result() is not None for task in tasks) == 1

    def test_a_claim_keeps_the_others_off_until_it_expires(self, desk: Desk) -> None:
        desk.claimed()
        assert desk.state().is_running
        desk.now += timedelta(seconds=refreshrow.CLAIM_SECONDS - 1)
        assert not desk.is_due()
        assert desk.claim() is None
        desk.now += SECOND
        assert desk.is_due()
        assert not desk.state().is_running
        assert desk.claim() is not None

    def test_a_claim_lasts_longer_than_the_slowest_fetch(self) -> None:
        assert refreshrow.CLAIM_SECONDS > 5 * 10 + 30

    def test_what_comes_after_the_claim_was_taken_over_counts_for_nothing(self, desk: Desk) -> None:
        late = desk.claimed()
        desk.now += timedelta(seconds=refreshrow.CLAIM_SECONDS)
        assert desk.find("1.1.0")
        assert not access.write(
            refreshrow.record_list, desk.config, late, listed("1.0.0"), desk.now
        )
        access.write(refreshrow.record_failure, late, "It broke.", desk.now)
        access.write(refreshrow.record_same, late, desk.now)
        access.write(refreshrow.release, late)
        assert desk.offered() == images("1.1.0")
        assert desk.state().problem == ""
        assert not desk.is_due()

    def test_who_read_the_row_before_another_was_done_does_not_fetch_again(
        self, desk: Desk
    ) -> None:
        row = TagRefresh.objects.create(id=1)
        assert desk.find("1.0.0")
        assert access.write(refreshrow._take, row, desk.config, desk.now) is None
        row.refresh_from_db()
        desk.until_due()
        taken = access.write(refreshrow._take, row, desk.config, desk.now)
        assert taken is not None
        assert access.write(refreshrow._take, row, desk.config, desk.now) is None

    def test_a_claim_that_is_given_back_can_be_taken_at_once(self, desk: Desk) -> None:
        access.write(refreshrow.release, desk.claimed())
        assert desk.claim() is not None


class TestLists:
    def test_a_list_is_offered_behind_the_default_and_its_change_is_noted(self, desk: Desk) -> None:
        before = revision()
        assert desk.find("1.1.0", "latest", "1.0.0")
        assert desk.offered() == images("1.1.0", "1.0.0")
        assert revision() > before
        state = desk.state()
        assert (state.tag_count, state.tried_at, state.succeeded_at) == (3, NOW, NOW)
        assert state.next_at == NOW + HOUR

    def test_the_same_list_notes_no_change(self, desk: Desk) -> None:
        desk.find("1.1.0", "1.0.0")
        before = revision()
        desk.until_due()
        assert not desk.find("1.1.0", "1.0.0")
        desk.until_due()
        access.write(refreshrow.record_same, desk.claimed(), desk.now)
        assert revision() == before
        assert desk.state().succeeded_at == desk.now

    @pytest.mark.parametrize(
        "names", [("1.2.0", "1.1.0", "1.0.0"), ("1.0.0", "1.1.0"), ("1.1.0",), ()]
    )
    def test_each_difference_is_a_change(self, desk: Desk, names: tuple[str, ...]) -> None:
        desk.find("1.1.0", "1.0.0")
        before = revision()
        desk.until_due()
        assert desk.find(*names)
        assert revision() > before
        assert desk.offered() == images(*names)
        assert desk.state().tag_count == len(names)

    def test_what_is_hidden_stays_hidden_also_over_its_absence(self, desk: Desk) -> None:
        desk.find("1.2.0", "1.1.0", "1.0.0")
        access.write(BaseImageTag.objects.filter(name="1.1.0").update, hidden=True)
        assert desk.offered() == images("1.2.0", "1.0.0")
        for names in [("1.3.0", "1.2.0", "1.1.0"), ("1.3.0",), ("1.3.0", "1.1.0")]:
            desk.until_due()
            assert desk.find(*names)
            expected = [name for name in names if name != "1.1.0"]
            assert desk.offered() == images(*expected)
        assert BaseImageTag.objects.get(name="1.1.0").hidden
        # What vanished without a word of the operator's leaves nothing behind.
        assert set(BaseImageTag.objects.values_list("name", flat=True)) == {"1.3.0", "1.1.0"}

    def test_two_hundred_tags_are_written_at_once(self, desk: Desk) -> None:
        names = [f"1.0.{number}" for number in range(200)]
        assert desk.find(*names)
        desk.until_due()
        assert desk.find("2.0.0", *names[:199])
        assert desk.state().tag_count == 200
        assert desk.offered() == images("2.0.0", *names[:19])


class TestFailures:
    def test_a_failure_keeps_the_list_and_says_why(self, desk: Desk) -> None:
        desk.find("1.0.0")
        before = revision()
        desk.until_due()
        desk.fail()
        assert desk.offered() == images("1.0.0")
        assert revision() == before
        state = desk.state()
        assert (state.problem, state.tried_at, state.succeeded_at) == (
            "It broke.",
            NOW + HOUR,
            NOW,
        )
        assert desk.until_due() == timedelta(seconds=30)
        assert desk.claimed().etag == '"1"'

    def test_a_cold_start_with_a_failure_offers_the_default_alone(self, desk: Desk) -> None:
        desk.fail()
        assert desk.offered() == [IMAGE]

    def test_failures_wait_longer_and_longer_up_to_the_regular_time(self, desk: Desk) -> None:
        waits = []
        for _ in range(9):
            desk.fail()
            waits.append(desk.until_due().total_seconds())
        assert waits == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
        desk.find("1.0.0")
        assert desk.state().problem == ""
        assert desk.until_due() == HOUR
        desk.fail()
        assert desk.until_due() == timedelta(seconds=30)

    def test_the_next_try_is_not_before_what_docker_hub_says(self, desk: Desk) -> None:
        desk.fail(retry_after_seconds=7200)
        assert desk.state().refused_until == NOW + 2 * HOUR
        assert desk.until_due() == 2 * HOUR
        desk.fail(retry_after_seconds=1)
        assert desk.until_due() == timedelta(seconds=60)

    def test_a_long_problem_fits_the_row(self, desk: Desk) -> None:
        access.write(refreshrow.record_failure, desk.claimed(), "x" * 5000, NOW)
        assert desk.state().problem == "x" * 500


class TestAsking:
    def test_what_is_asked_for_is_due_at_once_and_once(self, desk: Desk) -> None:
        desk.find("1.0.0")
        assert not desk.is_due()
        assert desk.ask() is None
        assert desk.state().is_asked
        assert desk.is_due()
        desk.find("1.0.0")
        assert not desk.state().is_asked
        assert not desk.is_due()

    def test_an_operator_need_not_wait_for_the_back_off(self, desk: Desk) -> None:
        desk.fail()
        assert desk.ask() is None
        assert desk.is_due()

    def test_docker_hubs_wish_comes_before_an_operators(self, desk: Desk) -> None:
        desk.fail(retry_after_seconds=10)
        assert desk.ask() == NOW + timedelta(seconds=10)
        assert desk.state().refused_until == NOW + timedelta(seconds=10)
        # Sooner than without the wish, which would be after 30 s.
        assert desk.until_due() == timedelta(seconds=10)
        assert desk.state().refused_until is None
        assert desk.ask() is None

    def test_a_wish_during_a_fetch_makes_another(self, desk: Desk) -> None:
        claimed = desk.claimed()
        desk.now += SECOND
        desk.ask()
        assert not desk.is_due()
        access.write(refreshrow.record_list, desk.config, claimed, listed("1.0.0"), desk.now)
        assert desk.is_due()

    @pytest.mark.parametrize("skew", [-HOUR, -SECOND, SECOND, HOUR])
    def test_the_clocks_of_who_asks_and_who_fetches_need_not_agree(
        self, desk: Desk, skew: timedelta
    ) -> None:
        desk.find("1.0.0")
        asker = Desk(desk.config)
        asker.now = desk.now + skew
        asker.ask()
        assert desk.is_due()
        claimed = desk.claimed()
        asker.now += SECOND
        asker.ask()
        access.write(refreshrow.record_same, claimed, desk.now)
        # The second wish came while the first one was granted.
        assert desk.is_due()
        access.write(refreshrow.record_same, desk.claimed(), desk.now)
        assert not desk.is_due()
        assert not desk.state().is_asked

    def test_a_wish_is_not_lost_with_the_process_that_heard_it(self, desk: Desk) -> None:
        desk.find("1.0.0")
        desk.ask()
        access.write(refreshrow.release, desk.claimed())
        assert desk.state().is_asked
        assert desk.is_due()

    def test_asking_where_nothing_was_ever_fetched_works(self, desk: Desk) -> None:
        assert desk.ask() is None
        assert desk.claim() is not None


class TestSources:
    def test_another_repository_begins_anew_and_offers_nothing_of_the_old(self, desk: Desk) -> None:
        desk.find("1.0.0")
        desk.now += timedelta(seconds=refreshrow.OTHER_SOURCE_SECONDS)
        other = Desk(settings_of(base_image_repo="telorun/other"))
        other.now = desk.now
        assert other.offered() == [IMAGE]
        assert other.state() == RefreshState("telorun/other", True)
        assert other.claimed().etag == ""

    def test_another_address_drops_the_etag_and_keeps_the_list(self, desk: Desk) -> None:
        desk.find("1.0.0")
        other = Desk(settings_of(base_image_api_url="http://mirror.example"))
        other.now = NOW + HOUR
        assert other.claimed().etag == ""
        assert other.offered() == images("1.0.0")

    def test_only_the_hub_that_said_so_is_left_alone(self, desk: Desk) -> None:
        desk.fail(retry_after_seconds=7200)
        mirror = Desk(settings_of(base_image_api_url="http://mirror.example"))
        same = Desk(settings_of(base_image_repo="telorun/other"))
        mirror.now = same.now = NOW + HOUR
        assert not same.is_due()
        assert same.ask() == NOW + 2 * HOUR
        assert mirror.is_due()

    def test_two_processes_of_different_repositories_take_turns_slowly(self, desk: Desk) -> None:
        other = Desk(settings_of(base_image_repo="telorun/other"))
        fetches = 0
        for second in range(100):
            desk.now = other.now = NOW + second * SECOND
            for one in (desk, other):
                if one.is_due():
                    one.find("1.0.0")
                    fetches += 1
        assert 5 <= fetches <= 11
        assert desk.offered() == images("1.0.0")
        assert other.offered() == [IMAGE, "telorun/other:1.0.0"]

    def test_the_etag_is_worth_nothing_without_the_rows(self, desk: Desk) -> None:
        desk.find("1.0.0")
        access.write(BaseImageTag.objects.all().delete)
        desk.until_due()
        assert desk.claimed().etag == ""


def test_a_pattern_that_takes_too_long_is_told_in_the_state() -> None:
    slow = Desk(settings_of(base_image_include="(a|aa)+c", base_image_pinned_only=False))
    slow.find("a" * 120 + "-")
    assert slow.state().filter_problem.startswith("RUNNER_BASE_IMAGE_INCLUDE takes too long")
    assert slow.offered() == [IMAGE]


def test_what_is_switched_off_has_no_state_but_that(desk: Desk) -> None:
    desk.find("1.0.0")
    off = Desk(settings_of(base_image_catalog_enabled=False))
    assert off.state() == RefreshState("telorun/node", False)
