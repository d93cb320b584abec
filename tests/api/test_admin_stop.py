"""Stopping sessions from the admin: confirmed, reported, in the history, and as the API does it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.contrib.messages import get_messages
from django.contrib.sessions.models import Session as LogIn
from django.db import OperationalError, connection
from django.test import Client

from sessions import store
from sessions.actions.staff import stop_all
from sessions.models import Session
from telorunner.errors import Unavailable
from tests.sessionrows import save_row

# The action writes in a thread of its own, which sees only what is committed.
pytestmark = pytest.mark.usefixtures("transactional_db")

LIST_URL = "/admin/runner_sessions/session/"


@pytest.fixture
def staff(transactional_db: None) -> Iterator[Any]:
    """A member of staff who may look at sessions and stop them."""
    user = get_user_model().objects.create_user("ada", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(codename__in=["view_session", "stop_session"])
    )
    yield user
    user.delete()
    LogIn.objects.all().delete()


@pytest.fixture
def client(staff: Any) -> Client:
    """Her browser, which sends forms only with their token."""
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(staff)
    return browser


def send(client: Client, url: str, **fields: Any) -> Any:
    """Send a form as the page at its address would."""
    client.get(LIST_URL)
    token = client.cookies["csrftoken"].value
    return client.post(url, {"csrfmiddlewaretoken": token, **fields})


def said(answer: Any) -> list[str]:
    """Return what an answer reports; no page has shown it yet."""
    return [str(message) for message in get_messages(answer.wsgi_request)]


def wishes() -> dict[str, str]:
    """Return who asked for each stop, by session id."""
    rows = Session.objects.filter(stop_requested_at__isnull=False)
    return dict(rows.values_list("id", "stop_requested_by"))


def test_looking_at_the_confirmation_stops_nothing(client: Client) -> None:
    session = save_row("running")
    for method in (client.get, client.head):
        answer = method(f"{LIST_URL}{session.pk}/stop/")
        assert answer.status_code == 200
    assert session.pk in client.get(f"{LIST_URL}{session.pk}/stop/").content.decode()
    send(client, LIST_URL, action="stop_sessions", _selected_action=[session.pk])
    assert wishes() == {}
    assert not LogEntry.objects.exists()


def test_one_session_is_stopped_from_its_page(client: Client) -> None:
    session = save_row("running")
    page = client.get(f"{LIST_URL}{session.pk}/change/").content.decode()
    assert f'href="{LIST_URL}{session.pk}/stop/"' in page
    answer = send(client, f"{LIST_URL}{session.pk}/stop/", confirmed="yes")
    assert (answer.status_code, answer["location"]) == (302, f"{LIST_URL}{session.pk}/change/")
    assert said(answer) == ["1 session was asked to stop."]
    assert wishes() == {session.pk: "ada"}
    # The status is its owner's to write.
    assert Session.objects.get().status == "running"


def test_several_are_stopped_from_the_list(client: Client) -> None:
    live = [save_row("running"), save_row("starting")]
    ended, other = save_row("exited"), save_row("running")
    selected = [*(session.pk for session in live), ended.pk]
    asked = send(client, LIST_URL, action="stop_sessions", _selected_action=selected)
    page = asked.content.decode()
    assert "These 2 sessions will be asked to stop" in page
    assert f'value="{ended.pk}"' not in page
    assert wishes() == {}
    # One of them ends before the form is sent.
    Session.objects.filter(id=live[0].pk).update(status="stopped", ended_at=datetime.now(UTC))
    answer = send(
        client,
        LIST_URL,
        action="stop_sessions",
        _selected_action=[session.pk for session in live],
        confirmed="yes",
    )
    assert said(answer) == ["1 session was asked to stop.", "1 session had ended already."]
    assert wishes() == {live[1].pk: "ada"}
    assert other.pk not in wishes()


def test_what_was_confirmed_is_stopped_though_the_filter_fits_no_longer(client: Client) -> None:
    session = save_row("starting")
    url = f"{LIST_URL}?status=starting"
    send(client, url, action="stop_sessions", _selected_action=[session.pk])
    Session.objects.filter(id=session.pk).update(status="running")
    fields = {"action": "stop_sessions", "_selected_action": [session.pk], "confirmed": "yes"}
    send(client, url, **fields)
    assert wishes() == {session.pk: "ada"}


def test_all_that_match_are_stopped_across_pages(client: Client) -> None:
    live = {save_row("running").pk for _ in range(3)}
    save_row("exited")
    fields = {"action": "stop_sessions", "_selected_action": [min(live)], "select_across": "1"}
    page = send(client, LIST_URL, **fields).content.decode()
    assert all(f'name="_selected_action" value="{pk}"' in page for pk in live)
    send(client, LIST_URL, action="stop_sessions", _selected_action=sorted(live), confirmed="yes")
    assert set(wishes()) == live


def test_no_more_are_stopped_at_once_than_a_form_takes(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions.admin.stopping.MAX_STOPPED_AT_ONCE", 2)
    live = [save_row("running").pk for _ in range(3)]
    page = send(client, LIST_URL, action="stop_sessions", _selected_action=live).content.decode()
    assert "These 2 sessions" in page
    assert "cannot be stopped at once" in page
    fields = {"action": "stop_sessions", "_selected_action": live, "confirmed": "yes"}
    assert said(send(client, LIST_URL, **fields)) == ["2 sessions were asked to stop."]


def test_where_none_is_live_there_is_nothing_to_stop(client: Client) -> None:
    ended = save_row("failed")
    assert "/stop/" not in client.get(f"{LIST_URL}{ended.pk}/change/").content.decode()
    answer = send(client, LIST_URL, action="stop_sessions", _selected_action=[ended.pk])
    assert said(answer) == ["None of them is live: there is nothing to stop."]
    assert "nothing to stop" in client.get(LIST_URL).content.decode()
    one = client.get(f"{LIST_URL}{ended.pk}/stop/")
    assert said(one) == ["The session has ended already."]
    assert "has ended already" in client.get(LIST_URL).content.decode()
    assert said(send(client, f"{LIST_URL}{ended.pk}/stop/")) == ["1 session had ended already."]


def test_a_second_stop_is_told_that_there_was_one(client: Client) -> None:
    session = save_row("running", stop_requested_at=datetime.now(UTC))
    answer = send(client, f"{LIST_URL}{session.pk}/stop/")
    assert said(answer) == ["1 session was being stopped already."]
    assert wishes() == {session.pk: ""}
    assert not LogEntry.objects.exists()


def test_who_stopped_it_is_in_the_history(client: Client) -> None:
    session = save_row("running")
    send(client, f"{LIST_URL}{session.pk}/stop/")
    page = client.get(f"{LIST_URL}{session.pk}/history/").content.decode()
    assert "Asked it to stop." in page
    assert "ada" in page


def test_a_form_without_its_token_stops_nothing(client: Client) -> None:
    session = save_row("running")
    assert client.post(f"{LIST_URL}{session.pk}/stop/", {"confirmed": "yes"}).status_code == 403
    fields = {"action": "stop_sessions", "_selected_action": [session.pk], "confirmed": "yes"}
    assert client.post(LIST_URL, fields).status_code == 403
    assert wishes() == {}


def test_a_viewer_may_not_stop(client: Client, staff: Any) -> None:
    staff.user_permissions.set(Permission.objects.filter(codename="view_session"))
    session = save_row("running")
    assert client.get(f"{LIST_URL}{session.pk}/stop/").status_code == 403
    assert send(client, f"{LIST_URL}{session.pk}/stop/").status_code == 403
    fields = {"action": "stop_sessions", "_selected_action": [session.pk], "confirmed": "yes"}
    send(client, LIST_URL, **fields)
    page = client.get(LIST_URL).content.decode()
    assert "stop_sessions" not in page
    assert "/stop/" not in client.get(f"{LIST_URL}{session.pk}/change/").content.decode()
    assert wishes() == {}


def test_who_may_stop_but_not_look_may_not_stop(client: Client, staff: Any) -> None:
    staff.user_permissions.set(Permission.objects.filter(codename="stop_session"))
    session = save_row("running")
    assert client.get(f"{LIST_URL}{session.pk}/stop/").status_code == 403
    assert client.get(LIST_URL).status_code == 403


def test_a_session_that_is_unknown_leads_back(client: Client) -> None:
    for send_to in (client.get, lambda url: send(client, url)):
        answer = send_to(f"{LIST_URL}aaaaaaaaaaaa/stop/")
        assert answer["location"] == f"{LIST_URL}aaaaaaaaaaaa/change/"
    assert client.get(answer["location"])["location"] == "/admin/"


def test_no_other_method_stops(client: Client) -> None:
    session = save_row("running")
    client.get(LIST_URL)
    token = client.cookies["csrftoken"].value
    answer = client.put(f"{LIST_URL}{session.pk}/stop/", headers={"X-CSRFToken": token})
    assert answer.status_code == 405
    assert wishes() == {}


def test_a_database_that_takes_no_wish_is_told_in_words(client: Client) -> None:
    session = save_row("running")
    client.get(LIST_URL)
    token = client.cookies["csrftoken"].value
    refuse = (
        "CREATE TRIGGER refuse BEFORE UPDATE OF stop_requested_at ON runner_sessions_session "
        "BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    if connection.vendor != "sqlite":
        pytest.skip("written for SQLite's triggers")
    store.write(_execute, refuse)
    try:
        url = f"{LIST_URL}{session.pk}/stop/"
        answer = client.post(url, {"csrfmiddlewaretoken": token})
    finally:
        store.write(_execute, "DROP TRIGGER refuse")
    assert said(answer) == ["1 session was not asked to stop: The stop could not be recorded."]
    assert not LogEntry.objects.exists()


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


class Away:
    """Fails the statements of a kind from one of them on, as a database that is away does."""

    def __init__(self, *parts: str, first_failing: int = 1) -> None:
        self._parts = parts
        self._first_failing = first_failing
        self.seen = 0

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        if all(part in sql for part in self._parts):
            self.seen += 1
            if self.seen >= self._first_failing:
                raise OperationalError("away")
        return execute(sql, params, many, context)


@contextmanager
def for_writes(away: Away) -> Iterator[None]:
    """Put it before the connection of whatever thread writes."""
    store.write(lambda: connection.execute_wrappers.append(away))
    try:
        yield
    finally:
        store.write(lambda: connection.execute_wrappers.remove(away))


def test_once_the_database_is_away_no_more_are_tried(client: Client) -> None:
    ids = [save_row("running").pk for _ in range(5)]
    away = Away("UPDATE", Session._meta.db_table, first_failing=3)
    with for_writes(away):
        stopped = stop_all(ids, by="ada")
    assert away.seen == 3
    assert (stopped.asked, stopped.failed) == (tuple(ids[:2]), tuple(ids[2:]))
    assert (stopped.stopping, stopped.ended) == ((), ())
    assert stopped.problem == str(Unavailable())
    assert sorted(wishes()) == sorted(ids[:2])


def test_what_was_asked_is_in_the_history_though_the_others_cannot_be_read(client: Client) -> None:
    asked, ended = save_row("running"), save_row("exited")
    fields = {"_selected_action": [asked.pk, ended.pk], "confirmed": "yes"}
    with connection.execute_wrapper(Away("SELECT", '"id" IN', '"status" IN')):
        answer = send(client, LIST_URL, action="stop_sessions", **fields)
    assert said(answer) == [
        "1 session was asked to stop.",
        f"1 session was not asked to stop: {Unavailable()}",
    ]
    assert LogEntry.objects.get().object_id == asked.pk
    assert wishes() == {asked.pk: "ada"}
