"""Terms in the admin: versions are kept, one is current or none, and old ones are read only."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection, connections
from django.db.models.signals import pre_save
from django.test import Client

from catalog import actions, cache
from catalog.forms.terms import PublishTermsForm
from catalog.models import Revision, Terms
from telorunner.values.terms import derive_version
from tests.builders import make_settings
from tests.offered import make_terms

pytestmark = pytest.mark.django_db

LIST_URL = "/admin/catalog/terms/"
ADD_URL = f"{LIST_URL}add/"
TEXT = "# Be kind\n\nAnd **fair**.\n"
VERSION = derive_version(TEXT)
MANAGED = (
    "The current terms are managed by the environment of the runner: change RUNNER_TERMS_FILE or"
    " RUNNER_TERMS_BODY and restart the runner."
)
ROUNDS = 5


@pytest.fixture
def admin_user(django_user_model: Any) -> Any:
    """An administrator without a password: making one takes longer than most of these tests."""
    return django_user_model.objects.create_superuser("root")


def change_url(terms: Terms) -> str:
    return f"{LIST_URL}{terms.pk}/change/"


def typed(body: str = TEXT, **overrides: str) -> dict[str, str]:
    """Return what a person typed, with a browser's line ends."""
    body = body.replace("\n", "\r\n")
    return {"title": "Usage agreement", "body": body, "version": "", **overrides}


def errors(response: Any) -> dict[str, list[str]]:
    assert response.status_code == 200
    found: dict[str, list[str]] = response.context["adminform"].form.errors
    return found


def told(response: Any) -> list[str]:
    return [str(message) for message in response.context["messages"]]


def current() -> list[str]:
    return list(Terms.objects.filter(is_current=True).values_list("version", flat=True))


def refusal(change: Callable[[], object]) -> str:
    with pytest.raises(actions.ChangeRefused) as caught:
        change()
    return caught.value.message


def test_what_is_published_is_current_at_the_next_request(
    admin_client: Client, django_capture_on_commit_callbacks: Any
) -> None:
    config = make_settings()
    assert cache.current_offer(config).terms is None
    with django_capture_on_commit_callbacks(execute=True):
        answer = admin_client.post(ADD_URL, typed(), follow=True)
    sentence = "is current: clients must accept it from the next request on."
    assert told(answer) == [f"Version {VERSION} {sentence}"]
    offered = cache.current_offer(config).terms
    assert offered is not None
    assert offered.to_json() == {"version": VERSION, "title": "Usage agreement", "body": TEXT}


def test_white_space_at_both_ends_belongs_to_the_text(admin_client: Client) -> None:
    text = "\n  Be kind \n\n"
    assert admin_client.post(ADD_URL, typed(text)).status_code == 302
    assert Terms.objects.get().body == text
    assert current() == [derive_version(text)]


def test_a_version_may_be_given(admin_client: Client) -> None:
    assert admin_client.post(ADD_URL, typed(version="2026-01")).status_code == 302
    assert current() == ["2026-01"]


def test_publishing_keeps_the_version_before(admin_client: Client) -> None:
    make_terms("1")
    admin_client.post(ADD_URL, typed(version="2"))
    assert current() == ["2"]
    assert Terms.objects.get(version="1").body == "Be kind (1).\n"


@pytest.mark.parametrize(
    ("data", "field", "sentence"),
    [
        (typed(""), "body", "This field is required."),
        (typed(" \n\t"), "body", "The terms need a text."),
        (typed("x" * 100_001), "body", "The text must be at most 100000 characters long."),
        (typed(title=""), "title", "This field is required."),
        (typed(version="1"), "version", "Version 1 is of another text: give another one."),
        *(
            (typed(version=version), "version", "The version must be letters, digits,")
            for version in ("a b", "a,b", "-a", "a.", "ä", "a/b")
        ),
        (typed(version="a" * 65), "version", "Ensure this value has at most 64 characters"),
    ],
)
def test_wrong_terms_are_refused_in_words(
    admin_client: Client, data: dict[str, str], field: str, sentence: str
) -> None:
    make_terms("1")
    found = errors(admin_client.post(ADD_URL, data))
    assert list(found) == [field]
    assert found[field][0].startswith(sentence)
    assert current() == ["1"]


