"""What each part of the admin refuses of an address or a form that was written by hand."""

import re
from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import Group
from django.test import Client

from catalog.models import App, BaseImage, BaseImageTag
from telorunner.adminsite import MAX_SEARCH_LENGTH
from tests.offered import make_app, make_terms
from tests.sessionrows import save_row

pytestmark = pytest.mark.django_db

PARTS = (
    "catalog/app",
    "catalog/terms",
    "catalog/baseimage",
    "catalog/baseimagetag",
    "runner_sessions/session",
    "auth/user",
    "auth/group",
)
# An action of each part that has any.
ACTIONS = {
    "catalog/app": "disable_apps",
    "catalog/baseimage": "delete_selected",
    "catalog/baseimagetag": "hide_tags",
    "runner_sessions/session": "stop_sessions",
    "auth/user": "delete_selected",
    "auth/group": "delete_selected",
}
FILTER_LINK = re.compile(r'<a href="(\?[^"]+)">')


def url(part: str) -> str:
    return f"/admin/{part}/"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("lookup", ["pk__gt", "id__in", "id__regex", "id__exact"])
def test_no_list_answers_other_questions_than_its_filters(
    admin_client: Client, part: str, lookup: str
) -> None:
    assert admin_client.get(url(part), {lookup: "1"}).status_code == 400


@pytest.mark.parametrize(
    ("part", "lookup", "text"),
    [
        # On SQLite it is Python that matches, and nothing else of the process runs meanwhile.
        ("catalog/app", "description__regex", "(a|a)*b$"),
        ("catalog/app", "env__KEY__startswith", "gAAAAA"),
        ("catalog/app", "name", "\0"),
        ("catalog/terms", "created_at__year", "99999999999"),
        ("catalog/baseimagetag", "name__regex", "("),
        ("auth/user", "username__regex", "("),
        ("auth/group", "name", "\0"),
    ],
)
def test_no_pattern_and_no_value_that_a_database_refuses_reaches_it(
    admin_client: Client, part: str, lookup: str, text: str
) -> None:
    make_app(description="a" * 34, env={"KEY": "value"})
    assert admin_client.get(url(part), {lookup: text}).status_code == 400


@pytest.mark.parametrize("part", PARTS)
def test_every_filter_that_a_list_offers_works(admin_client: Client, part: str) -> None:
    make_app()
    make_terms("1")
    save_row()
    for name in ("some", "others"):
        Group.objects.create(name=name)
    shown = admin_client.get(url(part)).content.decode()
    _, _, filters = shown.partition('id="changelist-filter"')
    links = FILTER_LINK.findall(filters)
    # Groups have no filter.
    assert bool(links) == (part != "auth/group")
    for link in links:
        answer = admin_client.get(url(part) + link.replace("&amp;", "&"))
        assert answer.status_code == 200, link


@pytest.mark.parametrize("part", PARTS)
def test_a_very_long_search_is_cut(admin_client: Client, part: str) -> None:
    make_app("helper", title="help")
    answer = admin_client.get(url(part), {"q": "help " * 2000})
    assert answer.status_code == 200
    if part == "catalog/app":
        assert ">helper</a>" in answer.content.decode()


def test_the_longest_image_can_be_searched_for(admin_client: Client) -> None:
    image = "r.example/" + "a" * 255 + ":" + "t" * 128
    row = save_row(image=image)
    assert len(image) <= MAX_SEARCH_LENGTH
    answer = admin_client.get(url("runner_sessions/session"), {"q": image})
    assert f">{row.pk}</a>" in answer.content.decode()


@pytest.mark.parametrize("part", ACTIONS)
@pytest.mark.parametrize("key", ["abc\0", "\0", "", "9" * 30, "1" * 5000])
def test_a_selection_that_can_be_no_row_is_refused(
    admin_client: Client, part: str, key: str
) -> None:
    app = make_app()
    BaseImage.objects.create(reference="own.example/a:1")
    BaseImageTag.objects.create(repository="telorun/node", name="1.0.0", position=0)
    form: dict[str, Any] = {
        "action": ACTIONS[part],
        ACTION_CHECKBOX_NAME: [str(app.pk), key],
        "index": "0",
    }
    if part == "runner_sessions/session":
        form[ACTION_CHECKBOX_NAME] = ["a" * 12, key]
    for confirmed in ({}, {"post": "yes", "confirmed": "yes"}):
        answer = admin_client.post(url(part), {**form, **confirmed})
        assert answer.status_code == 400, confirmed
    assert App.objects.get().enabled
    assert BaseImage.objects.count() == 1
    assert not BaseImageTag.objects.get().hidden


def test_a_row_that_is_gone_may_be_selected(admin_client: Client) -> None:
    app = make_app()
    form = {"action": "disable_apps", ACTION_CHECKBOX_NAME: [str(app.pk), "4711"], "index": "0"}
    assert admin_client.post(url("catalog/app"), form).status_code == 302
    assert not App.objects.get().enabled
