"""Who sees what of the admin: superusers, operators, staff without a role, and everybody else."""

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client
from django.urls import reverse

from catalog.models import App
from sessions.models import Session
from tests.sessionrows import save_row

pytestmark = pytest.mark.django_db

OPERATED = {"catalog", "runner_sessions"}
HEADINGS = re.compile(r'class="section"[^>]*>([^<]+)</a>')
PARTS = re.compile(r'<th scope="row" id="([a-z_]+-[a-z]+)"')


def log_in(django_user_model: Any, **flags: bool) -> Any:
    """Return the browser and the user of a new account."""
    user = django_user_model.objects.create_user("ada", **flags)
    browser = Client()
    browser.force_login(user)
    return browser, user


@pytest.fixture
def operators(db: None) -> Group:
    """The group as its migration makes it, whatever test has emptied all tables since."""
    made = import_module("catalog.migrations.0002_operators_group")
    apps = MigrationExecutor(connection).loader.project_state().apps
    made.make_group(apps, connection.schema_editor())
    return Group.objects.get(name="operators")


@pytest.fixture
def superuser(admin_client: Client) -> Client:
    return admin_client


@pytest.fixture
def operator(django_user_model: Any, operators: Group) -> Client:
    browser, user = log_in(django_user_model, is_staff=True)
    user.groups.add(operators)
    return browser


@pytest.fixture
def staff(django_user_model: Any) -> Client:
    browser, _ = log_in(django_user_model, is_staff=True)
    return browser


@pytest.fixture
def outsider(django_user_model: Any, operators: Group) -> Client:
    """Somebody in the group who is no staff."""
    browser, user = log_in(django_user_model)
    user.groups.add(operators)
    return browser


def list_urls(app_labels: set[str] | None = None) -> list[str]:
    """Return the address of every list that the admin has."""
    return [
        reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for model in admin.site._registry
        if app_labels is None or model._meta.app_label in app_labels
    ]


def headings(client: Client) -> list[str]:
    """Return the groups of the first page, in order."""
    page = client.get("/admin/")
    assert page.status_code == 200
    return HEADINGS.findall(page.content.decode().partition('id="content-main"')[2])


def statuses(client: Client, urls: list[str]) -> set[int]:
    return {client.get(url).status_code for url in urls}


def test_a_superuser_sees_everything(superuser: Client) -> None:
    assert headings(superuser) == ["Sessions", "Catalog", "Users"]
    assert statuses(superuser, list_urls()) == {200}


def test_an_operator_sees_sessions_and_catalog_only(operator: Client) -> None:
    assert headings(operator) == ["Sessions", "Catalog"]
    operated = list_urls(OPERATED)
    assert len(operated) >= 4
    assert statuses(operator, operated) == {200}
    others = [url for url in list_urls() if url not in operated]
    assert others
    assert statuses(operator, others) == {403}
    assert operator.get("/admin/auth/").status_code == 404


def test_an_operator_can_make_no_user_and_give_no_rights(
    operator: Client, django_user_model: Any
) -> None:
    me = django_user_model.objects.get(username="ada")
    group = Group.objects.get(name="operators")
    for url in (
        "/admin/auth/user/add/",
        f"/admin/auth/user/{me.pk}/change/",
        f"/admin/auth/user/{me.pk}/password/",
        f"/admin/auth/group/{group.pk}/change/",
    ):
        for answer in (operator.get(url), operator.post(url, {"is_superuser": "on"})):
            assert answer.status_code == 403
    me.refresh_from_db()
    assert not me.is_superuser


def test_an_operator_looks_at_sessions_and_may_stop_them(operator: Client) -> None:
    session = save_row("running")
    url = f"/admin/runner_sessions/session/{session.pk}"
    assert statuses(operator, [f"{url}/change/", f"{url}/stop/", f"{url}/history/"]) == {200}
    assert operator.get(f"{url}/delete/").status_code == 403
    assert operator.post(f"{url}/change/", {"status": "stopped"}).status_code == 403
    assert operator.get("/admin/runner_sessions/session/add/").status_code == 403
    assert (
        'value="stop_sessions"' in operator.get("/admin/runner_sessions/session/").content.decode()
    )


def test_an_operator_curates_the_catalog(operator: Client) -> None:
    app = App.objects.create(name="chat", image="registry.example/chat:1")
    urls = [f"/admin/catalog/app/{app.pk}/{page}/" for page in ("change", "delete", "history")]
    assert statuses(operator, ["/admin/catalog/app/add/", *urls]) == {200}