def test_a_text_is_as_long_as_it_is_kept(admin_client: Client) -> None:
    text = "x\n" * 50_000
    assert admin_client.post(ADD_URL, typed(text)).status_code == 302
    assert Terms.objects.get().body == text
    # What a browser counts itself is not what is kept.
    assert "maxlength" not in str(PublishTermsForm()["body"])
    previewed = admin_client.post(f"{LIST_URL}preview/", {"body": text.replace("\n", "\r\n")})
    assert previewed.status_code == 200


def test_a_derived_version_that_another_text_was_given_is_refused(admin_client: Client) -> None:
    make_terms(VERSION)
    found = errors(admin_client.post(ADD_URL, typed()))
    told_of = f"Another text has the version {VERSION}, which this one would get: give one."
    assert found == {"version": [told_of]}


def test_publishing_an_old_text_makes_its_version_current_again(admin_client: Client) -> None:
    for body in (TEXT, "Other.\n", TEXT):
        admin_client.post(ADD_URL, typed(body))
    assert current() == [VERSION]
    assert Terms.objects.count() == 2


def test_saving_the_current_terms_unchanged_keeps_their_version(admin_client: Client) -> None:
    terms = make_terms("1", body=TEXT)
    answer = admin_client.post(change_url(terms), typed(), follow=True)
    sentence = "clients that accepted version 1 need not do so again."
    assert told(answer) == [f"The text has not changed: {sentence}"]
    assert Terms.objects.get().body == TEXT


def test_a_text_with_other_line_ends_is_the_same(admin_client: Client) -> None:
    terms = make_terms("1", body="a\r\nb\rc\n")
    admin_client.post(change_url(terms), typed("a\nb\nc\n"))
    assert Terms.objects.get().version == "1"


def test_a_changed_title_changes_the_row(admin_client: Client) -> None:
    terms = make_terms("1", body=TEXT, accepted_count=3)
    admin_client.post(change_url(terms), typed(title="Rules"))
    row = Terms.objects.get()
    assert (row.title, row.version, row.accepted_count, row.is_current) == ("Rules", "1", 3, True)


def test_a_changed_text_is_a_new_version(admin_client: Client) -> None:
    terms = make_terms("1", accepted_count=3)
    answer = admin_client.post(change_url(terms), typed(), follow=True)
    new = Terms.objects.get(version=VERSION)
    assert answer.redirect_chain == [(change_url(new), 302)]
    assert told(answer) == [
        f"The text changed, so it is a new version, {VERSION}, which is current: clients must"
        " accept it from the next request on. The old text is kept as version 1."
    ]
    assert current() == [VERSION]
    assert new.accepted_count == 0
    old = Terms.objects.get(version="1")
    assert (old.body, old.accepted_count) == ("Be kind (1).\n", 3)
    assert LogEntry.objects.get().object_id == str(new.pk)


def test_a_changed_text_may_be_given_a_version(admin_client: Client) -> None:
    terms = make_terms("1")
    admin_client.post(change_url(terms), typed(new_version="2"))
    assert current() == ["2"]


@pytest.mark.parametrize(
    ("data", "field", "sentence"),
    [
        (
            typed(new_version="2"),
            "new_version",
            "The text has not changed, and with it stays its version: leave this empty.",
        ),
        (
            typed("New", new_version="1"),
            "new_version",
            "Version 1 is of another text: give another one.",
        ),
        (typed("New", new_version="?"), "new_version", "The version must be letters, digits,"),
        (typed(" "), "body", "The terms need a text."),
    ],
)
def test_a_wrong_edit_is_refused_in_words(
    admin_client: Client, data: dict[str, str], field: str, sentence: str
) -> None:
    terms = make_terms("1", body=TEXT)
    found = errors(admin_client.post(change_url(terms), data))
    assert list(found) == [field]
    assert found[field][0].startswith(sentence)
    assert Terms.objects.count() == 1


