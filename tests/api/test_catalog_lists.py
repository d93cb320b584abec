"""The catalog's lists in the admin: what is found in them, in which order, and what was done."""

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from catalog.models import BaseImage
from tests.offered import make_terms
from tests.sessionrows import save_row

pytestmark = pytest.mark.django_db

TERMS_URL = "/admin/catalog/terms/"
IMAGES_URL = "/admin/catalog/baseimage/"


@pytest.fixture
def admin_user(django_user_model: Any) -> Any:
    """An administrator without a password: making one takes longer than most of these tests."""
    return django_user_model.objects.create_superuser("root")


def column(client: Client, url: str, name: str, **query: str) -> list[str]:
    """Return what a list shows in a column, from top to bottom."""
    page = client.get(url, query)
    assert page.status_code == 200
    cells = re.findall(rf'class="field-{name}[^"]*">(.*?)</t[hd]>', page.content.decode())
    return [re.sub("<[^>]*>", "", cell) for cell in cells]


def test_the_current_terms_stand_first_and_then_the_newest(admin_client: Client) -> None:
    first, _, _ = (make_terms(version) for version in ("1", "2", "3"))
    assert column(admin_client, TERMS_URL, "version") == ["3", "2", "1"]
    assert admin_client.post(f"{TERMS_URL}{first.pk}/make-current/").status_code == 302
    assert column(admin_client, TERMS_URL, "version") == ["1", "3", "2"]


@pytest.mark.parametrize(
    ("term", "versions"),
    [("Rev-2", ["Rev-2"]), ("House", ["Rev-1"]), ("pigeons", ["Rev-2"]), ("cats", [])],
)
def test_terms_are_searched_by_title_version_and_text(
    admin_client: Client, term: str, versions: list[str]
) -> None:
    make_terms("Rev-1", title="House rules", body="Be kind.")
    make_terms("Rev-2", title="Terms", body="Feed no pigeons.")
    assert column(admin_client, TERMS_URL, "version", q=term) == versions


def test_terms_are_filtered_by_whether_they_are_current(admin_client: Client) -> None:
    make_terms("1")
    make_terms("2")
    assert column(admin_client, TERMS_URL, "version", is_current__exact="1") == ["2"]
    assert column(admin_client, TERMS_URL, "version", is_current__exact="0") == ["1"]


def test_who_withdrew_terms_is_in_their_history(admin_client: Client) -> None:
    terms = make_terms("1")
    admin_client.post(f"{TERMS_URL}withdraw/", {"version": "1"})
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message) == (str(terms.pk), "Withdrawn.")
    page = admin_client.get(f"{TERMS_URL}{terms.pk}/history/").content.decode()
    assert "Withdrawn." in page
    assert "root" in page


def test_an_old_version_is_published_again_by_its_name(admin_client: Client) -> None:
    make_terms("1", body="Be kind.")
    make_terms("2", body="Be fair.")
    form = {"title": "Terms", "body": "Be kind.", "version": "1"}
    assert admin_client.post(f"{TERMS_URL}add/", form).status_code == 302
    assert column(admin_client, TERMS_URL, "version", is_current__exact="1") == ["1"]
    assert column(admin_client, TERMS_URL, "version") == ["1", "2"]


def test_base_images_are_searched_and_filtered(admin_client: Client) -> None:
    BaseImage.objects.create(reference="own.example/a:1")
    BaseImage.objects.create(reference="other.example/b:1", enabled=False)
    assert column(admin_client, IMAGES_URL, "reference", q="own.ex") == ["own.example/a:1"]
    off = column(admin_client, IMAGES_URL, "reference", enabled__exact="0")
    assert off == ["other.example/b:1"]


def test_a_list_of_sessions_does_not_even_load_what_is_sealed(admin_client: Client) -> None:
    save_row("running")
    with CaptureQueriesContext(connection) as asked:
        page = admin_client.get("/admin/runner_sessions/session/")
    assert page.status_code == 200
    assert not [query["sql"] for query in asked if "env_sealed" in query["sql"]]
