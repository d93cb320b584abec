"""The admin's list of sessions, and the page of one: what staff read and how they find it."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from catalog.models import App
from sessions import store
from sessions.models import Bundle, Session
from sessions.spec import App as Application
from sessions.spec import Port
from sessions.states import Delivery, Mode, StatusKind
from tests.builders import make_spec
from tests.sessionrows import full_spec, make_row, save_row

pytestmark = pytest.mark.django_db

LIST_URL = "/admin/runner_sessions/session/"
LISTED = re.compile(r'<th class="field-id"><a href="[^"]*/session/([a-z2-7]{12})/change/')
NOW = datetime.now(UTC)


def listed(client: Any, **query: str) -> list[str]:
    """Return the ids of a list's page, in order."""
    page = client.get(LIST_URL, query)
    assert page.status_code == 200
    return LISTED.findall(page.content.decode())


def row_of(client: Any, session: Session) -> str:
    """Return a session's line of the list, without its tags."""
    rows = client.get(LIST_URL).content.decode().split("<tr")
    (row,) = [row for row in rows if f"/session/{session.pk}/change/" in row]
    return " ".join(re.sub(r"<[^>]*>", " ", row.partition(">")[2]).split())


def page_of(client: Any, session: Session) -> str:
    page = client.get(f"{LIST_URL}{session.pk}/change/")
    assert page.status_code == 200
    text: str = page.content.decode()
    return text


def field(page: str, name: str) -> str:
    """Return what a page says in one field, without tags."""
    _, _, rest = page.partition(f"field-{name}")
    assert rest, f"no field {name}"
    _, _, value = rest.partition('<div class="readonly">')
    return " ".join(re.sub(r"<[^>]*>", " ", value.partition("</div>")[0]).split())


def test_the_newest_session_stands_first(admin_client: Any) -> None:
    old, new = save_row(created_at=NOW - timedelta(hours=1)), save_row(created_at=NOW)
    assert listed(admin_client) == [new.pk, old.pk]


@pytest.mark.parametrize("status", list(StatusKind))
def test_a_status_is_a_word_and_not_only_a_colour(admin_client: Any, status: StatusKind) -> None:
    assert f" {status} " in f" {row_of(admin_client, save_row(status))} "


@pytest.mark.parametrize(
    ("status", "columns", "reason"),
    [
        ("exited", {"exit_code": 3}, "exit code 3"),
        ("failed", {"message": "The image\ncannot be pulled"}, "The image cannot be pulled"),
        ("stopped", {"stop_requested_at": NOW, "stop_requested_by": "ada"}, "stopped by ada"),
        ("stopped", {"stop_requested_at": NOW}, "stopped by its client"),
        ("stopped", {}, "stopped by the runner, which went down"),
        ("running", {"stop_requested_at": NOW}, "is being stopped by its client"),
    ],
)
def test_the_list_says_why_a_session_ended(
    admin_client: Any, status: str, columns: dict[str, Any], reason: str
) -> None:
    assert reason in row_of(admin_client, save_row(status, **columns))


def test_a_long_failure_is_cut_in_the_list_and_whole_on_the_page(admin_client: Any) -> None:
    session = save_row("failed", message="no room " * 200)
    assert row_of(admin_client, session).count("no room") == 10
    assert field(page_of(admin_client, session), "shown_end").count("no room") == 200


def test_the_list_says_how_long_a_session_was_there(admin_client: Any) -> None:
    assert "1 min 5 s" in row_of(admin_client, save_row("exited"))
    since = datetime.now(UTC) - timedelta(hours=2, minutes=7, seconds=20)
    live = save_row("running", created_at=since)
    assert "2 h 7 min" in row_of(admin_client, live)


def test_the_list_names_the_app_that_was_deleted_since(admin_client: Any) -> None:
    app = App.objects.create(name="code-helper", image="registry.example/app:1")
    session = save_row("exited", catalog_app=app, app_name="code-helper")
    app.delete()
    assert "code-helper" in row_of(admin_client, session)
    assert listed(admin_client, app_name="code-helper") == [session.pk]


def test_a_filter_narrows_the_list_down(admin_client: Any) -> None:
    day = NOW - timedelta(days=3)
    sessions = {
        "status": save_row("failed"),
        "live": save_row("running"),
        "image": save_row("exited", image="registry.example/a:1"),
        "app_name": save_row("exited", app_name="chat"),
        "day": save_row("exited", created_at=day),
    }
    queries = {
        "status": {"status": "failed"},
        "live": {"status": "live"},
        "image": {"image": "registry.example/a:1"},
        "app_name": {"app_name": "chat"},
        "day": {"day": day.date().isoformat()},
    }
    for name, query in queries.items():
        assert listed(admin_client, **query) == [sessions[name].pk]
    assert len(listed(admin_client, mode=Mode.RUN)) == len(sessions)
    assert listed(admin_client, app_name="chat", status="failed") == []