def test_an_edit_of_what_is_old_by_now_is_told_so(admin_client: Client) -> None:
    old = make_terms("1")
    make_terms("2")
    answer = admin_client.post(change_url(old), typed(), follow=True)
    assert told(answer) == [
        "Version 1 is not current any more; only the current terms can be edited. To have this"
        " text back, make the version current again, or publish a new one."
    ]
    assert current() == ["2"]
    assert refusal(lambda: actions.edit_terms(old.pk, "T", TEXT)) == told(answer)[0]


def test_an_old_version_is_read_only_and_can_be_made_current_again(admin_client: Client) -> None:
    old = make_terms("1", body=TEXT)
    make_terms("2")
    page = admin_client.get(change_url(old)).content.decode()
    assert 'name="_save"' not in page
    assert "An old version, kept as clients read it." in page
    url = f"{LIST_URL}{old.pk}/make-current/"
    assert url in page
    question = admin_client.get(url).content.decode()
    assert "Version 1 becomes current" in question
    assert "<strong>fair</strong>" in question
    assert current() == ["2"]
    answer = admin_client.post(url, follow=True)
    sentence = "is current: clients must accept it from the next request on."
    assert told(answer) == [f"Version 1 {sentence}"]
    assert current() == ["1"]
    assert LogEntry.objects.get().change_message == "Made current again."


def test_the_current_terms_are_withdrawn_after_a_question(admin_client: Client) -> None:
    make_terms("1")
    url = f"{LIST_URL}withdraw/"
    assert url in admin_client.get(LIST_URL).content.decode()
    assert "No terms are current then" in admin_client.get(url).content.decode()
    assert current() == ["1"]
    answer = admin_client.post(url, {"version": "1"}, follow=True)
    assert told(answer) == ["Version 1 is withdrawn: clients need not accept any terms."]
    assert current() == []
    assert url not in answer.content.decode()
    assert told(admin_client.post(url, {"version": "1"}, follow=True)) == ["No terms are current."]
    assert Terms.objects.count() == 1


def test_others_than_those_that_were_asked_about_are_not_withdrawn(admin_client: Client) -> None:
    make_terms("1")
    make_terms("2")
    answer = admin_client.post(f"{LIST_URL}withdraw/", {"version": "1"}, follow=True)
    sentence = "Somebody has changed which terms are current meanwhile: look at them again."
    assert told(answer) == [sentence]
    assert current() == ["2"]


def test_only_a_version_that_nobody_accepted_is_deleted(admin_client: Client) -> None:
    accepted, unused = make_terms("1", accepted_count=1), make_terms("2")
    now = make_terms("3")
    for terms, status in ((accepted, 403), (now, 403), (unused, 302)):
        answer = admin_client.post(f"{LIST_URL}{terms.pk}/delete/", {"post": "yes"})
        assert answer.status_code == status
    assert set(Terms.objects.values_list("version", flat=True)) == {"1", "3"}
    assert "Versions are kept" in admin_client.get(change_url(now)).content.decode()
    sentence = "Version 3 is current: withdraw it, or publish another one first."
    assert refusal(lambda: actions.delete_terms(now.pk)) == sentence
    sentence = "Version 1 was accepted by clients, and is kept as what they read."
    assert refusal(lambda: actions.delete_terms(accepted.pk)) == sentence


def test_a_version_that_is_accepted_before_it_is_deleted_stays(admin_client: Client) -> None:
    old = make_terms("1")
    make_terms("2")

    def accept(**_: object) -> None:
        actions.count_acceptance("1")

    # The history's entry is written between the page's check and the action's.
    pre_save.connect(accept, sender=LogEntry)
    try:
        answer = admin_client.post(f"{LIST_URL}{old.pk}/delete/", {"post": "yes"}, follow=True)
    finally:
        pre_save.disconnect(accept, sender=LogEntry)
    assert answer.redirect_chain == [(LIST_URL, 302)]
    assert told(answer) == ["Version 1 was accepted by clients, and is kept as what they read."]
    assert Terms.objects.filter(version="1").exists()
    assert not LogEntry.objects.exists()


