"""Apps in the admin: what a person may type, what is said where it is wrong, and what is hidden."""

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.contrib.admin.models import LogEntry
from django.core import serializers
from django.db import connection
from django.db.models.signals import post_delete, pre_save
from django.test import Client
from django.test.utils import CaptureQueriesContext

from catalog import actions, cache, sealed
from catalog.models import App, Revision
from catalog.variables import EnvChange
from sessions.models import Session
from telorunner.secretbox import CannotOpen
from telorunner.values import env
from tests.builders import make_settings
from tests.managed import managed_meanwhile, told
from tests.offered import make_app
from tests.sessionrows import make_row, save_row

pytestmark = pytest.mark.django_db

LIST_URL = "/admin/catalog/app/"
ADD_URL = f"{LIST_URL}add/"
MARK = "marked-s3cret"
IMAGE = "registry.example/team/app:1.2"


@pytest.fixture
def admin_user(django_user_model: Any) -> Any:
    """An administrator without a password: making one takes longer than most of these tests."""
    return django_user_model.objects.create_superuser("root")


def change_url(app: App) -> str:
    return f"{LIST_URL}{app.pk}/change/"


def typed(name: str = "helper", **overrides: str) -> dict[str, str]:
    """Return what a person typed into the form."""
    values = {
        "name": name,
        "title": "",
        "description": "",
        "image": IMAGE,
        "pull_policy": "missing",
        "port": "",
        "enabled": "on",
        "position": "0",
    }
    return {**values, **overrides}


def value(name: str, text: str) -> dict[str, str]:
    return {f"variables-value:{name}": text}


def remove(name: str) -> dict[str, str]:
    return {f"variables-remove:{name}": "on"}


def new(number: int, name: str = "", text: str = "", *, is_empty: bool = False) -> dict[str, str]:
    row = {f"variables-new-{number}-name": name, f"variables-new-{number}-value": text}
    return row | ({f"variables-new-{number}-empty": "on"} if is_empty else {})


def opened(app: App) -> dict[str, str]:
    return sealed.open_values(App.objects.get(pk=app.pk).env)


def errors(response: Any) -> dict[str, list[str]]:
    assert response.status_code == 200
    found: dict[str, list[str]] = response.context["adminform"].form.errors
    return found


def save(client: Client, app: App, **data: str) -> None:
    answer = client.post(change_url(app), data)
    assert answer.status_code == 302, errors(answer)


def test_an_app_that_is_added_is_offered_at_the_next_request(
    admin_client: Client, django_capture_on_commit_callbacks: Any
) -> None:
    config = make_settings()
    assert not cache.current_offer(config).apps
    data = typed(port="8080", title="Helper") | new(1, "API_KEY", MARK) | new(2)
    with django_capture_on_commit_callbacks(execute=True):
        assert admin_client.post(ADD_URL, data).status_code == 302
    assert list(cache.current_offer(config).apps) == ["helper"]
    app = App.objects.get()
    assert (app.name, app.image, app.port, app.title) == ("helper", IMAGE, 8080, "Helper")
    assert opened(app) == {"API_KEY": MARK}
    assert Revision.objects.get().number > 0


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        *(
            ("name", name, "The name must be a lower-case DNS label")
            for name in ("Helper", "-a", "a-", "a.b", "a_b", "hälper", "a b")
        ),
        ("name", "a" * 64, "Ensure this value has at most 63 characters (it has 64)."),
        ("name", "", "This field is required."),
        ("image", "Team/App", "Not an image reference"),
        ("image", "app:", "Not an image reference: its tag is malformed."),
        ("image", "app@sha256:12", "Not an image reference: its digest is malformed."),
        ("image", "", "This field is required."),
        *(
            ("port", port, "The port must be a number from 1 to 65535, or empty.")
            for port in ("0", "65536", "-1", "http", "80.5")
        ),
        ("pull_policy", "sometimes", "Select a valid choice. sometimes is not"),
        ("position", "first", "Enter a whole number."),
    ],
)
def test_a_wrong_field_is_refused_in_words(
    admin_client: Client, field: str, text: str, sentence: str
) -> None:
    found = errors(admin_client.post(ADD_URL, typed(**{field: text})))
    assert list(found) == [field]
    assert found[field][0].startswith(sentence)
    assert not App.objects.exists()


