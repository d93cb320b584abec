"""Forms of the catalog that are old by the time they are sent, that are forged, or too long."""

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from catalog import actions
from catalog.models import App, BaseImage
from telorunner.conf.types import MAX_DESCRIPTION_LENGTH
from tests.offered import make_app

pytestmark = pytest.mark.django_db

SEEN = re.compile(r'<input type="hidden" name="seen" value="([0-9a-f]{64})"')
SAVED_MEANWHILE = "Somebody has saved this entry since you opened it, with another {}."
MARK = "marked-s3cret"


def form_of(app: App, **typed: str) -> dict[str, str]:
    """Return what a browser sends of a page on which nothing but this was typed."""
    values = {"name": app.name, "image": app.image, "pull_policy": "missing", "position": "0"}
    return {**values, **({"enabled": "on"} if app.enabled else {}), **typed}


def opened(client: Client, url: str) -> str:
    """Open a page and return the mark of what it showed."""
    found = SEEN.search(client.get(url).content.decode())
    assert found is not None
    return found[1]


def url_of(row: App | BaseImage) -> str:
    return f"/admin/catalog/{row._meta.model_name}/{row.pk}/change/"


def problems(answer: Any) -> list[str]:
    assert answer.status_code == 200
    found: list[str] = answer.context["adminform"].form.non_field_errors()
    return list(found)


def test_a_page_that_is_old_by_now_switches_nothing_on_again(admin_client: Client) -> None:
    """An operator opens an app's page, another one switches it off, the first one saves a title."""
    app = make_app()
    seen = opened(admin_client, url_of(app))
    actions.set_apps_enabled([app.pk], is_enabled=False)
    answer = admin_client.post(url_of(app), form_of(app, title="Helper", seen=seen))
    [problem] = problems(answer)
    assert problem.startswith(SAVED_MEANWHILE.format("title, enabled"))
    app.refresh_from_db()
    assert (app.enabled, app.title) == (False, "")


def test_who_was_told_may_save_over_it(admin_client: Client) -> None:
    app = make_app()
    seen = opened(admin_client, url_of(app))
    App.objects.update(title="Theirs")
    answer = admin_client.post(url_of(app), form_of(app, title="Mine", seen=seen))
    assert problems(answer)
    told = SEEN.search(answer.content.decode())
    assert told is not None
    answer = admin_client.post(url_of(app), form_of(app, title="Mine", seen=told[1]))
    assert answer.status_code == 302
    assert App.objects.get().title == "Mine"
    assert "seen" not in LogEntry.objects.get().change_message.lower()


def test_a_page_that_nobody_overtook_is_saved(admin_client: Client) -> None:
    app = make_app(env={"KEY": "1"})
    seen = opened(admin_client, url_of(app))
    # Each variable is changed by itself: those of others are kept.
    actions.save_app(App.objects.get(), actions.apps.variables.EnvChange(values={"OTHER": "2"}))
    answer = admin_client.post(url_of(app), form_of(app, title="Helper", seen=seen))
    assert answer.status_code == 302
    assert sorted(App.objects.get().env) == ["KEY", "OTHER"]


def test_two_who_say_the_same_are_not_told_of_each_other(admin_client: Client) -> None:
    app = make_app()
    seen = opened(admin_client, url_of(app))
    App.objects.update(title="Helper")
    answer = admin_client.post(url_of(app), form_of(app, title="Helper", seen=seen))
    assert answer.status_code == 302


def test_a_base_image_that_was_switched_off_meanwhile_stays_so(admin_client: Client) -> None:
    image = BaseImage.objects.create(reference="own.example/a:1")
    seen = opened(admin_client, url_of(image))
    BaseImage.objects.update(enabled=False)
    form = {"reference": image.reference, "position": "3", "enabled": "on", "seen": seen}
    [problem] = problems(admin_client.post(url_of(image), form))
    assert problem.startswith(SAVED_MEANWHILE.format("position, enabled"))
    image.refresh_from_db()
    assert (image.position, image.enabled) == (0, False)


def test_a_description_is_as_long_as_clients_are_sent(admin_client: Client) -> None:
    app = make_app()
    # A browser sends two characters for each end of a line.
    fits = "\r\n" * MAX_DESCRIPTION_LENGTH
    too_long = "d" * (MAX_DESCRIPTION_LENGTH + 1)
    answer = admin_client.post(url_of(app), form_of(app, description=too_long))
    assert answer.context["adminform"].form.errors["description"] == [
        f"The description must be at most {MAX_DESCRIPTION_LENGTH} characters long."
    ]
    answer = admin_client.post(url_of(app), form_of(app, description=f"a{fits[2:]}"[:-2] + "b"))
    assert answer.status_code == 302
    assert App.objects.get().description == "a" + "\n" * (MAX_DESCRIPTION_LENGTH - 2) + "b"


def test_the_history_names_no_variable_that_was_not_there(admin_client: Client) -> None:
    app = make_app(env={"KEY": "1"})
    forged = {f"variables-remove:{MARK}": "on", "variables-remove:KEY": "on"}
    assert admin_client.post(url_of(app), form_of(app, **forged)).status_code == 302
    said = LogEntry.objects.get().change_message
    assert "KEY removed" in said
    assert MARK not in said