def test_a_filter_by_what_no_session_has_lists_none(admin_client: Any) -> None:
    save_row()
    for query in ({"app_name": "chat"}, {"image": "x"}, {"status": "x"}, {"mode": "x"}):
        assert listed(admin_client, **query) == []


def test_a_filter_offers_what_there_is(admin_client: Any) -> None:
    for name in ("b-app", "a-app", "b-app", ""):
        save_row("exited", app_name=name, image=f"registry.example/{name or 'c'}:1")
    page = admin_client.get(LIST_URL).content.decode()
    assert re.findall(r"\?app_name=([a-z-]+)", page) == ["a-app", "b-app"]
    images = re.findall(r"\?image=registry.example%2F([a-z-]+)%3A1", page)
    assert images == ["a-app", "b-app", "c"]


def test_any_day_can_be_chosen_beside_the_other_filters(admin_client: Any) -> None:
    page = admin_client.get(LIST_URL, {"status": "failed", "p": "1"}).content.decode()
    _, _, form = page.partition('class="session-day"')
    form, _, _ = form.partition("</form>")
    assert 'name="status" value="failed"' in form
    assert 'type="date" name="day"' in form
    assert 'name="p"' not in form


@pytest.mark.parametrize(
    "query",
    [
        {"day": "yesterday"},
        {"day": "9999-12-31"},
        {"image": "a\0"},
        {"app_name": "\0"},
        {"status": "\0"},
    ],
)
def test_a_filter_that_means_nothing_leads_back_to_the_list(
    admin_client: Any, query: dict[str, str]
) -> None:
    answer = admin_client.get(LIST_URL, query)
    assert (answer.status_code, answer["location"]) == (302, f"{LIST_URL}?e=1")


@pytest.mark.parametrize("lookup", ["spec__contains", "env_sealed__startswith", "engine__id"])
def test_rows_are_asked_for_nothing_else(admin_client: Any, lookup: str) -> None:
    assert admin_client.get(LIST_URL, {lookup: "a"}).status_code == 400


def test_a_session_is_found_by_the_beginning_of_its_id(admin_client: Any) -> None:
    wanted = save_row(id="k3v7q2m5xabc")
    save_row(id="k3v6q2m5xabc")
    save_row(id="a3v7q2m5xabc")
    for term in ("k3v7", "k3v7q2m5xabc", "  K3V7 "):
        assert listed(admin_client, q=term) == [wanted.pk]
    assert len(listed(admin_client, q="k3v")) == 2
    assert listed(admin_client, q="3v7") == []
    assert listed(admin_client, q="k3v7%") == []


def test_a_session_is_found_by_its_app_and_its_image(admin_client: Any) -> None:
    app, image = save_row(app_name="chat"), save_row(image="registry.example/a:1")
    assert listed(admin_client, q="chat") == [app.pk]
    assert listed(admin_client, q="registry.example/a:1") == [image.pk]
    assert listed(admin_client, q="registry.example") == []