@pytest.mark.parametrize("name", ["a", "a" * 63, "0", "a-b-1"])
def test_a_dns_label_is_a_name(admin_client: Client, name: str) -> None:
    assert admin_client.post(ADD_URL, typed(name)).status_code == 302


def test_a_name_is_given_once(admin_client: Client) -> None:
    make_app("helper", is_from_environment=True)
    found = errors(admin_client.post(ADD_URL, typed("helper")))
    assert found == {"name": ["There is an app of this name already."]}


LONG = "x" * (env.MAX_VARIABLE_BYTES - 1)


@pytest.mark.parametrize(
    ("data", "sentences"),
    [
        (new(1, "1A", "x"), ["New variable 1: the name must match [-._a-zA-Z][-._a-zA-Z0-9]*."]),
        (new(1, "A=B", "x"), ["New variable 1: the name must match [-._a-zA-Z][-._a-zA-Z0-9]*."]),
        (new(1, "A" * 257, "x"), ["New variable 1: the name has more than 256 characters."]),
        (new(1, "", "x"), ["New variable 1: it needs a name."]),
        (new(1, "", is_empty=True), ["New variable 1: it needs a name."]),
        (new(1, "A"), ["A: type a value, or tick “empty value”."]),
        (new(1, "A", "x", is_empty=True), ["A: type a value or tick “empty value”, not both."]),
        (new(1, "A", "x") | new(2, "A", "y"), ["A: it is there twice."]),
        (new(1, "OLD", "x"), ["OLD: it is set already; type its new value in its own row."]),
        (value("OLD", "x") | remove("OLD"), ["OLD: type a new value or tick “remove”, not both."]),
        (new(1, "A", "a\0b"), ["A: the value holds a NUL."]),
        (new(1, "AB", LONG), ["AB: name and value together must be under 128 KiB."]),
        (value("9", "x"), ["A variable: the name must match [-._a-zA-Z][-._a-zA-Z0-9]*."]),
        (
            {key: text for i in range(9) for key, text in new(i, f"A{i}", LONG[1:]).items()},
            ["All variables together, with their names, must be at most 1 MiB."],
        ),
    ],
)
def test_a_wrong_variable_is_refused_in_words(
    admin_client: Client, data: dict[str, str], sentences: list[str]
) -> None:
    app = make_app(env={"OLD": "kept"})
    found = errors(admin_client.post(change_url(app), typed() | data))
    told = [one for one in found["variables"] if not one.startswith("Typed values are not sent")]
    assert told == sentences
    assert opened(app) == {"OLD": "kept"}


def test_what_is_kept_counts_for_the_total(admin_client: Client) -> None:
    app = make_app(env={f"A{i}": LONG[1:] for i in range(8)})
    found = errors(admin_client.post(change_url(app), typed() | new(1, "B", "x" * 16)))
    assert found["variables"][0].startswith("All variables together")
    save(admin_client, app, **typed(), **remove("A0"), **new(1, "B", "x"))


def test_an_app_has_as_many_variables_as_its_form_can_send(admin_client: Client) -> None:
    names = [f"A{i}" for i in range(env.MAX_APP_VARIABLES)]
    app = make_app(env=dict.fromkeys(names, "x"))
    sent = {key: text for name in names for key, text in value(name, "y").items()}
    found = errors(admin_client.post(change_url(app), typed() | new(1, "B", "z")))
    assert found["variables"][0] == "There must be at most 400 variables."
    removed = {key: text for name in names[1:] for key, text in remove(name).items()}
    sent = dict.fromkeys(sent, "") | value("A0", "y") | removed
    save(admin_client, app, **typed(), **sent, **new(1, "B", "z"))
    assert opened(app) == {"A0": "y", "B": "z"}