def test_no_versions_are_deleted_in_bulk(admin_client: Client) -> None:
    rows = [make_terms("1"), make_terms("2")]
    data = {"action": "delete_selected", "_selected_action": [row.pk for row in rows]}
    admin_client.post(LIST_URL, data | {"post": "yes"})
    assert Terms.objects.count() == 2


def test_what_the_environment_made_current_stands(admin_client: Client) -> None:
    own = make_terms("1")
    managed = make_terms("2", is_from_environment=True)
    page = admin_client.get(change_url(managed)).content.decode()
    assert "Managed by the environment: change <code>RUNNER_TERMS_FILE</code>" in page
    assert 'name="_save"' not in page
    assert "withdraw/" not in page + admin_client.get(LIST_URL).content.decode()
    assert errors(admin_client.post(ADD_URL, typed())) == {"__all__": [MANAGED]}
    assert admin_client.post(change_url(managed), typed()).status_code == 403
    assert admin_client.post(f"{LIST_URL}{managed.pk}/delete/", {"post": "y"}).status_code == 403
    for url, data in (("withdraw/", {"version": "2"}), (f"{own.pk}/make-current/", {})):
        assert told(admin_client.post(LIST_URL + url, data, follow=True)) == [MANAGED]
    assert current() == ["2"]
    for change in (
        lambda: actions.publish_terms("T", TEXT),
        lambda: actions.edit_terms(managed.pk, "T", TEXT),
        lambda: actions.make_terms_current(own.pk),
        lambda: actions.withdraw_terms("2"),
    ):
        assert refusal(change) == MANAGED


def test_a_version_of_the_environment_is_not_made_current_by_hand(admin_client: Client) -> None:
    managed = make_terms(VERSION, body=TEXT, is_from_environment=True)
    make_terms("1")
    sentence = (
        f"Version {VERSION} is managed by the environment of the runner, which makes it current"
        " when it starts and no other terms are."
    )
    page = admin_client.get(change_url(managed)).content.decode()
    assert "Other terms are current; they stand." in page
    assert "make-current" not in page
    answer = admin_client.post(f"{LIST_URL}{managed.pk}/make-current/", follow=True)
    assert told(answer) == [sentence]
    assert errors(admin_client.post(ADD_URL, typed())) == {"__all__": [sentence]}
    assert refusal(lambda: actions.delete_terms(managed.pk)) == sentence
    assert current() == ["1"]


def test_the_page_shows_the_text_as_html_and_escapes_it(admin_client: Client) -> None:
    terms = make_terms("1", body=f"{TEXT}\n<script>alert(1)</script>")
    page = admin_client.get(change_url(terms)).content.decode()
    assert '<div class="terms-preview" aria-live="polite"><h1>Be kind</h1>' in page
    assert "<script>alert(1)" not in page
    assert "catalog/preview.js" in page


def test_what_is_being_written_is_previewed(admin_client: Client) -> None:
    answer = admin_client.post(f"{LIST_URL}preview/", {"body": f"{TEXT}<i>"})
    html = "<h1>Be kind</h1>\n<p>And <strong>fair</strong>.\n&lt;i&gt;</p>\n"
    assert answer.content.decode() == html
    too_long = admin_client.post(f"{LIST_URL}preview/", {"body": "x" * 100_001})
    assert too_long.status_code == 400
    assert too_long.content.decode() == "The text must be at most 100000 characters long."
    assert admin_client.get(f"{LIST_URL}preview/").status_code == 405
    assert not Terms.objects.exists()


@pytest.mark.parametrize("url", ["add/", "preview/", "withdraw/", "{pk}/make-current/"])
def test_a_form_of_another_site_is_refused(admin_user: Any, url: str) -> None:
    terms = make_terms("1")
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    url = LIST_URL + url.format(pk=terms.pk)
    assert client.post(url, typed(version="1")).status_code == 403
    assert current() == ["1"]


@pytest.mark.parametrize("url", ["", "add/", "preview/", "withdraw/", "{pk}/make-current/"])
def test_staff_without_the_right_can_do_nothing(django_user_model: Any, url: str) -> None:
    make_terms("1")
    terms = make_terms("2")
    visitor = Client()
    visitor.force_login(django_user_model.objects.create_user("ada", is_staff=True))
    assert visitor.post(LIST_URL + url.format(pk=terms.pk), typed()).status_code == 403
    assert current() == ["2"]