def test_older_sessions_than_can_be_paged_through_are_not_counted(
    admin_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions.admin.listing.MAX_COUNTED", 60)
    Session.objects.bulk_create([_row_at(minute) for minute in range(70)])
    page = admin_client.get(LIST_URL, {"q": Session.objects.first().image}).content.decode()
    assert "the newest 60 sessions" in page
    assert "more than 60 results" in page
    assert len(listed(admin_client, p="2")) == 10
    assert admin_client.get(LIST_URL, {"p": "3"}).status_code == 302


def _row_at(minute: int) -> Session:
    return make_row("exited", created_at=NOW - timedelta(minutes=minute))


def test_the_page_says_limits_as_people_write_them(admin_client: Any) -> None:
    page = page_of(admin_client, save_row())
    assert field(page, "cpu") == "1.5 cores"
    assert field(page, "memory") == "512 MiB"
    assert field(page, "ephemeral_storage") == "1 GiB"
    assert field(page, "lifetime") == "1 h 30 min"


def test_the_page_says_where_ports_are_or_were(admin_client: Any) -> None:
    host = "8080-abcdefghijkl.apps.test"
    public = {"host": host, "port": 8080, "protocol": "tcp", "url": f"https://{host}"}
    route = {"host": host, "port": 8080, "reason": ""}

    def ports(status: str, endpoint: Any, *routes: Any) -> str:
        row = save_row(status, endpoints=[endpoint], routes=routes)
        return field(page_of(admin_client, row), "ports")

    where = f"web: 8080/tcp at https://{host}"
    assert ports("running", public) == f"{where}, not published yet"
    pending = {**route, "state": "pending"}
    assert ports("running", public, pending).startswith(f"{where}, pending (")
    assert ports("running", public, {**route, "state": "programmed"}) == (
        f"{where}, programmed (works)"
    )
    # A controller's words are somebody else's.
    rejected = {**route, "state": "unprogrammed", "reason": "gateway: <b>No</b>"}
    assert ports("running", public, rejected).endswith(": gateway: &lt;b&gt;No&lt;/b&gt;")
    # How it stood is asked afterwards, too.
    was = f"web: 8080/tcp was at https://{host}, at last "
    worked = ports("exited", public, {**route, "state": "programmed"})
    assert worked == f"{was}programmed (works)"
    assert ports("failed", public, rejected).startswith(f"{was}unprogrammed (does not work")
    assert ports("stopped", public) == "web: 8080/tcp"
    unpublished = {"host": "", "port": 8080, "protocol": "tcp"}
    assert ports("running", unpublished) == "web: 8080/tcp"
    assert field(page_of(admin_client, save_row(spec=make_spec())), "ports") == "none"


def test_the_page_lists_files_with_their_sizes(admin_client: Any) -> None:
    session = save_row()
    files = [{"path": f"{number}.yaml", "size": 2048} for number in range(250)]
    Bundle.objects.create(session=session, archive=b"", files=files)
    shown = field(page_of(admin_client, session), "files")
    assert shown.startswith("0.yaml (2 KiB) 1.yaml (2 KiB)")
    assert shown.endswith("199.yaml (2 KiB) and 50 more")


def test_the_page_says_whether_a_session_that_has_no_files_had_any(admin_client: Any) -> None:
    of_app = save_row(spec=full_spec(delivery=Delivery.NONE))
    assert field(page_of(admin_client, of_app), "files") == "none"
    assert field(page_of(admin_client, save_row()), "files") == "dropped"


def test_the_page_names_what_is_in_env_and_no_value(admin_client: Any) -> None:
    env = {"TOKEN": "marker-of-a-secret", "A_NAME": "another-marker"}
    session = save_row(env_sealed=store.seal_env(env))
    page = page_of(admin_client, session)
    assert field(page, "env_names") == "A_NAME TOKEN"
    assert "marker" not in page
    assert "marker" not in admin_client.get(LIST_URL).content.decode()


def test_env_names_are_gone_with_the_end(admin_client: Any) -> None:
    assert field(page_of(admin_client, save_row("exited")), "env_names") == "erased with the end"


def test_env_that_cannot_be_opened_breaks_no_page(admin_client: Any, settings: Any) -> None:
    session = save_row(env_sealed=store.seal_env({"TOKEN": "x"}))
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "k" * 50, []
    # The log-in was signed with the old key.
    admin_client.force_login(get_user_model().objects.get())
    assert "does not have any more" in field(page_of(admin_client, session), "env_names")


def test_the_page_tells_terms_times_pod_engine_and_end(admin_client: Any) -> None:
    created = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    session = save_row(
        "stopped",
        created_at=created,
        started_at=created + timedelta(seconds=2),
        stop_requested_at=created + timedelta(seconds=60),
        stop_requested_by="ada",
        evicted_at=created + timedelta(hours=1),
        terms_version="2026-03",
        app_name="chat",
        pod_name="telo-x",
        pod_uid="u-1",
        progress_phase="boot",
        progress_message="Starting <it>",
    )
    page = page_of(admin_client, session)
    assert field(page, "shown_end") == "stopped by ada"
    assert field(page, "terms") == "2026-03"
    assert field(page, "created") == "2026-03-04 05:06:07 UTC"
    assert field(page, "first_running") == "2026-03-04 05:06:09 UTC"
    assert field(page, "ended") == "2026-03-04 05:07:12 UTC"
    assert field(page, "lasted") == "1 min 5 s"
    assert field(page, "stop_asked") == "2026-03-04 05:07:07 UTC, by ada"
    assert field(page, "kept").startswith("cannot read it any more")
    assert field(page, "pod") == "telo-x (u-1)"
    assert field(page, "owner") == "none"
    assert field(page, "app_name") == "chat"
    assert field(page, "progress") == "boot: Starting &lt;it&gt;"


def test_a_session_of_several_applications_is_shown(admin_client: Any) -> None:
    apps = tuple(_application(name, port) for name, port in (("web", 8080), ("worker", 9000)))
    page = page_of(admin_client, save_row(spec=full_spec(apps=apps)))
    assert field(page, "applications") == "web, telo.yaml, tty worker, telo.yaml, tty"
    assert field(page, "ports") == "web: 8080/tcp worker: 9000/tcp"


def _application(name: str, port: int) -> Application:
    return Application(name, "telo.yaml", ports=(Port(port),))