def test_a_value_that_is_not_touched_is_kept(admin_client: Client) -> None:
    app = make_app(env={"A": "1", "B": "2"})
    save(admin_client, app, **typed(title="New"), **value("A", ""), **value("B", ""), **new(1))
    assert opened(app) == {"A": "1", "B": "2"}
    assert App.objects.get().title == "New"


def test_values_are_replaced_removed_and_added_each_by_itself(admin_client: Client) -> None:
    app = make_app(env={"A": "1", "B": "2", "C": "3"})
    save(admin_client, app, **typed(), **value("A", "new"), **remove("B"), **new(7, "D", "4"))
    assert opened(app) == {"A": "new", "C": "3", "D": "4"}


def test_a_removed_name_may_be_added_anew_and_an_empty_value_is_ticked(
    admin_client: Client,
) -> None:
    app = make_app(env={"A": "1"})
    save(admin_client, app, **typed(), **remove("A"), **new(1, "A", is_empty=True))
    assert opened(app) == {"A": ""}


def test_a_value_of_several_lines_has_the_line_ends_that_were_typed(admin_client: Client) -> None:
    app = make_app()
    save(admin_client, app, **typed(), **new(1, "KEY", " -- \r\nabc\r\n"))
    assert opened(app) == {"KEY": " -- \nabc\n"}


def test_what_somebody_else_set_meanwhile_is_kept() -> None:
    app = make_app(env={"A": "1"})
    mine, theirs = App.objects.get(), App.objects.get()
    actions.save_app(theirs, EnvChange({"B": "2"}))
    actions.save_app(mine, EnvChange({"C": "3"}))
    assert opened(app) == {"A": "1", "B": "2", "C": "3"}


def test_what_the_form_has_no_field_for_is_not_written_back() -> None:
    make_app()
    stale = App.objects.get()
    App.objects.update(shadows_environment=True, position=3)
    stale.is_from_environment, stale.title = True, "New"
    actions.save_app(stale)
    stored = App.objects.get()
    assert (stored.is_from_environment, stored.shadows_environment) == (False, True)
    assert stored.title == "New"


def test_a_deletion_that_is_refused_after_the_question_says_so(admin_client: Client) -> None:
    app = make_app("own")
    with managed_meanwhile(pre_save, LogEntry, App.objects.filter(name="own")):
        url = f"{LIST_URL}{app.pk}/delete/"
        answer = admin_client.post(url, {"post": "yes"}, follow=True)
    assert answer.redirect_chain == [(LIST_URL, 302)]
    assert told(answer) == [actions.APP_IS_MANAGED.format(name="own")]
    assert App.objects.count() == 1
    assert not LogEntry.objects.exists()


def test_apps_are_deleted_together_or_not_at_all(admin_client: Client) -> None:
    ids = [make_app(name).pk for name in ("first", "second")]
    body = {"action": "delete_selected", "_selected_action": ids, "post": "yes"}
    with managed_meanwhile(post_delete, App, App.objects.filter(name="second")):
        answer = admin_client.post(LIST_URL, body, follow=True)
    assert told(answer) == [actions.APP_IS_MANAGED.format(name="second")]
    assert App.objects.count() == 2
    assert not LogEntry.objects.exists()
    answer = admin_client.post(LIST_URL, body, follow=True)
    assert told(answer) == ["Successfully deleted 2 apps."]
    assert LogEntry.objects.count() == 2


def test_an_app_that_is_gone_is_not_written_again() -> None:
    app = make_app()
    stale = App.objects.get()
    actions.delete_app(app.pk)
    with pytest.raises(actions.ChangeRefused, match="deleted this app meanwhile"):
        actions.save_app(stale)
    assert not App.objects.exists()