def test_an_acceptance_is_counted_without_a_change_of_what_is_offered(
    admin_client: Client,
) -> None:
    make_terms("1")
    make_terms("2")
    before = Revision.objects.get().number
    for version in ("1", "2", "2", "unknown"):
        actions.count_acceptance(version)
    assert Revision.objects.get().number == before
    counts = dict(Terms.objects.values_list("version", "accepted_count"))
    assert counts == {"1": 1, "2": 2}
    page = admin_client.get(LIST_URL).content.decode()
    assert '<td class="field-accepted_count">2</td>' in page


@contextmanager
def accepted_before_a_save(version: str, count: Callable[[str], None]) -> Iterator[None]:
    """Count an acceptance each time that a row of terms was read and is about to be saved."""

    def accept(**_: object) -> None:
        count(version)

    pre_save.connect(accept, sender=Terms)
    try:
        yield
    finally:
        pre_save.disconnect(accept, sender=Terms)


def count_elsewhere(version: str) -> None:
    """Count an acceptance as another process does, and commit it."""

    def count() -> None:
        try:
            actions.count_acceptance(version)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(count).result(timeout=10)


CHANGES: list[Callable[[Terms], object]] = [
    lambda row: actions.edit_terms(row.pk, "New title", row.body),
    lambda row: actions.withdraw_terms(row.version),
    lambda row: actions.make_terms_current(row.pk),
    lambda row: actions.publish_terms("New title", row.body, row.version),
]


@pytest.mark.parametrize("change", CHANGES, ids=["edit", "withdraw", "make current", "publish"])
def test_an_acceptance_between_reading_and_saving_is_kept(
    change: Callable[[Terms], object],
) -> None:
    row = make_terms("1", accepted_count=3)
    with accepted_before_a_save("1", actions.count_acceptance):
        change(row)
    assert Terms.objects.get().accepted_count == 4


@pytest.mark.skipif(connection.vendor == "sqlite", reason="only one writes there at a time")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("change", CHANGES, ids=["edit", "withdraw", "make current", "publish"])
def test_an_acceptance_that_another_process_commits_meanwhile_is_kept(
    change: Callable[[Terms], object],
) -> None:
    row = make_terms("1", accepted_count=3)
    with accepted_before_a_save("1", count_elsewhere):
        change(row)
    assert Terms.objects.get().accepted_count == 4


@pytest.mark.django_db(transaction=True)
def test_two_admins_who_publish_at_once_leave_one_current_version(django_user_model: Any) -> None:
    user = django_user_model.objects.create_superuser("publisher")
    try:
        clients = [Client(), Client()]
        for client in clients:
            client.force_login(user)
        for number in range(ROUNDS):
            barrier = Barrier(2)

            def publish(client: Client, body: str, barrier: Barrier = barrier) -> int:
                try:
                    barrier.wait(timeout=10)
                    status: int = client.post(ADD_URL, typed(body)).status_code
                    return status
                finally:
                    connections.close_all()

            texts = [f"A {number}\n", f"B {number}\n"]
            with ThreadPoolExecutor(2) as pool:
                assert list(pool.map(publish, clients, texts)) == [302, 302]
            assert len(current()) == 1
            assert current()[0] in {derive_version(text) for text in texts}
        assert Terms.objects.count() == 2 * ROUNDS
    finally:
        user.delete()


@pytest.mark.django_db(transaction=True)
def test_the_first_changes_of_all_may_come_at_once() -> None:
    for number in range(ROUNDS):
        Revision.objects.all().delete()
        barrier = Barrier(2)

        def publish(body: str, barrier: Barrier = barrier) -> str:
            try:
                barrier.wait(timeout=10)
                return actions.publish_terms("T", body).version
            finally:
                connections.close_all()

        with ThreadPoolExecutor(2) as pool:
            versions = list(pool.map(publish, [f"A {number}\n", f"B {number}\n"]))
        assert len(current()) == 1
        assert current()[0] in versions