def test_staff_without_a_role_see_nothing_and_are_told_so(staff: Client) -> None:
    assert headings(staff) == []
    assert "There is nothing here that you may see" in staff.get("/admin/").content.decode()
    session = save_row("running")
    app = App.objects.create(name="chat", image="registry.example/chat:1")
    pages = [
        f"/admin/runner_sessions/session/{session.pk}/change/",
        f"/admin/runner_sessions/session/{session.pk}/stop/",
        f"/admin/runner_sessions/session/{session.pk}/history/",
        f"/admin/catalog/app/{app.pk}/change/",
        f"/admin/catalog/app/{app.pk}/delete/",
    ]
    assert statuses(staff, [*list_urls(), *pages]) == {403}
    assert App.objects.filter(pk=app.pk).exists()


@pytest.mark.parametrize("who", ["outsider", "nobody"])
def test_who_is_no_staff_is_sent_to_the_login(who: str, request: pytest.FixtureRequest) -> None:
    visitor = Client() if who == "nobody" else request.getfixturevalue(who)
    session = save_row("running")
    stop = f"/admin/runner_sessions/session/{session.pk}/stop/"
    for url in ["/admin/", *list_urls(), stop]:
        answer = visitor.get(url)
        assert (answer.status_code, answer["location"]) == (302, f"/admin/login/?next={url}")
    assert visitor.post(stop, {"confirmed": "yes"}).status_code == 302
    assert Session.objects.get().stop_requested_at is None


def test_the_first_page_is_in_the_order_of_work_and_says_what_each_part_is_for(
    superuser: Client,
) -> None:
    page = superuser.get("/admin/").content.decode().partition('id="content-main"')[2]
    parts = PARTS.findall(page)
    expected = [
        "runner_sessions-session",
        "catalog-app",
        "catalog-terms",
        "catalog-baseimage",
        "catalog-baseimagetag",
        "auth-user",
        "auth-group",
    ]
    assert [part for part in parts if part in expected] == [
        part for part in expected if part in parts
    ]
    assert parts[0] == "runner_sessions-session"
    assert page.count('<p class="help">') >= 4


def test_the_admin_has_the_name_that_clients_read(superuser: Client, settings: Any) -> None:
    from tests.builders import make_settings

    settings.RUNNER = make_settings(display_name="Runner <of> Ada")
    for client, url in ((superuser, "/admin/"), (Client(), "/admin/login/")):
        page = client.get(url).content.decode()
        assert "Runner &lt;of&gt; Ada</a></div>" in page
        assert "Runner &lt;of&gt; Ada</title>" in page
        assert "Django" not in re.sub(r"<script[^>]*>|<link[^>]*>", "", page)
        assert "View site" not in page


def test_the_group_of_operators_may_do_what_operators_do(operators: Group) -> None:
    granted = operators.permissions
    labels = set(granted.values_list("content_type__app_label", flat=True))
    assert labels == OPERATED
    codes = set(granted.values_list("codename", flat=True))
    assert {"add_app", "change_terms", "delete_baseimage", "view_baseimagetag"} <= codes
    of_sessions = granted.filter(content_type__app_label="runner_sessions")
    assert set(of_sessions.values_list("codename", flat=True)) == {"view_session", "stop_session"}


def go_on() -> set[str]:
    """Migrate to now; return what operators may do then."""
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())
    granted = Group.objects.get(name="operators").permissions
    return set(granted.values_list("codename", flat=True))


def go_back() -> None:
    """Migrate to before the group was made."""
    MigrationExecutor(connection).migrate([("catalog", "0001_initial")])


@pytest.fixture
def migrated(transactional_db: None) -> Iterator[None]:
    """A database that is as it was afterwards, as far as its schema goes."""
    yield
    go_on()


def test_going_back_and_on_again_leaves_the_group_as_it_was(migrated: None) -> None:
    go_back()
    granted = go_on()
    extra = Permission.objects.get(codename="view_user")
    group = Group.objects.get(name="operators")
    group.permissions.add(extra)
    try:
        go_back()
        assert Group.objects.filter(name="operators").exists()
        assert go_on() == granted | {"view_user"}
    finally:
        group.permissions.remove(extra)


def test_a_database_that_has_no_permissions_yet_gets_those_that_the_group_needs(
    migrated: None,
) -> None:
    go_back()
    # As on a new database: Django makes permissions once all migrations have run.
    Group.objects.filter(name="operators").delete()
    Permission.objects.filter(content_type__app_label__in=OPERATED).delete()
    granted = go_on()
    assert {"add_app", "view_baseimagetag", "stop_session"} <= granted
    assert "add_session" not in granted