def test_no_page_history_message_or_dump_shows_a_value(
    admin_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    added = typed() | new(1, "API_KEY", MARK)
    pages = [admin_client.post(ADD_URL, added | {"port": "x"}), admin_client.post(ADD_URL, added)]
    app = App.objects.get()
    changed = typed() | value("API_KEY", f"{MARK}-2") | new(1, "OTHER", f"{MARK}-3")
    for data in (changed | {"image": ""}, changed | new(2, MARK + "=", MARK), changed):
        pages.append(admin_client.post(change_url(app), data, follow=True))
    assert opened(app) == {"API_KEY": f"{MARK}-2", "OTHER": f"{MARK}-3"}
    for url in ("", "?q=helper", f"{app.pk}/change/", f"{app.pk}/history/", f"{app.pk}/delete/"):
        pages.append(admin_client.get(LIST_URL + url))
    pages.append(admin_client.get("/admin/"))
    app.refresh_from_db()
    seen = [page.content.decode() for page in pages]
    seen += [entry.change_message + entry.object_repr for entry in LogEntry.objects.all()]
    seen += [serializers.serialize("json", App.objects.all()), repr(app), str(app), caplog.text]
    seen += [repr(EnvChange({"A": MARK})), repr(pages[0].context["adminform"].form)]
    assert "API_KEY" in "".join(seen)
    assert [text for text in seen if MARK in text] == []


def test_the_history_names_variables(admin_client: Client) -> None:
    app = make_app(env={"A": "1", "B": "2"})
    save(admin_client, app, **typed(title="New"), **value("A", "x"), **remove("B"))
    told = LogEntry.objects.get().get_change_message()
    assert told == "Changed Name, Title, Image and Environment variables (A set, B removed)."


def test_typed_values_are_asked_for_again(admin_client: Client) -> None:
    app = make_app(env={"A": "1", "B": "2"})
    data = typed(port="x") | value("A", MARK) | new(1, "C", MARK) | remove("B")
    answer = admin_client.post(change_url(app), data)
    sentence = "Typed values are not sent back: type those of A, C again."
    assert errors(answer)["variables"] == [sentence]
    page = answer.content.decode()
    assert 'value="C"' in page
    assert 'name="variables-remove:B" checked' in page
    assert "Left empty, the stored one stays." in page


def test_the_page_shows_names_and_has_fields_that_no_browser_fills_in(
    admin_client: Client,
) -> None:
    app = make_app(env={"A": MARK})
    page = admin_client.get(change_url(app)).content.decode()
    assert '<textarea name="variables-value:A"' in page
    assert page.count('autocomplete="off"') == 1 + 3 * 2
    assert "set; type to replace" in page
    assert "catalog/env.js" in page
    assert MARK not in page


def test_values_open_after_a_rotation_and_saving_takes_the_new_key(
    admin_user: Any, settings: Any
) -> None:
    app = make_app(env={"A": MARK})
    old, settings.SECRET_KEY = settings.SECRET_KEY, "k" * 50
    settings.SECRET_KEY_FALLBACKS = [old]
    assert opened(app) == {"A": MARK}
    user = Client()
    user.force_login(admin_user)
    save(user, app, **typed())
    settings.SECRET_KEY_FALLBACKS = []
    assert opened(app) == {"A": MARK}


def test_a_value_whose_key_is_gone_is_told_of_and_kept(admin_user: Any, settings: Any) -> None:
    app = make_app(env={"A": MARK})
    settings.SECRET_KEY = "k" * 50
    user = Client()
    user.force_login(admin_user)
    assert "with a secret key that the runner has no more" in page_of(user, app)
    before = App.objects.get().env
    data = typed()
    del data["enabled"]
    save(user, app, **data)
    assert App.objects.get().env == before
    with pytest.raises(CannotOpen):
        opened(app)
    save(user, app, **typed(), **value("A", "anew"))
    assert "with a secret key" not in page_of(user, app)


def page_of(client: Client, app: App) -> str:
    text: str = client.get(change_url(app)).content.decode()
    return text


def test_an_app_of_the_environment_is_only_looked_at(admin_client: Client) -> None:
    app = make_app(env={"API_KEY": MARK}, is_from_environment=True)
    page = page_of(admin_client, app)
    assert "Managed by the environment: change <code>RUNNER_APPS</code>" in page
    assert "API_KEY" in page
    assert MARK not in page
    assert 'name="_save"' not in page
    assert "variables-value" not in page
    assert admin_client.post(change_url(app), typed("other")).status_code == 403
    assert admin_client.post(f"{LIST_URL}{app.pk}/delete/", {"post": "yes"}).status_code == 403
    assert "environment" in admin_client.get(LIST_URL).content.decode()
    assert App.objects.get().name == app.name


SENTENCE = (
    "code-helper is managed by the environment of the runner: change RUNNER_APPS and restart the"
    " runner."
)


@pytest.mark.parametrize("action", ["delete_selected", "enable_apps", "disable_apps"])
def test_no_action_changes_an_app_of_the_environment(admin_client: Client, action: str) -> None:
    managed, own = make_app(is_from_environment=True), make_app("own")
    data = {"action": action, "_selected_action": [managed.pk, own.pk], "post": "yes"}
    answer = admin_client.post(LIST_URL, data, follow=True)
    assert [str(one) for one in answer.context["messages"]] == [SENTENCE]
    assert App.objects.filter(enabled=True).count() == 2


def test_actions_refuse_what_the_environment_manages() -> None:
    app = make_app(is_from_environment=True)
    for change in (
        lambda: actions.save_app(app),
        lambda: actions.delete_app(app.pk),
        lambda: actions.set_apps_enabled([app.pk], is_enabled=False),
    ):
        with pytest.raises(actions.ChangeRefused) as caught:
            change()
        assert caught.value.message == SENTENCE


def test_selected_apps_are_switched_off_and_on(admin_client: Client) -> None:
    config = make_settings()
    apps = [make_app("a"), make_app("b"), make_app("c")]
    chosen = [app.pk for app in apps[:2]]
    for action, sentence, left in (
        ("disable_apps", "2 apps are not offered any more.", ["c"]),
        ("enable_apps", "2 apps are offered from the next request on.", ["a", "b", "c"]),
    ):
        data = {"action": action, "_selected_action": chosen}
        answer = admin_client.post(LIST_URL, data, follow=True)
        assert [str(one) for one in answer.context["messages"]] == [sentence]
        cache.forget()
        assert list(cache.current_offer(config).apps) == left
    said = LogEntry.objects.order_by("pk").values_list("object_id", "change_message")
    assert list(said) == [
        (str(pk), sentence) for sentence in ("Disabled.", "Enabled.") for pk in chosen
    ]


def test_what_is_switched_off_already_is_not_told_as_a_change(admin_client: Client) -> None:
    app = make_app(enabled=False)
    data = {"action": "disable_apps", "_selected_action": [app.pk]}
    answer = admin_client.post(LIST_URL, data, follow=True)
    assert [str(one) for one in answer.context["messages"]] == ["0 apps are not offered any more."]
    assert not LogEntry.objects.exists()


def test_an_app_that_stands_before_the_environments_says_so(admin_client: Client) -> None:
    app = make_app(shadows_environment=True)
    told = "The environment also defines an app of this name; this entry stands."
    assert told in page_of(admin_client, app)
    assert "admin, in place of RUNNER_APPS" in admin_client.get(LIST_URL).content.decode()
    save(admin_client, app, **typed(app.name))
    assert App.objects.get().shadows_environment
    save(admin_client, app, **typed("renamed"))
    assert not App.objects.get().shadows_environment


def test_live_sessions_are_counted_and_others_are_not(admin_client: Client) -> None:
    app, other = make_app("one"), make_app("two")
    for status in ("starting", "running", "exited", "stopped"):
        save_row(status, catalog_app=app, app_name="one")
    save_row("running", catalog_app=other, app_name="two")
    save_row("running")
    page = admin_client.get(LIST_URL).content.decode()
    assert "2 live sessions" in page
    assert "1 live session<" in page
    assert "2 live sessions" in page_of(admin_client, app)


def test_the_list_takes_the_same_queries_for_many_apps(admin_client: Client) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(LIST_URL).status_code == 200
        return len(queries)

    make_app("first", env={"A": "1"})
    few = count()
    for number in range(30):
        make_app(f"app-{number}", env={"A": "1"})
    assert count() == few


def test_a_deleted_app_leaves_its_sessions_and_its_name(admin_client: Client) -> None:
    app = make_app()
    rows = [make_row("running", catalog_app=app, app_name=app.name) for _ in range(2000)]
    Session.objects.bulk_create(rows)
    url = f"{LIST_URL}{app.pk}/delete/"
    with CaptureQueriesContext(connection) as queries:
        page = admin_client.get(url).content.decode()
    asked = [one["sql"] for one in queries if "runner_sessions_session" in one["sql"]]
    # One number, and no rows.
    assert [sql for sql in asked if "COUNT(" not in sql] == []
    assert len(page) < 20_000
    assert "Its sessions go on and keep its name" in page
    with CaptureQueriesContext(connection) as queries:
        assert admin_client.post(url, {"post": "yes"}).status_code == 302
    assert len(queries) < 30
    left = Session.objects.values_list("catalog_app", "app_name", "status").order_by().distinct()
    assert list(left) == [(None, app.name, "running")]
    assert Session.objects.count() == 2000


def test_apps_are_searched_and_filtered(admin_client: Client) -> None:
    make_app("alpha", title="First"), make_app("beta", enabled=False)
    for query, shown, hidden in (
        ({"q": "first"}, "alpha", "beta"),
        ({"enabled__exact": "0"}, "beta", "alpha"),
        ({"is_from_environment__exact": "0"}, "beta", "gamma"),
    ):
        page = admin_client.get(LIST_URL, query).content.decode()
        assert f">{shown}</a>" in page
        assert f">{hidden}</a>" not in page


def test_staff_without_the_right_can_do_nothing(django_user_model: Any) -> None:
    app = make_app()
    visitor = Client()
    visitor.force_login(django_user_model.objects.create_user("ada", is_staff=True))
    assert visitor.get(LIST_URL).status_code == 403
    assert visitor.post(change_url(app), typed("other")).status_code == 403
    assert visitor.post(ADD_URL, typed("other")).status_code == 403
    assert App.objects.get().name == app.name


@pytest.fixture
def breaking_save() -> Iterator[None]:
    """Make each save of an app fail inside, with its values on the stack."""

    def fail(**_: Any) -> None:
        raise RuntimeError("broken")

    pre_save.connect(fail, sender=App)
    yield
    pre_save.disconnect(fail, sender=App)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_debug", [False, True])
async def test_an_error_inside_shows_no_value(
    client: httpx.AsyncClient,
    settings: Any,
    django_user_model: Any,
    breaking_save: None,
    caplog: pytest.LogCaptureFixture,
    is_debug: bool,
) -> None:
    settings.DEBUG = is_debug
    user = await sync_to_async(django_user_model.objects.create_superuser)("broken-save")
    try:
        staff = Client()
        await sync_to_async(staff.force_login)(user)
        token = "t" * 32
        client.cookies.set(django_settings.CSRF_COOKIE_NAME, token)
        for name, morsel in staff.cookies.items():
            client.cookies.set(name, morsel.value)
        answer = await client.post(
            ADD_URL,
            data=typed() | new(1, "API_KEY", MARK),
            headers={"x-csrftoken": token},
        )
    finally:
        await sync_to_async(user.delete)()
    assert answer.status_code == 500
    assert answer.json()["error"] == "internal_error"
    assert "broken" in caplog.text
    assert MARK not in answer.text + caplog.text
