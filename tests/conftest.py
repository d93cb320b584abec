"""What every test runs under: the switches, and the checks that nothing is left behind."""

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import SyncToAsync
from django.db import connections
from hypothesis import settings

# Threads that live as long as the process by design: the database's, the pools of psycopg, of
# asgiref and of Twisted.
LASTING_THREADS = (
    "database-",
    "pool-",
    "ThreadPoolExecutor-",
    "asyncio_",
    "PoolThread-twisted",
)
THREAD_END_SECONDS = 1.0

# A machine that is busy is no failure. A gate draws the same in each run, so that what it refuses
# is the change's doing; what else is found is for whoever runs the tests to mend.
settings.register_profile("drawn-anew", deadline=None)
settings.register_profile("gate", deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "drawn-anew"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--with-e2e",
        action="store_true",
        help="run the tests against the real cluster that KUBECONFIG names",
    )
    parser.addoption(
        "--full-counts",
        action="store_true",
        help="repeat what is to hold under load as often as is promised, which takes minutes",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--with-e2e"):
        reason = "" if os.environ.get("KUBECONFIG") else "KUBECONFIG names no cluster"
    else:
        reason = "needs --with-e2e and a real cluster"
    for item in items:
        if reason and "e2e" in item.keywords:
            item.add_marker(pytest.mark.skip(reason=reason))
        if {"db", "transactional_db"} <= set(getattr(item, "fixturenames", ())):
            # Django would empty every table after it, what migrations have put there with them.
            raise pytest.UsageError(f"{item.nodeid} uses both db and transactional_db")
        # What repeats by the fixture `times` is what --full-counts is for.
        if "times" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.load)


@pytest.fixture(scope="session")
def times(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """Choose how often something is repeated: `times(full, quick)`; full with --full-counts."""
    is_full = bool(request.config.getoption("--full-counts"))
    return lambda full, quick: full if is_full else quick


@pytest.fixture(autouse=True)
def _nothing_offered_before() -> None:
    """Let each test read the catalog anew: the rows of the one before were rolled back."""
    from catalog import cache

    cache.forget()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Put SQLite's test database into a file: in memory, readers would lock the writer out."""
    database = connections.settings["default"]
    if database["ENGINE"] == "django.db.backends.sqlite3":
        folder = tmp_path_factory.mktemp("database")
        database["TEST"]["NAME"] = str(folder / "test.sqlite3")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """Close every thread's connections before the test database goes."""
    yield
    from telorunner.database import access

    access.close()
    # Tests that ask the database from a coroutine do so in asgiref's one thread for that.
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()


@pytest.fixture
def transactional_db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """An empty database that every thread reaches; its rows are deleted afterwards.

    It stands for pytest-django's fixture (that name is what makes it set the database up), which
    flushes all tables and makes permissions anew for each test: longer than most tests take.
    """
    from catalog.models import App, BaseImage, BaseImageTag, Revision, TagRefresh, Terms
    from sessions import store
    from sessions.models import Engine, Limits, Session

    curated = (App, Terms, BaseImage, BaseImageTag, TagRefresh, Revision)

    def empty() -> None:
        for model in (Session, Engine, Limits, *curated):
            model._base_manager.all().delete()

    with django_db_blocker.unblock():
        yield
        store.write(empty)


@pytest.fixture
async def _no_leaked_task() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = {task for task in asyncio.all_tasks() - before if not task.done()}
    left.discard(asyncio.current_task())  # type: ignore[arg-type] # the fixture runs in a task
    assert not left, f"tasks left behind: {sorted(task.get_name() for task in left)}"


@pytest.fixture(autouse=True)
def nothing_is_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a task or a thread behind."""
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("_no_leaked_task")
    before = set(threading.enumerate())
    yield
    left = []
    for thread in set(threading.enumerate()) - before:
        if not thread.name.startswith(LASTING_THREADS):
            # One that is just ending, as asgiref's joiners are, is no leak.
            thread.join(THREAD_END_SECONDS)
            left += [thread.name] if thread.is_alive() else []
    assert not left, f"threads left behind: {sorted(left)}"
