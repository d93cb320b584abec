"""What is offered, from the cache: never old for long, and never asked for more than is needed."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from catalog import cache
from catalog.models import App, BaseImage, Revision, Terms
from telorunner.database import access
from telorunner.errors import Unavailable
from tests.builders import make_settings
from tests.looks import END_SECONDS, Held, ask_here, until_waiting

pytestmark = pytest.mark.usefixtures("transactional_db")

CONFIG = make_settings()
# What is promised of other processes' changes.
SEEN_SECONDS = 1.0
# Fewer than the pool of connections to PostgreSQL has.
CROWD = 12

# What is offered, and how many statements it took to know.
Asked = Future[tuple[list[str], int]]


def names() -> list[str]:
    return list(cache.current_offer(CONFIG).apps)


def add(name: str) -> None:
    App.objects.create(name=name, image="a:1")


@contextmanager
def other_process() -> Iterator[Callable[[str], None]]:
    """Change rows by statements alone, as another process does: nothing here notices by itself."""

    def change(name: str) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("UPDATE catalog_app SET name = %s WHERE name = 'first'", [name])
            cursor.execute("UPDATE catalog_revision SET number = number + 1 WHERE id = 1")
            assert cursor.rowcount == 1

    with ThreadPoolExecutor(1) as thread:
        yield lambda name: thread.submit(change, name).result()
        thread.submit(connections.close_all).result()


def until_seen(name: str) -> float:
    """Ask until a name is offered; return how long that took."""
    began_at = time.monotonic()
    while name not in names():
        assert time.monotonic() - began_at < END_SECONDS
        time.sleep(0.01)
    return time.monotonic() - began_at


@contextmanager
def asking_together(held: Held) -> Iterator[tuple[Asked, list[Asked]]]:
    """Let a crowd ask: the first one looks, and is held until all the others wait for it."""
    cache.forget()
    with ThreadPoolExecutor(CROWD) as crowd:
        first = crowd.submit(ask_here, names, held)
        assert held.begun.wait(END_SECONDS)
        others = [crowd.submit(ask_here, names) for _ in range(CROWD - 1)]
        until_waiting(CROWD - 1)
        held.may_end.set()
        yield first, others


@pytest.fixture
def young(transactional_db: None) -> None:
    """A cache that was looked at just now, with one app in it."""
    access.write(add, "first")
    assert names() == ["first"]


@pytest.mark.usefixtures("young")
class TestOwnChanges:
    """They count from the next request on."""

    @pytest.mark.parametrize(
        ("change", "offered"),
        [
            (lambda: add("second"), ["first", "second"]),
            (lambda: App.objects.filter(name="first").update(enabled=False), []),
            (lambda: App.objects.all().delete(), []),
            (lambda: App.objects.get(name="first").delete(), []),
            (lambda: App.objects.bulk_create([App(name="bulk", image="b:1")]), ["bulk", "first"]),
        ],
        ids=["save", "update", "delete of several", "delete", "bulk_create"],
    )
    def test_each_way_to_change_a_row_is_seen(
        self, change: Callable[[], object], offered: list[str]
    ) -> None:
        access.write(change)
        assert names() == offered

    def test_a_change_of_any_thread_is_seen_by_all(self) -> None:
        for round_ in range(5):
            thread = threading.Thread(target=_add_and_close, args=[f"round-{round_}"])
            thread.start()
            thread.join()
            assert f"round-{round_}" in names()

    def test_a_change_counts_once_it_is_committed(self) -> None:
        with transaction.atomic():
            add("second")
            # Whoever asks meanwhile is told what is committed.
            assert _in_thread(names) == ["first"]
        assert names() == _in_thread(names) == ["first", "second"]

    def test_a_change_that_is_rolled_back_is_never_seen(self) -> None:
        def fail() -> None:
            with transaction.atomic():
                add("second")
                # The transaction itself sees it, and keeps it for nobody else.
                assert names() == ["first", "second"]
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert names() == ["first"]
        # NB: the number that the first one had taken is this one's: it must not bring it back.
        access.write(add, "third")
        assert names() == ["first", "third"]

    def test_apps_terms_and_images_are_all_noticed(self) -> None:
        access.write(lambda: Terms.objects.create(body="Be good.", version="1", is_current=True))
        access.write(lambda: BaseImage.objects.create(reference="own:1"))
        offer = cache.current_offer(CONFIG)
        assert offer.terms is not None
        assert offer.terms.version == "1"
        assert "own:1" in offer.images


@pytest.mark.usefixtures("young")
def test_a_change_of_another_process_is_seen_within_a_second() -> None:
    with other_process() as change:
        for name in ("second", "third"):
            change(name)
            took_seconds = until_seen(name)
            assert took_seconds <= SEEN_SECONDS
            access.write(App.objects.filter(name=name).update, name="first")
            assert names() == ["first"]


@pytest.mark.usefixtures("young")
def test_a_young_cache_asks_nothing_and_an_old_one_once() -> None:
    cache.forget()
    with CaptureQueriesContext(connection) as asked:
        names()
    # The number, apps, terms, images and tags.
    assert len(asked) == 5
    with CaptureQueriesContext(connection) as asked:
        until = time.monotonic() + cache.LOOK_SECONDS / 2
        while time.monotonic() < until:
            names()
    assert len(asked) == 0
    for _ in range(2):
        _grow_old()
        with CaptureQueriesContext(connection) as asked:
            names()
            names()
        assert [query["sql"].count("catalog_revision") > 0 for query in asked] == [True]


def test_a_catalog_that_nobody_changed_yet_is_offered() -> None:
    access.write(lambda: Revision.objects.all().delete())
    cache.forget()
    assert names() == []
    _grow_old()
    with CaptureQueriesContext(connection) as asked:
        assert names() == []
    assert len(asked) == 1


@pytest.mark.usefixtures("young")
def test_a_crowd_of_threads_reads_once() -> None:
    with asking_together(Held()) as (first, others):
        assert first.result(END_SECONDS) == (["first"], 5)
        assert [other.result(END_SECONDS) for other in others] == [(["first"], 0)] * (CROWD - 1)


@pytest.mark.usefixtures("young")
def test_a_crowd_fails_together_with_the_one_that_looked() -> None:
    with asking_together(Held(failure=OperationalError("away"))) as (first, others):
        for one in (first, *others):
            with pytest.raises(Unavailable):
                one.result(END_SECONDS)
    # Nothing has to be repaired.
    assert names() == ["first"]


@pytest.mark.usefixtures("young")
def test_a_change_during_another_ones_look_is_seen_at_the_next_request() -> None:
    held = Held()
    cache.forget()
    with ThreadPoolExecutor(2) as crowd:
        # It has read the rows, and has not told them yet.
        first = crowd.submit(ask_here, names, held)
        held.begun.wait(END_SECONDS)
        access.write(add, "second")
        after = crowd.submit(ask_here, names)
        until_waiting(1)
        held.may_end.set()
        first.result(END_SECONDS)
        assert after.result(END_SECONDS)[0] == ["first", "second"]


def _grow_old() -> None:
    time.sleep(cache.LOOK_SECONDS)


def _in_thread(ask: Callable[[], list[str]]) -> list[str]:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(ask_here, ask).result(END_SECONDS)[0]


def _add_and_close(name: str) -> None:
    access.write(add, name)
    connections.close_all()
