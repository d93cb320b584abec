"""What the environment gives the catalog at boot; an operator's own entries are left alone."""

import json
import logging
import os
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from django.db import connection
from django.db.models.signals import pre_save

from catalog import sealed
from catalog.actions import count_acceptance
from catalog.models import App, BaseImage, Revision, Terms
from catalog.offer import read_offer
from catalog.seeding import seed
from telorunner.conf import Settings
from telorunner.conf.catalog import SeededApp
from telorunner.errors import ConfigError
from telorunner.values.terms import MAX_BODY_LENGTH, derive_version
from tests.builders import IMAGE, make_settings

pytestmark = pytest.mark.usefixtures("transactional_db")

MARK = "marked-secret"
APP_IMAGE = "registry.example/team/app:1.2"


def app(**values: Any) -> SeededApp:
    return SeededApp(**{"image": APP_IMAGE, **values})


def apps(**given: SeededApp) -> Settings:
    return make_settings(apps={name.replace("_", "-"): value for name, value in given.items()})


def seeded_terms(**given: Any) -> Settings:
    return make_settings(**{f"terms_{name}": value for name, value in given.items()})


def revision() -> int:
    return Revision.objects.get(id=1).number


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was reported since the last call."""
    found = [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]
    caplog.clear()
    return found


def current() -> Terms | None:
    return Terms.objects.filter(is_current=True).first()


def test_apps_are_made_in_the_order_given() -> None:
    seed(
        apps(
            second_one=app(
                title="Second",
                description="Words.",
                env={"A": MARK, "B": ""},
                pullPolicy="always",
                port=8080,
            ),
            a=app(),
        )
    )
    one, other = App.objects.all()
    assert (one.name, one.title, one.description) == ("second-one", "Second", "Words.")
    assert (one.image, one.pull_policy, one.port) == (APP_IMAGE, "always", 8080)
    assert (one.enabled, one.allow_root, one.is_from_environment) == (True, False, True)
    assert (other.name, other.env, other.port, other.pull_policy) == ("a", {}, None, "missing")
    assert MARK not in json.dumps(one.env)
    assert sealed.open_values(one.env) == {"A": MARK, "B": ""}
    assert list(read_offer(make_settings()).apps) == ["second-one", "a"]


def test_the_same_boot_again_changes_nothing(tmp_path: Path) -> None:
    config = make_settings(
        apps={"a": app(env={"A": MARK}), "b": app()}, terms_body="Be kind.\r\n", image="node:1"
    )
    seed(config)
    rows = [list(model.objects.order_by("id").values()) for model in (App, Terms, BaseImage)]
    number = revision()
    assert number > 0
    seed(config)
    assert revision() == number
    again = [list(model.objects.order_by("id").values()) for model in (App, Terms, BaseImage)]
    assert again == rows


def test_nothing_given_is_no_change_at_all() -> None:
    seed(make_settings())
    number = revision()
    seed(make_settings())
    assert revision() == number
    assert not App.objects.exists()
    assert not Terms.objects.exists()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"image": "node:2"}, "image"),
        ({"title": "New"}, "title"),
        ({"description": "New"}, "description"),
        ({"pullPolicy": "never"}, "pull_policy"),
        ({"port": 81}, "port"),
    ],
)
def test_what_differs_is_updated(change: dict[str, Any], field: str) -> None:
    seed(apps(a=app(port=80)))
    before = App.objects.values().get()
    seed(apps(a=app(**{"port": 80, **change})))
    after = App.objects.values().get()
    assert {name for name in after if after[name] != before[name]} == {field}
    assert after[field] == next(iter(change.values()))


def test_a_new_order_is_the_catalogs() -> None:
    seed(apps(a=app(), b=app()))
    seed(apps(b=app(), a=app()))
    assert [row.name for row in App.objects.all()] == ["b", "a"]


def test_env_is_sealed_anew_only_where_it_differs() -> None:
    seed(apps(a=app(env={"A": "1", "B": "2"})))
    before = App.objects.get().env
    seed(apps(a=app(env={"B": "2", "A": "1"})))
    assert App.objects.get().env == before
    seed(apps(a=app(env={"A": "1", "B": "3"})))
    assert sealed.open_values(App.objects.get().env) == {"A": "1", "B": "3"}
    seed(apps(a=app()))
    assert App.objects.get().env == {}


def test_env_whose_key_is_gone_is_sealed_with_the_new_one(settings: Any) -> None:
    config = apps(a=app(env={"A": MARK}))
    seed(config)
    settings.SECRET_KEY = "another-key-that-is-long-enough-for-a-test"
    seed(config)
    assert sealed.open_values(App.objects.get().env) == {"A": MARK}


def test_env_under_a_key_that_is_a_fallback_now_is_left(settings: Any) -> None:
    config = apps(a=app(env={"A": MARK}))
    seed(config)
    before = App.objects.get().env
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another-key-that-is-long-enough-for-a-test"
    seed(config)
    assert App.objects.get().env == before


def test_an_app_that_is_not_given_any_more_goes_and_operators_own_stay() -> None:
    App.objects.create(name="own", image="node:1")
    seed(apps(a=app(), b=app()))
    seed(apps(b=app()))
    assert sorted(row.name for row in App.objects.all()) == ["b", "own"]
    seed(make_settings())
    assert [row.name for row in App.objects.all()] == ["own"]


def test_what_an_operator_could_not_have_changed_is_put_right() -> None:
    seed(apps(a=app()))
    App.objects.update(enabled=False, allow_root=True, position=9)
    seed(apps(a=app()))
    row = App.objects.get()
    assert (row.enabled, row.allow_root, row.position) == (True, False, 0)


def test_an_operators_own_app_is_reported_and_not_overwritten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    App.objects.create(
        name="a", image="node:1", title="Mine", env={"OWN": sealed.seal_value("x")}, enabled=False
    )
    before = App.objects.values().get()
    config = apps(a=app(env={"A": MARK}, title="Theirs"), b=app())
    seed(config)
    own = App.objects.values().get(name="a")
    assert own == {**before, "shadows_environment": True}
    assert App.objects.get(name="b").is_from_environment
    (report,) = warnings(caplog)
    assert "RUNNER_APPS gives an app a," in report
    assert MARK not in report
    # Reported at each boot, written once.
    number = revision()
    seed(config)
    assert len(warnings(caplog)) == 1
    assert revision() == number


def test_the_mark_goes_with_what_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    App.objects.create(name="a", image="node:1")
    seed(apps(a=app()))
    assert App.objects.get().shadows_environment
    caplog.clear()
    seed(make_settings())
    assert not App.objects.get().shadows_environment
    assert warnings(caplog) == []


def test_once_the_operators_own_is_gone_the_environments_is_made() -> None:
    App.objects.create(name="a", image="node:1")
    seed(apps(a=app()))
    App.objects.all().delete()
    seed(apps(a=app()))
    row = App.objects.get()
    assert (row.image, row.is_from_environment) == (APP_IMAGE, True)
    assert not row.shadows_environment


def test_terms_become_current_with_a_version_of_their_text() -> None:
    seed(seeded_terms(body="Be kind.\r\nAlways.\r"))
    row = current()
    assert row is not None
    assert (row.title, row.body) == ("Usage agreement", "Be kind.\nAlways.\n")
    assert row.version == derive_version("Be kind.\nAlways.\n")
    assert row.is_from_environment


def test_title_and_version_are_those_given() -> None:
    seed(seeded_terms(body="Be kind.", title="House rules", version="2026-11"))
    row = current()
    assert row is not None
    assert (row.title, row.version) == ("House rules", "2026-11")
    seed(seeded_terms(body="Be kind.", title="Rules of the house", version="2026-11"))
    (row,) = Terms.objects.all()
    assert (row.title, row.is_current) == ("Rules of the house", True)


def test_a_file_wins_over_a_body(tmp_path: Path) -> None:
    file = tmp_path / "terms.md"
    file.write_bytes("\ufeffFrom the file: é\r\n".encode())
    seed(seeded_terms(file=file, body="From the variable."))
    assert [row.body for row in Terms.objects.all()] == ["From the file: é\n"]


def test_an_empty_text_is_none(tmp_path: Path) -> None:
    file = tmp_path / "terms.md"
    file.write_text(" \r\n\n")
    # It wins over the body, too.
    seed(seeded_terms(file=file, body="From the variable."))
    assert not Terms.objects.exists()


@pytest.mark.parametrize("kind", ["missing", "folder", "latin-1", "large", "pipe", "NUL", "locked"])
def test_a_file_that_cannot_be_used_refuses_the_boot(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "marked-file"
    match kind:
        case "folder":
            path.mkdir()
        case "latin-1":
            path.write_bytes("é".encode("latin-1"))
        case "large":
            path.write_bytes(b"x" * (MAX_BODY_LENGTH + 1))
        case "pipe":
            os.mkfifo(path)
        case "NUL":
            path.write_bytes(b"a\0b")
        case "locked":
            # A folder that is none: what root may read is nobody's to lock.
            (tmp_path / "file").touch()
            path = tmp_path / "file" / "marked-file"
    with pytest.raises(ConfigError, match=r"^RUNNER_TERMS_FILE: ") as caught:
        seed(make_settings(apps={"a": app()}, terms_file=path))
    assert "marked" not in str(caught.value)
    # Nothing was done by halves.
    assert not App.objects.exists()


def test_the_largest_file_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "terms.md"
    file.write_bytes(b"\xef\xbb\xbf" + "\U0001f642".encode() * MAX_BODY_LENGTH)
    seed(seeded_terms(file=file))
    assert Terms.objects.get().is_current
    file.write_bytes(b"\r\n" * (MAX_BODY_LENGTH - 1) + b"x")
    seed(seeded_terms(file=file))
    assert len(Terms.objects.get(is_current=True).body) == MAX_BODY_LENGTH


@pytest.mark.parametrize("beyond", [1, 10 * MAX_BODY_LENGTH])
def test_a_text_that_is_too_long_refuses_the_boot(tmp_path: Path, beyond: int) -> None:
    text = "x" * (MAX_BODY_LENGTH + beyond)
    file = tmp_path / "terms.md"
    file.write_text(text)
    sentence = "must be at most 100000 characters long"
    with pytest.raises(ConfigError, match=f"^RUNNER_TERMS_FILE: {sentence}$"):
        seed(seeded_terms(file=file))
    with pytest.raises(ConfigError, match=f"^RUNNER_TERMS_BODY: {sentence}$"):
        seed(seeded_terms(body=text))
    assert not Terms.objects.exists()


@pytest.mark.parametrize(
    "given", [{"body": "Be kind.", "title": "New title"}, {}], ids=["title", "none any more"]
)
def test_an_acceptance_during_a_boot_is_kept(given: dict[str, str]) -> None:
    seed(seeded_terms(body="Be kind."))
    version = Terms.objects.get().version

    def accept(**_: object) -> None:
        count_acceptance(version)

    pre_save.connect(accept, sender=Terms)
    try:
        seed(seeded_terms(**given))
    finally:
        pre_save.disconnect(accept, sender=Terms)
    assert Terms.objects.get().accepted_count == 1


def test_a_changed_text_is_a_new_version_and_the_old_one_stays_in_the_history() -> None:
    seed(seeded_terms(body="First."))
    Terms.objects.update(accepted_count=7)
    seed(seeded_terms(body="Second."))
    first, second = Terms.objects.order_by("id")
    assert (first.body, first.is_current, first.is_from_environment) == ("First.", False, False)
    assert first.accepted_count == 7
    assert (second.body, second.is_current, second.is_from_environment) == ("Second.", True, True)
    # And back: what was accepted then counts again.
    seed(seeded_terms(body="First."))
    first, second = Terms.objects.order_by("id")
    assert (first.is_current, first.is_from_environment, first.accepted_count) == (True, True, 7)
    assert (second.is_current, second.is_from_environment) == (False, False)


def test_a_changed_version_of_the_same_text_is_a_new_one() -> None:
    seed(seeded_terms(body="Same.", version="1"))
    seed(seeded_terms(body="Same.", version="2"))
    assert [(row.version, row.is_current) for row in Terms.objects.order_by("id")] == [
        ("1", False),
        ("2", True),
    ]


def test_terms_that_are_not_given_any_more_are_not_current_any_more() -> None:
    seed(seeded_terms(body="First."))
    seed(make_settings())
    row = Terms.objects.get()
    assert (row.is_current, row.is_from_environment) == (False, False)
    number = revision()
    seed(make_settings())
    assert revision() == number


@pytest.mark.parametrize("own", [True, False])
def test_a_version_that_is_of_another_text_refuses_the_boot(own: bool) -> None:
    if own:
        Terms.objects.create(version="1", body="First.")
    else:
        seed(seeded_terms(body="First.", version="1"))
    before = list(Terms.objects.values())
    with pytest.raises(ConfigError, match=r"^RUNNER_TERMS_VERSION: ") as caught:
        seed(make_settings(terms_body="Second.", terms_version="1", apps={"a": app()}))
    assert "Second" not in str(caught.value)
    assert list(Terms.objects.values()) == before
    assert not App.objects.exists()


def test_operators_own_current_terms_stay_current_and_it_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = Terms.objects.create(version="own-1", body="Ours.", is_current=True)
    config = seeded_terms(body=f"Theirs. {MARK}", version="env-1")
    seed(config)
    assert current() == own
    row = Terms.objects.get(version="env-1")
    assert (row.is_from_environment, row.is_current) == (True, False)
    (report,) = warnings(caplog)
    assert "env-1" in report
    assert "own-1" in report
    assert MARK not in report
    number = revision()
    seed(config)
    assert revision() == number
    # Once the operator has withdrawn them, the environment's turn has come.
    Terms.objects.filter(version="own-1").update(is_current=False)
    seed(config)
    assert current() == row


def test_terms_published_after_the_environments_stay_current(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seed(seeded_terms(body="Theirs."))
    Terms.objects.update(is_current=False)
    own = Terms.objects.create(version="own-1", body="Ours.", is_current=True)
    seed(seeded_terms(body="Theirs, changed."))
    assert current() == own
    assert Terms.objects.filter(is_from_environment=True).count() == 1
    assert len(warnings(caplog)) == 1


def test_operators_own_terms_of_the_same_text_stand_for_the_environments(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Terms.objects.create(
        version=derive_version("Same."), body="Same.", title="Ours", is_current=True
    )
    before = list(Terms.objects.values())
    seed(seeded_terms(body="Same."))
    assert list(Terms.objects.values()) == before
    assert warnings(caplog) == []


def test_the_default_image_has_the_one_row_of_the_environment() -> None:
    seed(make_settings(image="node:1"))
    row = BaseImage.objects.get()
    assert (row.reference, row.is_from_environment, row.enabled) == ("node:1", True, True)
    BaseImage.objects.create(reference="node:2", position=-1)
    seed(make_settings(image="node:3"))
    first, second = BaseImage.objects.all()
    assert (first.reference, first.pk) == ("node:3", row.pk)
    assert (second.reference, second.is_from_environment) == ("node:2", False)


@pytest.mark.parametrize(
    "spelling", ["telorun/node:latest-slim", "docker.io/telorun/node:latest-slim"]
)
def test_an_operators_own_entry_of_the_default_image_stands_for_it(
    spelling: str, caplog: pytest.LogCaptureFixture
) -> None:
    seed(make_settings(image="node:1"))
    BaseImage.objects.create(reference=spelling, enabled=False, position=5)
    config = make_settings(image=IMAGE)
    seed(config)
    row = BaseImage.objects.get()
    assert (row.reference, row.enabled, row.position) == (spelling, False, 5)
    assert not row.is_from_environment
    assert read_offer(config).images == (IMAGE,)
    (report,) = warnings(caplog)
    assert spelling in report
    number = revision()
    seed(config)
    assert revision() == number
    # Without it, the environment's row is made again.
    BaseImage.objects.all().delete()
    seed(config)
    assert BaseImage.objects.get().is_from_environment


def test_a_row_that_names_no_image_is_in_nobodys_way() -> None:
    BaseImage.objects.create(reference="NO image")
    seed(make_settings())
    assert BaseImage.objects.get(is_from_environment=True).reference == IMAGE


def test_no_value_of_env_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    App.objects.create(name="own", image="node:1")
    seed(apps(a=app(env={"A": MARK}), own=app(env={"A": MARK})))
    assert caplog.records
    assert MARK not in caplog.text


@pytest.mark.parametrize("is_first", [True, False])
def test_two_processes_that_boot_at_once_make_everything_once(is_first: bool) -> None:
    config = make_settings(
        apps={name: app(env={"A": MARK}) for name in "abc"}, terms_body="Be kind.", image="node:1"
    )
    if not is_first:
        seed(make_settings(image="node:0"))
    barrier, failures = Barrier(2), []

    def boot() -> None:
        try:
            barrier.wait(10)
            seed(config)
        except BaseException as exc:
            failures.append(exc)
        finally:
            connection.close()

    threads = [Thread(target=boot) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert App.objects.count() == 3
    assert Terms.objects.count() == BaseImage.objects.count() == 1
