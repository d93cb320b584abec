"""The admin's lists as they are read: headings, filters above them, empty ones, times, names."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from catalog.models import App, BaseImageTag, Terms
from telorunner.conf import Settings
from tests.sessionrows import save_row

pytestmark = pytest.mark.django_db

APPS = "/admin/catalog/app/"
TERMS = "/admin/catalog/terms/"
TAGS = "/admin/catalog/baseimagetag/"
SESSIONS = "/admin/runner_sessions/session/"
USERS = "/admin/auth/user/"
HEADING = re.compile(r"<h1>([^<]*)</h1>")
TEXT = re.compile(r"<[^>]*>")


def page_at(client: Any, url: str, **query: str) -> str:
    page = client.get(url, query)
    assert page.status_code == 200
    text: str = page.content.decode()
    return text


def words_of(html: str) -> str:
    return " ".join(TEXT.sub(" ", html).split())


@pytest.mark.parametrize(
    ("url", "heading"),
    [
        (APPS, "Apps"),
        (TERMS, "Terms"),
        ("/admin/catalog/baseimage/", "Base images"),
        (TAGS, "Base image tags"),
        (SESSIONS, "Sessions"),
        (USERS, "Users"),
    ],
)
def test_a_list_is_headed_by_what_it_lists(admin_client: Any, url: str, heading: str) -> None:
    page = page_at(admin_client, url)
    assert HEADING.findall(page) == [heading]
    assert f"<title>{heading} | " in page


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (APPS, "There are no apps: clients run their own files only. Add an app"),
        (TERMS, "There are no terms: clients start sessions without accepting any. Publish terms"),
        (TAGS, "No tags have been fetched."),
        (SESSIONS, "There are no sessions yet: clients start them through /v1 ."),
    ],
)
def test_an_empty_list_says_what_that_means(admin_client: Any, url: str, sentence: str) -> None:
    page = page_at(admin_client, url)
    assert sentence in words_of(page)
    assert 'name="action"' not in page.partition('id="changelist-form"')[2]


@pytest.mark.parametrize("url", [APPS, SESSIONS])
def test_a_search_without_a_find_leads_back_to_all(admin_client: Any, url: str) -> None:
    App.objects.create(name="one", image="registry.example/one:1")
    save_row()
    page = page_at(admin_client, url, q="zzz")
    assert "Nothing matches what you look for. Show all" in words_of(page)
    assert '<a href="?">Show all</a>' in page


def test_filters_stand_above_the_list(admin_client: Any) -> None:
    App.objects.create(name="one", image="registry.example/one:1")
    page = page_at(admin_client, APPS)
    assert page.count('id="changelist-filter"') == 1
    assert page.index('id="changelist-filter"') < page.index('id="result_list"')


def test_the_filter_of_who_manages_an_entry_speaks_as_the_column_does(admin_client: Any) -> None:
    App.objects.create(name="one", image="registry.example/one:1")
    App.objects.create(name="two", image="registry.example/two:1", is_from_environment=True)
    plain = words_of(page_at(admin_client, APPS))
    assert "By managed by All environment admin" in plain
    counted = words_of(page_at(admin_client, APPS, _facets="True"))
    assert "By managed by All environment (1) admin (1)" in counted
    chosen = page_at(admin_client, APPS, is_from_environment__exact="1")
    assert ">two</a>" in chosen
    assert ">one</a>" not in chosen


def test_all_sessions_are_no_result_of_a_search(admin_client: Any) -> None:
    session = save_row()
    assert " result" not in words_of(page_at(admin_client, SESSIONS))
    assert "1 result ( Show all )" in words_of(page_at(admin_client, SESSIONS, q=session.pk[:4]))
    assert "1 result ( Show all )" in words_of(page_at(admin_client, SESSIONS, mode="run"))


def test_times_are_written_as_they_are_elsewhere_and_with_their_zone(
    admin_client: Any, settings: Any
) -> None:
    config: Settings = settings.RUNNER
    BaseImageTag.objects.create(
        repository=config.base_image_repo,
        name="1.2.3",
        position=0,
        updated_at=datetime(2026, 1, 2, 0, 0, tzinfo=UTC),
    )
    assert "2026-01-02 00:00:00 UTC" in page_at(admin_client, TAGS)
    terms = Terms.objects.create(body="Be kind.", version="1")
    Terms.objects.filter(pk=terms.pk).update(created_at=datetime(2026, 1, 2, 15, 4, 5, tzinfo=UTC))
    for url in (TERMS, f"{TERMS}{terms.pk}/change/"):
        assert "2026-01-02 15:04:05 UTC" in page_at(admin_client, url), url


def test_a_name_at_the_beginning_of_a_message_is_written_as_it_is(admin_client: Any) -> None:
    app = App.objects.create(name="one", image="registry.example/1:1", is_from_environment=True)
    form = {"action": "disable_apps", "_selected_action": [app.pk]}
    page = admin_client.post(APPS, form, follow=True).content.decode()
    assert '<li class="error">one is managed by the environment' in page


def test_a_tag_that_is_not_hidden_is_not_marked_as_something_bad(
    admin_client: Any, settings: Any
) -> None:
    config: Settings = settings.RUNNER
    BaseImageTag.objects.create(repository=config.base_image_repo, name="1.2.3", position=0)
    assert "icon-no" not in page_at(admin_client, TAGS)


def test_an_old_version_of_the_terms_is_not_marked_as_something_bad(admin_client: Any) -> None:
    Terms.objects.create(body="Be kind.", version="1")
    Terms.objects.create(body="Be kinder.", version="2", is_current=True)
    page = page_at(admin_client, TERMS)
    assert "icon-no" not in page
    assert '<td class="field-current">yes</td>' in page
    assert '<td class="field-current">no</td>' in page
    assert "sessions under it" in words_of(page).lower()


def test_a_session_that_has_made_room_is_not_marked_as_something_bad(admin_client: Any) -> None:
    save_row("exited", evicted_at=datetime.now(UTC))
    save_row()
    page = page_at(admin_client, SESSIONS)
    assert "icon-no" not in page
    assert '<td class="field-is_kept">yes</td>' in page
    assert '<td class="field-is_kept">no</td>' in page
